#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20_lanes.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/x86/chacha20_avx512.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensafe::random {

/// `count` blocks of 64 bytes from number `first` on; every back-end gives the same bytes. Constant time: the
/// time depends on `count` alone.
/// @pre  first + count <= 2^32; out holds 64 * count bytes
TENSAFE_COMPILED_INLINE void chacha20_bulk(const chacha20_state& state, std::uint32_t first,
                                           std::uint8_t* out, std::size_t count) noexcept {
#if TENSAFE_X86_64
    using eight = detail::chacha20_lanes<8, detail::chacha20_rotation::by_byte_shuffles>;
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return detail::chacha20_keystream_avx512(state, first, out, count);
        case exec::backend::avx2:
            return simd::avx2::kernel<&detail::chacha20_keystream<eight>>(state, first, out, count);
        case exec::backend::portable:
            break;
    }
#endif
    detail::chacha20_keystream<detail::chacha20_lanes<4>>(state, first, out, count);
}

/// Blocks of one stream: the counter has 32 bits and does not wrap. 2^32 blocks are 256 GiB.
inline constexpr std::uint64_t chacha20_stream_blocks = std::uint64_t{1} << 32;

/// The bytes that a seed stands for: the ChaCha20 key stream (RFC 8439) whose key is the seed and whose nonce
/// is (domain, lane, round), three little-endian words. docs/design/random-streams.md fixes every byte of it.
///
/// Any part can be computed alone, in any order, on any machine. The key is overwritten on destruction; what
/// the compiler leaves in registers and spill slots is not. Thread safety: const calls may run at the same
/// time.
class chacha20_stream {
  public:
    /// @param lane   which polynomial or limb, counted by the caller
    /// @param round  rejection round; 0 for streams without rejection
    chacha20_stream(const seed& key, stream_domain domain, std::uint32_t lane,
                    std::uint32_t round = 0) noexcept {
        std::memcpy(state_.key, key.bytes.data(), sizeof state_.key);
        state_.nonce[0] = static_cast<std::uint32_t>(domain);
        state_.nonce[1] = lane;
        state_.nonce[2] = round;
    }
    ~chacha20_stream() { memory::wipe(state_); }
    chacha20_stream(const chacha20_stream&) noexcept = default;
    chacha20_stream& operator=(const chacha20_stream&) noexcept = default;

    /// Writes the stream's bytes [64 * first_block, 64 * first_block + out.size()).
    ///
    /// Constant time and no allocation. Best in multiples of 1024 bytes: a shorter rest costs as much as 512
    /// or 1024.
    /// @pre  out.size() is a multiple of 64; first_block + out.size() / 64 <= chacha20_stream_blocks, so that
    ///       the counter does not wrap and no byte of the stream is given out under two positions
    void generate(std::uint64_t first_block, std::span<std::uint8_t> out) const noexcept {
        const std::size_t count = out.size() / chacha20_block_bytes;
        TENSAFE_PRECONDITION(out.size() % chacha20_block_bytes == 0);
        TENSAFE_PRECONDITION(first_block <= chacha20_stream_blocks &&
                             count <= chacha20_stream_blocks - first_block);
        chacha20_bulk(state_, static_cast<std::uint32_t>(first_block), out.data(), count);
    }

  private:
    chacha20_state state_;
};

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
