#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20_block.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/transpose.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

// Many blocks of the key stream at once: lane l of every vector belongs to block first + l. Host only.
//
// The vectors are those of GCC and clang, so one body serves every machine. No vector is passed or returned
// by value: a 32-byte one has no calling convention without AVX.

namespace tensafe::random {

static_assert(std::endian::native == std::endian::little,
              "random: the streams are little endian and no byte-swapping path has been written");

inline constexpr std::size_t chacha20_block_bytes = 64;

/// The key and the nonce that all blocks of a stream share, as little-endian words.
struct chacha20_state {
    std::uint32_t key[8];
    std::uint32_t nonce[3];
};

namespace detail {

enum class chacha20_rotation { by_shifts, by_byte_shuffles };

/// Computes W blocks at a time, in registers of 4 W bytes.
template <std::size_t W, chacha20_rotation rotation = chacha20_rotation::by_shifts>
struct chacha20_lanes {
    using lanes = simd::lanes<std::uint32_t, W>;
    using words = typename lanes::native;
    static constexpr std::size_t blocks = W;

    // The rounds of chacha20_block once more: nvcc takes no vectors in functions that the device shares.
    static TENSAFE_INLINE void quarter_round(words& a, words& b, words& c, words& d) noexcept {
        a += b;
        d ^= a;
        rotate_left<16>(d);
        c += d;
        b ^= c;
        rotate_left<12>(b);
        a += b;
        d ^= a;
        rotate_left<8>(d);
        c += d;
        b ^= c;
        rotate_left<7>(b);
    }
    static TENSAFE_INLINE void column_round(words (&x)[16]) noexcept {
        quarter_round(x[0], x[4], x[8], x[12]);
        quarter_round(x[1], x[5], x[9], x[13]);
        quarter_round(x[2], x[6], x[10], x[14]);
        quarter_round(x[3], x[7], x[11], x[15]);
    }
    static TENSAFE_INLINE void diagonal_round(words (&x)[16]) noexcept {
        quarter_round(x[0], x[5], x[10], x[15]);
        quarter_round(x[1], x[6], x[11], x[12]);
        quarter_round(x[2], x[7], x[8], x[13]);
        quarter_round(x[3], x[4], x[9], x[14]);
    }

    /// Adds the initial state to words First .. First + 3 of all blocks and writes them.
    template <std::size_t First>
    static TENSAFE_INLINE void add_and_store(const words (&x)[16], const words (&initial)[16],
                                             std::uint8_t* out) noexcept {
        lanes r[4] = {{x[First] + initial[First]},
                      {x[First + 1] + initial[First + 1]},
                      {x[First + 2] + initial[First + 2]},
                      {x[First + 3] + initial[First + 3]}};
        transpose(r);
        store<0>(r, out + 4 * First);
        if constexpr (W == 8) {
            store<1>(r, out + 4 * First);
        }
    }

    /// Turns four words of all blocks into four words of blocks (0, 4, ...), (1, 5, ...), and so on.
    static TENSAFE_INLINE void transpose(lanes (&r)[4]) noexcept {
        auto low01 = words_of<0>(r[0], r[1], std::make_index_sequence<W>());
        auto high01 = words_of<2>(r[0], r[1], std::make_index_sequence<W>());
        auto low23 = words_of<0>(r[2], r[3], std::make_index_sequence<W>());
        auto high23 = words_of<2>(r[2], r[3], std::make_index_sequence<W>());
        simd::unpack(low01, low23);
        simd::unpack(high01, high23);
        r[0] = simd::bit_cast<std::uint32_t>(low01);
        r[1] = simd::bit_cast<std::uint32_t>(low23);
        r[2] = simd::bit_cast<std::uint32_t>(high01);
        r[3] = simd::bit_cast<std::uint32_t>(high23);
    }

  private:
    template <int Bits>
    static TENSAFE_INLINE void rotate_left(words& x) noexcept {
        if constexpr (rotation == chacha20_rotation::by_byte_shuffles && Bits % 8 == 0) {
            // One shuffle instead of two shifts and an or.
            constexpr auto from = [](int byte) { return byte / 4 * 4 + (byte + 4 - Bits / 8) % 4; };
            const auto in = simd::bit_cast<std::uint8_t>(lanes{x}).v;
            x = __builtin_bit_cast(
                words, __builtin_shufflevector(
                           in, in, from(0), from(1), from(2), from(3), from(4), from(5), from(6), from(7),
                           from(8), from(9), from(10), from(11), from(12), from(13), from(14), from(15),
                           from(16), from(17), from(18), from(19), from(20), from(21), from(22), from(23),
                           from(24), from(25), from(26), from(27), from(28), from(29), from(30), from(31)));
        } else {
            x = (x << Bits) | (x >> (32 - Bits));
        }
    }

