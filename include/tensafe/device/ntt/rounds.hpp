#pragma once

#include <tensafe/arith/within.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/ntt/plan.hpp>

#include <cstddef>
#include <cstdint>

// What one thread does between two exchanges: several stages on values that it holds in registers. Bounds are
// template arguments, in units of q / 256; docs/design/device.md follows them.

namespace tensafe::ntt::detail {

/// The bound after `Stages` forward stages on values of bound `Bound`. In each stage the operand that is not
/// multiplied is reduced if its sum with a product would pass the limit.
template <class Policy>
TENSAFE_HOST_DEVICE constexpr int kept_bound(int bound) noexcept {
    return bound + Policy::product(bound) <= Policy::limit ? bound : Policy::reduced;
}
template <class Policy>
TENSAFE_HOST_DEVICE constexpr int forward_bound(int bound, int stages) noexcept {
    for (int i = 0; i < stages; ++i) {
        bound = kept_bound<Policy>(bound) + Policy::product(bound);
    }
    return bound;
}

/// Which values an inverse round reduces, and the bound of its results: 2^Radix values of one bound.
struct inverse_bounds {
    std::uint32_t reduced_before[5] = {};  ///< by stage, counted from the first of the forward transform
    int largest[5] = {};                   ///< of the operands of that stage
    std::uint32_t reduced_at_end = 0;
    int result = 0;
};
template <class Policy>
TENSAFE_HOST_DEVICE constexpr inverse_bounds follow_inverse(int radix, int bound, int at_end) noexcept {
    inverse_bounds found;
    int bounds[32] = {};
    const int count = 1 << radix;
    for (int v = 0; v < count; ++v) {
        bounds[v] = bound;
    }
    const auto reduce_above = [&](int allowed) {
        std::uint32_t mask = 0;
        for (int v = 0; v < count; ++v) {
            if (bounds[v] > allowed) {
                mask |= std::uint32_t{1} << v;
                bounds[v] = Policy::reduced;
            }
        }
        return mask;
    };
    const auto largest = [&] {
        int result = 0;
        for (int v = 0; v < count; ++v) {
            result = bounds[v] > result ? bounds[v] : result;
        }
        return result;
    };
    for (int stage = radix - 1; stage >= 0; --stage) {
        found.reduced_before[stage] = reduce_above(Policy::limit / 2);
        found.largest[stage] = largest();
        const int half = 1 << (radix - 1 - stage);
        for (int v = 0; v < count; ++v) {
            if ((v & half) == 0) {
                const int sum = bounds[v] + bounds[v + half];
                bounds[v] = sum;
                bounds[v + half] = Policy::product(sum);
            }
        }
    }
    found.reduced_at_end = reduce_above(at_end);
    found.result = largest();
    return found;
}

/// Above this, values are reduced at the end of an inverse round: four of them can be added then.
template <class Policy>
inline constexpr int inverse_target = Policy::limit / 4;

/// Forward stages `First` .. `First + Radix - 1` on 2^Radix values of each of `Groups` groups; group g is in
/// block `blocks[g]` of stage First. Value v of group g is values[g << Radix | v].
template <class Policy, int LogN, int First, int Radix, int Groups, int Bound, int Stage = 0>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void forward_round(typename Policy::representation* values,
                                                      const arith::word* table, const std::size_t* blocks) {
    if constexpr (Stage < Radix) {
        constexpr int kept = kept_bound<Policy>(Bound);
        constexpr int half = 1 << (Radix - 1 - Stage);
        TENSAFE_UNROLL
        for (int node = 0; node < 1 << Stage; ++node) {
            TENSAFE_UNROLL
            for (int g = 0; g < Groups; ++g) {
                const auto w = Policy::factor_at(
                    table, factor_position<LogN>(First + Stage,
                                                 (blocks[g] << Stage) + static_cast<std::size_t>(node)));
                TENSAFE_UNROLL
                for (int u = 0; u < half; ++u) {
                    auto& a = values[(g << Radix) + 2 * node * half + u];
                    auto& b = values[(g << Radix) + (2 * node + 1) * half + u];
                    arith::within<Policy, kept> x{a};
                    if constexpr (kept != Bound) {
                        x = {Policy::reduce(arith::within<Policy, Bound>{a}).value};
                    }
                    const auto product = Policy::multiply(arith::within<Policy, Bound>{b}, w);
                    a = (x + product).value;
                    b = (x - product).value;
                }
            }
        }
        forward_round<Policy, LogN, First, Radix, Groups, kept + Policy::product(Bound), Stage + 1>(
            values, table, blocks);
    }
}

/// (x + y, (x - y) w), one or both operands reduced first.
template <class Policy, int Bound>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void inverse_step(typename Policy::representation& a,
                                                     typename Policy::representation& b,
                                                     typename Policy::factor w, bool reduce_a,
                                                     bool reduce_b) noexcept {
    using any = arith::within<Policy, Policy::limit>;
    if (reduce_a) {
        a = Policy::reduce(any{a}).value;
    }
    if (reduce_b) {
        b = Policy::reduce(any{b}).value;
    }
    const arith::within<Policy, Bound> x{a};
    const arith::within<Policy, Bound> y{b};
    a = (x + y).value;
    b = Policy::multiply(x - y, w).value;
}

/// The same stages of the inverse, the last first.
///
/// @param scaled  null; or block_plan_view::scaled_inverse, where these are the last stages of the transform:
///                whatever has not met a factor times 1/N does so, which takes one more product in all
template <class Policy, int LogN, int First, int Radix, int Groups, int Bound, bool Scaled,
          int Stage = Radix - 1>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void inverse_round(typename Policy::representation* values,
                                                      const arith::word* table, const arith::word* scaled,
                                                      const std::size_t* blocks) {
    static_assert(!Scaled || (First == 0 && Radix <= 4), "the table of scaled factors has sixteen");
    constexpr inverse_bounds bounds = follow_inverse<Policy>(Radix, Bound, inverse_target<Policy>);
    if constexpr (Stage >= 0) {
        constexpr int half = 1 << (Radix - 1 - Stage);
        constexpr int operand = bounds.largest[Stage];
        constexpr std::uint32_t reduced = bounds.reduced_before[Stage];
        TENSAFE_UNROLL
        for (int node = 0; node < 1 << Stage; ++node) {
            TENSAFE_UNROLL
            for (int g = 0; g < Groups; ++g) {
                const auto number = static_cast<std::size_t>(node);
                const auto plain = Policy::factor_at(
                    table, factor_position<LogN>(First + Stage, (blocks[g] << Stage) + number));
                auto first = plain;
                if constexpr (Scaled) {
                    // Values that are sums alone: number 0 of each node.
                    first = Policy::factor_at(scaled, (std::size_t{1} << Stage) + number);
                }
                TENSAFE_UNROLL
                for (int u = 0; u < half; ++u) {
                    const int at = 2 * node * half + u;
                    inverse_step<Policy, operand>(values[(g << Radix) + at], values[(g << Radix) + at + half],
                                                  u == 0 ? first : plain, (reduced >> at & 1) != 0,
                                                  (reduced >> (at + half) & 1) != 0);
                }
            }
        }
        inverse_round<Policy, LogN, First, Radix, Groups, Bound, Scaled, Stage - 1>(values, table, scaled,
                                                                                    blocks);
    } else if constexpr (Scaled) {
        const auto degree_inverse = Policy::factor_at(scaled, 0);
        TENSAFE_UNROLL
        for (int g = 0; g < Groups; ++g) {
            auto& sum = values[g << Radix];
            sum = Policy::multiply(arith::within<Policy, Policy::limit>{sum}, degree_inverse).value;
        }
    } else {
        TENSAFE_UNROLL
        for (int v = 0; v < Groups << Radix; ++v) {
            if ((bounds.reduced_at_end >> (v & ((1 << Radix) - 1)) & 1) != 0) {
                values[v] = Policy::reduce(arith::within<Policy, Policy::limit>{values[v]}).value;
            }
        }
    }
}

}  // namespace tensafe::ntt::detail
