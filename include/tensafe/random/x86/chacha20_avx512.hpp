#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20_block.hpp>
#include <tensafe/random/chacha20_lanes.hpp>
#include <tensafe/random/x86/chacha20_avx2.hpp>
#include <tensafe/random/x86/quarters_avx512.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

/// Sixteen blocks in 64-byte registers: half of them hold the state, and a rotation is one instruction.
struct chacha20_lanes16 {
    using words = __m512i;
    static constexpr std::size_t blocks = 16;

    /// One word in every lane. In an addition the processor spreads it while loading, so what the blocks
    /// share stays 64 bytes in memory and takes no register.
    TENSAFE_AVX512 static TENSAFE_INLINE words spread(std::uint32_t word) noexcept {
        return _mm512_set1_epi32(static_cast<int>(word));
    }

    template <int Bits>
    TENSAFE_AVX512 static TENSAFE_INLINE words rotate_left(const words& x) noexcept {
        return _mm512_maskz_rol_epi32(every_word32, x, Bits);
    }

    TENSAFE_AVX512 static TENSAFE_INLINE void quarter_round(words& a, words& b, words& c, words& d) noexcept {
        a = _mm512_add_epi32(a, b);
        d = rotate_left<16>(_mm512_xor_si512(d, a));
        c = _mm512_add_epi32(c, d);
        b = rotate_left<12>(_mm512_xor_si512(b, c));
        a = _mm512_add_epi32(a, b);
        d = rotate_left<8>(_mm512_xor_si512(d, a));
        c = _mm512_add_epi32(c, d);
        b = rotate_left<7>(_mm512_xor_si512(b, c));
    }

    TENSAFE_AVX512 static TENSAFE_INLINE void column_round(words (&x)[16]) noexcept {
        quarter_round(x[0], x[4], x[8], x[12]);
        quarter_round(x[1], x[5], x[9], x[13]);
        quarter_round(x[2], x[6], x[10], x[14]);
        quarter_round(x[3], x[7], x[11], x[15]);
    }

    TENSAFE_AVX512 static TENSAFE_INLINE void diagonal_round(words (&x)[16]) noexcept {
        quarter_round(x[0], x[5], x[10], x[15]);
        quarter_round(x[1], x[6], x[11], x[12]);
        quarter_round(x[2], x[7], x[8], x[13]);
        quarter_round(x[3], x[4], x[9], x[14]);
    }

    /// Turns four words of sixteen blocks into four words of blocks (0, 4, 8, 12), (1, 5, 9, 13), and so on.
    TENSAFE_AVX512 static TENSAFE_INLINE void transpose(words& a, words& b, words& c, words& d) noexcept {
        const words ab_low = _mm512_maskz_unpacklo_epi32(every_word32, a, b);
        const words ab_high = _mm512_maskz_unpackhi_epi32(every_word32, a, b);
        const words cd_low = _mm512_maskz_unpacklo_epi32(every_word32, c, d);
        const words cd_high = _mm512_maskz_unpackhi_epi32(every_word32, c, d);
        a = _mm512_maskz_unpacklo_epi64(every_word64, ab_low, cd_low);
        b = _mm512_maskz_unpackhi_epi64(every_word64, ab_low, cd_low);
        c = _mm512_maskz_unpacklo_epi64(every_word64, ab_high, cd_high);
        d = _mm512_maskz_unpackhi_epi64(every_word64, ab_high, cd_high);
    }

    /// Blocks i, i + 4, i + 8 and i + 12, from the quarter of each that each argument holds.
    TENSAFE_AVX512 static TENSAFE_INLINE void store_four(words& a, words& b, words& c, words& d,
                                                         std::uint8_t* out) noexcept {
        constexpr std::size_t step = 4 * chacha20_block_bytes;
        transpose_quarters(a, b, c, d);
        _mm512_storeu_si512(out, a);
        _mm512_storeu_si512(out + step, b);
        _mm512_storeu_si512(out + 2 * step, c);
        _mm512_storeu_si512(out + 3 * step, d);
    }
};

/// Eight blocks in 32-byte registers, of which the compiler makes rotations of one instruction each.
struct chacha20_lanes8_rotating : chacha20_lanes8 {
    template <int Bits>
    static TENSAFE_INLINE void rotate_left(words& x) noexcept {
        x = (x << Bits) | (x >> (32 - Bits));
    }
};

/// The words from which every group of sixteen blocks starts.
struct chacha20_start {
    /// Word 12, the counter, has none here.
    std::uint32_t initial[16];
    /// After the first column round. Only column 0 meets the counter: the other three are the same for all
    /// blocks, and their quarter rounds are done once.
    std::uint32_t columns[16];
};

