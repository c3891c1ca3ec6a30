#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/centred_binomial_groups.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/x86/centred_binomial_avx512.hpp>
#include <tensafe/random/x86/ternary.hpp>
#include <tensafe/random/x86/uniform_draws.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/transpose.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>

#include <algorithm>
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

/// Coefficients that are drawn together: whole groups of blocks for every width, and a chunk that stays in
/// L1.
inline constexpr std::size_t uniform_chunk = 1024;
/// Draws are loaded 64 bytes at a time at most, so the last ones read past their own.
inline constexpr std::size_t uniform_slack = 64;

/// Draw k of a chunk: Width bytes, little endian, cut to the bits of q.
template <std::size_t Width>
TENSAFE_INLINE std::uint64_t uniform_draw(const std::uint8_t* bytes, std::size_t k,
                                          std::uint64_t mask) noexcept {
    std::uint64_t word;
    std::memcpy(&word, bytes + k * Width, sizeof word);
    return word & mask;
}

/// Writes draws [first, out.size()). Returns whether any of them is not below q.
template <std::size_t Width>
bool uniform_draws_portable(const std::uint8_t* bytes, std::uint64_t mask, std::uint64_t q, std::size_t first,
                            std::span<std::uint64_t> out) noexcept {
    bool rejected = false;
    for (std::size_t k = first; k < out.size(); ++k) {
        const std::uint64_t value = uniform_draw<Width>(bytes, k, mask);
        out[k] = value;
        rejected |= value >= q;
    }
    return rejected;
}

/// Blocks that are drawn again together. One would do for a value alone, but the widest back-end makes
/// sixteen in the time of two or three calls for one.
inline constexpr std::size_t uniform_redrawn_blocks = 16;

/// Writes the draws. Returns whether any of them is not below q.
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
    return uniform_draws_portable<Width>(bytes, mask, q, first, out) || rejected;
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
/// Cost: w bytes of key stream per coefficient. A rejected value costs at most 16 blocks of the next round,
/// and shares them with others nearby.
TENSAFE_COMPILED_INLINE void sample_uniform(const seed& key, stream_domain domain, std::uint32_t lane,
                                            std::uint64_t q, std::span<std::uint64_t> out) noexcept {
    TENSAFE_PRECONDITION(q >= 1);
    switch ((std::bit_width(q) + 7) / 8) {
        case 1:
            return detail::sample_uniform_width<1>(key, domain, lane, q, out);
        case 2:
            return detail::sample_uniform_width<2>(key, domain, lane, q, out);
        case 3:
            return detail::sample_uniform_width<3>(key, domain, lane, q, out);
        case 4:
            return detail::sample_uniform_width<4>(key, domain, lane, q, out);
        case 5:
            return detail::sample_uniform_width<5>(key, domain, lane, q, out);
        case 6:
            return detail::sample_uniform_width<6>(key, domain, lane, q, out);
        case 7:
            return detail::sample_uniform_width<7>(key, domain, lane, q, out);
        default:
            return detail::sample_uniform_width<8>(key, domain, lane, q, out);
    }
}

/// As above, for a q that the compiler knows: it compiles draws of one width, not of eight.
template <std::uint64_t Q>
void sample_uniform(const seed& key, stream_domain domain, std::uint32_t lane,
                    std::span<std::uint64_t> out) noexcept {
    static_assert(Q >= 1);
    detail::sample_uniform_width<static_cast<std::size_t>(std::bit_width(Q) + 7) / 8>(key, domain, lane, Q,
                                                                                      out);
}

