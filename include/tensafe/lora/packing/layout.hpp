#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/portable.hpp>
#include <tensafe/encoding/norm.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/budget.hpp>
#include <tensafe/lora/packing/protection.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace tensafe::lora {

/// The places of everything when a rank x d matrix is packed for a parameter set: public, and all that a
/// client needs to know of a server. A plain value, a detail::layout_base; one specialisation a packing.
template <ckks::parameter_set P, class Packing, class Protection>
struct layout;

template <int Rows>
struct coefficient_tiles;

namespace detail {

/// The most rows or columns. With std::size_t of 32 bits the bytes of two such dimensions just do not wrap.
inline constexpr std::size_t largest_dimension = sizeof(std::size_t) < 8 ? 0x7FFF : std::size_t{1} << 24;

constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) noexcept {
    return a / b + (a % b != 0 ? 1 : 0);
}

constexpr void check_shape(std::size_t rank, std::size_t d, double row_norm) {
    require<shape_error>(rank != 0 && d != 0 && rank <= largest_dimension && d <= largest_dimension,
                         {"layout: got a ", rank, " x ", d, " matrix, expected from 1 to ", largest_dimension,
                          " rows and columns"});
    require<parameter_error>(row_norm == 0 || (row_norm >= 0x1p-100 && row_norm <= 0x1p100),
                             {"layout: got ", row_norm,
                              " for the largest norm of a row, expected 0 or a number from 2^-100 to 2^100"});
}

/// The members that the layouts of all packings have; some state them anew.
template <class Layout>
struct layout_base {
    static constexpr bool can_overflow = false;
    std::size_t rank = 0;
    std::size_t d = 0;
    double row_norm = 0;  ///< at least the Euclidean norm of every row of A

    friend bool operator==(const layout_base&, const layout_base&) = default;

    /// Makes a checked layout.  @throws shape_error or parameter_error as check
    static Layout of(std::size_t rank, std::size_t d, double row_norm) {
        const Layout result{rank, d, row_norm};
        result.check();
        return result;
    }
    /// Checks a layout, which may come from somebody else.  @throws shape_error or parameter_error
    void check() const {
        check_shape(rank, d, row_norm);
        static_cast<void>(static_cast<const Layout&>(*this).budget());
    }

    /// Checks of a matrix that is to be packed so what its shape alone does not say.
    void check_matrix(const matrix&) const noexcept {}
    /// The bits of each coefficient of output o.
    constexpr int reply_bits(const reply_budget& budget, std::size_t) const noexcept {
        return budget.reply_bits;
    }
    /// The bits of each coefficient of output o that are rounded away.
    template <class Budget>
    constexpr int noise_bits(const Budget& budget, std::size_t) const noexcept {
        return budget.noise_bits;
    }
};