    /// The pairs of words that two quarters of a and b give in turn.
    template <std::size_t from, std::size_t... I>
    static TENSAFE_INLINE auto words_of(const lanes& a, const lanes& b, std::index_sequence<I...>) noexcept {
        return simd::bit_cast<std::uint64_t>(
            simd::shuffle<(I / 4 * 4 + from + I % 4 / 2 + I % 2 * W)...>(a, b));
    }

    /// Writes four words of blocks 4 q .. 4 q + 3.
    template <int q>
    static TENSAFE_INLINE void store(const lanes (&r)[4], std::uint8_t* out) noexcept {
        out += 4 * q * chacha20_block_bytes;
        store_quarter<q>(r[0], out);
        store_quarter<q>(r[1], out + chacha20_block_bytes);
        store_quarter<q>(r[2], out + 2 * chacha20_block_bytes);
        store_quarter<q>(r[3], out + 3 * chacha20_block_bytes);
    }
    template <int q>
    static TENSAFE_INLINE void store_quarter(const lanes& x, std::uint8_t* out) noexcept {
        const auto four = __builtin_shufflevector(x.v, x.v, 4 * q, 4 * q + 1, 4 * q + 2, 4 * q + 3);
        std::memcpy(out, &four, sizeof four);
    }
};

/// The words from which block `counter` starts.
inline void chacha20_initial(const chacha20_state& state, std::uint32_t counter,
                             std::uint32_t (&x)[16]) noexcept {
    x[0] = chacha20_constant<0>;
    x[1] = chacha20_constant<1>;
    x[2] = chacha20_constant<2>;
    x[3] = chacha20_constant<3>;
    std::memcpy(x + 4, state.key, sizeof state.key);
    x[12] = counter;
    std::memcpy(x + 13, state.nonce, sizeof state.nonce);
}

/// Writes `count` blocks from number `first` on; the last group may be cut short.
template <class Lanes>
TENSAFE_INLINE void chacha20_keystream(const chacha20_state& state, std::uint32_t first, std::uint8_t* out,
                                       std::size_t count) noexcept {
    using words = typename Lanes::words;
    // Spread over the lanes once for all groups; the rounds need every register, so this stays in memory.
    words initial[16];
    std::uint32_t start[16];
    chacha20_initial(state, first, start);
    for (int i = 0; i < 16; ++i) {
        initial[i] = words{} + start[i];
    }
    memory::wipe(start);
    for (std::size_t l = 0; l < Lanes::blocks; ++l) {
        initial[12][l] += static_cast<std::uint32_t>(l);
    }
    alignas(64) std::uint8_t last[Lanes::blocks * chacha20_block_bytes];
    while (count != 0) {
        const bool whole = count >= Lanes::blocks;
        words x[16] = {initial[0],  initial[1],  initial[2],  initial[3], initial[4],  initial[5],
                       initial[6],  initial[7],  initial[8],  initial[9], initial[10], initial[11],
                       initial[12], initial[13], initial[14], initial[15]};
        for (int round = 0; round < chacha20_double_rounds; ++round) {
            Lanes::column_round(x);
            Lanes::diagonal_round(x);
        }
        std::uint8_t* const to = whole ? out : last;
        Lanes::template add_and_store<0>(x, initial, to);
        Lanes::template add_and_store<4>(x, initial, to);
        Lanes::template add_and_store<8>(x, initial, to);
        Lanes::template add_and_store<12>(x, initial, to);
        if (!whole) {
            std::memcpy(out, last, count * chacha20_block_bytes);
            memory::wipe(last);
            break;
        }
        initial[12] += static_cast<std::uint32_t>(Lanes::blocks);
        out += Lanes::blocks * chacha20_block_bytes;
        count -= Lanes::blocks;
    }
    memory::wipe(initial);
}

}  // namespace detail

}  // namespace tensafe::random
