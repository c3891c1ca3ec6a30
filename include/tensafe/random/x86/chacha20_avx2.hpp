#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/random/chacha20_lanes.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if TENSAFE_X86_64

namespace tensafe::random::detail {

/// Eight blocks in 32-byte registers.
struct chacha20_lanes8 {
    using words = std::uint32_t __attribute__((vector_size(32)));
    using bytes = std::uint8_t __attribute__((vector_size(32)));
    static constexpr std::size_t blocks = 8;
    static constexpr words index = {0, 1, 2, 3, 4, 5, 6, 7};

    /// Rotations by whole bytes are one shuffle instead of two shifts and an or.
    template <int Bits>
    static TENSAFE_INLINE void rotate_left(words& x) noexcept {
        if constexpr (Bits == 16) {
            const auto in = __builtin_bit_cast(bytes, x);
            x = __builtin_bit_cast(words, __builtin_shufflevector(in, in, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8,
                                                                  9, 14, 15, 12, 13, 18, 19, 16, 17, 22, 23,
                                                                  20, 21, 26, 27, 24, 25, 30, 31, 28, 29));
        } else if constexpr (Bits == 8) {
            const auto in = __builtin_bit_cast(bytes, x);
            x = __builtin_bit_cast(words, __builtin_shufflevector(in, in, 3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9,
                                                                  10, 15, 12, 13, 14, 19, 16, 17, 18, 23, 20,
                                                                  21, 22, 27, 24, 25, 26, 31, 28, 29, 30));
        } else {
            x = (x << Bits) | (x >> (32 - Bits));
        }
    }

    /// Turns four words of eight blocks into four words of blocks (0, 4), (1, 5), (2, 6), (3, 7).
    static TENSAFE_INLINE void transpose(words& a, words& b, words& c, words& d) noexcept {
        const words ab_low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
        const words ab_high = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
        const words cd_low = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
        const words cd_high = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
        a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 8, 9, 4, 5, 12, 13);
        b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 10, 11, 6, 7, 14, 15);
        c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 8, 9, 4, 5, 12, 13);
        d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 10, 11, 6, 7, 14, 15);
    }

    /// Adds the initial state to words First .. First + 7 of the eight blocks and writes them.
    template <int First>
    static TENSAFE_INLINE void add_and_store(words (&x)[16], const words (&initial)[16],
                                             std::uint8_t* out) noexcept {
        words a = x[First] + initial[First];
        words b = x[First + 1] + initial[First + 1];
        words c = x[First + 2] + initial[First + 2];
        words d = x[First + 3] + initial[First + 3];
        words e = x[First + 4] + initial[First + 4];
        words f = x[First + 5] + initial[First + 5];
        words g = x[First + 6] + initial[First + 6];
        words h = x[First + 7] + initial[First + 7];
        transpose(a, b, c, d);
        transpose(e, f, g, h);
        store_pair(a, e, out + 4 * First);
        store_pair(b, f, out + 4 * First + 64);
        store_pair(c, g, out + 4 * First + 128);
        store_pair(d, h, out + 4 * First + 192);
    }

  private:
    /// Eight words of block i and of block i + 4, from the four lower and the four upper words of both.
    static TENSAFE_INLINE void store_pair(const words& lower, const words& upper,
                                          std::uint8_t* out) noexcept {
        const words near = __builtin_shufflevector(lower, upper, 0, 1, 2, 3, 8, 9, 10, 11);
        const words far = __builtin_shufflevector(lower, upper, 4, 5, 6, 7, 12, 13, 14, 15);
        std::memcpy(out, &near, sizeof(words));
        std::memcpy(out + 4 * chacha20_block_bytes, &far, sizeof(words));
    }
};

TENSAFE_AVX2 inline void chacha20_keystream_avx2(const chacha20_state& state, std::uint32_t first,
                                                 std::uint8_t* out, std::size_t count) noexcept {
    chacha20_keystream<chacha20_lanes8>(state, first, out, count);
}

}  // namespace tensafe::random::detail

#endif
