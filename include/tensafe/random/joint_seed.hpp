#pragma once

#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensafe::random {

/// A public seed that two parties determine together: the XOR of what each nonce stands for, in the
/// joint_nonce lane of its party (0 client, 1 server). docs/design/random-streams.md fixes every byte of it.
///
/// Whoever chooses last can try many nonces, but not reach a chosen seed: that takes a key for which ChaCha20
/// gives chosen bytes. A nonce is used for nothing else. Everything here is public: nothing is wiped.
inline seed joint_seed(const seed& client_nonce, const seed& server_nonce) noexcept {
    std::array<std::uint8_t, chacha20_block_bytes> client;
    std::array<std::uint8_t, chacha20_block_bytes> server;
    chacha20_stream(client_nonce, stream_domain::joint_nonce, 0).generate(0, client);
    chacha20_stream(server_nonce, stream_domain::joint_nonce, 1).generate(0, server);
    seed result;
    for (std::size_t i = 0; i < seed_bytes; ++i) {
        result.bytes[i] = static_cast<std::uint8_t>(client[i] ^ server[i]);
    }
    return result;
}

}  // namespace tensafe::random
