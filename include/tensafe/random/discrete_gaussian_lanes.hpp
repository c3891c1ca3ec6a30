#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/random/discrete_gaussian_table.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tensafe::random::detail {

/// Coefficients that are computed together: word 8 w + j of their 256 is word w of coefficient j.
inline constexpr std::size_t gaussian_group = 8;
/// Narrow values that make one wide one; two words of the stream each.
inline constexpr std::size_t gaussian_leaves = 16;
inline constexpr std::size_t gaussian_group_words = 2 * gaussian_leaves * gaussian_group;

/// The four steps that each join two values x and y to a x + (a + 1) y. docs/design/differential-privacy.md
/// says why these: each sum stays a discrete Gaussian to 2^-89 of every probability, and no leaf carries much
/// of the result.
inline constexpr std::uint64_t gaussian_steps[4] = {2, 9, 128, 16384};

/// What leaf `leaf` is multiplied by: bit s of its number chooses the factor of step s.
constexpr std::uint64_t gaussian_factor(std::size_t leaf) noexcept {
    std::uint64_t factor = 1;
    for (std::size_t step = 0; step < 4; ++step) {
        factor *= gaussian_steps[step] + (leaf >> step & 1);
    }
    return factor;
}

inline constexpr std::uint64_t gaussian_word_mask = (std::uint64_t{1} << 63) - 1;

/// Groups on vectors of `Bytes` bytes, in additions, subtractions and shifts alone: no branch and no address
/// depends on a value.
template <std::size_t Bytes>
struct gaussian_lanes {
    using words __attribute__((vector_size(Bytes))) = std::uint64_t;
    static constexpr std::size_t count = Bytes / sizeof(std::uint64_t);
    static constexpr std::size_t vectors = gaussian_group / count;

    /// sum += factor times the narrow value of two words each, for the eight coefficients of a group.
    static TENSAFE_INLINE void add_leaf(const std::uint64_t* from, std::uint64_t factor,
                                        words* sum) noexcept {
        words upper[vectors];
        words lower[vectors];
        words sign[vectors];
        words magnitude[vectors];
        for (std::size_t v = 0; v < vectors; ++v) {
            std::memcpy(&upper[v], from + v * count, sizeof(words));
            std::memcpy(&lower[v], from + gaussian_group + v * count, sizeof(words));
            sign[v] = words{} - (upper[v] >> 63);
            upper[v] &= gaussian_word_mask;
            lower[v] &= gaussian_word_mask;
            magnitude[v] = words{};
        }
        for (std::size_t i = 0; i < gaussian_wide_thresholds; ++i) {
            const words high = words{} + gaussian_upper[i];
            const words low = words{} + gaussian_lower[i];
            for (std::size_t v = 0; v < vectors; ++v) {
                const words borrow = (lower[v] - low) >> 63;
                magnitude[v] += (upper[v] - high - borrow) >> 63;
            }
        }
        for (std::size_t v = 0; v < vectors; ++v) {
            // The other thresholds have no upper part: whatever has one is above them all.
            const words some = (upper[v] + gaussian_word_mask) >> 63;
            lower[v] |= (words{} - some) >> 1;
        }
        for (std::size_t i = gaussian_wide_thresholds; i < gaussian_thresholds; ++i) {
            const words low = words{} + gaussian_lower[i];
            for (std::size_t v = 0; v < vectors; ++v) {
                magnitude[v] += (lower[v] - low) >> 63;
            }
        }
        for (std::size_t v = 0; v < vectors; ++v) {
            sum[v] += ((magnitude[v] ^ sign[v]) - sign[v]) * factor;
        }
    }

    static TENSAFE_INLINE void convert(const std::uint64_t* from, std::int64_t* out) noexcept {
        words sum[vectors] = {};
        for (std::size_t leaf = 0; leaf < gaussian_leaves; ++leaf) {
            add_leaf(from + 2 * gaussian_group * leaf, gaussian_factor(leaf), sum);
        }
        std::memcpy(out, sum, sizeof sum);
    }
};

/// `groups` groups from their words to eight coefficients each: the body of a kernel.
template <std::size_t Bytes>
TENSAFE_INLINE void convert_gaussian_groups(const std::uint64_t* words, std::size_t groups,
                                            std::int64_t* out) noexcept {
    for (std::size_t g = 0; g < groups; ++g) {
        gaussian_lanes<Bytes>::convert(words + g * gaussian_group_words, out + g * gaussian_group);
    }
}
inline void discrete_gaussian_groups(const std::uint64_t* words, std::size_t groups,
                                     std::int64_t* out) noexcept {
#if TENSAFE_X86_64
    if (exec::active_backend() != exec::backend::portable) {
        return simd::avx2::kernel<&convert_gaussian_groups<32>>(words, groups, out);
    }
#endif
    convert_gaussian_groups<16>(words, groups, out);
}

}  // namespace tensafe::random::detail
