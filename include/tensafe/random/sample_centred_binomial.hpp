#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace tensafe::random {

/// The centred binomial distribution: the sum of `centred_binomial_eta` fair bits minus the sum of as many
/// more. Mean 0, variance eta / 2 = 10.5 (standard deviation 3.24), range [-eta, eta].
inline constexpr int centred_binomial_eta = 21;

namespace detail {

// Bit-sliced: bit j of a word belongs to coefficient j of its group, so one full adder on words adds up 64
// coefficients. Word is one 64-bit word, or a vector with one group per lane.

inline constexpr int binomial_words = 2 * centred_binomial_eta;
inline constexpr std::size_t binomial_group = 64;

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

/// exchange_bits on the four pairs of rows that are Distance apart.
template <int Shift, int Distance, class Word>
TENSAFE_INLINE void exchange_rows(Word* rows, std::uint64_t mask) noexcept {
    constexpr int stride = Distance == 1 ? 2 : 1;
    constexpr int second = Distance == 2 ? 4 : 2 * stride;
    exchange_bits<Shift>(rows[0], rows[Distance], mask);
    exchange_bits<Shift>(rows[stride], rows[stride + Distance], mask);
    exchange_bits<Shift>(rows[second], rows[second + Distance], mask);
    exchange_bits<Shift>(rows[second + stride], rows[second + stride + Distance], mask);
}

// Loops over words that should be in registers are written as folds: g++ does not unroll them at -O2.
template <class Word, std::size_t... I>
TENSAFE_INLINE void complement(Word* words, std::index_sequence<I...>) noexcept {
    ((words[I] = ~words[I]), ...);
}

/// 42 words become eight rows: byte i of row b is coefficient 8 b + i. `words` is used up.
template <class Word>
TENSAFE_INLINE void centred_binomial_rows(Word* words, Word* rows) noexcept {
    // Counting the complement of a subtracted bit instead of the bit adds eta in all and keeps the sums
    // positive.
    complement(words + centred_binomial_eta, std::make_index_sequence<centred_binomial_eta>{});
    // Row i: bit i of the sums, each in [0, 42].
    rows[0] = words[0];
    add_bits<42>(words, rows[0]);
    rows[1] = words[0];
    add_bits<21>(words, rows[1]);
    rows[2] = words[0];
    add_bits<10>(words, rows[2]);
    rows[3] = words[0];
    add_bits<5>(words, rows[3]);
    rows[4] = words[0];
    add_bits<2>(words, rows[4]);
    rows[5] = words[0];
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
    // Minus eta in every byte: the top bit, set for the while, lends to its own byte and to no other.
    constexpr std::uint64_t ones = 0x0101010101010101U;
    for (int i = 0; i < 8; ++i) {
        rows[i] = ((rows[i] | (ones << 7)) - ones * centred_binomial_eta) ^ (ones << 7);
    }
}

/// `groups` groups from their words to 64 coefficients each. `words` is used up.
inline void centred_binomial_baseline(std::uint64_t* words, std::size_t groups, std::int8_t* out) noexcept {
    std::uint64_t rows[8];
    for (std::size_t i = 0; i < groups; ++i) {
        centred_binomial_rows(words + i * binomial_words, rows);
        std::memcpy(out + i * binomial_group, rows, sizeof rows);
    }
    memory::wipe(rows);
}

#if defined(__x86_64__)

/// Four groups, one per lane.
struct binomial_lanes4 {
    using words = std::uint64_t __attribute__((vector_size(32)));

    /// Exchanges rows and columns of 4 x 4 words.
    static TENSAFE_INLINE void transpose(words& a, words& b, words& c, words& d) noexcept {
        const words ab_even = __builtin_shufflevector(a, b, 0, 4, 2, 6);
        const words ab_odd = __builtin_shufflevector(a, b, 1, 5, 3, 7);
        const words cd_even = __builtin_shufflevector(c, d, 0, 4, 2, 6);
        const words cd_odd = __builtin_shufflevector(c, d, 1, 5, 3, 7);
        a = __builtin_shufflevector(ab_even, cd_even, 0, 1, 4, 5);
        b = __builtin_shufflevector(ab_odd, cd_odd, 0, 1, 4, 5);
        c = __builtin_shufflevector(ab_even, cd_even, 2, 3, 6, 7);
        d = __builtin_shufflevector(ab_odd, cd_odd, 2, 3, 6, 7);
    }

