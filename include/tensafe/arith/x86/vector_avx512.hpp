#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>

#include <cstdint>

#if TENSAFE_X86_64

#include <immintrin.h>

/// Arithmetic of eight residues at a time that does not depend on the width of the modulus.
namespace tensafe::arith::avx512 {

using vector = __m512i;

TENSAFE_AVX512 TENSAFE_INLINE vector load(const word* from) noexcept {
    return _mm512_loadu_si512(from);
}
TENSAFE_AVX512 TENSAFE_INLINE void store(word* to, vector x) noexcept {
    _mm512_storeu_si512(to, x);
}
TENSAFE_AVX512 TENSAFE_INLINE vector broadcast(word x) noexcept {
    return _mm512_set1_epi64(static_cast<std::int64_t>(x));
}

// GCC 12 warns of an uninitialised vector in its own header where one of these intrinsics has no mask. With a
// constant mask of all lanes the instruction is the same.
inline constexpr __mmask8 all_lanes = 0xff;

TENSAFE_AVX512 TENSAFE_INLINE vector minimum(vector a, vector b) noexcept {
    return _mm512_maskz_min_epu64(all_lanes, a, b);
}
TENSAFE_AVX512 TENSAFE_INLINE vector maximum(vector a, vector b) noexcept {
    return _mm512_maskz_max_epu64(all_lanes, a, b);
}
template <unsigned Count>
TENSAFE_AVX512 TENSAFE_INLINE vector shift_left(vector x) noexcept {
    return _mm512_maskz_slli_epi64(all_lanes, x, Count);
}
template <unsigned Count>
TENSAFE_AVX512 TENSAFE_INLINE vector shift_right(vector x) noexcept {
    return _mm512_maskz_srli_epi64(all_lanes, x, Count);
}
TENSAFE_AVX512 TENSAFE_INLINE vector shift_left(vector x, vector counts) noexcept {
    return _mm512_maskz_sllv_epi64(all_lanes, x, counts);
}
TENSAFE_AVX512 TENSAFE_INLINE vector shift_right(vector x, vector counts) noexcept {
    return _mm512_maskz_srlv_epi64(all_lanes, x, counts);
}
/// Eight signed bytes, each extended to a lane of 64 bits.
TENSAFE_AVX512 TENSAFE_INLINE vector load(const std::int8_t* from) noexcept {
    return _mm512_maskz_cvtepi8_epi64(all_lanes, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

/// Returns x - c where that does not wrap, else x.
TENSAFE_AVX512 TENSAFE_INLINE vector subtract_if_not_below(vector x, vector c) noexcept {
    return minimum(x, _mm512_sub_epi64(x, c));
}

/// Returns x + c where x is negative, else x, for signed x in [-c, 2^63 - c).
TENSAFE_AVX512 TENSAFE_INLINE vector add_if_negative(vector x, vector c) noexcept {
    return minimum(x, _mm512_add_epi64(x, c));
}

/// Returns a + b modulo q, all in [0, q).
TENSAFE_AVX512 TENSAFE_INLINE vector add(vector a, vector b, vector q) noexcept {
    return subtract_if_not_below(_mm512_add_epi64(a, b), q);
}

/// Returns a - b modulo q, all in [0, q).
TENSAFE_AVX512 TENSAFE_INLINE vector subtract(vector a, vector b, vector q) noexcept {
    return add_if_negative(_mm512_sub_epi64(a, b), q);
}

}  // namespace tensafe::arith::avx512

#endif
