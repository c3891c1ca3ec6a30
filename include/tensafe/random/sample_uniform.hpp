#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>

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
inline constexpr std::size_t uniform_chunk = 512;
/// Draws are loaded 32 bytes at a time at most, so the last ones read past their own.
inline constexpr std::size_t uniform_slack = 32;

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
bool uniform_draws_baseline(const std::uint8_t* bytes, std::uint64_t mask, std::uint64_t q, std::size_t first,
                            std::span<std::uint64_t> out) noexcept {
    bool rejected = false;
    for (std::size_t k = first; k < out.size(); ++k) {
        const std::uint64_t value = uniform_draw<Width>(bytes, k, mask);
        out[k] = value;
        rejected |= value >= q;
    }
    return rejected;
}

#if defined(__x86_64__)

/// Four draws at once: one load, one shuffle that moves two draws into each 16-byte half, one that spreads
/// their bytes.
template <std::size_t Width>
struct uniform_draws4 {
    using words = std::uint64_t __attribute__((vector_size(32)));
    using masks = std::int64_t __attribute__((vector_size(32)));
    using quads = std::uint32_t __attribute__((vector_size(32)));
    using bytes = std::uint8_t __attribute__((vector_size(32)));

    /// The four bytes in which the third draw starts.
    static constexpr int third = static_cast<int>(2 * Width / 4);

    /// Where byte I of the four words comes from. What the mask clears comes from anywhere in the same half.
    template <std::size_t I>
    static constexpr int source = static_cast<int>(
        I / 16 * 16 + std::min(I / 16 * (2 * Width % 4) + I % 16 / 8 * Width + I % 8, std::size_t{15}));

    /// One by one: nvcc counts a pack as one index.
    static TENSAFE_INLINE void load(const std::uint8_t* from, words& to) noexcept {
        quads loaded;
        std::memcpy(&loaded, from, sizeof loaded);
        const auto halves = __builtin_bit_cast(
            bytes,
            __builtin_shufflevector(loaded, loaded, 0, 1, 2, 3, third, third + 1, third + 2, third + 3));
        to = __builtin_bit_cast(
            words, __builtin_shufflevector(
                       halves, halves, source<0>, source<1>, source<2>, source<3>, source<4>, source<5>,
                       source<6>, source<7>, source<8>, source<9>, source<10>, source<11>, source<12>,
                       source<13>, source<14>, source<15>, source<16>, source<17>, source<18>, source<19>,
                       source<20>, source<21>, source<22>, source<23>, source<24>, source<25>, source<26>,
                       source<27>, source<28>, source<29>, source<30>, source<31>));
    }
};

/// uniform_draws_baseline from 0 on.
template <std::size_t Width>
__attribute__((target("avx2"))) bool uniform_draws_avx2(const std::uint8_t* bytes, std::uint64_t mask,
                                                        std::uint64_t q,
                                                        std::span<std::uint64_t> out) noexcept {
    using draws = uniform_draws4<Width>;
    typename draws::masks rejected = {};
    std::size_t k = 0;
    for (; k + 4 <= out.size(); k += 4) {
        typename draws::words value;
        draws::load(bytes + k * Width, value);
        value &= mask;
        std::memcpy(out.data() + k, &value, sizeof value);
        rejected |= value >= q;
    }
    return ((rejected[0] | rejected[1] | rejected[2] | rejected[3]) != 0) |
           uniform_draws_baseline<Width>(bytes, mask, q, k, out);
}

#endif

template <std::size_t Width>
bool uniform_draws(const std::uint8_t* bytes, std::uint64_t mask, std::uint64_t q,
                   std::span<std::uint64_t> out) noexcept {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        return uniform_draws_avx2<Width>(bytes, mask, q, out);
    }
#endif
    return uniform_draws_baseline<Width>(bytes, mask, q, 0, out);
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
    bool rejected = uniform_draws<Width>(bytes, mask, q, out);
    // A value that is not below q marks its coefficient as still to be drawn.
    for (std::uint32_t round = 1; rejected; ++round) {
        chacha20_stream(key, domain, lane, round).generate(first_block, {bytes, used});
        rejected = false;
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = out[k] >= q ? uniform_draw<Width>(bytes, k, mask) : out[k];
            rejected |= out[k] >= q;
        }
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
/// For public values only: the time shows in which chunks values were drawn again.
/// @pre  q >= 1; out.size() * w <= 2^38
/// Cost: w bytes of key stream per coefficient. A chunk of 512 with a rejected value pays that again, each
/// round.
inline void sample_uniform(const seed& key, stream_domain domain, std::uint32_t lane, std::uint64_t q,
                           std::span<std::uint64_t> out) noexcept {
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

}  // namespace tensafe::random
