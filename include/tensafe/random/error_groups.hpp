#pragma once

#include <tensafe/core/macros.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tensafe::random {

/// The variance of errors. An error is made of twelve fair bits: 2 (b_0 + ... + b_4 - b_5 - ... - b_9) + b_10
/// - b_11. Mean 0, standard deviation 3.24; sub-Gaussian with its own variance, as each bit is.
inline constexpr double error_variance = 10.5;
inline constexpr int largest_error = 11;

namespace detail {

// Bit-sliced: bit j of a word belongs to coefficient j of its group, so one full adder on words adds up 64
// coefficients. Word is one 64-bit word, or a vector with one group per lane.

inline constexpr int error_words = 12;
inline constexpr std::size_t error_group = 64;

/// Adds up Count words of one bit per coefficient: leaves the lowest bit of each sum in `sum`, and Count / 2
/// carries, each worth two, in words[0 .. Count / 2). Called from I = 1 with sum == words[0].
template <int Count, int I = 1, class Word>
TENSAFE_INLINE void add_bits(Word* words, Word& sum) noexcept {
    if constexpr (I + 1 < Count) {
        const Word either = words[I] ^ words[I + 1];
        words[I / 2] = (words[I] & words[I + 1]) | (either & sum);
        sum ^= either;
        add_bits<Count, I + 2>(words, sum);
    } else if constexpr (I < Count) {
        const Word carry = words[I] & sum;
        sum ^= words[I];
        words[I / 2] = carry;
    }
}

/// Exchanges the bits of `a` under mask << Shift with the bits of `b` under mask.
template <int Shift, class Word>
TENSAFE_INLINE void exchange_bits(Word& a, Word& b, std::uint64_t mask) noexcept {
    const Word difference = ((a >> Shift) ^ b) & mask;
    a ^= difference << Shift;
    b ^= difference;
}

/// Exchanges bits of the four pairs of rows that are Distance apart.
template <int Shift, int Distance, class Word>
TENSAFE_INLINE void exchange_rows(Word* rows, std::uint64_t mask) noexcept {
    constexpr int stride = Distance == 1 ? 2 : 1;
    constexpr int second = Distance == 2 ? 4 : 2 * stride;
    exchange_bits<Shift>(rows[0], rows[Distance], mask);
    exchange_bits<Shift>(rows[stride], rows[stride + Distance], mask);
    exchange_bits<Shift>(rows[second], rows[second + Distance], mask);
    exchange_bits<Shift>(rows[second + stride], rows[second + stride + Distance], mask);
}

// Loops over words that should be in registers are written as fold expressions: g++ does not unroll them at
// -O2.
template <class Word, std::size_t... I>
TENSAFE_INLINE void complement(Word* words, std::index_sequence<I...>) noexcept {
    ((words[I] = ~words[I]), ...);
}

/// Twelve words become eight rows: byte i of row b is coefficient 8 b + i. `words` is used up.
template <class Word>
TENSAFE_INLINE void error_rows(Word* words, Word* rows) noexcept {
    // To count the complements of subtracted bits adds 11 in all and keeps the sums positive.
    complement(words + 5, std::make_index_sequence<5>{});
    words[11] = ~words[11];
    // Row i: bit i of the sums, each in [0, 22]. The carry of the last two bits is worth two, as the others.
    rows[0] = words[10] ^ words[11];
    words[10] &= words[11];
    rows[1] = words[0];
    add_bits<11>(words, rows[1]);
    rows[2] = words[0];
    add_bits<5>(words, rows[2]);
    rows[3] = words[0];
    add_bits<2>(words, rows[3]);
    rows[4] = words[0];
    rows[5] = Word{};
    rows[6] = Word{};
    rows[7] = Word{};
    // Eight transpositions of 8 x 8 bits at once: byte b of row j becomes the sum of coefficient 8 b + j.
    exchange_rows<4, 4>(rows, 0x0f0f0f0f0f0f0f0fU);
    exchange_rows<2, 2>(rows, 0x3333333333333333U);
    exchange_rows<1, 1>(rows, 0x5555555555555555U);
    // One transposition of 8 x 8 bytes.
    exchange_rows<32, 4>(rows, 0x00000000ffffffffU);
    exchange_rows<16, 2>(rows, 0x0000ffff0000ffffU);
    exchange_rows<8, 1>(rows, 0x00ff00ff00ff00ffU);
    // Minus 11 in every byte: the top bit, set for the while, lends to its own byte and to no other.
    constexpr std::uint64_t ones = 0x0101010101010101U;
    for (int i = 0; i < 8; ++i) {
        rows[i] = ((rows[i] | (ones << 7)) - ones * largest_error) ^ (ones << 7);
    }
}

}  // namespace detail

}  // namespace tensafe::random
