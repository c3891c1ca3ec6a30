#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/error_groups.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/x86/ternary.hpp>
#include <tensafe/random/x86/uniform_draws.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/transpose.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>
#include <tensafe/simd/x86/target_avx512.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

// How the bytes of a stream become coefficients: docs/design/random-streams.md, which also proves the bounds.
// Each sampler gives the same values on every machine, and none allocates.

namespace tensafe::random {

namespace detail {

/// The number of coefficients drawn together: whole groups of blocks for every width, and a chunk fits L1.
inline constexpr std::size_t uniform_chunk = 1024;
/// The bytes that may be read behind the last draw: draws are loaded 64 bytes at a time at most.
inline constexpr std::size_t uniform_slack = 64;

/// Draw k of a chunk: Width bytes, little endian, cut to the bits of q.
template <std::size_t Width>
TENSAFE_INLINE std::uint64_t uniform_draw(const std::uint8_t* bytes, std::size_t k,
                                          std::uint64_t mask) noexcept {
    std::uint64_t word;
    std::memcpy(&word, bytes + k * Width, sizeof word);
    return word & mask;
}

/// Blocks drawn again together: the widest back-end makes sixteen in the time of two or three alone.
inline constexpr std::size_t uniform_redrawn_blocks = 16;

/// Writes the draws to `out`. Returns whether any of them is not below q.
template <std::size_t Width>
bool uniform_draws(const std::uint8_t* bytes, std::uint64_t mask, std::uint64_t q,
                   std::span<std::uint64_t> out) noexcept {
    std::size_t first = 0;
    bool rejected = false;
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return uniform_draws_avx512<Width>(bytes, mask, q, out);
        case exec::backend::avx2:
            first = out.size() / 4 * 4;
            rejected = uniform_draws_avx2<Width>(bytes, mask, q, out);
            break;
        case exec::backend::portable:
            break;
    }
#endif
    for (std::size_t k = first; k < out.size(); ++k) {
        out[k] = uniform_draw<Width>(bytes, k, mask);
        rejected |= out[k] >= q;
    }
    return rejected;
}

/// Draws the coefficients that are not below q again until they are. `bytes` has room for the stream's place
/// of `out`, from first_block on, and the slack behind it; its content is overwritten.
template <std::size_t Width>
void redraw_uniform(const seed& key, stream_domain domain, std::uint32_t lane, std::uint64_t q,
                    std::uint64_t mask, std::uint64_t first_block, std::span<std::uint8_t> bytes,
                    std::span<std::uint64_t> out) noexcept {
    // Every index is written, and kept if it is needed: which ones are rejected cannot be predicted.
    std::uint16_t rejected[uniform_chunk];
    std::size_t count = 0;
    for (std::size_t k = 0; k < out.size(); ++k) {
        rejected[count] = static_cast<std::uint16_t>(k);
        count += static_cast<std::size_t>(out[k] >= q);
    }
    for (std::uint32_t round = 1; count != 0; ++round) {
        const chacha20_stream stream(key, domain, lane, round);
        std::size_t kept = 0;
        std::size_t end = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t k = rejected[i];
            if (k * Width + Width > end) {
                const std::size_t start = k * Width / chacha20_block_bytes * chacha20_block_bytes;
                end = std::min(start + uniform_redrawn_blocks * chacha20_block_bytes, bytes.size());
                stream.generate(first_block + start / chacha20_block_bytes,
                                bytes.subspan(start, end - start));
            }
            out[k] = uniform_draw<Width>(bytes.data(), k, mask);
            rejected[kept] = rejected[i];
            kept += static_cast<std::size_t>(out[k] >= q);
        }
        count = kept;
    }
}

/// Draws coefficients [first, first + out.size()) of sample_uniform; at most uniform_chunk.
template <std::size_t Width>
void sample_uniform_chunk(const seed& key, stream_domain domain, std::uint32_t lane, std::uint64_t q,
                          std::size_t first, std::span<std::uint64_t> out) noexcept {
    alignas(64) std::uint8_t bytes[uniform_chunk * Width + uniform_slack];
    const std::size_t used =
        (out.size() * Width + chacha20_block_bytes - 1) / chacha20_block_bytes * chacha20_block_bytes;
    std::memset(bytes + used, 0, uniform_slack);
    const std::uint64_t first_block = first * Width / chacha20_block_bytes;
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(q);

    chacha20_stream(key, domain, lane, 0).generate(first_block, {bytes, used});
    if (uniform_draws<Width>(bytes, mask, q, out)) {
        redraw_uniform<Width>(key, domain, lane, q, mask, first_block, {bytes, used}, out);
    }
}

