#pragma once

#include <tensafe/core/macros.hpp>

#include <cstdint>

/// Unrolls, on the device, the loop behind it over an array that must be in registers. Host compilers, which
/// would warn of the pragma, take the loop as it is.
#if defined(__CUDA_ARCH__)
#define TENSAFE_UNROLL _Pragma("unroll")
#else
#define TENSAFE_UNROLL
#endif

#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ < 800
#error \
    "tensafe needs a GPU of compute capability 8.0 or later: compile with -arch=sm_90, say (CMAKE_CUDA_ARCHITECTURES 90)"
#endif
#endif

namespace tensafe::arith {

/// The machine word in which every residue is stored.
using word = std::uint64_t;
/// The product of two words.
__extension__ typedef unsigned __int128 uint128;

/// The upper word of a * b.
TENSAFE_HOST_DEVICE constexpr word mul_hi(word a, word b) noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        return __umul64hi(a, b);
    }
#endif
    return static_cast<word>((static_cast<uint128>(a) * b) >> 64);
}

/// The whole product a * b.
TENSAFE_HOST_DEVICE constexpr uint128 mul_wide(word a, word b) noexcept {
    return static_cast<uint128>(a) * b;
}

TENSAFE_HOST_DEVICE constexpr word low_word(uint128 x) noexcept {
    return static_cast<word>(x);
}
TENSAFE_HOST_DEVICE constexpr word high_word(uint128 x) noexcept {
    return static_cast<word>(x >> 64);
}

/// Returns a * b + c modulo 2^64, one instruction of a GPU: compilers lose sight of the width of a and b.
TENSAFE_HOST_DEVICE TENSAFE_INLINE std::int64_t multiply_add_signed(std::int32_t a, std::int32_t b,
                                                                    std::int64_t c) noexcept {
#if defined(__CUDA_ARCH__)
    long long sum;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(sum) : "r"(a), "r"(b), "l"(static_cast<long long>(c)));
    return sum;
#else
    return static_cast<std::int64_t>(static_cast<word>(static_cast<std::int64_t>(a) * b) +
                                     static_cast<word>(c));
#endif
}

/// Returns x, but hides from the compiler of the device where it comes from: what depends on x is then
/// computed once more instead of being kept in scarce registers.
TENSAFE_HOST_DEVICE TENSAFE_INLINE int rematerialized(int x) noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/// Writes two neighbouring words into memory of the device with one store; nvcc would mostly make two of it,
/// and each touches its sectors again.  @pre `to` is 16-byte aligned
TENSAFE_HOST_DEVICE TENSAFE_INLINE void store_two(word* to, word first, word second) noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "l"(first),
                 "l"(second)
                 : "memory");
#else
    to[0] = first;
    to[1] = second;
#endif
}

/// Returns x - c if that does not wrap, else x: one conditional subtraction without a branch.
TENSAFE_HOST_DEVICE constexpr word subtract_if_not_below(word x, word c) noexcept {
    const word difference = x - c;
    return difference < x ? difference : x;
}

/// Returns a * b rounded to double, never fused with an addition that follows: the same bits everywhere.
TENSAFE_HOST_DEVICE TENSAFE_INLINE double rounded_product(double a, double b) noexcept {
#if defined(__CUDA_ARCH__)
    return __dmul_rn(a, b);
#else
    double product = a * b;
#if TENSAFE_X86_64
    __asm__("" : "+x"(product));
#elif defined(__aarch64__)
    __asm__("" : "+w"(product));
#endif
    return product;
#endif
}

/// A small signed integer modulo Q, in [0, Q). No branch: errors and keys are secret.  @pre |small| < Q
template <word Q>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr word residue_of_small(std::int8_t small) noexcept {
    const auto x = static_cast<std::int64_t>(small);
    // The sign, as a mask, selects Q.
    return static_cast<word>(x) + (Q & static_cast<word>(x >> 63));
}

/// Returns x + small modulo Q, in [0, Q).  @pre x < Q, |small| < Q
template <word Q>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr word plus_small(word x, std::int8_t small) noexcept {
    return subtract_if_not_below(x + residue_of_small<Q>(small), Q);
}

}  // namespace tensafe::arith