    /// Words 4 I .. 4 I + 3 of each group: word i of group g into lane g of to[i].
    template <std::size_t... I>
    static TENSAFE_INLINE void load(const std::uint64_t* from, words* to,
                                    std::index_sequence<I...>) noexcept {
        (load_four(from + 4 * I, to + 4 * I), ...);
    }

    static TENSAFE_INLINE void load_four(const std::uint64_t* from, words* to) noexcept {
        words a;
        words b;
        words c;
        words d;
        std::memcpy(&a, from, sizeof(words));
        std::memcpy(&b, from + binomial_words, sizeof(words));
        std::memcpy(&c, from + 2 * binomial_words, sizeof(words));
        std::memcpy(&d, from + 3 * binomial_words, sizeof(words));
        transpose(a, b, c, d);
        to[0] = a;
        to[1] = b;
        to[2] = c;
        to[3] = d;
    }

    /// Rows First .. First + 3 into the 32 coefficients of each group that they hold.
    template <int First>
    static TENSAFE_INLINE void store(words* rows, std::int8_t* out) noexcept {
        transpose(rows[First], rows[First + 1], rows[First + 2], rows[First + 3]);
        std::memcpy(out + 8 * First, &rows[First], sizeof(words));
        std::memcpy(out + 8 * First + binomial_group, &rows[First + 1], sizeof(words));
        std::memcpy(out + 8 * First + 2 * binomial_group, &rows[First + 2], sizeof(words));
        std::memcpy(out + 8 * First + 3 * binomial_group, &rows[First + 3], sizeof(words));
    }
};

/// As centred_binomial_baseline.
__attribute__((target("avx2"))) inline void centred_binomial_avx2(std::uint64_t* words, std::size_t groups,
                                                                  std::int8_t* out) noexcept {
    binomial_lanes4::words lanes[binomial_words];
    binomial_lanes4::words rows[8];
    for (; groups >= 4; groups -= 4) {
        binomial_lanes4::load(words, lanes, std::make_index_sequence<binomial_words / 4>{});
        // 42 is not a multiple of four: the last load takes two words for the second time.
        binomial_lanes4::load_four(words + binomial_words - 4, lanes + binomial_words - 4);
        centred_binomial_rows(lanes, rows);
        binomial_lanes4::store<0>(rows, out);
        binomial_lanes4::store<4>(rows, out);
        words += 4 * binomial_words;
        out += 4 * binomial_group;
    }
    memory::wipe(lanes);
    memory::wipe(rows);
    centred_binomial_baseline(words, groups, out);
}

#endif

inline void centred_binomial_groups(std::uint64_t* words, std::size_t groups, std::int8_t* out) noexcept {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        centred_binomial_avx2(words, groups, out);
        return;
    }
#endif
    centred_binomial_baseline(words, groups, out);
}

}  // namespace detail

/// Fills `out` with centred binomial values in [-21, 21], for errors: coefficient 64 g + j from bit j of the
/// 42 words of the stream from byte 336 g on. Secret values: constant time, and the buffers in between are
/// wiped.
/// @pre  out.size() is a multiple of 64 and at most 2^35
/// Cost: 5.25 bytes of key stream per coefficient.
inline void sample_centred_binomial(const seed& key, stream_domain domain, std::uint32_t lane,
                                    std::span<std::int8_t> out) noexcept {
    constexpr std::size_t group_bytes = detail::binomial_words * sizeof(std::uint64_t);
    // 32 groups are 168 blocks, so that chunks start between blocks and fill the widest code path.
    constexpr std::size_t chunk_groups = 32;
    static_assert(chunk_groups * group_bytes % (8 * chacha20_block_bytes) == 0);
    TENSAFE_PRECONDITION(out.size() % detail::binomial_group == 0);
    TENSAFE_PRECONDITION(out.size() <= std::uint64_t{1} << 35);

    const chacha20_stream stream(key, domain, lane);
    alignas(64) std::uint64_t words[chunk_groups * detail::binomial_words];
    const std::size_t groups = out.size() / detail::binomial_group;
    for (std::size_t done = 0; done < groups; done += chunk_groups) {
        const std::size_t count = std::min(chunk_groups, groups - done);
        const std::size_t blocks = (count * group_bytes + chacha20_block_bytes - 1) / chacha20_block_bytes;
        stream.generate(done * group_bytes / chacha20_block_bytes,
                        {reinterpret_cast<std::uint8_t*>(words), blocks * chacha20_block_bytes});
        detail::centred_binomial_groups(words, count, out.data() + done * detail::binomial_group);
    }
    memory::wipe(words);
}

}  // namespace tensafe::random
