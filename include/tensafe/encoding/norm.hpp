#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>

#include <cstddef>
#include <span>

namespace tensafe::encoding {

namespace detail {

inline constexpr int norm_partial_sums = 256;

/// Partial sum t: the squares of entries t, t + 256, ..., in this order.
template <class Real>
TENSAFE_HOST_DEVICE TENSAFE_INLINE double partial_sum_of_squares(const Real* values, std::size_t count,
                                                                 std::size_t t) noexcept {
    double sum = 0;
    for (std::size_t k = t; k < count; k += norm_partial_sums) {
        const auto x = static_cast<double>(values[k]);
        sum += arith::rounded_product(x, x);
    }
    return sum;
}

}  // namespace detail

/// The sum of the squares of the values, in an order that GPU kernels share, so that both get the same
/// bits: 256 partial sums, where the square of entry k goes to partial sum k mod 256, k ascending, each
/// square rounded; then partial sum t takes up partial sum t + h for h = 128, 64, ..., 1 and all t < h. NaN,
/// infinity and overflow spread as in any sum: the caller's to check.
template <class Real>
double sum_of_squares(std::span<const Real> values) noexcept {
    double sums[detail::norm_partial_sums];
    for (std::size_t t = 0; t < detail::norm_partial_sums; ++t) {
        sums[t] = detail::partial_sum_of_squares(values.data(), values.size(), t);
    }
    for (std::size_t half = detail::norm_partial_sums / 2; half >= 1; half /= 2) {
        for (std::size_t t = 0; t < half; ++t) {
            sums[t] += sums[t + half];
        }
    }
    return sums[0];
}

}  // namespace tensafe::encoding
