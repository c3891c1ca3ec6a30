#pragma once

#include <tensafe/core/macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensafe::random::detail {

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

}  // namespace tensafe::random::detail
