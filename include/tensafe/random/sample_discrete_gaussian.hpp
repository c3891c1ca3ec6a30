#pragma once

#include <tensafe/core/precondition.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/discrete_gaussian_lanes.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::random {

/// The deviation of sample_discrete_gaussian, about 2^30.4, to the last digit of a double: the square root of
/// 32 / ln 2 * 13 * 181 * 33025 * 536903681.
inline constexpr double discrete_gaussian_deviation = 1387850947.0970407;

/// No value of sample_discrete_gaussian is larger: 51 deviations, less than 2^37.
inline constexpr std::int64_t discrete_gaussian_largest = 89 * (5LL * 19 * 257 * 32769);

/// Fills `out` with independent values of the discrete Gaussian on the integers with the deviation
/// discrete_gaussian_deviation and mean 0: P(x) proportional to exp(-x^2 / (2 deviation^2)), up to a
/// statistical distance below 2^-88 each. Constant time; the buffer in between is wiped, `out` is the
/// caller's to wipe.
///
/// Sixteen narrow values by comparison with a table of 126 bits, joined by Peikert, "An efficient and
/// parallel Gaussian sampler for lattices" (2010) and Micciancio, Walter, "Gaussian sampling over the
/// integers" (2017). docs/design/differential-privacy.md has the proof, docs/design/random-streams.md the
/// bytes.
/// @pre  out.size() <= 2^30
/// Cost: 256 bytes of key stream per value.
TENSAFE_COMPILED_INLINE void sample_discrete_gaussian(const seed& key, stream_domain domain,
                                                      std::uint32_t lane,
                                                      std::span<std::int64_t> out) noexcept {
    constexpr std::size_t group_bytes = detail::gaussian_group_words * sizeof(std::uint64_t);
    constexpr std::size_t chunk_groups = 4;
    constexpr std::size_t group_blocks = group_bytes / chacha20_block_bytes;
    static_assert(group_bytes % chacha20_block_bytes == 0);
    TENSAFE_PRECONDITION(out.size() <= std::uint64_t{1} << 30);

    const chacha20_stream stream(key, domain, lane);
    alignas(64) std::uint64_t words[chunk_groups * detail::gaussian_group_words];
    std::int64_t last[detail::gaussian_group];
    const memory::wipe_guard words_guard(words);
    const memory::wipe_guard last_guard(last);
    const std::size_t whole = out.size() / detail::gaussian_group;
    for (std::size_t done = 0; done < whole; done += chunk_groups) {
        const std::size_t count = std::min(chunk_groups, whole - done);
        stream.generate(done * group_blocks, {reinterpret_cast<std::uint8_t*>(words), count * group_bytes});
        detail::discrete_gaussian_groups(words, count, out.data() + done * detail::gaussian_group);
    }
    const std::size_t rest = out.size() % detail::gaussian_group;
    if (rest != 0) {
        stream.generate(whole * group_blocks, {reinterpret_cast<std::uint8_t*>(words), group_bytes});
        detail::discrete_gaussian_groups(words, 1, last);
        std::copy_n(last, rest, out.data() + whole * detail::gaussian_group);
    }
}

}  // namespace tensafe::random
