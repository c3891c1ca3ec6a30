#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/x86/slot_stages_avx512.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>

#if TENSAFE_X86_64
#include <immintrin.h>

namespace tensafe::encoding::detail::avx512 {

/// The first `count` lanes, fewer than eight.
TENSAFE_AVX512 TENSAFE_INLINE __mmask8 first_lanes(std::size_t count) noexcept {
    return static_cast<__mmask8>((1U << count) - 1);
}
/// Sign cleared: as integers, magnitudes compare like their bits, with NaN above infinity.
TENSAFE_AVX512 TENSAFE_INLINE __m512i magnitude_bits(__m512d x) noexcept {
    return _mm512_and_si512(_mm512_castpd_si512(x), _mm512_set1_epi64(0x7fffffffffffffff));
}
TENSAFE_AVX512 TENSAFE_INLINE __m512i larger(__m512i a, __m512i b) noexcept {
    return _mm512_maskz_max_epi64(0xff, a, b);
}
TENSAFE_AVX512 TENSAFE_INLINE double largest_lane(__m512i bits) noexcept {
    alignas(64) long long lane[8];
    _mm512_store_si512(lane, bits);
    long long largest = 0;
    for (const long long bits_of_lane : lane) {
        largest = std::max(largest, bits_of_lane);
    }
    return std::bit_cast<double>(largest);
}

TENSAFE_AVX512 inline double largest_magnitude(const double* values, std::size_t count,
                                               double scale) noexcept {
    const __m512d factor = _mm512_set1_pd(scale);
    __m512i largest = _mm512_setzero_si512();
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        largest = larger(largest, magnitude_bits(_mm512_mul_pd(_mm512_loadu_pd(values + i), factor)));
    }
    const __m512d rest = _mm512_maskz_loadu_pd(first_lanes(count - i), values + i);
    return largest_lane(larger(largest, magnitude_bits(_mm512_mul_pd(rest, factor))));
}

TENSAFE_AVX512 inline void scale_values(const double* values, std::size_t count, double scale,
                                        double* out) noexcept {
    const __m512d factor = _mm512_set1_pd(scale);
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        _mm512_storeu_pd(out + i, _mm512_mul_pd(_mm512_loadu_pd(values + i), factor));
    }
    const __mmask8 used = first_lanes(count - i);
    _mm512_mask_storeu_pd(out + i, used, _mm512_mul_pd(_mm512_maskz_loadu_pd(used, values + i), factor));
}

TENSAFE_AVX512 inline void divide_values(double* values, std::size_t count, double divisor) noexcept {
    const __m512d by = _mm512_set1_pd(divisor);
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        _mm512_storeu_pd(values + i, _mm512_div_pd(_mm512_loadu_pd(values + i), by));
    }
    const __mmask8 used = first_lanes(count - i);
    const __m512d rest = _mm512_maskz_loadu_pd(used, values + i);
    _mm512_mask_storeu_pd(values + i, used, _mm512_div_pd(rest, by));
}

/// The squared magnitudes, each twice.
TENSAFE_AVX512 TENSAFE_INLINE __m512i square_bits(__m512d scaled, __m512d unit) noexcept {
    const __m512d part = _mm512_mul_pd(scaled, unit);
    const __m512d square = product(part, part);
    return magnitude_bits(_mm512_add_pd(square, _mm512_maskz_permute_pd(0xff, square, 0x55)));
}

TENSAFE_AVX512 inline double scale_pairs(const double* pairs, std::size_t count, double scale, double unit,
                                         double* out) noexcept {
    const __m512d factor = _mm512_set1_pd(scale);
    const __m512d units = _mm512_set1_pd(unit);
    __m512i largest = _mm512_setzero_si512();
    std::size_t i = 0;
    for (; i + 8 <= 2 * count; i += 8) {
        const __m512d scaled = _mm512_mul_pd(_mm512_loadu_pd(pairs + i), factor);
        _mm512_storeu_pd(out + i, scaled);
        largest = larger(largest, square_bits(scaled, units));
    }
    const __mmask8 used = first_lanes(2 * count - i);
    const __m512d scaled = _mm512_mul_pd(_mm512_maskz_loadu_pd(used, pairs + i), factor);
    _mm512_mask_storeu_pd(out + i, used, scaled);
    return largest_lane(larger(largest, square_bits(scaled, units)));
}

}  // namespace tensafe::encoding::detail::avx512

#endif
