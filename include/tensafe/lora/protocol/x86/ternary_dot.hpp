#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/simd/transpose.hpp>

#if TENSAFE_X86_64

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <utility>

namespace tensafe::lora::avx2 {

/// The sum of c[j] * t[j] modulo 2^32, for t[j] in {-1, 0, 1}.
/// @pre  count is a multiple of 32
TENSAFE_AVX2 inline std::uint32_t ternary_dot(const std::uint32_t* c, const std::int8_t* t,
                                              std::size_t count) noexcept {
    __m256i sums[4] = {};
    for (std::size_t j = 0; j < count; j += 32) {
        for (std::size_t i = 0; i < 4; ++i) {
            const std::size_t at = j + 8 * i;
            const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(c + at));
            const __m256i sign =
                _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(t + at)));
            sums[i] = _mm256_add_epi32(sums[i], _mm256_sign_epi32(x, sign));
        }
    }
    const __m256i sum =
        _mm256_add_epi32(_mm256_add_epi32(sums[0], sums[1]), _mm256_add_epi32(sums[2], sums[3]));
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(half));
}

}  // namespace tensafe::lora::avx2

namespace tensafe::lora::avx512 {

/// Computes inner products: out[t] = the sum of c[j] * s_t[j] modulo 2^32, for ternary s_t given by two bits
/// for each entry: those of 1 and, at the same places, those of -1. The bits of s_t stand t * step bytes
/// before those of s_0.
/// @pre  count is a multiple of 16
template <std::size_t... t>
TENSAFE_AVX512 inline void ternary_dots(const std::uint32_t* c, const std::uint8_t* ones,
                                        const std::uint8_t* minus_ones, std::size_t step, std::size_t count,
                                        std::uint64_t* out, std::index_sequence<t...>) noexcept {
    using lanes = simd::lanes<std::uint32_t, 16>;
    const auto mask = [](const std::uint8_t* from) {
        __mmask16 m = 0;
        std::memcpy(&m, from, sizeof m);
        return m;
    };
    __m512i sums[] = {(static_cast<void>(t), _mm512_setzero_si512())...};
    for (std::size_t j = 0; j < count; j += 16) {
        const __m512i x = _mm512_loadu_si512(c + j);
        const std::uint8_t* const plus = ones + j / 8;
        const std::uint8_t* const minus = minus_ones + j / 8;
        ((sums[t] = _mm512_mask_add_epi32(sums[t], mask(plus - t * step), sums[t], x)), ...);
        ((sums[t] = _mm512_mask_sub_epi32(sums[t], mask(minus - t * step), sums[t], x)), ...);
    }
    lanes of_sums[sizeof...(t)];
    std::memcpy(of_sums, sums, sizeof sums);
    ((out[t] = simd::add_lanes(of_sums[t])), ...);
}

}  // namespace tensafe::lora::avx512

#endif
