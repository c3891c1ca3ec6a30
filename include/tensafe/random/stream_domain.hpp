#pragma once

#include <cstdint>

namespace tensafe::random {

/// What a stream is for: the first word of its nonce, so that one seed never gives two uses the same bytes.
/// The values are part of the format in docs/design/random-streams.md: add, never renumber.
enum class stream_domain : std::uint32_t {
    public_key = 1,     ///< the uniform half of a public key
    uplink = 2,         ///< the uniform half of a ciphertext that the client sends
    secret_key = 3,     ///< ternary secrets
    error = 4,          ///< centred binomial errors
    zero = 5,           ///< the randomness of an encryption of zero
    flood = 6,          ///< flooding noise
    derive = 7,         ///< seeds from seeds
    joint_nonce = 8,    ///< a public seed from two parties' nonces
    privacy_noise = 9,  ///< noise for differential privacy
};

}  // namespace tensafe::random
