#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20_block.hpp>
#include <tensafe/random/chacha20_lanes.hpp>
#include <tensafe/random/x86/quarters_avx512.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

/// The words from which every group of sixteen blocks starts.
struct chacha20_start {
    /// The state's words, without word 12, the counter.
    std::uint32_t initial[16];
    /// The words after the first column round. Only column 0 meets the counter: the other three are the same
    /// for all blocks, and their quarter rounds are done once.
    std::uint32_t columns[16];
};

inline void chacha20_prepare(const chacha20_state& state, chacha20_start& start) noexcept {
    chacha20_initial(state, 0, start.initial);
    std::memcpy(start.columns, start.initial, sizeof start.columns);
    std::uint32_t* const y = start.columns;
    chacha20_quarter_round(y[1], y[5], y[9], y[13]);
    chacha20_quarter_round(y[2], y[6], y[10], y[14]);
    chacha20_quarter_round(y[3], y[7], y[11], y[15]);
}

/// Writes blocks i, i + 4, i + 8 and i + 12, from the quarter of each that each argument holds.
TENSAFE_AVX512 TENSAFE_INLINE void store_blocks(const chacha20_lanes<16>::words& a,
                                                const chacha20_lanes<16>::words& b,
                                                const chacha20_lanes<16>::words& c,
                                                const chacha20_lanes<16>::words& d,
                                                std::uint8_t* out) noexcept {
    __m512i r[4] = {reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b), reinterpret_cast<__m512i>(c),
                    reinterpret_cast<__m512i>(d)};
    transpose_quarters(r[0], r[1], r[2], r[3]);
    _mm512_storeu_si512(out, r[0]);
    _mm512_storeu_si512(out + 4 * chacha20_block_bytes, r[1]);
    _mm512_storeu_si512(out + 8 * chacha20_block_bytes, r[2]);
    _mm512_storeu_si512(out + 12 * chacha20_block_bytes, r[3]);
}

TENSAFE_AVX512 TENSAFE_INLINE void hide(chacha20_lanes<16>::words& x) noexcept {
    __asm__("" : "+v"(x));
}

/// Spreads each word over all lanes. Hidden from g++ 12, which would add words before it spreads them and
/// then need the port of the shuffles.
template <std::size_t... I>
TENSAFE_AVX512 TENSAFE_INLINE void spread(const std::uint32_t* from, chacha20_lanes<16>::words* to,
                                          std::index_sequence<I...>) noexcept {
    ((to[I] = chacha20_lanes<16>::words{} + from[I]), ...);
    (hide(to[I]), ...);
}

/// Writes blocks first .. first + 15 from the last words of each.
TENSAFE_AVX512 TENSAFE_INLINE void finish_blocks(const std::uint32_t* s,
                                                 const chacha20_lanes<16>::words (&x)[16],
                                                 const chacha20_lanes<16>::words& counters,
                                                 std::uint8_t* out) noexcept {
    using sixteen = chacha20_lanes<16>;
    sixteen::lanes a[4] = {{x[0] + s[0]}, {x[1] + s[1]}, {x[2] + s[2]}, {x[3] + s[3]}};
    sixteen::lanes b[4] = {{x[4] + s[4]}, {x[5] + s[5]}, {x[6] + s[6]}, {x[7] + s[7]}};
    sixteen::lanes c[4] = {{x[8] + s[8]}, {x[9] + s[9]}, {x[10] + s[10]}, {x[11] + s[11]}};
    sixteen::lanes d[4] = {{x[12] + counters}, {x[13] + s[13]}, {x[14] + s[14]}, {x[15] + s[15]}};
    sixteen::transpose(a);
    sixteen::transpose(b);
    sixteen::transpose(c);
    sixteen::transpose(d);
    store_blocks(a[0].v, b[0].v, c[0].v, d[0].v, out);
    store_blocks(a[1].v, b[1].v, c[1].v, d[1].v, out + chacha20_block_bytes);
    store_blocks(a[2].v, b[2].v, c[2].v, d[2].v, out + 2 * chacha20_block_bytes);
    store_blocks(a[3].v, b[3].v, c[3].v, d[3].v, out + 3 * chacha20_block_bytes);
}

/// Writes sixteen blocks for each `set`, from number `first` on. One set alone waits for its own results; two
/// take all 32 registers, and some words go over the stack, which the caller wipes. Not inlined: in a loop
/// the compiler would spread the words once and keep the vectors, the key among them, on the stack. In an
/// addition the processor spreads a word while loading, so what the blocks share stays 64 bytes in memory and
/// takes no register.
template <std::size_t... set>
TENSAFE_AVX512 __attribute__((noinline)) inline void chacha20_sixteens(const chacha20_start& start,
                                                                       std::uint32_t first, std::uint8_t* out,
                                                                       std::index_sequence<set...>) noexcept {
    using sixteen = chacha20_lanes<16>;
    using words = sixteen::words;
    const words counters = words{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + first;
    words x[sizeof...(set)][16];
    (spread(start.columns, x[set], std::make_index_sequence<16>()), ...);
    ((x[set][12] = counters + static_cast<std::uint32_t>(16 * set)), ...);
    (sixteen::quarter_round(x[set][0], x[set][4], x[set][8], x[set][12]), ...);
    (sixteen::diagonal_round(x[set]), ...);
    for (int round = 1; round < chacha20_double_rounds; ++round) {
        (sixteen::column_round(x[set]), ...);
        (sixteen::diagonal_round(x[set]), ...);
    }
    (finish_blocks(start.initial, x[set], counters + static_cast<std::uint32_t>(16 * set),
                   out + 16 * set * chacha20_block_bytes),
     ...);
}

/// Writes 32 blocks at a time while there are as many, sixteen while more than eight are left, then eight.
TENSAFE_AVX512 inline void chacha20_keystream_avx512(const chacha20_state& state, std::uint32_t first,
                                                     std::uint8_t* out, std::size_t count) noexcept {
    constexpr std::size_t lanes = 16;
    constexpr auto one = std::make_index_sequence<1>();
    if (count > lanes / 2) {
        chacha20_start start;
        chacha20_prepare(state, start);
        do {
            std::size_t taken = lanes;
            if (count >= 2 * lanes) {
                taken = 2 * lanes;
                chacha20_sixteens(start, first, out, std::make_index_sequence<2>());
            } else if (count >= lanes) {
                chacha20_sixteens(start, first, out, one);
            } else {
                taken = count;
                alignas(64) std::uint8_t last[lanes * chacha20_block_bytes];
                chacha20_sixteens(start, first, last, one);
                std::memcpy(out, last, taken * chacha20_block_bytes);
                memory::wipe(last);
            }
            first += static_cast<std::uint32_t>(taken);
            out += taken * chacha20_block_bytes;
            count -= taken;
        } while (count > lanes / 2);
        memory::wipe(start);
    }
    if (count != 0) {
        chacha20_keystream<chacha20_lanes<8>>(state, first, out, count);
    }
}

}  // namespace tensafe::random::detail

#endif
