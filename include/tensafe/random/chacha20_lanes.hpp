#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20_block.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

// Many blocks of the key stream at once: lane l of every vector belongs to block first + l. Host only.
//
// The vectors are those of GCC and clang, so one body serves every machine. What differs is the register
// width, hence one policy per width. No vector is passed or returned by value: a 32-byte one has no calling
// convention without AVX.

namespace tensafe::random {

static_assert(std::endian::native == std::endian::little,
              "random: the streams are little endian and no byte-swapping path has been written");

inline constexpr std::size_t chacha20_block_bytes = 64;

/// What a stream's blocks share: the key and the nonce, as little-endian words.
struct chacha20_state {
    std::uint32_t key[8];
    std::uint32_t nonce[3];
};

namespace detail {

/// Four blocks in 16-byte registers, which every machine has.
struct chacha20_lanes4 {
    using words = std::uint32_t __attribute__((vector_size(16)));
    static constexpr std::size_t blocks = 4;
    static constexpr words index = {0, 1, 2, 3};

    template <int Bits>
    static TENSAFE_INLINE void rotate_left(words& x) noexcept {
        x = (x << Bits) | (x >> (32 - Bits));
    }

    /// Turns four words of four blocks into four blocks of four words.
    static TENSAFE_INLINE void transpose(words& a, words& b, words& c, words& d) noexcept {
        const words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        const words ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        const words cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        const words cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
        b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
        c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
        d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
    }

    /// Adds the initial state to words First .. First + 7 of the four blocks and writes them.
    template <int First>
    static TENSAFE_INLINE void add_and_store(words (&x)[16], const words (&initial)[16],
                                             std::uint8_t* out) noexcept {
        add_and_store_four<First>(x, initial, out);
        add_and_store_four<First + 4>(x, initial, out);
    }

  private:
    template <int First>
    static TENSAFE_INLINE void add_and_store_four(words (&x)[16], const words (&initial)[16],
                                                  std::uint8_t* out) noexcept {
        words a = x[First] + initial[First];
        words b = x[First + 1] + initial[First + 1];
        words c = x[First + 2] + initial[First + 2];
        words d = x[First + 3] + initial[First + 3];
        transpose(a, b, c, d);
        std::memcpy(out + 4 * First, &a, sizeof(words));
        std::memcpy(out + 4 * First + 64, &b, sizeof(words));
        std::memcpy(out + 4 * First + 128, &c, sizeof(words));
        std::memcpy(out + 4 * First + 192, &d, sizeof(words));
    }
};

// The rounds of chacha20_block once more: nvcc takes no vectors in functions that the device shares.
template <class Lanes, class Words>
TENSAFE_INLINE void chacha20_quarter_rounds(Words& a, Words& b, Words& c, Words& d) noexcept {
    a += b;
    d ^= a;
    Lanes::template rotate_left<16>(d);
    c += d;
    b ^= c;
    Lanes::template rotate_left<12>(b);
    a += b;
    d ^= a;
    Lanes::template rotate_left<8>(d);
    c += d;
    b ^= c;
    Lanes::template rotate_left<7>(b);
}

/// `count` blocks from number `first` on; the last group may be cut short.
template <class Lanes>
TENSAFE_INLINE void chacha20_keystream(const chacha20_state& state, std::uint32_t first, std::uint8_t* out,
                                       std::size_t count) noexcept {
    using words = typename Lanes::words;
    // Spread over the lanes once for all groups; the rounds need every register, so this stays in memory.
    words initial[16] = {
        words{} + chacha20_constant<0>, words{} + chacha20_constant<1>, words{} + chacha20_constant<2>,
        words{} + chacha20_constant<3>, words{} + state.key[0],         words{} + state.key[1],
        words{} + state.key[2],         words{} + state.key[3],         words{} + state.key[4],
        words{} + state.key[5],         words{} + state.key[6],         words{} + state.key[7],
        Lanes::index + first,           words{} + state.nonce[0],       words{} + state.nonce[1],
        words{} + state.nonce[2]};
    alignas(64) std::uint8_t last[Lanes::blocks * chacha20_block_bytes];
    while (count != 0) {
        const bool whole = count >= Lanes::blocks;
        words x[16] = {initial[0],  initial[1],  initial[2],  initial[3], initial[4],  initial[5],
                       initial[6],  initial[7],  initial[8],  initial[9], initial[10], initial[11],
                       initial[12], initial[13], initial[14], initial[15]};
        for (int round = 0; round < chacha20_double_rounds; ++round) {
            chacha20_quarter_rounds<Lanes>(x[0], x[4], x[8], x[12]);
            chacha20_quarter_rounds<Lanes>(x[1], x[5], x[9], x[13]);
            chacha20_quarter_rounds<Lanes>(x[2], x[6], x[10], x[14]);
            chacha20_quarter_rounds<Lanes>(x[3], x[7], x[11], x[15]);
            chacha20_quarter_rounds<Lanes>(x[0], x[5], x[10], x[15]);
            chacha20_quarter_rounds<Lanes>(x[1], x[6], x[11], x[12]);
            chacha20_quarter_rounds<Lanes>(x[2], x[7], x[8], x[13]);
            chacha20_quarter_rounds<Lanes>(x[3], x[4], x[9], x[14]);
        }
        std::uint8_t* const to = whole ? out : last;
        Lanes::template add_and_store<0>(x, initial, to);
        Lanes::template add_and_store<8>(x, initial, to);
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

inline void chacha20_keystream_portable(const chacha20_state& state, std::uint32_t first, std::uint8_t* out,
                                        std::size_t count) noexcept {
    chacha20_keystream<chacha20_lanes4>(state, first, out, count);
}

}  // namespace detail

}  // namespace tensafe::random