inline void chacha20_prepare(const chacha20_state& state, chacha20_start& start) noexcept {
    std::uint32_t* const x = start.initial;
    x[0] = chacha20_constant<0>;
    x[1] = chacha20_constant<1>;
    x[2] = chacha20_constant<2>;
    x[3] = chacha20_constant<3>;
    std::memcpy(x + 4, state.key, sizeof state.key);
    x[12] = 0;
    std::memcpy(x + 13, state.nonce, sizeof state.nonce);
    std::memcpy(start.columns, x, sizeof start.columns);
    std::uint32_t* const y = start.columns;
    chacha20_quarter_round(y[1], y[5], y[9], y[13]);
    chacha20_quarter_round(y[2], y[6], y[10], y[14]);
    chacha20_quarter_round(y[3], y[7], y[11], y[15]);
}

/// Blocks first .. first + 15. Not inlined: in a loop the compiler would spread the words once and keep the
/// vectors, the key among them, on the stack.
TENSAFE_AVX512 __attribute__((noinline)) inline void chacha20_sixteen(const chacha20_start& start,
                                                                      std::uint32_t first,
                                                                      std::uint8_t* out) noexcept {
    using lanes = chacha20_lanes16;
    const __m512i counters = _mm512_add_epi32(
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), lanes::spread(first));
    const std::uint32_t* const y = start.columns;
    __m512i x[16] = {lanes::spread(y[0]),
                     lanes::spread(y[1]),
                     lanes::spread(y[2]),
                     lanes::spread(y[3]),
                     lanes::spread(y[4]),
                     lanes::spread(y[5]),
                     lanes::spread(y[6]),
                     lanes::spread(y[7]),
                     lanes::spread(y[8]),
                     lanes::spread(y[9]),
                     lanes::spread(y[10]),
                     lanes::spread(y[11]),
                     counters,
                     lanes::spread(y[13]),
                     lanes::spread(y[14]),
                     lanes::spread(y[15])};
    lanes::quarter_round(x[0], x[4], x[8], x[12]);
    lanes::diagonal_round(x);
    for (int round = 1; round < chacha20_double_rounds; ++round) {
        lanes::column_round(x);
        lanes::diagonal_round(x);
    }
    const std::uint32_t* const s = start.initial;
    x[0] = _mm512_add_epi32(x[0], lanes::spread(s[0]));
    x[1] = _mm512_add_epi32(x[1], lanes::spread(s[1]));
    x[2] = _mm512_add_epi32(x[2], lanes::spread(s[2]));
    x[3] = _mm512_add_epi32(x[3], lanes::spread(s[3]));
    lanes::transpose(x[0], x[1], x[2], x[3]);
    x[4] = _mm512_add_epi32(x[4], lanes::spread(s[4]));
    x[5] = _mm512_add_epi32(x[5], lanes::spread(s[5]));
    x[6] = _mm512_add_epi32(x[6], lanes::spread(s[6]));
    x[7] = _mm512_add_epi32(x[7], lanes::spread(s[7]));
    lanes::transpose(x[4], x[5], x[6], x[7]);
    x[8] = _mm512_add_epi32(x[8], lanes::spread(s[8]));
    x[9] = _mm512_add_epi32(x[9], lanes::spread(s[9]));
    x[10] = _mm512_add_epi32(x[10], lanes::spread(s[10]));
    x[11] = _mm512_add_epi32(x[11], lanes::spread(s[11]));
    lanes::transpose(x[8], x[9], x[10], x[11]);
    x[12] = _mm512_add_epi32(x[12], counters);
    x[13] = _mm512_add_epi32(x[13], lanes::spread(s[13]));
    x[14] = _mm512_add_epi32(x[14], lanes::spread(s[14]));
    x[15] = _mm512_add_epi32(x[15], lanes::spread(s[15]));
    lanes::transpose(x[12], x[13], x[14], x[15]);
    lanes::store_four(x[0], x[4], x[8], x[12], out);
    lanes::store_four(x[1], x[5], x[9], x[13], out + chacha20_block_bytes);
    lanes::store_four(x[2], x[6], x[10], x[14], out + 2 * chacha20_block_bytes);
    lanes::store_four(x[3], x[7], x[11], x[15], out + 3 * chacha20_block_bytes);
}

/// Sixteen blocks at a time while more than eight are left, then eight.
TENSAFE_AVX512 inline void chacha20_keystream_avx512(const chacha20_state& state, std::uint32_t first,
                                                     std::uint8_t* out, std::size_t count) noexcept {
    constexpr std::size_t lanes = chacha20_lanes16::blocks;
    if (count > chacha20_lanes8::blocks) {
        chacha20_start start;
        chacha20_prepare(state, start);
        do {
            const std::size_t taken = count < lanes ? count : lanes;
            if (taken == lanes) {
                chacha20_sixteen(start, first, out);
            } else {
                alignas(64) std::uint8_t last[lanes * chacha20_block_bytes];
                chacha20_sixteen(start, first, last);
                std::memcpy(out, last, taken * chacha20_block_bytes);
                memory::wipe(last);
            }
            first += static_cast<std::uint32_t>(taken);
            out += taken * chacha20_block_bytes;
            count -= taken;
        } while (count > chacha20_lanes8::blocks);
        memory::wipe(start);
    }
    if (count != 0) {
        chacha20_keystream<chacha20_lanes8_rotating>(state, first, out, count);
    }
}

}  // namespace tensafe::random::detail

#endif
