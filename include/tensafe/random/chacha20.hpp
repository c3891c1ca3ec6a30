#pragma once

#include <tensafe/core/precondition.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20_block.hpp>
#include <tensafe/random/chacha20_bulk.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensafe::random {

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

}  // namespace tensafe::random
