#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/random/centred_binomial_groups.hpp>
#include <tensafe/random/x86/quarters_avx512.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

/// Eight groups at once. A group's 42 words are five registers and a quarter: first each lane adds up its own
/// six words, which leaves three words of eight lanes for each group, then neighbouring groups share
/// registers: their sums meet until lane g of six words holds those of group g. That shuffles 50 registers
/// where a transposition of the words would shuffle 126, and everything fits into registers.
struct binomial_lanes8 {
    using words = __m512i;
    static constexpr std::size_t groups = 8;

    // Truth tables of three inputs: bit 4 a + 2 b + c is the result.
    static constexpr int sum_of_three = 0x96;
    static constexpr int carry_of_three = 0xe8;
    static constexpr int carry_of_first_and_two_complements = 0x71;
    static constexpr int first_and_sum_of_others = 0x60;
    static constexpr int first_chooses = 0xca;

    template <int Table>
    TENSAFE_AVX512 static TENSAFE_INLINE words bitwise(const words& a, const words& b,
                                                       const words& c) noexcept {
        return _mm512_ternarylogic_epi64(a, b, c, Table);
    }

    /// sums[i]: bit i of the sum, in [0, 6], of the words of one group in each lane. As in
    /// centred_binomial_rows, the complements of subtracted words are counted.
    TENSAFE_AVX512 static TENSAFE_INLINE void add_lanes(const std::uint64_t* from, words* sums) noexcept {
        // The subtracted words are 21 .. 41: three of the third register, the next two registers, and the
        // rest.
        static_assert(centred_binomial_eta == 21);
        const words complement_high = _mm512_set_epi64(-1, -1, -1, 0, 0, 0, 0, 0);
        const words complement_low = _mm512_set_epi64(0, 0, 0, 0, 0, 0, -1, -1);
        const words first = _mm512_loadu_si512(from);
        const words second = _mm512_loadu_si512(from + 8);
        const words third = _mm512_xor_si512(_mm512_loadu_si512(from + 16), complement_high);
        const words fourth = _mm512_loadu_si512(from + 24);
        const words fifth = _mm512_loadu_si512(from + 32);
        const words rest = _mm512_maskz_loadu_epi64(0x03, from + 40);
        const words three = bitwise<sum_of_three>(first, fourth, fifth);
        const words five = bitwise<sum_of_three>(three, second, third);
        sums[0] = bitwise<sum_of_three>(five, rest, complement_low);
        const words carry0 = bitwise<carry_of_first_and_two_complements>(first, fourth, fifth);
        const words carry1 = bitwise<carry_of_three>(three, second, third);
        const words carry2 = bitwise<first_and_sum_of_others>(five, rest, complement_low);
        sums[1] = bitwise<sum_of_three>(carry0, carry1, carry2);
        sums[2] = bitwise<carry_of_three>(carry0, carry1, carry2);
    }

    /// Half of the lanes of `a` and of `b`, and the other half: words, or pairs of them, in turn.
    template <std::size_t Level>
    TENSAFE_AVX512 static TENSAFE_INLINE void halve(const words& a, const words& b, words& near,
                                                    words& far) noexcept {
        if constexpr (Level == 1) {
            near = _mm512_maskz_unpacklo_epi64(every_word64, a, b);
            far = _mm512_maskz_unpackhi_epi64(every_word64, a, b);
        } else {
            near = quarters<0x88>(a, b);
            far = quarters<0xdd>(a, b);
        }
    }

    /// Adds, bit by bit from I on, the halves of `a` and of `b`: I + Bits bits become one more.
    template <std::size_t Level, std::size_t I = 1>
    TENSAFE_AVX512 static TENSAFE_INLINE void add_halves(const words* a, const words* b, words carry,
                                                         words* sums) noexcept {
        if constexpr (I < Level + 2) {
            words near;
            words far;
            halve<Level>(a[I], b[I], near, far);
            sums[I] = bitwise<sum_of_three>(near, far, carry);
            add_halves<Level, I + 1>(a, b, bitwise<carry_of_three>(near, far, carry), sums);
        } else {
            sums[I] = carry;
        }
    }

    /// The sums of 2^Level groups, the last of them repeated where there are fewer: each in 2^(3 - Level)
    /// lanes.
    template <std::size_t Level>
    TENSAFE_AVX512 static TENSAFE_INLINE void add_groups(const std::uint64_t* from, std::size_t first,
                                                         std::size_t last, words* sums) noexcept {
        if constexpr (Level == 0) {
            add_lanes(from + std::min(first, last) * binomial_words, sums);
        } else {
            words a[Level + 2];
            words b[Level + 2];
            add_groups<Level - 1>(from, first, last, a);
            add_groups<Level - 1>(from, first + (std::size_t{1} << (Level - 1)), last, b);
            words near;
            words far;
            halve<Level>(a[0], b[0], near, far);
            sums[0] = _mm512_xor_si512(near, far);
            add_halves<Level>(a, b, _mm512_and_si512(near, far), sums);
        }
    }

