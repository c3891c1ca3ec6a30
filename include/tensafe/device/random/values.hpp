#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/random/centred_binomial_groups.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tensafe::random::detail {

// How one thread turns words of a stream into values. What is written here for 32-bit words and without
// wide products agrees bit for bit with the samplers of the host.

TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr arith::word word_of(std::uint32_t lower,
                                                                 std::uint32_t upper) noexcept {
    return (static_cast<arith::word>(upper) << 32) | lower;
}

/// The 64-bit word at byte `position` of a stream, of which `first`, `second` and `third` are the 32-bit
/// words from number position / 4 on.
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr arith::word cut_word(std::uint32_t first, std::uint32_t second,
                                                                  std::uint32_t third,
                                                                  std::uint32_t position) noexcept {
    const std::uint32_t shift = 8 * position % 32;
    return word_of(static_cast<std::uint32_t>(word_of(first, second) >> shift),
                   static_cast<std::uint32_t>(word_of(second, third) >> shift));
}

/// Two values, as they are stored.
struct alignas(16) value_pair {
    arith::word first;
    arith::word second;
};

/// The words that hold 2 Width bytes from a multiple of 2 Width on.
template <int Width>
inline constexpr int pair_words = (2 * Width + 3) / 4;

/// Values 2 i and 2 i + 1 of Width bytes each, in stream order, with garbage above: the caller knows the
/// bits.
template <int Width>
TENSAFE_HOST_DEVICE TENSAFE_INLINE value_pair cut_pair(const std::uint32_t* stream,
                                                       std::uint32_t i) noexcept {
    constexpr int count = pair_words<Width>;
    const std::uint32_t position = i * (2 * Width);
    std::uint32_t words[7] = {};
    for (int j = 0; j < count; ++j) {
        words[j] = stream[position / 4 + static_cast<std::uint32_t>(j)];
    }
    if constexpr (Width % 2 != 0) {
        for (int j = 0; j < count; ++j) {
            words[j] = static_cast<std::uint32_t>(word_of(words[j], words[j + 1]) >> (8 * (position % 4)));
        }
    }
    constexpr int second = Width / 4;
    return {word_of(words[0], words[1]),
            cut_word(words[second], words[second + 1], words[second + 2], Width)};
}

/// The bits up to the highest one of q.
TENSAFE_HOST_DEVICE constexpr arith::word bits_of(arith::word q) noexcept {
    for (int shift = 1; shift < 64; shift *= 2) {
        q |= q >> shift;
    }
    return q;
}

/// Four bytes, each a small number in [0, 64), less the same number of [0, 64): in two's complement, byte by
/// byte. The top bit of each, set for the while, lends to its own byte and to no other.
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr std::uint32_t subtract_from_bytes(
    std::uint32_t bytes, std::uint32_t number) noexcept {
    return ((bytes | 0x80808080U) - 0x01010101U * number) ^ 0x80808080U;
}

/// The four ternary values of a 64-bit word of the stream, in order, a byte each.
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr std::uint32_t ternary_bytes(std::uint32_t lower,
                                                                         std::uint32_t upper) noexcept {
    std::uint32_t digits = 0;
    for (int i = 0; i < 4; ++i) {
        const arith::word low_product = static_cast<arith::word>(lower) * 3;
        const arith::word product = static_cast<arith::word>(upper) * 3 + (low_product >> 32);
        digits |= static_cast<std::uint32_t>(product >> 32) << (8 * i);
        lower = static_cast<std::uint32_t>(low_product);
        upper = static_cast<std::uint32_t>(product);
    }
    return subtract_from_bytes(digits, 1);
}

/// Exchanges the bits of `a` under mask << Shift with the bits of `b` under mask.
template <int Shift, std::uint32_t Mask>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr void exchange_bits_32(std::uint32_t& a,
                                                                   std::uint32_t& b) noexcept {
    const std::uint32_t difference = ((a >> Shift) ^ b) & Mask;
    a ^= difference << Shift;
    b ^= difference;
}

/// add_bits of the host, for halves of groups: leaves the lowest bit of each sum in `sum`, and Count / 2
/// carries in words[0 .. Count / 2). Written again because nvcc refuses the host's vectors in a function for
/// both machines.
template <int Count>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr void add_bits_32(std::uint32_t* words,
                                                              std::uint32_t& sum) noexcept {
    for (int i = 1; i + 1 < Count; i += 2) {
        const std::uint32_t either = words[i] ^ words[i + 1];
        words[i / 2] = (words[i] & words[i + 1]) | (either & sum);
        sum ^= either;
    }
    if constexpr (Count % 2 == 0) {
        const std::uint32_t carry = words[Count - 1] & sum;
        sum ^= words[Count - 1];
        words[Count / 2 - 1] = carry;
    }
}

/// Half a group of centred binomial values, 32 of them, from the same halves of the group's 42 words; four
/// values to a word of `values`. `halves` is used up.
TENSAFE_HOST_DEVICE TENSAFE_INLINE void centred_binomial_half(std::uint32_t (&halves)[binomial_words],
                                                              std::uint32_t (&values)[8]) noexcept {
    // The complement of a subtracted bit adds eta in all and keeps the sums positive.
    for (int i = centred_binomial_eta; i < binomial_words; ++i) {
        halves[i] = ~halves[i];
    }
    // Word i: bit i of the sums, each in [0, 42].
    std::uint32_t sums[8];
    sums[0] = halves[0];
    add_bits_32<42>(halves, sums[0]);
    sums[1] = halves[0];
    add_bits_32<21>(halves, sums[1]);
    sums[2] = halves[0];
    add_bits_32<10>(halves, sums[2]);
    sums[3] = halves[0];
    add_bits_32<5>(halves, sums[3]);
    sums[4] = halves[0];
    add_bits_32<2>(halves, sums[4]);
    sums[5] = halves[0];
    sums[6] = 0;
    sums[7] = 0;
    // Four transpositions of 8 x 8 bits at once: byte b of word i becomes the sum of value 8 b + i.
    for (int i = 0; i < 4; ++i) {
        exchange_bits_32<4, 0x0f0f0f0fU>(sums[i], sums[i + 4]);
    }
    for (int i = 0; i < 8; i += 4) {
        exchange_bits_32<2, 0x33333333U>(sums[i], sums[i + 2]);
        exchange_bits_32<2, 0x33333333U>(sums[i + 1], sums[i + 3]);
    }
    for (int i = 0; i < 8; i += 2) {
        exchange_bits_32<1, 0x55555555U>(sums[i], sums[i + 1]);
    }
    // Two transpositions of 4 x 4 bytes: byte b of word 4 h + i becomes value 8 i + 4 h + b.
    for (int h = 0; h < 8; h += 4) {
        exchange_bits_32<16, 0x0000ffffU>(sums[h], sums[h + 2]);
        exchange_bits_32<16, 0x0000ffffU>(sums[h + 1], sums[h + 3]);
        exchange_bits_32<8, 0x00ff00ffU>(sums[h], sums[h + 1]);
        exchange_bits_32<8, 0x00ff00ffU>(sums[h + 2], sums[h + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        for (int h = 0; h < 2; ++h) {
            values[2 * i + h] = subtract_from_bytes(sums[4 * h + i], centred_binomial_eta);
        }
    }
}

}  // namespace tensafe::random::detail
