#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/random/x86/quarters_avx512.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

// The four digits of a word are those of V = floor(81 word / 2^64), in [0, 81): one product gives them all.

/// V of 32 words, in a byte each, are taken apart together.
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

/// A table in two registers, which no address depends on, gives each digit of 64 words.
struct ternary_lanes64 {
    using words = __m512i;
    static constexpr std::size_t count = 64;

    /// Digit Trit of V, the most significant first, less one.
    template <int Trit>
    static constexpr std::array<std::int8_t, 128> digits = [] {
        std::array<std::int8_t, 128> result{};
        for (int v = 0; v < 81; ++v) {
            constexpr int place = Trit == 0 ? 27 : Trit == 1 ? 9 : Trit == 2 ? 3 : 1;
            result[static_cast<std::size_t>(v)] = static_cast<std::int8_t>(v / place % 3 - 1);
        }
        return result;
    }();

    /// Puts the bytes that pack_eight left, four of pair m of registers after four of pair m - 1 in each
    /// quarter, in the order of the words of each pair.
    static constexpr std::array<std::uint8_t, 64> in_order = [] {
        std::array<std::uint8_t, 64> result{};
        for (std::size_t pair = 0; pair < 4; ++pair) {
            for (std::size_t word = 0; word < 16; ++word) {
                const std::size_t lane = word % 8;
                result[word / 4 * 16 + 4 * pair + word % 4] =
                    static_cast<std::uint8_t>(lane / 2 * 16 + 4 * pair + lane % 2 * 2 + word / 8);
            }
        }
        return result;
    }();

    /// V of eight words, in the upper half of each lane: floor((81 high + floor(81 low / 2^32)) / 2^32).
    TENSAFE_AVX512 static TENSAFE_INLINE words leading_digits(const std::uint8_t* from) noexcept {
        const words factor = _mm512_set1_epi64(81);
        const words word = _mm512_loadu_si512(from);
        const words low = _mm512_maskz_mul_epu32(every_word64, word, factor);
        const words high =
            _mm512_maskz_mul_epu32(every_word64, _mm512_maskz_srli_epi64(every_word64, word, 32), factor);
        return _mm512_add_epi64(high, _mm512_maskz_srli_epi64(every_word64, low, 32));
    }

    /// V of sixteen words: each lane has that of the first eight below that of the next.
    TENSAFE_AVX512 static TENSAFE_INLINE words pack_sixteen(const std::uint8_t* from) noexcept {
        constexpr __mmask16 upper_halves = 0xaaaa;
        return _mm512_mask_mov_epi32(_mm512_maskz_srli_epi64(every_word64, leading_digits(from), 32),
                                     upper_halves, leading_digits(from + 64));
    }

    /// V of 64 words as bytes: after four bytes of the first sixteen words, four of the next, in each
    /// quarter.
    TENSAFE_AVX512 static TENSAFE_INLINE words pack(const std::uint8_t* from) noexcept {
        const words near = _mm512_packus_epi32(pack_sixteen(from), pack_sixteen(from + 128));
        const words far = _mm512_packus_epi32(pack_sixteen(from + 256), pack_sixteen(from + 384));
        return _mm512_maskz_permutexvar_epi8(every_byte, _mm512_loadu_si512(in_order.data()),
                                             _mm512_packus_epi16(near, far));
    }

    template <int Trit>
    TENSAFE_AVX512 static TENSAFE_INLINE words look_up(const words& v) noexcept {
        return _mm512_permutex2var_epi8(_mm512_loadu_si512(digits<Trit>.data()), v,
                                        _mm512_loadu_si512(digits<Trit>.data() + 64));
    }

    TENSAFE_AVX512 static TENSAFE_INLINE void convert(const std::uint8_t* from, std::int8_t* out) noexcept {
        const words v = pack(from);
        const words first = look_up<0>(v);
        const words second = look_up<1>(v);
        const words third = look_up<2>(v);
        const words fourth = look_up<3>(v);
        const words upper_near = _mm512_maskz_unpacklo_epi8(every_byte, first, second);
        const words upper_far = _mm512_maskz_unpackhi_epi8(every_byte, first, second);
        const words lower_near = _mm512_maskz_unpacklo_epi8(every_byte, third, fourth);
        const words lower_far = _mm512_maskz_unpackhi_epi8(every_byte, third, fourth);
        _mm512_storeu_si512(out, _mm512_maskz_unpacklo_epi16(every_word16, upper_near, lower_near));
        _mm512_storeu_si512(out + 64, _mm512_maskz_unpackhi_epi16(every_word16, upper_near, lower_near));
        _mm512_storeu_si512(out + 128, _mm512_maskz_unpacklo_epi16(every_word16, upper_far, lower_far));
        _mm512_storeu_si512(out + 192, _mm512_maskz_unpackhi_epi16(every_word16, upper_far, lower_far));
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
TENSAFE_AVX512 inline std::size_t ternary_avx512(const std::uint8_t* bytes, std::size_t words,
                                                 std::int8_t* out) noexcept {
    std::size_t done = 0;
    for (; done + ternary_lanes64::count <= words; done += ternary_lanes64::count) {
        ternary_lanes64::convert(bytes + 8 * done, out + 4 * done);
    }
    return done;
}

}  // namespace tensafe::random::detail

#endif
