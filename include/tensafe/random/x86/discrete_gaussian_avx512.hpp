#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/random/discrete_gaussian_lanes.hpp>

#include <cstddef>
#include <cstdint>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

/// Eight coefficients, one per lane. Comparisons give masks, which no branch looks at.
struct gaussian_lanes8 {
    TENSAFE_AVX512 static TENSAFE_INLINE void add_leaf(const std::uint64_t* from, std::uint64_t factor,
                                                       __m512i& sum) noexcept {
        const __m512i one = _mm512_set1_epi64(1);
        const __m512i mask = _mm512_set1_epi64(static_cast<long long>(gaussian_word_mask));
        const __m512i first = _mm512_loadu_si512(from);
        const __mmask8 negative = _mm512_movepi64_mask(first);
        const __m512i upper = _mm512_and_si512(first, mask);
        const __m512i lower = _mm512_and_si512(_mm512_loadu_si512(from + gaussian_group), mask);
        __m512i magnitude = _mm512_setzero_si512();
        // The upper parts of the thresholds differ, so that at most one is a tie: its lower part decides, at
        // the end.
        __m512i tie = _mm512_setzero_si512();
        for (std::size_t i = 0; i < gaussian_wide_thresholds; ++i) {
            const __m512i high = _mm512_set1_epi64(static_cast<long long>(gaussian_upper[i]));
            const __m512i low = _mm512_set1_epi64(static_cast<long long>(gaussian_lower[i]));
            magnitude =
                _mm512_mask_add_epi64(magnitude, _mm512_cmplt_epi64_mask(upper, high), magnitude, one);
            tie = _mm512_mask_mov_epi64(tie, _mm512_cmpeq_epi64_mask(upper, high), low);
        }
        magnitude = _mm512_mask_add_epi64(magnitude, _mm512_cmplt_epi64_mask(lower, tie), magnitude, one);
        const __mmask8 narrow = _mm512_testn_epi64_mask(upper, upper);
        for (std::size_t i = gaussian_wide_thresholds; i < gaussian_thresholds; ++i) {
            const __m512i low = _mm512_set1_epi64(static_cast<long long>(gaussian_lower[i]));
            magnitude = _mm512_mask_add_epi64(magnitude, _mm512_mask_cmplt_epi64_mask(narrow, lower, low),
                                              magnitude, one);
        }
        const __m512i value = _mm512_mask_sub_epi64(magnitude, negative, _mm512_setzero_si512(), magnitude);
        sum = _mm512_add_epi64(
            sum, _mm512_maskz_mul_epi32(0xff, value, _mm512_set1_epi64(static_cast<long long>(factor))));
    }
};

/// As discrete_gaussian_portable.
TENSAFE_AVX512 inline void discrete_gaussian_avx512(const std::uint64_t* words, std::size_t groups,
                                                    std::int64_t* out) noexcept {
    for (std::size_t g = 0; g < groups; ++g) {
        __m512i sum = _mm512_setzero_si512();
        for (std::size_t leaf = 0; leaf < gaussian_leaves; ++leaf) {
            gaussian_lanes8::add_leaf(words + g * gaussian_group_words + 2 * gaussian_group * leaf,
                                      gaussian_factor(leaf), sum);
        }
        _mm512_storeu_si512(out + g * gaussian_group, sum);
    }
}

}  // namespace tensafe::random::detail

#endif
