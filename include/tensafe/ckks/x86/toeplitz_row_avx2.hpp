#pragma once

#include <tensafe/core/macros.hpp>

#if TENSAFE_X86_64

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

namespace tensafe::ckks::avx2 {

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

}  // namespace tensafe::ckks::avx2

#endif
