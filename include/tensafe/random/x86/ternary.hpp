#pragma once

#include <tensafe/core/macros.hpp>

#include <cstddef>
#include <cstdint>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

// The four digits of a word are those of V = floor(81 word / 2^64), in [0, 81): one product gives them all.

/// The digits of V of 32 words, in a byte each, which are taken apart together.
struct ternary_lanes32 {
    using words = __m256i;
    static constexpr std::size_t count = 32;

    TENSAFE_AVX2 static TENSAFE_INLINE words load(const std::uint8_t* from) noexcept {
        return _mm256_loadu_si256(reinterpret_cast<const words*>(from));
    }

    /// V of four words, in the upper half of each lane: floor((81 high + floor(81 low / 2^32)) / 2^32).
    TENSAFE_AVX2 static TENSAFE_INLINE words leading_digits(const std::uint8_t* from) noexcept {
        const words factor = _mm256_set1_epi64x(81);
        const words word = load(from);
        const words low = _mm256_mul_epu32(word, factor);
        const words high = _mm256_mul_epu32(_mm256_srli_epi64(word, 32), factor);
        return _mm256_add_epi64(high, _mm256_srli_epi64(low, 32));
    }

    /// V of eight words: each lane has that of the first four below that of the next.
    TENSAFE_AVX2 static TENSAFE_INLINE words pack_eight(const std::uint8_t* from) noexcept {
        constexpr int upper_halves = 0xaa;
        return _mm256_blend_epi32(_mm256_srli_epi64(leading_digits(from), 32), leading_digits(from + 32),
                                  upper_halves);
    }

    /// V of 32 words as bytes: after four bytes of the first eight words, four of the next, in each half.
    TENSAFE_AVX2 static TENSAFE_INLINE words pack(const std::uint8_t* from) noexcept {
        const words near = _mm256_packus_epi32(pack_eight(from), pack_eight(from + 64));
        const words far = _mm256_packus_epi32(pack_eight(from + 128), pack_eight(from + 192));
        return _mm256_packus_epi16(near, far);
    }

    /// The digit of V's greatest place, less one; V keeps the rest.
    template <int Place>
    TENSAFE_AVX2 static TENSAFE_INLINE words take_digit(words& v) noexcept {
        const words place = _mm256_set1_epi8(Place);
        const words is_one_or_two = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(Place - 1));
        const words is_two = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(2 * Place - 1));
        v = _mm256_sub_epi8(v, _mm256_and_si256(is_one_or_two, place));
        v = _mm256_sub_epi8(v, _mm256_and_si256(is_two, place));
        // A comparison that holds is -1.
        return _mm256_sub_epi8(_mm256_set1_epi8(-1), _mm256_add_epi8(is_one_or_two, is_two));
    }

    /// The digits of eight words; within each half, pack has put a word of the second four after each of the
    /// first four.
    TENSAFE_AVX2 static TENSAFE_INLINE void store(const words& digits, std::int8_t* out) noexcept {
        const words in_order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
        _mm256_storeu_si256(reinterpret_cast<words*>(out), _mm256_permutevar8x32_epi32(digits, in_order));
    }

    TENSAFE_AVX2 static TENSAFE_INLINE void convert(const std::uint8_t* from, std::int8_t* out) noexcept {
        words v = pack(from);
        const words first = take_digit<27>(v);
        const words second = take_digit<9>(v);
        const words third = take_digit<3>(v);
        const words fourth = _mm256_sub_epi8(v, _mm256_set1_epi8(1));
        const words upper_near = _mm256_unpacklo_epi8(first, second);
        const words upper_far = _mm256_unpackhi_epi8(first, second);
        const words lower_near = _mm256_unpacklo_epi8(third, fourth);
        const words lower_far = _mm256_unpackhi_epi8(third, fourth);
        store(_mm256_unpacklo_epi16(upper_near, lower_near), out);
        store(_mm256_unpackhi_epi16(upper_near, lower_near), out + 32);
        store(_mm256_unpacklo_epi16(upper_far, lower_far), out + 64);
        store(_mm256_unpackhi_epi16(upper_far, lower_far), out + 96);
    }
};

/// Converts as many words as whole vectors hold, and returns their number.
TENSAFE_AVX2 inline std::size_t ternary_avx2(const std::uint8_t* bytes, std::size_t words,
                                             std::int8_t* out) noexcept {
    std::size_t done = 0;
    for (; done + ternary_lanes32::count <= words; done += ternary_lanes32::count) {
        ternary_lanes32::convert(bytes + 8 * done, out + 4 * done);
    }
    return done;
}

}  // namespace tensafe::random::detail

#endif