/// The largest Euclidean norm of a row.
/// @throws as matrix::check; encoding_error, naming row and column, for an entry that is NaN or infinite
inline double largest_row_norm(const matrix& a) {
    a.check("server");
    double largest = 0;
    for (std::size_t r = 0; r < a.rows; ++r) {
        const std::span<const float> row = a.row(r);
        const double norm = std::sqrt(encoding::sum_of_squares(row));
        if (!std::isfinite(norm)) {
            const auto bad =
                std::find_if_not(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
            throw encoding_error({"server: row ", r, ", column ", bad - row.begin(), " of the matrix is ",
                                  std::isnan(*bad) ? "not a number" : "infinite",
                                  ", expected a finite number"});
        }
        largest = std::fmax(largest, norm);
    }
    return largest;
}

/// The largest row norm, for the public: rounded up to ten bits, so that it says little about A.
inline double public_row_norm(const matrix& a) {
    const double norm = largest_row_norm(a);
    int exponent = 0;
    const double mantissa = std::frexp(norm * (1 - 0x1p-20), &exponent);  // float norms of 1 stay 1
    return norm > 0 ? std::ldexp(std::ceil(mantissa * 0x1p10), exponent - 10) : 0;
}

/// Returns x, or 0 where no bit of `kept` is set: no branch, and no arithmetic on what may be NaN.
inline double masked(double x, std::uint64_t kept) noexcept {
    return bit_cast<double>(bit_cast<std::uint64_t>(x) & kept);
}

/// The number nearest to x in [-bound, bound], up to a rounding of x or bound: no branch.
inline double clamped(double x, double bound) noexcept {
    return (std::fabs(x + bound) - std::fabs(x - bound)) / 2;
}

/// The norm of a hidden state; of one with NaN, infinity or a norm beyond double it is 0, and so is the mask
/// of the entries that are encrypted. Takes the same time for all.
struct masked_norm {
    double norm;
    std::uint64_t kept;  ///< all bits, or none

    /// Measures h.  @throws shape_error unless h has d entries
    template <class Real>
    masked_norm(std::span<const Real> h, std::size_t d) {
        require<shape_error>(h.size() == d,
                             {"encrypt: got a hidden state of ", h.size(), " entries, expected ", d});
        const double sum = encoding::sum_of_squares(h);
        kept = std::uint64_t{0} - static_cast<std::uint64_t>(sum <= std::numeric_limits<double>::max());
        __asm__("" : "+r"(kept));  // or compilers make branches of it again
        norm = std::sqrt(masked(sum, kept));
    }
};

// No time depends on a decrypted number because it is subnormal, whatever a server planted. An answer is an
// integer, or what the transform of slots leaves of integers, at least 1 or else 0; times row norm over scale
// and the norm of an integer row, at least 2^-100 2^-627 2^-35: 2^-762 or 0, with 53 bits, so a multiple of
// 2^-814. An entry of B is 0 or at least 2^-100, with 24 bits: their product is 0 or a multiple of 2^-914,
// and so is any sum of such. Times the scale, at least 2^-64, that is at least 2^-978; in mode blind an
// answer times 2^-256 at least 2^-1018. The least normal double is 2^-1022.

/// The least magnitude of what a server names and a client multiplies decrypted numbers with, beside 0.
inline constexpr double least_entry = 0x1p-100;
inline constexpr double least_scale = 0x1p-64;

/// Whether a client multiplies with this scale.
constexpr bool is_scale(double scale) noexcept {
    const double magnitude = scale < 0 ? -scale : scale;
    return magnitude == 0 || (magnitude >= least_scale && magnitude <= 1 / least_scale);
}

/// Refuses a state.  @throws encoding_error, naming the entry: for NaN, infinity, or a norm beyond double
template <class Real>
[[noreturn]] void refuse_state(std::span<const Real> h) {
    for (std::size_t t = 0; t < h.size(); ++t) {
        const auto x = static_cast<double>(h[t]);
        if (!std::isfinite(x)) {
            throw encoding_error({"encrypt: entry ", t, " of the hidden state is ",
                                  (std::isnan(x) ? "not a number" : "infinite"),
                                  ", expected a finite number"});
        }
    }
    throw encoding_error("encrypt: the norm of the hidden state passes the range of double");
}

/// The norm of a hidden state.  @throws shape_error unless h has d entries; encoding_error as refuse_state
template <class Real>
double norm_of_state(std::span<const Real> h, std::size_t d) {
    const masked_norm of(h, d);
    if (of.kept == 0) {
        refuse_state(h);
    }
    return of.norm;
}

/// The scale at which a state of this norm fills the range; a large finite one for norm 0.
inline double scale_for(double largest_encoded_norm, double state_norm) noexcept {
    // A little less, for what public_row_norm leaves off and for roundings in double precision.
    return largest_encoded_norm * (1 - 0x1p-19) / std::fmax(state_norm, 0x1p-500);
}

}  // namespace detail

}  // namespace tensafe::lora