namespace detail {

/// Coefficients of a word: its first base-3 digits, less one.
inline constexpr std::size_t word_trits = 4;

/// Coefficients of the words [first, words), each 8 bytes, little endian.
inline void ternary_portable(const std::uint8_t* bytes, std::size_t first, std::size_t words,
                             std::int8_t* out) noexcept {
    for (std::size_t i = first; i < words; ++i) {
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

/// Four coefficients of each word.
inline void ternary_words(const std::uint8_t* bytes, std::size_t words, std::int8_t* out) noexcept {
    std::size_t done = 0;
#if TENSAFE_X86_64
    if (exec::active_backend() == exec::backend::avx512) {
        done = ternary_avx512(bytes, words, out);
    } else if (exec::active_backend() == exec::backend::avx2) {
        done = ternary_avx2(bytes, words, out);
    }
#endif
    ternary_portable(bytes, done, words, out);
}

}  // namespace detail

/// Fills `out` with values uniform in {-1, 0, 1}, for secret keys: the first four base-3 digits of each
/// 64-bit word read as a fraction, at a statistical distance below 2^-58 per word. Secret values: constant
/// time, and the buffer in between is wiped.
/// @pre  out.size() is a multiple of 4 and at most 2^37
/// Cost: 2 bytes of key stream per coefficient.
TENSAFE_COMPILED_INLINE void sample_ternary(const seed& key, stream_domain domain, std::uint32_t lane,
                                            std::span<std::int8_t> out) noexcept {
    constexpr std::size_t chunk_words = 512;
    TENSAFE_PRECONDITION(out.size() % detail::word_trits == 0);
    TENSAFE_PRECONDITION(out.size() / detail::word_trits <=
                         chacha20_stream_blocks * chacha20_block_bytes / sizeof(std::uint64_t));

    const chacha20_stream stream(key, domain, lane);
    alignas(64) std::uint8_t bytes[chunk_words * sizeof(std::uint64_t)];
    std::size_t used = 0;
    const std::size_t words = out.size() / detail::word_trits;
    for (std::size_t done = 0; done < words; done += chunk_words) {
        const std::size_t count = std::min(chunk_words, words - done);
        const std::size_t blocks =
            (count * sizeof(std::uint64_t) + chacha20_block_bytes - 1) / chacha20_block_bytes;
        stream.generate(done * sizeof(std::uint64_t) / chacha20_block_bytes,
                        {bytes, blocks * chacha20_block_bytes});
        detail::ternary_words(bytes, count, out.data() + done * detail::word_trits);
        used = std::max(used, blocks * chacha20_block_bytes);
    }
    memory::wipe(bytes, used);
}

namespace detail {

/// Four groups at once, one per lane. Fold expressions, because g++ does not unroll loops at -O2.
struct binomial_lanes4 {
    using lanes = simd::lanes<std::uint64_t, 4>;
    using words = lanes::native;

    /// Four words of each group: word i of group g into lane g of to[i].
    static TENSAFE_INLINE void load(const std::uint64_t* from, words* to) noexcept {
        lanes r[4] = {lanes::load(from), lanes::load(from + binomial_words),
                      lanes::load(from + 2 * binomial_words), lanes::load(from + 3 * binomial_words)};
        simd::transpose(r);
        to[0] = r[0].v;
        to[1] = r[1].v;
        to[2] = r[2].v;
        to[3] = r[3].v;
    }
    template <std::size_t... I>
    static TENSAFE_INLINE void load_all(const std::uint64_t* from, words* to,
                                        std::index_sequence<I...>) noexcept {
        (load(from + 4 * I, to + 4 * I), ...);
        // 42 is not a multiple of four: the last load takes two words for the second time.
        load(from + binomial_words - 4, to + binomial_words - 4);
    }
    /// Four rows into the 32 coefficients of each group that they hold.
    static TENSAFE_INLINE void store(const words* rows, std::int8_t* out) noexcept {
        lanes r[4] = {{rows[0]}, {rows[1]}, {rows[2]}, {rows[3]}};
        simd::transpose(r);
        std::memcpy(out, &r[0], sizeof(lanes));
        std::memcpy(out + binomial_group, &r[1], sizeof(lanes));
        std::memcpy(out + 2 * binomial_group, &r[2], sizeof(lanes));
        std::memcpy(out + 3 * binomial_group, &r[3], sizeof(lanes));
    }
};

/// Converts whole vectors of groups, and returns their number: the body of a kernel.
TENSAFE_INLINE std::size_t centred_binomial_fours(const std::uint64_t* from, std::size_t groups,
                                                  std::int8_t* out) noexcept {
    using four = binomial_lanes4;
    four::words words[binomial_words];
    four::words rows[8];
    std::size_t done = 0;
    for (; done + 4 <= groups; done += 4) {
        four::load_all(from + done * binomial_words, words, std::make_index_sequence<binomial_words / 4>());
        centred_binomial_rows(words, rows);
        four::store(rows, out + done * binomial_group);
        four::store(rows + 4, out + done * binomial_group + 32);
    }
    memory::wipe(words);
    memory::wipe(rows);
    return done;
}

/// `groups` groups from their words to 64 coefficients each. `words` is used up.
inline void centred_binomial_groups(std::uint64_t* words, std::size_t groups, std::int8_t* out) noexcept {
    std::size_t done = 0;
#if TENSAFE_X86_64
    if (exec::active_backend() == exec::backend::avx512) {
        return centred_binomial_avx512(words, groups, out);
    }
    if (exec::active_backend() == exec::backend::avx2) {
        done = simd::avx2::kernel<&centred_binomial_fours>(words, groups, out);
    }
#endif
    centred_binomial_portable(words + done * binomial_words, groups - done, out + done * binomial_group);
}

}  // namespace detail

/// Fills `out` with centred binomial values in [-21, 21], for errors: coefficient 64 g + j from bit j of the
/// 42 words of the stream from byte 336 g on. Secret values: constant time, and the buffers in between are
/// wiped.
/// @pre  out.size() is a multiple of 64 and at most 2^35
/// Cost: 5.25 bytes of key stream per coefficient.
TENSAFE_COMPILED_INLINE void sample_centred_binomial(const seed& key, stream_domain domain,
                                                     std::uint32_t lane,
                                                     std::span<std::int8_t> out) noexcept {
    constexpr std::size_t group_bytes = detail::binomial_words * sizeof(std::uint64_t);
    // 32 groups are 168 blocks, so that chunks start between blocks and leave no group of eight blocks cut
    // short.
    constexpr std::size_t chunk_groups = 32;
    static_assert(chunk_groups * group_bytes % (8 * chacha20_block_bytes) == 0);
    TENSAFE_PRECONDITION(out.size() % detail::binomial_group == 0);
    TENSAFE_PRECONDITION(out.size() <= std::uint64_t{1} << 35);

    const chacha20_stream stream(key, domain, lane);
    alignas(64) std::uint64_t words[chunk_groups * detail::binomial_words];
    std::size_t used = 0;
    const std::size_t groups = out.size() / detail::binomial_group;
    for (std::size_t done = 0; done < groups; done += chunk_groups) {
        const std::size_t count = std::min(chunk_groups, groups - done);
        const std::size_t blocks = (count * group_bytes + chacha20_block_bytes - 1) / chacha20_block_bytes;
        stream.generate(done * group_bytes / chacha20_block_bytes,
                        {reinterpret_cast<std::uint8_t*>(words), blocks * chacha20_block_bytes});
        detail::centred_binomial_groups(words, count, out.data() + done * detail::binomial_group);
        used = std::max(used, blocks * chacha20_block_bytes);
    }
    memory::wipe(words, used);
}

}  // namespace tensafe::random
