#pragma once

#include <tensafe/memory/wipe.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensafe::random {

inline constexpr std::size_t seed_bytes = 32;

/// The 256-bit key of the random streams, in the order in which it is sent and stored. A plain value: for
/// public seeds, and for passing on; secret ones are wiped by whoever holds
/// them (memory::wipe_guard).
struct seed {
    std::array<std::uint8_t, seed_bytes> bytes{};

    /// Not constant time: for public seeds.
    friend bool operator==(const seed&, const seed&) = default;
};

}  // namespace tensafe::random
