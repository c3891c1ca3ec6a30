#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tensafe::random {

inline constexpr std::size_t seed_bytes = 32;

/// The 256-bit key of the random streams, in the order in which it is sent and stored. A plain value: for
/// public seeds, and for passing on; secret ones are wiped by whoever holds them (memory::wipe_guard).
struct seed {
    std::array<std::uint8_t, seed_bytes> bytes{};

    /// Compares in a time that depends on the bytes: for public seeds.
    friend bool operator==(const seed&, const seed&) = default;
};

/// The bytes of both seeds, one behind the other.
inline std::array<std::uint8_t, 2 * seed_bytes> joined(const seed& a, const seed& b) noexcept {
    std::array<std::uint8_t, 2 * seed_bytes> bytes;
    std::copy(b.bytes.begin(), b.bytes.end(), std::copy(a.bytes.begin(), a.bytes.end(), bytes.begin()));
    return bytes;
}

/// The use of a stream, the first word of its nonce, so that one seed never gives two uses the same bytes.
/// The values are part of the format in docs/design/random-streams.md: add, never renumber.
enum class stream_domain : std::uint32_t {
    public_key = 1,       ///< the uniform half of a public key
    uplink = 2,           ///< the uniform half of a ciphertext that the client sends
    secret_key = 3,       ///< ternary secrets
    error = 4,            ///< errors
    zero = 5,             ///< the randomness of an encryption of zero
    flood = 6,            ///< flooding noise
    derive = 7,           ///< seeds from seeds
    joint_nonce = 8,      ///< a public seed from two parties' nonces
    privacy_noise = 9,    ///< noise for differential privacy
    hedge_points = 10,    ///< the points at which input_hash evaluates
    hedged = 11,          ///< seeds from a seed and an input
    published = 12,       ///< what is sent, from a seed that is kept
    evaluation_key = 13,  ///< the uniform half of an evaluation key
    mark = 14,            ///< marks of an adapter's copies, by which each names its tenant
};

}  // namespace tensafe::random