template <std::size_t Width>
void sample_uniform_width(const seed& key, stream_domain domain, std::uint32_t lane, std::uint64_t q,
                          std::span<std::uint64_t> out) noexcept {
    TENSAFE_PRECONDITION(out.size() <= chacha20_stream_blocks * chacha20_block_bytes / Width);
    for (std::size_t first = 0; first < out.size(); first += uniform_chunk) {
        const std::size_t count = std::min(uniform_chunk, out.size() - first);
        sample_uniform_chunk<Width>(key, domain, lane, q, first, out.subspan(first, count));
    }
}

}  // namespace detail

/// Fills `out` with values uniform in [0, q): coefficient k from bytes [k w, k w + w) of the stream, w the
/// bytes of q, and from the same place of the next round's stream while the value is not below q. A
/// coefficient depends on its own index only.
///
/// For public values only: the time shows which values were drawn again.
/// @pre  q >= 1; out.size() * w <= 2^38
/// Cost: w bytes of key stream per coefficient, and at most 16 blocks for a rejected one and its neighbours.
TENSAFE_COMPILED_INLINE void sample_uniform(const seed& key, stream_domain domain, std::uint32_t lane,
                                            std::uint64_t q, std::span<std::uint64_t> out) noexcept {
    TENSAFE_PRECONDITION(q >= 1);
    constexpr auto of_width = []<std::size_t... I>(std::index_sequence<I...>) {
        return std::array{&detail::sample_uniform_width<I + 1>...};
    }
    (std::make_index_sequence<sizeof q>());
    of_width[static_cast<std::size_t>(std::bit_width(q) - 1) / 8](key, domain, lane, q, out);
}

/// Samples uniform values modulo a Q that the compiler knows: it compiles draws of one width, not of eight.
template <std::uint64_t Q>
void sample_uniform(const seed& key, stream_domain domain, std::uint32_t lane,
                    std::span<std::uint64_t> out) noexcept {
    static_assert(Q >= 1);
    detail::sample_uniform_width<static_cast<std::size_t>(std::bit_width(Q) + 7) / 8>(key, domain, lane, Q,
                                                                                      out);
}

namespace detail {

/// The number of coefficients of a word: its first base-3 digits, less one.
inline constexpr std::size_t word_trits = 4;

/// Writes four coefficients for each word of 8 bytes, little endian.
inline void ternary_words(const std::uint8_t* bytes, std::size_t words, std::int8_t* out) noexcept {
    std::size_t done = 0;
#if TENSAFE_X86_64
    if (exec::active_backend() != exec::backend::portable) {
        done = ternary_avx2(bytes, words, out);
    }
#endif
    for (std::size_t i = done; i < words; ++i) {
        arith::word fraction;
        std::memcpy(&fraction, bytes + i * sizeof fraction, sizeof fraction);
        for (std::size_t trit = 0; trit < word_trits; ++trit) {
            const arith::uint128 product = arith::mul_wide(fraction, 3);
            out[i * word_trits + trit] =
                static_cast<std::int8_t>(static_cast<int>(arith::high_word(product)) - 1);
            fraction = arith::low_word(product);
        }
    }
}

}  // namespace detail

/// Fills `out` with values uniform in {-1, 0, 1}, for secret keys: the first four base-3 digits of each
/// 64-bit word read as a fraction, at a statistical distance below 2^-58 per word. Secret values: constant
/// time, and what lies in between is wiped.
/// @pre  out.size() is a multiple of 4 and at most 2^37
/// Cost: 2 bytes of key stream per coefficient.
TENSAFE_COMPILED_INLINE void sample_ternary(const seed& key, stream_domain domain, std::uint32_t lane,
                                            std::span<std::int8_t> out) noexcept {
    TENSAFE_PRECONDITION(out.size() % detail::word_trits == 0);
    TENSAFE_PRECONDITION(std::uint64_t{out.size()} / detail::word_trits <=
                         chacha20_stream_blocks * chacha20_block_bytes / sizeof(std::uint64_t));
    detail::for_each_chunk<1, 512>(chacha20_stream(key, domain, lane), 0, out.size() / detail::word_trits,
                                   [&](const std::uint64_t* words, std::size_t first, std::size_t count) {
                                       detail::ternary_words(reinterpret_cast<const std::uint8_t*>(words),
                                                             count, out.data() + first * detail::word_trits);
                                   });
}

