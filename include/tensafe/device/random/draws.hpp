#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/random/error_groups.hpp>
#include <tensafe/random/seed.hpp>

#include <cstddef>
#include <cstdint>

namespace tensafe::device {

/// The distributions of docs/design/random-streams.md.
enum class distribution { uniform, ternary, error, flood };

inline constexpr std::uint32_t most_moduli = 8;

/// The polynomials that device::draw draws: `polynomials` polynomials of `size` values of one kind.
/// Polynomial p takes its bytes from seeds[p / lanes], lane first_lane + p % lanes of `domain`, and its
/// values lie in `out` from number p * size on. A plain value; the pointers are into the memory of the place
/// that draws.
///
/// | kind | values | host's sampler |
/// |---|---|---|
/// | uniform | word in [0, moduli[lane % moduli_count]), public | sample_uniform |
/// | ternary | std::int8_t in [-1, 1], secret | sample_ternary |
/// | error | std::int8_t in [-11, 11], secret | sample_error |
/// | flood | arith::uint128, sums of `terms` draws of `bits` bits, secret | ckks::flood::sample |
///
/// A size may be any: what the host would draw in whole words or groups is drawn so and cut.
struct draw_group {
    distribution kind = distribution::uniform;
    random::stream_domain domain = random::stream_domain::uplink;
    std::uint32_t first_lane = 0;
    std::uint32_t lanes = 1;  ///< polynomials per seed
    std::uint32_t polynomials = 0;
    std::uint32_t size = 0;               ///< values of each
    const random::seed* seeds = nullptr;  ///< polynomials / lanes of them or more, rounded up
    void* out = nullptr;                  ///< polynomials * size values
    // uniform
    std::uint32_t moduli_count = 0;
    word moduli[most_moduli] = {};
    // flood
    int bits = 0;
    int terms = 0;
};

/// Uniform polynomials to draw modulo all primes of a chain, [polynomial][limb][N]: c1 of seeded ciphertexts.
/// @param of_each_seed  polynomials in a row that one seed gives
template <class Basis>
draw_group uniform_polynomials(const random::seed* seeds, std::uint32_t of_each_seed, std::size_t polynomials,
                               word* out) noexcept {
    static_assert(Basis::limbs <= most_moduli, "device::draw: at most eight limbs");
    constexpr auto limbs = static_cast<std::uint32_t>(Basis::limbs);
    draw_group draws{distribution::uniform, random::stream_domain::uplink, 0, of_each_seed * limbs};
    draws.polynomials = static_cast<std::uint32_t>(polynomials) * limbs;
    draws.size = static_cast<std::uint32_t>(Basis::degree);
    draws.seeds = seeds;
    draws.out = out;
    draws.moduli_count = limbs;
    for (std::uint32_t i = 0; i < limbs; ++i) {
        draws.moduli[i] = Basis::primes[i];
    }
    return draws;
}

/// The draws of ternary polynomials or errors, [polynomial][size], each from this lane of a seed of its own.
inline draw_group small_polynomials(distribution kind, random::stream_domain domain, std::uint32_t lane,
                                    const random::seed* seeds, std::size_t polynomials, std::size_t size,
                                    std::int8_t* out) noexcept {
    draw_group draws{kind, domain, lane, 1};
    draws.polynomials = static_cast<std::uint32_t>(polynomials);
    draws.size = static_cast<std::uint32_t>(size);
    draws.seeds = seeds;
    draws.out = out;
    return draws;
}

namespace detail {

/// The threads of a thread block of draws, each of which makes one block of a stream.
inline constexpr std::uint32_t draw_threads = 128;
inline constexpr std::uint32_t draw_bytes = draw_threads * 64;

/// The bytes of a uniform value below q: at least one, as for q = 1.
TENSAFE_HOST_DEVICE constexpr std::uint32_t uniform_width(word q) noexcept {
    std::uint32_t width = 1;
    while (width < 8 && (q >> (8 * width)) != 0) {
        ++width;
    }
    return width;
}

/// The values that one thread block draws: as many as begin and end with a block of the stream. A multiple of
/// 64 for every width, so that chunks of a width other than the modulus' own start with a block too.
TENSAFE_HOST_DEVICE constexpr std::uint32_t uniform_chunk_values(std::uint32_t width) noexcept {
    std::uint32_t odd = width;
    while (odd % 2 == 0) {
        odd /= 2;
    }
    return draw_threads / odd * odd * 64 / width;
}

inline constexpr std::uint32_t ternary_chunk_values = draw_bytes / 8 * 4;
/// The errors of a thread block: a thread makes half a group; two groups are three blocks of the stream.
inline constexpr std::uint32_t error_chunk_values = draw_threads / 2 * random::detail::error_group;

/// Draws, and how they are dealt out to thread blocks: polynomial p is cut in chunks of
/// chunk_values[p % period], and a period has chunks_before[period] chunks.
struct dealt_draws {
    draw_group draws;
    std::uint32_t first_block;  ///< of the launch
    std::uint32_t period;
    std::uint32_t chunk_values[most_moduli];
    std::uint32_t chunks_before[most_moduli + 1];
};

inline void check_draws(const draw_group& draws) {
    const auto expect = [](bool right, const char* what, auto got, const char* wanted) {
        require<parameter_error>(right, {"device::draw: ", what, ": got ", got, ", expected ", wanted});
    };
    expect(draws.lanes != 0, "lanes", draws.lanes, "at least one polynomial per seed");
    expect(draws.lanes - 1 <= ~draws.first_lane, "first_lane", draws.first_lane, "lanes below 2^32");
    require<parameter_error>(draws.seeds != nullptr && draws.out != nullptr,
                             {"device::draw: no seeds, or no room for values"});
    std::size_t alignment = 1;
    if (draws.kind == distribution::uniform) {
        alignment = alignof(word);
        expect(draws.moduli_count != 0 && draws.moduli_count <= most_moduli, "moduli", draws.moduli_count,
               "1 to 8");
        for (std::uint32_t i = 0; i < draws.moduli_count; ++i) {
            expect(draws.moduli[i] != 0, "modulus", 0, "at least 1");
        }
    } else if (draws.kind == distribution::flood) {
        alignment = alignof(arith::uint128);
        expect(draws.terms == 1 || draws.terms == 4, "terms", draws.terms, "1 or 4");
        expect(draws.bits >= 1 && draws.bits <= 120, "bits", draws.bits, "1 to 120");
    } else {
        require<parameter_error>(draws.kind == distribution::ternary || draws.kind == distribution::error,
                                 {"device::draw: no such kind"});
    }
    require<parameter_error>(reinterpret_cast<std::uintptr_t>(draws.out) % alignment == 0,
                             {"device::draw: room for values: not aligned"});
}

/// Deals out draws that are checked and not empty. `first_block` is left alone.
/// @param blocks  receives how many thread blocks they take
inline dealt_draws deal_draws(const draw_group& draws, std::uint64_t& blocks) noexcept {
    dealt_draws dealt{};
    dealt.draws = draws;
    dealt.period = 1;
    if (draws.kind == distribution::uniform) {
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
    } else if (draws.kind == distribution::flood) {
        dealt.chunk_values[0] = draw_bytes / 16 / static_cast<std::uint32_t>(draws.terms);
    } else {
        dealt.chunk_values[0] = draws.kind == distribution::error ? error_chunk_values : ternary_chunk_values;
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

// How one thread turns words of a stream into values. What is written here for 32-bit words and without
// wide products agrees bit for bit with the samplers of the host.

TENSAFE_HD_INLINE constexpr word word_of(std::uint32_t lower, std::uint32_t upper) noexcept {
    return (static_cast<word>(upper) << 32) | lower;
}

/// The 64-bit word at byte `position` of a stream, of which `first`, `second` and `third` are the 32-bit
/// words from number position / 4 on.
TENSAFE_HD_INLINE constexpr word cut_word(std::uint32_t first, std::uint32_t second, std::uint32_t third,
                                          std::uint32_t position) noexcept {
    const std::uint32_t shift = 8 * position % 32;
    return word_of(static_cast<std::uint32_t>(word_of(first, second) >> shift),
                   static_cast<std::uint32_t>(word_of(second, third) >> shift));
}

/// The number of words that hold 2 Width bytes from a multiple of 2 Width on.
template <int Width>
inline constexpr int pair_words = (2 * Width + 3) / 4;

/// The values 2 i and 2 i + 1 of Width bytes each, in stream order, with garbage above their bits.
template <int Width>
TENSAFE_HD_INLINE word_pair cut_pair(const std::uint32_t* stream, std::uint32_t i) noexcept {
    constexpr int count = pair_words<Width>;
    const std::uint32_t position = i * (2 * Width);
    std::uint32_t words[7] = {};
    for (int j = 0; j < count; ++j) {
        words[j] = stream[position / 4 + static_cast<std::uint32_t>(j)];
    }
    if constexpr (Width % 2 != 0) {
        for (int j = 0; j < count; ++j) {
            words[j] = static_cast<std::uint32_t>(word_of(words[j], words[j + 1]) >> (8 * (position % 4)));
        }
    }
    constexpr int second = Width / 4;
    return {word_of(words[0], words[1]),
            cut_word(words[second], words[second + 1], words[second + 2], Width)};
}

/// The bits up to the highest one of q.
TENSAFE_HOST_DEVICE constexpr word bits_of(word q) noexcept {
    for (int shift = 1; shift < 64; shift *= 2) {
        q |= q >> shift;
    }
    return q;
}

/// Four bytes, each a small number in [0, 64), less the same number of [0, 64): in two's complement, byte by
/// byte. The top bit of each, set for the while, lends to its own byte and to no other.
TENSAFE_HD_INLINE constexpr std::uint32_t subtract_from_bytes(std::uint32_t bytes,
                                                              std::uint32_t number) noexcept {
    return ((bytes | 0x80808080U) - 0x01010101U * number) ^ 0x80808080U;
}

/// The four ternary values of a 64-bit word of the stream, in order, a byte each.
TENSAFE_HD_INLINE constexpr std::uint32_t ternary_bytes(std::uint32_t lower, std::uint32_t upper) noexcept {
    std::uint32_t digits = 0;
    for (int i = 0; i < 4; ++i) {
        const word low_product = static_cast<word>(lower) * 3;
        const word product = static_cast<word>(upper) * 3 + (low_product >> 32);
        digits |= static_cast<std::uint32_t>(product >> 32) << (8 * i);
        lower = static_cast<std::uint32_t>(low_product);
        upper = static_cast<std::uint32_t>(product);
    }
    return subtract_from_bytes(digits, 1);
}

/// Exchanges the bits of `a` under mask << Shift with the bits of `b` under mask.
template <int Shift, std::uint32_t Mask>
TENSAFE_HD_INLINE constexpr void exchange_bits_32(std::uint32_t& a, std::uint32_t& b) noexcept {
    const std::uint32_t difference = ((a >> Shift) ^ b) & Mask;
    a ^= difference << Shift;
    b ^= difference;
}

/// Does what add_bits does, for halves of groups: leaves the lowest bit of each sum in `sum`, and Count / 2
/// carries in words[0 .. Count / 2). nvcc refuses the host's vectors in a function for both machines.
template <int Count>
TENSAFE_HD_INLINE constexpr void add_bits_32(std::uint32_t* words, std::uint32_t& sum) noexcept {
    for (int i = 1; i + 1 < Count; i += 2) {
        const std::uint32_t either = words[i] ^ words[i + 1];
        words[i / 2] = (words[i] & words[i + 1]) | (either & sum);
        sum ^= either;
    }
    if constexpr (Count % 2 == 0) {
        const std::uint32_t carry = words[Count - 1] & sum;
        sum ^= words[Count - 1];
        words[Count / 2 - 1] = carry;
    }
}

/// Makes half a group of errors, 32 of them, from the same halves of the group's twelve words; four values to
/// a word of `values`. `halves` is used up.
TENSAFE_HD_INLINE void error_half(std::uint32_t (&halves)[random::detail::error_words],
                                  std::uint32_t (&values)[8]) noexcept {
    // To count the complements of subtracted bits adds 11 in all and keeps the sums positive.
    for (int i = 5; i < 10; ++i) {
        halves[i] = ~halves[i];
    }
    halves[11] = ~halves[11];
    // Word i: bit i of the sums, each in [0, 22]. The carry of the last two bits is worth two, as the others.
    std::uint32_t sums[8];
    sums[0] = halves[10] ^ halves[11];
    halves[10] &= halves[11];
    sums[1] = halves[0];
    add_bits_32<11>(halves, sums[1]);
    sums[2] = halves[0];
    add_bits_32<5>(halves, sums[2]);
    sums[3] = halves[0];
    add_bits_32<2>(halves, sums[3]);
    sums[4] = halves[0];
    sums[5] = 0;
    sums[6] = 0;
    sums[7] = 0;
    // Four transpositions of 8 x 8 bits at once: byte b of word i becomes the sum of value 8 b + i.
    for (int i = 0; i < 4; ++i) {
        exchange_bits_32<4, 0x0f0f0f0fU>(sums[i], sums[i + 4]);
    }
    for (int i = 0; i < 8; i += 4) {
        exchange_bits_32<2, 0x33333333U>(sums[i], sums[i + 2]);
        exchange_bits_32<2, 0x33333333U>(sums[i + 1], sums[i + 3]);
    }
    for (int i = 0; i < 8; i += 2) {
        exchange_bits_32<1, 0x55555555U>(sums[i], sums[i + 1]);
    }
    // Two transpositions of 4 x 4 bytes: byte b of word 4 h + i becomes value 8 i + 4 h + b.
    for (int h = 0; h < 8; h += 4) {
        exchange_bits_32<16, 0x0000ffffU>(sums[h], sums[h + 2]);
        exchange_bits_32<16, 0x0000ffffU>(sums[h + 1], sums[h + 3]);
        exchange_bits_32<8, 0x00ff00ffU>(sums[h], sums[h + 1]);
        exchange_bits_32<8, 0x00ff00ffU>(sums[h + 2], sums[h + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        for (int h = 0; h < 2; ++h) {
            values[2 * i + h] = subtract_from_bytes(sums[4 * h + i], random::largest_error);
        }
    }
}

}  // namespace detail

}  // namespace tensafe::device
