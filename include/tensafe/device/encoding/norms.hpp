#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/encoding/norm.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::encoding {

namespace detail {

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
