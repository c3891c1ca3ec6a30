#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/x86/slot_stages_avx2.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>

#if TENSAFE_X86_64
#include <immintrin.h>

namespace tensafe::encoding::detail::avx2 {

/// The first `count` lanes, fewer than four: all bits set there.
TENSAFE_AVX2 TENSAFE_INLINE __m256i first_lanes(std::size_t count) noexcept {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(count)),
                              _mm256_setr_epi64x(0, 1, 2, 3));
}
/// Sign cleared: as integers, magnitudes compare like their bits, with NaN above infinity.
TENSAFE_AVX2 TENSAFE_INLINE __m256i magnitude_bits(__m256d x) noexcept {
    return _mm256_and_si256(_mm256_castpd_si256(x), _mm256_set1_epi64x(0x7fffffffffffffff));
}
TENSAFE_AVX2 TENSAFE_INLINE __m256i larger(__m256i a, __m256i b) noexcept {
    return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b));
}
TENSAFE_AVX2 TENSAFE_INLINE double largest_lane(__m256i bits) noexcept {
    alignas(32) long long lane[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), bits);
    long long largest = 0;
    for (const long long bits_of_lane : lane) {
        largest = std::max(largest, bits_of_lane);
    }
    return std::bit_cast<double>(largest);
}

TENSAFE_AVX2 inline double largest_magnitude(const double* values, std::size_t count, double scale) noexcept {
    const __m256d factor = _mm256_set1_pd(scale);
    __m256i largest = _mm256_setzero_si256();
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        largest = larger(largest, magnitude_bits(_mm256_mul_pd(_mm256_loadu_pd(values + i), factor)));
    }
    const __m256d rest = _mm256_maskload_pd(values + i, first_lanes(count - i));
    return largest_lane(larger(largest, magnitude_bits(_mm256_mul_pd(rest, factor))));
}

TENSAFE_AVX2 inline void scale_values(const double* values, std::size_t count, double scale,
                                      double* out) noexcept {
    const __m256d factor = _mm256_set1_pd(scale);
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        _mm256_storeu_pd(out + i, _mm256_mul_pd(_mm256_loadu_pd(values + i), factor));
    }
    const __m256i used = first_lanes(count - i);
    _mm256_maskstore_pd(out + i, used, _mm256_mul_pd(_mm256_maskload_pd(values + i, used), factor));
}

TENSAFE_AVX2 inline void divide_values(double* values, std::size_t count, double divisor) noexcept {
    const __m256d by = _mm256_set1_pd(divisor);
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        _mm256_storeu_pd(values + i, _mm256_div_pd(_mm256_loadu_pd(values + i), by));
    }
    const __m256i used = first_lanes(count - i);
    _mm256_maskstore_pd(values + i, used, _mm256_div_pd(_mm256_maskload_pd(values + i, used), by));
}

/// The squared magnitudes, each twice.
TENSAFE_AVX2 TENSAFE_INLINE __m256i square_bits(__m256d scaled, __m256d unit) noexcept {
    const __m256d part = _mm256_mul_pd(scaled, unit);
    const __m256d square = product(part, part);
    return magnitude_bits(_mm256_add_pd(square, _mm256_permute_pd(square, 0x5)));
}

TENSAFE_AVX2 inline double scale_pairs(const double* pairs, std::size_t count, double scale, double unit,
                                       double* out) noexcept {
    const __m256d factor = _mm256_set1_pd(scale);
    const __m256d units = _mm256_set1_pd(unit);
    __m256i largest = _mm256_setzero_si256();
    std::size_t i = 0;
    for (; i + 4 <= 2 * count; i += 4) {
        const __m256d scaled = _mm256_mul_pd(_mm256_loadu_pd(pairs + i), factor);
        _mm256_storeu_pd(out + i, scaled);
        largest = larger(largest, square_bits(scaled, units));
    }
    const __m256i used = first_lanes(2 * count - i);
    const __m256d scaled = _mm256_mul_pd(_mm256_maskload_pd(pairs + i, used), factor);
    _mm256_maskstore_pd(out + i, used, scaled);
    return largest_lane(larger(largest, square_bits(scaled, units)));
}

}  // namespace tensafe::encoding::detail::avx2

#endif
