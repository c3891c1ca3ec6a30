#pragma once

#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/lora/packing/layout.hpp>
#include <tensafe/lora/packing/messages.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::lora {

/// The packing of h into the coefficients of polynomials, N/Rows entries in each; a plaintext holds `Rows`
/// rows of A, reversed, side by side. Row k times the block stands in coefficient k * N/Rows of the product;
/// products of several blocks are added up. Nothing else is sent, or reaches these positions:
/// docs/design/lora.md.
template <int Rows>
struct coefficient_tiles {
    static_assert(Rows >= 1 && std::has_single_bit(static_cast<unsigned>(Rows)),
                  "lora::coefficient_tiles: the number of rows must be a power of two");
    static constexpr int rows = Rows;
};

namespace detail {

/// Rows that share checksum rows, and how many of these they have.
inline constexpr std::size_t rows_per_checksum = 32;
inline constexpr std::size_t checksums_per_group = 4;

/// The weight of row r of a group in its checksum row k: a fixed pseudo-random number of magnitude 0.08 to
/// 0.4.
/// What one or two rows lose is then never near a multiple of Q in all four sums; a test goes through them.
constexpr double checksum_weight(std::size_t r, std::size_t k) noexcept {
    // splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    constexpr std::uint64_t start = 86704;  // found by trying: what is said above holds for few
    std::uint64_t x = start + 0x9e3779b97f4a7c15U * (checksums_per_group * r + k + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    x ^= x >> 31;
    const double magnitude = 0.08 + 0.32 * static_cast<double>(x >> 12) * 0x1p-52;
    return (x & 1) == 0 ? magnitude : -magnitude;
}

}  // namespace detail

template <ckks::parameter_set P, int Rows, class Protection>
struct layout<P, coefficient_tiles<Rows>, Protection>
    : detail::layout_base<layout<P, coefficient_tiles<Rows>, Protection>> {
    static_assert(coefficient_tiles<Rows>::rows == Rows);  // completes the tag, which checks the number
    static_assert(static_cast<std::size_t>(Rows) <= P::degree,
                  "lora::coefficient_tiles: there are more rows than coefficients");
    static constexpr int level = request_level<P>;
    static constexpr bool can_overflow = Protection::range::can_overflow;
    /// The entries of h in one ciphertext.
    static constexpr std::size_t block = P::degree / static_cast<std::size_t>(Rows);
    static constexpr auto rows = static_cast<std::size_t>(Rows);

    using detail::layout_base<layout>::rank;
    using detail::layout_base<layout>::d;
    using detail::layout_base<layout>::row_norm;

    static constexpr std::size_t entries_per_input() noexcept { return block; }
    /// The ciphertexts of a request.
    constexpr std::size_t inputs() const noexcept { return detail::ceil_divide(d, block); }
    /// The products in a reply, those of checksum rows included.
    constexpr std::size_t outputs() const noexcept {
        return row_outputs() + checks(rank) / checksums_per_output;
    }
    /// The subring's degree, as a power of two, of which a product's coefficients count.
    static constexpr int subring_log_n() noexcept { return std::countr_zero(rows); }

    static constexpr reply_geometry geometry(std::size_t rank, std::size_t d) noexcept {
        const auto inputs = static_cast<double>(detail::ceil_divide(d, block));
        return {rank, d, static_cast<double>(Rows), inputs * static_cast<double>(P::degree), 1, checks(rank)};
    }
    /// The budget of replies of this layout.  @throws parameter_error as budget_for
    constexpr reply_budget budget() const { return budget_for<P, Protection>(geometry(rank, d)); }

    /// The coefficients of c0 that travel in output o: the first ones of the multiples of N/Rows.
    constexpr std::size_t targets(std::size_t o) const noexcept {
        return o < row_outputs() ? std::min(rows, rank - o * rows) : checksums_per_output;
    }
    constexpr int reply_bits(const reply_budget& budget, std::size_t o) const noexcept {
        return o < row_outputs() ? budget.reply_bits : budget.checksum_bits;
    }
    constexpr int noise_bits(const reply_budget& budget, std::size_t o) const noexcept {
        return o < row_outputs() ? budget.noise_bits : 0;  // what checksum rows say stays with the client
    }

    /// The plaintext of output o that meets input i: entry t of the k-th row's block in the coefficient of
    /// X^(k*N/Rows - t), where X^-t = -X^(N-t).
    ckks::plaintext<P, rns::coefficient_form, level> encode_weights(const matrix& a,
                                                                    const reply_budget& budget, std::size_t o,
                                                                    std::size_t i) const {
        memory::secret_buffer<double> coefficients(P::degree);
        const std::size_t first = i * block;
        const std::size_t count = std::min(block, d - first);
        for (std::size_t k = 0; k < targets(o); ++k) {
            const auto place = [&](std::size_t t, double x) {
                if (t <= k * block) {
                    coefficients[k * block - t] = x;
                } else {
                    coefficients[P::degree - t] = -x;
                }
            };
            for (std::size_t t = 0; t < count; ++t) {
                place(t, o < row_outputs()
                             ? static_cast<double>(a.row(o * rows + k)[first + t])
                             : checksum_entry(a, (o - row_outputs()) * checksums_per_output + k, first + t));
            }
        }
        return ckks::encode_coefficients<P, level>(coefficients.span(), weight_scale(budget));
    }

    /// The integer that stands for entry t of row r of A, or of checksum row r - rank.
    std::int32_t integer_weight(const matrix& a, const reply_budget& budget, std::size_t r,
                                std::size_t t) const {
        const double entry = r < rank ? static_cast<double>(a.row(r)[t]) : checksum_entry(a, r - rank, t);
        return static_cast<std::int32_t>(std::round(entry * weight_scale(budget)));
    }

    /// Checks the checksum rows of a matrix.  @throws parameter_error if one is longer than it may be
    void check_matrix(const matrix& a) const {
        for (std::size_t j = 0; j < checks(rank); ++j) {
            double sum = 0;
            for (std::size_t t = 0; t < d; ++t) {
                const double x = checksum_entry(a, j, t);
                sum += x * x;
            }
            if (!(std::sqrt(sum) <= detail::checksum_norm * row_norm)) {
                throw parameter_error(
                    {"server: the rows of this matrix are too much alike for an average-case range: got a "
                     "checksum row of norm ",
                     std::sqrt(sum), ", expected at most ", detail::checksum_norm * row_norm,
                     "; use the range policy lora::worst_case"});
            }
        }
    }

    /// The scale of h for which no answer passes the range: none at all, or none of `factor` times its usual
    /// size.
    double message_scale(const reply_budget& budget, double state_norm) const noexcept {
        double norm = budget.range / budget.longest_row;
        if constexpr (can_overflow) {
            norm = std::fmax(norm, std::sqrt(static_cast<double>(d)) * budget.typical / budget.longest_row);
        }
        return detail::scale_for(norm, state_norm);
    }

    /// Encodes input i of the request for h into work.message.
    /// @param kept  the mask of detail::masked_norm
    template <class Real>
    void encode_message(std::span<const Real> h, std::size_t i, double scale, std::uint64_t kept,
                        message_workspace<P>& work) const {
        const std::size_t first = i * block;
        const std::span<double> coefficients = work.reals.span().first(std::min(block, d - first));
        for (std::size_t t = 0; t < coefficients.size(); ++t) {
            coefficients[t] = detail::masked(static_cast<double>(h[first + t]), kept);
        }
        encoding::encode_coefficients(coefficients, scale, work.message);
        memory::wipe(coefficients.data(), coefficients.size_bytes());
    }

    /// Collects A*h from the target coefficients of all outputs, `rows` for each.
    /// @throws range_exceeded_error if checksum rows show that an answer wrapped around
    void collect(const reply_budget& budget, const decryption_workspace<P>& work, double scale,
                 std::span<double> answers) const {
        const std::span<const double> coefficients = work.coefficients.span();
        if constexpr (can_overflow) {
            check_range(budget, coefficients);
        }
        const double unit = row_norm / (budget.weight_norm * scale);
        for (std::size_t r = 0; r < rank; ++r) {
            answers[r] = coefficients[r] * unit;
        }
    }

    /// The products that carry rows of A; those of checksum rows follow.
    constexpr std::size_t row_outputs() const noexcept { return detail::ceil_divide(rank, rows); }
    static constexpr std::size_t checksums_per_output = std::min(rows, detail::checksums_per_group);
    /// The number of checksum rows for `rank` rows.
    static constexpr std::size_t checks(std::size_t rank) noexcept {
        return can_overflow
                   ? detail::ceil_divide(rank, detail::rows_per_checksum) * detail::checksums_per_group
                   : 0;
    }

  private:
    /// Calls f(row, weight) for the rows that count in checksum row j.
    template <class F>
    void for_rows_of_check(std::size_t j, F f) const {
        const std::size_t first = j / detail::checksums_per_group * detail::rows_per_checksum;
        const std::size_t end = std::min(first + detail::rows_per_checksum, rank);
        for (std::size_t r = first; r < end; ++r) {
            f(r, detail::checksum_weight(r - first, j % detail::checksums_per_group));
        }
    }

    double checksum_entry(const matrix& a, std::size_t j, std::size_t t) const {
        double sum = 0;
        for_rows_of_check(
            j, [&](std::size_t r, double weight) { sum += weight * static_cast<double>(a.row(r)[t]); });
        return sum;
    }

    double weight_scale(const reply_budget& budget) const noexcept {
        return row_norm > 0 ? budget.weight_norm / row_norm : 1;
    }

    void check_range(const reply_budget& budget, std::span<const double> coefficients) const {
        bool fits = true;
        for (std::size_t j = 0; j < checks(rank); ++j) {
            double sum = 0;
            for_rows_of_check(j, [&](std::size_t r, double weight) { sum += weight * coefficients[r]; });
            const std::size_t o = row_outputs() + j / checksums_per_output;
            // A checksum row may wrap around itself: differences count modulo Q.
            const double multiples =
                (sum - coefficients[o * rows + j % checksums_per_output]) / budget.modulus;
            fits &= std::fabs(multiples - std::nearbyint(multiples)) < detail::checksum_tolerance;
        }
        require<range_exceeded_error>(
            fits, {"client::decrypt: an answer passed the average-case range of ", Protection::range::factor,
                   " times its usual size and wrapped around; encrypt this hidden state again with more "
                   "overflow margin, or use the range policy lora::worst_case"});
    }
};

}  // namespace tensafe::lora
