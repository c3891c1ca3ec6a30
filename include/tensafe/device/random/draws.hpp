#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/random/centred_binomial_groups.hpp>
#include <tensafe/random/chacha20_block.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tensafe::random {

/// The distributions of docs/design/random-streams.md.
enum class drawn { uniform, ternary, centred_binomial, flood };

inline constexpr std::uint32_t most_moduli = 8;

/// What random::draw_blocks draws: `polynomials` polynomials of `size` values of one kind. Polynomial p takes
/// its bytes from seeds[p / lanes], lane first_lane + p % lanes of `domain`, and its values lie in `out` from
/// number p * size on. A plain value; the pointers are into the memory of the place that draws.
///
/// | kind | values | host's sampler |
/// |---|---|---|
/// | uniform | arith::word in [0, moduli[lane % moduli_count]), public | sample_uniform |
/// | ternary | std::int8_t in [-1, 1], secret | sample_ternary |
/// | centred_binomial | std::int8_t in [-21, 21], secret | sample_centred_binomial |
/// | flood | arith::wide, sums of `terms` draws of `bits` bits, secret | ckks::flood::sample |
///
/// Sizes are any: what the host would draw in whole words or groups is drawn so and cut.
struct block_draws {
    drawn kind = drawn::uniform;
    stream_domain domain = stream_domain::uplink;
    std::uint32_t first_lane = 0;
    std::uint32_t lanes = 1;  ///< polynomials per seed
    std::uint32_t polynomials = 0;
    std::uint32_t size = 0;       ///< values of each
    const seed* seeds = nullptr;  ///< at least polynomials / lanes of them, rounded up
    void* out = nullptr;          ///< polynomials * size values
    // uniform
    std::uint32_t moduli_count = 0;
    arith::word moduli[most_moduli] = {};
    // flood
    int bits = 0;
    int terms = 0;
};

namespace detail {

/// Threads of a block of draws, each of which makes one block of a stream.
inline constexpr std::uint32_t draw_threads = 128;
inline constexpr std::uint32_t draw_bytes = draw_threads * 64;

/// Bytes of a uniform value below q: at least one, as for q = 1.
TENSAFE_HOST_DEVICE constexpr std::uint32_t uniform_width(arith::word q) noexcept {
    std::uint32_t width = 1;
    while (width < 8 && (q >> (8 * width)) != 0) {
        ++width;
    }
    return width;
}

/// Values that one block of threads draws: as many as begin and end with a block of the stream. A multiple of
/// 64 for every width, so that chunks of a width other than the modulus' own start with a block too.
TENSAFE_HOST_DEVICE constexpr std::uint32_t uniform_chunk_values(std::uint32_t width) noexcept {
    std::uint32_t odd = width;
    while (odd % 2 == 0) {
        odd /= 2;
    }
    return draw_threads / odd * odd * 64 / width;
}

inline constexpr std::uint32_t ternary_chunk_values = draw_bytes / 8 * 4;
/// Four groups of centred binomials are 21 blocks.
inline constexpr std::uint32_t binomial_chunk_values = draw_threads / 21 * 4 * binomial_group;

/// Draws, and how they are dealt out to blocks of threads: polynomial p is cut in chunks of
/// chunk_values[p % period], and a period has chunks_before[period] chunks.
struct dealt_draws {
    block_draws draws;
    std::uint32_t first_block;  ///< of the launch
    std::uint32_t period;
    std::uint32_t chunk_values[most_moduli];
    std::uint32_t chunks_before[most_moduli + 1];
};

[[noreturn]] inline void reject_draws(const char* what, std::uint64_t got, const char* wanted) {
    throw parameter_error(std::string("draw_blocks: ") + what + ": got " + std::to_string(got) +
                          ", expected " + wanted);
}

/// @throws parameter_error
inline void check_draws(const block_draws& draws) {
    if (draws.lanes == 0) {
        reject_draws("lanes", 0, "at least one polynomial per seed");
    }
    if (draws.lanes - 1 > ~draws.first_lane) {
        reject_draws("first_lane", draws.first_lane, "lanes below 2^32");
    }
    if (draws.seeds == nullptr || draws.out == nullptr) {
        throw parameter_error("draw_blocks: no seeds, or no room for values");
    }
    std::size_t alignment = 1;
    switch (draws.kind) {
        case drawn::uniform:
            alignment = alignof(arith::word);
            if (draws.moduli_count == 0 || draws.moduli_count > most_moduli) {
                reject_draws("moduli", draws.moduli_count, "1 to 8");
            }
            for (std::uint32_t i = 0; i < draws.moduli_count; ++i) {
                if (draws.moduli[i] == 0) {
                    reject_draws("modulus", 0, "at least 1");
                }
            }
            break;
        case drawn::ternary:
        case drawn::centred_binomial:
            break;
        case drawn::flood:
            alignment = alignof(arith::wide);
            if (draws.terms != 1 && draws.terms != 4) {
                throw parameter_error("draw_blocks: terms: got " + std::to_string(draws.terms) +
                                      ", expected 1 or 4");
            }
            if (draws.bits < 1 || draws.bits > 120) {
                throw parameter_error("draw_blocks: bits: got " + std::to_string(draws.bits) +
                                      ", expected 1 to 120");
            }
            break;
        default:
            throw parameter_error("draw_blocks: no such kind");
    }
    if (reinterpret_cast<std::uintptr_t>(draws.out) % alignment != 0) {
        throw parameter_error("draw_blocks: room for values: not aligned");
    }
}

/// Deals out draws that are checked and not empty. `first_block` is left alone.
/// @param blocks  receives how many blocks of threads they take
inline dealt_draws deal_draws(const block_draws& draws, std::uint64_t& blocks) noexcept {
    dealt_draws dealt{};
    dealt.draws = draws;
    dealt.period = 1;
    switch (draws.kind) {
        case drawn::uniform: {
            std::uint32_t widest = 0;
            for (std::uint32_t i = 0; i < draws.moduli_count; ++i) {
                widest = uniform_width(draws.moduli[i]) > widest ? uniform_width(draws.moduli[i]) : widest;
            }
            dealt.chunk_values[0] = uniform_chunk_values(widest);
            // The lanes of a seed go through the moduli in turn, and so do the polynomials, if each seed
            // begins with the same modulus. Then each has chunks of its own width.
            if (draws.lanes % draws.moduli_count == 0) {
                dealt.period = draws.moduli_count;
                for (std::uint32_t i = 0; i < draws.moduli_count; ++i) {
                    const std::uint64_t lane = std::uint64_t{draws.first_lane} + i;
                    dealt.chunk_values[i] =
                        uniform_chunk_values(uniform_width(draws.moduli[lane % draws.moduli_count]));
                }
            }
            break;
        }
        case drawn::ternary:
            dealt.chunk_values[0] = ternary_chunk_values;
            break;
        case drawn::centred_binomial:
            dealt.chunk_values[0] = binomial_chunk_values;
            break;
        case drawn::flood:
            dealt.chunk_values[0] = draw_bytes / 16 / static_cast<std::uint32_t>(draws.terms);
            break;
    }
    std::uint64_t before = 0;
    for (std::uint32_t i = 0; i < dealt.period; ++i) {
        dealt.chunks_before[i] = static_cast<std::uint32_t>(before);
        before += (draws.size - 1) / dealt.chunk_values[i] + 1;
    }
    dealt.chunks_before[dealt.period] = static_cast<std::uint32_t>(before);
    blocks =
        draws.polynomials / dealt.period * before + dealt.chunks_before[draws.polynomials % dealt.period];
    return dealt;
}

}  // namespace detail

}  // namespace tensafe::random
