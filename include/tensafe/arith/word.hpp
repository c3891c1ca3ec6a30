#pragma once

#include <tensafe/core/macros.hpp>

#include <cstdint>

namespace tensafe::arith {

/// One machine word: every residue is stored in one.
using word = std::uint64_t;
/// The product of two words.
__extension__ typedef unsigned __int128 wide;

/// The upper word of a * b.
TENSAFE_HOST_DEVICE constexpr word mul_hi(word a, word b) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        return __umul64hi(a, b);
    }
#endif
    return static_cast<word>((static_cast<wide>(a) * b) >> 64);
}

/// The whole product a * b.
TENSAFE_HOST_DEVICE constexpr wide mul_wide(word a, word b) noexcept {
    return static_cast<wide>(a) * b;
}

TENSAFE_HOST_DEVICE constexpr word low_word(wide x) noexcept {
    return static_cast<word>(x);
}
TENSAFE_HOST_DEVICE constexpr word high_word(wide x) noexcept {
    return static_cast<word>(x >> 64);
}

/// x - c if that does not wrap, else x: one conditional subtraction without a branch.
TENSAFE_HOST_DEVICE constexpr word subtract_if_not_below(word x, word c) noexcept {
    const word difference = x - c;
    return difference < x ? difference : x;
}

}  // namespace tensafe::arith
