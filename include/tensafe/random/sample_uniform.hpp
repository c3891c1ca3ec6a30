#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/x86/uniform_draws.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

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

}  // namespace tensafe::random
