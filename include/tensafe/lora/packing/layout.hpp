#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/encoding/norm.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/budget.hpp>
#include <tensafe/lora/packing/protection.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

namespace tensafe::lora {

/// Where everything stands when a rank x d matrix is packed for a parameter set: public, and all that a
/// client needs to know of a server. A plain value type with the members rank, d and row_norm (at least the
/// Euclidean norm of every row of A); everything else follows from these. One specialisation for each
/// packing.
///
/// `of(rank, d, row_norm)` makes it, `check()` checks one that came from somebody else; both throw
/// shape_error or parameter_error.
template <ckks::parameter_set P, class Packing, class Protection>
struct layout;

template <int Rows>
struct coefficient_tiles;

namespace detail {

inline constexpr std::size_t largest_dimension = std::size_t{1} << 24;

constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) noexcept {
    return a / b + (a % b != 0 ? 1 : 0);
}

constexpr void check_shape(std::size_t rank, std::size_t d, double row_norm) {
    if (rank == 0 || d == 0 || rank > largest_dimension || d > largest_dimension) {
        throw shape_error("layout: got a " + std::to_string(rank) + " x " + std::to_string(d) +
                          " matrix, expected from 1 to 2^24 rows and columns");
    }
    // Answers are multiplied by it: its square must be finite.
    if (!(row_norm >= 0 && row_norm <= 0x1p100)) {
        throw parameter_error("layout: got " + std::to_string(row_norm) +
                              " for the largest norm of a row, expected a number from 0 to 2^100");
    }
}

/// The largest Euclidean norm of a row.
/// @throws shape_error unless the matrix has rows * columns values; encoding_error, naming row and column,
///         for an entry that is NaN or infinite
inline double largest_row_norm(const matrix& a) {
    a.check("server");
    double largest = 0;
    for (std::size_t r = 0; r < a.rows; ++r) {
        double sum = 0;
        for (std::size_t k = 0; k < a.columns; ++k) {
            const auto x = static_cast<double>(a.row(r)[k]);
            if (!std::isfinite(x)) {
                throw encoding_error("server: row " + std::to_string(r) + ", column " + std::to_string(k) +
                                     " of the matrix is " + (std::isnan(x) ? "not a number" : "infinite") +
                                     ", expected a finite number");
            }
            sum += x * x;
        }
        largest = std::fmax(largest, std::sqrt(sum));
    }
    return largest;
}

/// The largest row norm as it may be published: rounded up to ten bits, so that it says little about A, and
/// nothing if the rows are balanced.
inline double public_row_norm(const matrix& a) {
    const double norm = largest_row_norm(a);
    int exponent = 0;
    const double mantissa = std::frexp(norm * (1 - 0x1p-20), &exponent);  // float norms of 1 stay 1
    return norm > 0 ? std::ldexp(std::ceil(mantissa * 0x1p10), exponent - 10) : 0;
}

/// Norm of a hidden state of d entries.
/// @throws shape_error unless h.size() == d; encoding_error, naming the entry, for NaN and infinity, or if
///         the norm passes the range of double
template <class Real>
double norm_of_state(std::span<const Real> h, std::size_t d) {
    if (h.size() != d) {
        throw shape_error("client::encrypt: got a hidden state of " + std::to_string(h.size()) +
                          " entries, expected " + std::to_string(d));
    }
    const double sum = encoding::sum_of_squares(h);
    if (std::isfinite(sum)) {
        return std::sqrt(sum);
    }
    for (std::size_t t = 0; t < h.size(); ++t) {
        const auto x = static_cast<double>(h[t]);
        if (!std::isfinite(x)) {
            throw encoding_error("client::encrypt: entry " + std::to_string(t) + " of the hidden state is " +
                                 (std::isnan(x) ? "not a number" : "infinite") +
                                 ", expected a finite number");
        }
    }
    throw encoding_error("client::encrypt: the norm of the hidden state passes the range of double");
}

/// The scale at which a state of this norm fills the range: the largest encoded norm over the norm.
/// Zero and the smallest norms get a large finite one.
inline double scale_for(double largest_encoded_norm, double state_norm) noexcept {
    // A little less, for what public_row_norm leaves off and for roundings in double precision.
    return largest_encoded_norm * (1 - 0x1p-19) / std::fmax(state_norm, 0x1p-500);
}

}  // namespace detail

}  // namespace tensafe::lora
