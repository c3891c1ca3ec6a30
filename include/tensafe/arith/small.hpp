#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>

#include <cstdint>

namespace tensafe::arith {

/// A small signed integer modulo Q, in [0, Q). No branch: errors and keys are secret.  @pre |small| < Q
template <word Q>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr word residue_of_small(std::int8_t small) noexcept {
    const auto x = static_cast<std::int64_t>(small);
    // The sign, as a mask, selects Q.
    return static_cast<word>(x) + (Q & static_cast<word>(x >> 63));
}

/// x + small modulo Q, in [0, Q).  @pre x < Q, |small| < Q
template <word Q>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr word plus_small(word x, std::int8_t small) noexcept {
    return subtract_if_not_below(x + residue_of_small<Q>(small), Q);
}

}  // namespace tensafe::arith
