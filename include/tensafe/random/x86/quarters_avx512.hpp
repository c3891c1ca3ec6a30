#pragma once

#include <tensafe/core/macros.hpp>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

// Shuffles and shifts have the form with a mask, all ones: for the same instruction without one, g++ 12 warns
// of an operand that is not used.
inline constexpr __mmask8 every_word64 = 0xff;
inline constexpr __mmask16 every_word32 = 0xffff;
inline constexpr __mmask32 every_word16 = 0xffffffff;
inline constexpr __mmask64 every_byte = ~__mmask64{0};

/// Two quarters of `a`, then two of `b`: two bits of Which each, from the lowest on.
template <int Which>
TENSAFE_AVX512 TENSAFE_INLINE __m512i quarters(const __m512i& a, const __m512i& b) noexcept {
    return _mm512_maskz_shuffle_i64x2(every_word64, a, b, Which);
}

/// Exchanges rows and columns of 4 x 4 quarters of 16 bytes.
TENSAFE_AVX512 TENSAFE_INLINE void transpose_quarters(__m512i& a, __m512i& b, __m512i& c,
                                                      __m512i& d) noexcept {
    const __m512i ab_near = quarters<0x44>(a, b);
    const __m512i ab_far = quarters<0xee>(a, b);
    const __m512i cd_near = quarters<0x44>(c, d);
    const __m512i cd_far = quarters<0xee>(c, d);
    a = quarters<0x88>(ab_near, cd_near);
    b = quarters<0xdd>(ab_near, cd_near);
    c = quarters<0x88>(ab_far, cd_far);
    d = quarters<0xdd>(ab_far, cd_far);
}

}  // namespace tensafe::random::detail

#endif
