#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/exec/block_context.hpp>

#include <cstddef>
#include <cstdint>
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

/// One row to a block.
template <class Real>
struct squared_norms_kernel {
    static constexpr int threads = norm_partial_sums;
    struct shared_type {
        double sums[norm_partial_sums];
    };

    const Real* values;
    std::size_t count;
    double* norms;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t row = ctx.block().x;
        ctx.each([&](int t) {
            ctx.shared().sums[t] =
                partial_sum_of_squares(values + row * count, count, static_cast<std::size_t>(t));
        });
        for (int half = norm_partial_sums / 2; half >= 1; half /= 2) {
            ctx.each([&](int t) {
                if (t < half) {
                    ctx.shared().sums[t] += ctx.shared().sums[t + half];
                }
            });
        }
        ctx.last([&](int t) {
            if (t == 0) {
                norms[row] = ctx.shared().sums[0];
            }
        });
    }
};

}  // namespace detail

/// The sum of the squares of the values, in an order that block kernels share, so that both get the same
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

/// norms[r] = sum_of_squares of row r, for `count` rows of d values each, with the same bits. One launch.
/// @param values [count][d], norms [count]: in the memory of `where`
template <class Where, class Real>
void squared_norms_blocks(const Where& where, const Real* values, std::size_t d, std::size_t count,
                          double* norms) {
    if (count != 0) {
        where.launch(detail::squared_norms_kernel<Real>{values, d, norms},
                     {static_cast<std::uint32_t>(count)});
    }
}

}  // namespace tensafe::encoding