    /// As exchange_bits of the portable code.
    template <int Shift>
    TENSAFE_AVX512 static TENSAFE_INLINE void exchange(words& a, words& b, std::uint64_t mask) noexcept {
        const words lower = _mm512_set1_epi64(static_cast<long long>(mask));
        const words upper = _mm512_set1_epi64(static_cast<long long>(mask << Shift));
        const words down = _mm512_maskz_srli_epi64(every_word64, a, Shift);
        const words up = _mm512_maskz_slli_epi64(every_word64, b, Shift);
        a = bitwise<first_chooses>(upper, up, a);
        b = bitwise<first_chooses>(lower, down, b);
    }

    /// The coefficients of four groups, even ones if Odd is 0: byte b of row i becomes byte 8 b + i of its
    /// group. Written for the first `taken` of all eight.
    template <int Odd>
    TENSAFE_AVX512 static TENSAFE_INLINE void store(const words (&rows)[8], std::size_t taken,
                                                    std::int8_t* out) noexcept {
        const words pairs0 = interleave_bytes<Odd>(rows[0], rows[1]);
        const words pairs1 = interleave_bytes<Odd>(rows[2], rows[3]);
        const words pairs2 = interleave_bytes<Odd>(rows[4], rows[5]);
        const words pairs3 = interleave_bytes<Odd>(rows[6], rows[7]);
        const words lower_near = _mm512_maskz_unpacklo_epi16(every_word16, pairs0, pairs1);
        const words lower_far = _mm512_maskz_unpackhi_epi16(every_word16, pairs0, pairs1);
        const words upper_near = _mm512_maskz_unpacklo_epi16(every_word16, pairs2, pairs3);
        const words upper_far = _mm512_maskz_unpackhi_epi16(every_word16, pairs2, pairs3);
        words a = _mm512_maskz_unpacklo_epi32(every_word32, lower_near, upper_near);
        words b = _mm512_maskz_unpackhi_epi32(every_word32, lower_near, upper_near);
        words c = _mm512_maskz_unpacklo_epi32(every_word32, lower_far, upper_far);
        words d = _mm512_maskz_unpackhi_epi32(every_word32, lower_far, upper_far);
        transpose_quarters(a, b, c, d);
        store_group<Odd>(a, taken, out);
        store_group<Odd + 2>(b, taken, out);
        store_group<Odd + 4>(c, taken, out);
        store_group<Odd + 6>(d, taken, out);
    }

  private:
    /// Of the groups in the lower half of each quarter, the even ones, or of those in the upper half.
    template <int Odd>
    TENSAFE_AVX512 static TENSAFE_INLINE words interleave_bytes(const words& a, const words& b) noexcept {
        return Odd == 0 ? _mm512_maskz_unpacklo_epi8(every_byte, a, b)
                        : _mm512_maskz_unpackhi_epi8(every_byte, a, b);
    }

    template <std::size_t Group>
    TENSAFE_AVX512 static TENSAFE_INLINE void store_group(const words& sums, std::size_t taken,
                                                          std::int8_t* out) noexcept {
        if (Group < taken) {
            _mm512_storeu_si512(
                out + Group * binomial_group,
                _mm512_sub_epi8(sums, _mm512_set1_epi8(static_cast<char>(centred_binomial_eta))));
        }
    }
};

/// As centred_binomial_portable, and leaves `words` as they are.
TENSAFE_AVX512 inline void centred_binomial_avx512(const std::uint64_t* words, std::size_t groups,
                                                   std::int8_t* out) noexcept {
    using lanes = binomial_lanes8;
    while (groups != 0) {
        const std::size_t taken = std::min(groups, lanes::groups);
        __m512i rows[8];
        lanes::add_groups<3>(words, 0, taken - 1, rows);
        rows[6] = _mm512_setzero_si512();
        rows[7] = _mm512_setzero_si512();
        // Byte b of row i becomes the sum of coefficient 8 b + i. Rows 6 and 7 have nothing to exchange at
        // first.
        lanes::exchange<1>(rows[0], rows[1], 0x5555555555555555U);
        lanes::exchange<1>(rows[2], rows[3], 0x5555555555555555U);
        lanes::exchange<1>(rows[4], rows[5], 0x5555555555555555U);
        lanes::exchange<2>(rows[0], rows[2], 0x3333333333333333U);
        lanes::exchange<2>(rows[1], rows[3], 0x3333333333333333U);
        lanes::exchange<2>(rows[4], rows[6], 0x3333333333333333U);
        lanes::exchange<2>(rows[5], rows[7], 0x3333333333333333U);
        lanes::exchange<4>(rows[0], rows[4], 0x0f0f0f0f0f0f0f0fU);
        lanes::exchange<4>(rows[1], rows[5], 0x0f0f0f0f0f0f0f0fU);
        lanes::exchange<4>(rows[2], rows[6], 0x0f0f0f0f0f0f0f0fU);
        lanes::exchange<4>(rows[3], rows[7], 0x0f0f0f0f0f0f0f0fU);
        lanes::store<0>(rows, taken, out);
        lanes::store<1>(rows, taken, out);
        words += taken * binomial_words;
        out += taken * binomial_group;
        groups -= taken;
    }
}

}  // namespace tensafe::random::detail

#endif