namespace detail {

/// Converts W groups at once, one per lane. Fold expressions, because g++ does not unroll loops at -O2.
template <std::size_t W, class = std::make_index_sequence<W>>
struct error_lanes;
template <std::size_t W, std::size_t... Lane>
struct error_lanes<W, std::index_sequence<Lane...>> {
    using lanes = simd::lanes<std::uint64_t, W>;
    using words = typename lanes::native;

    /// Loads W words of each group: word i of group g into lane g of to[i].
    static TENSAFE_INLINE void load(const std::uint64_t* from, words* to) noexcept {
        lanes r[W] = {lanes::load(from + Lane * error_words)...};
        simd::transpose(r);
        ((to[Lane] = r[Lane].v), ...);
    }
    template <std::size_t... I>
    static TENSAFE_INLINE void load_all(const std::uint64_t* from, words* to,
                                        std::index_sequence<I...>) noexcept {
        (load(from + W * I, to + W * I), ...);
        if constexpr (error_words % W != 0) {  // some words for the second time
            load(from + error_words - W, to + error_words - W);
        }
    }
    /// Stores W rows as the 8 W coefficients of each group that they hold.
    static TENSAFE_INLINE void store(const words* rows, std::int8_t* out) noexcept {
        lanes r[W] = {{rows[Lane]}...};
        simd::transpose(r);
        (std::memcpy(out + Lane * error_group, &r[Lane], sizeof(lanes)), ...);
    }
};

/// Converts whole vectors of W groups, and returns the number of groups: the body of a kernel.
template <std::size_t W>
TENSAFE_INLINE std::size_t error_vectors(const std::uint64_t* from, std::size_t groups,
                                         std::int8_t* out) noexcept {
    using lanes = error_lanes<W>;
    typename lanes::words words[error_words];
    typename lanes::words rows[8];
    std::size_t done = 0;
    for (; done + W <= groups; done += W) {
        lanes::load_all(from + done * error_words, words, std::make_index_sequence<error_words / W>());
        error_rows(words, rows);
        for (std::size_t row = 0; row < 8; row += W) {
            lanes::store(rows + row, out + done * error_group + 8 * row);
        }
    }
    memory::wipe(words);
    memory::wipe(rows);
    return done;
}

/// Turns the words of `groups` groups into 64 coefficients each. Not inlined: the caller wipes its frames.
__attribute__((noinline)) inline void error_groups(const std::uint64_t* words, std::size_t groups,
                                                   std::int8_t* out) noexcept {
    std::size_t done = 0;
#if TENSAFE_X86_64
    if (exec::active_backend() == exec::backend::avx512) {
        done = simd::avx512::kernel<&error_vectors<8>>(words, groups, out);
    } else if (exec::active_backend() == exec::backend::avx2) {
        done = simd::avx2::kernel<&error_vectors<4>>(words, groups, out);
    }
#endif
    error_vectors<1>(words + done * error_words, groups - done, out + done * error_group);
}

}  // namespace detail

/// Fills `out` with errors, in [-11, 11]: coefficient 64 g + j from bit j of the twelve words of the stream
/// from byte 96 g on. Secret values: constant time, and the buffers in between are wiped.
/// @pre  out.size() is a multiple of 64 and at most 2^35
/// Cost: 1.5 bytes of key stream per coefficient.
TENSAFE_COMPILED_INLINE void sample_error(const seed& key, stream_domain domain, std::uint32_t lane,
                                          std::span<std::int8_t> out) noexcept {
    TENSAFE_PRECONDITION(out.size() % detail::error_group == 0);
    TENSAFE_PRECONDITION(std::uint64_t{out.size()} <= std::uint64_t{1} << 35);
    // 64 groups are 96 blocks: chunks leave no group of sixteen blocks cut short.
    detail::for_each_chunk<detail::error_words, 64>(
        chacha20_stream(key, domain, lane), 0, out.size() / detail::error_group,
        [&](const std::uint64_t* words, std::size_t first, std::size_t count) {
            detail::error_groups(words, count, out.data() + first * detail::error_group);
            memory::wipe_frames<2048>();
        });
}

}  // namespace tensafe::random
