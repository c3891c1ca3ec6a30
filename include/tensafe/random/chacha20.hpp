#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20_lanes.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/x86/chacha20_avx512.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensafe::random {

namespace detail {
/// The blocks of chacha20_bulk. Not inlined: the caller wipes what it leaves on the stack.
__attribute__((noinline)) inline void chacha20_blocks(const chacha20_state& state, std::uint32_t first,
                                                      std::uint8_t* out, std::size_t count) noexcept {
#if TENSAFE_X86_64
    using eight = chacha20_lanes<8, chacha20_rotation::by_byte_shuffles>;
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return chacha20_keystream_avx512(state, first, out, count);
        case exec::backend::avx2:
            return simd::avx2::kernel<&chacha20_keystream<eight>>(state, first, out, count);
        case exec::backend::portable:
            break;
    }
#endif
    chacha20_keystream<chacha20_lanes<4>>(state, first, out, count);
}
/// Writes one block and leaves traces on the stack, which the caller wipes: hence not inlined.
__attribute__((noinline)) inline void chacha20_one_block(const std::uint32_t* key, std::uint32_t counter,
                                                         const std::uint32_t* nonce,
                                                         std::uint32_t* out) noexcept {
    chacha20_block(key, counter, nonce, out);
}
}  // namespace detail

/// Writes `count` blocks of 64 bytes from number `first` on; every back-end gives the same bytes. Constant
/// time: the time depends on `count` alone. Optimised builds leave neither key nor stream on the stack.
/// @pre  first + count <= 2^32; out holds 64 * count bytes
TENSAFE_COMPILED_INLINE void chacha20_bulk(const chacha20_state& state, std::uint32_t first,
                                           std::uint8_t* out, std::size_t count) noexcept {
    detail::chacha20_blocks(state, first, out, count);
    memory::wipe_frames<4096>();
}

/// The blocks of one stream: the counter has 32 bits and does not wrap. 2^32 blocks are 256 GiB.
inline constexpr std::uint64_t chacha20_stream_blocks = std::uint64_t{1} << 32;

/// The bytes that a seed stands for: the ChaCha20 key stream (RFC 8439) whose key is the seed and whose nonce
/// is (domain, lane, round), three little-endian words. docs/design/random-streams.md fixes every byte of it.
///
/// Any part can be computed alone. The key is wiped on destruction; registers are not.
/// Thread-safe for const calls.
class chacha20_stream {
  public:
    /// Names a stream of a seed.
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
    /// Constant time and no allocation. Best in multiples of 1024 bytes: a rest costs as much as 512 or 1024.
    /// @pre  out.size() is a multiple of 64; first_block + out.size() / 64 <= chacha20_stream_blocks
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

/// Returns one block of the stream of a seed, in half the time that `generate` takes for it. Optimised builds
/// leave neither key nor block on the stack.
inline std::array<std::uint8_t, chacha20_block_bytes> chacha20_stream_block(
    const seed& key, stream_domain domain, std::uint32_t lane = 0, std::uint32_t round = 0,
    std::uint32_t counter = 0) noexcept {
    std::array<std::uint32_t, seed_bytes / 4> words;
    const memory::wipe_guard guard(words);
    std::memcpy(words.data(), key.bytes.data(), seed_bytes);
    const std::array nonce{static_cast<std::uint32_t>(domain), lane, round};
    std::array<std::uint32_t, chacha20_block_bytes / 4> block;
    const memory::wipe_guard block_guard(block);
    detail::chacha20_one_block(words.data(), counter, nonce.data(), block.data());
    memory::wipe_frames<512>();
    std::array<std::uint8_t, chacha20_block_bytes> result;
    std::memcpy(result.data(), block.data(), result.size());
    return result;
}

namespace detail {

/// Calls f(words, done, count) for items [first, first + items) of a secret stream, ItemWords words each, in
/// chunks of at most ChunkItems: item first + done and the next are in `words`, which are wiped at the end.
/// @pre  item `first` begins with a block, and so does every chunk
template <std::size_t ItemWords, std::size_t ChunkItems, class F>
void for_each_chunk(const chacha20_stream& stream, std::size_t first, std::size_t items, F&& f) noexcept {
    constexpr std::size_t item_bytes = ItemWords * sizeof(std::uint64_t);
    static_assert(ChunkItems * item_bytes % chacha20_block_bytes == 0);
    alignas(64) std::uint64_t words[ChunkItems * ItemWords];
    std::size_t used = 0;
    for (std::size_t done = 0; done < items; done += ChunkItems) {
        const std::size_t count = std::min(ChunkItems, items - done);
        const std::size_t bytes =
            (count * item_bytes + chacha20_block_bytes - 1) / chacha20_block_bytes * chacha20_block_bytes;
        stream.generate((first + done) * item_bytes / chacha20_block_bytes,
                        {reinterpret_cast<std::uint8_t*>(words), bytes});
        f(static_cast<const std::uint64_t*>(words), done, count);
        used = std::max(used, bytes);
    }
    memory::wipe(words, used);
}

}  // namespace detail

/// Returns what may be sent in the place of a secret seed that is used for nothing else. It tells nothing of
/// the seed, and so nothing of what the same seed made elsewhere, on a copy of the machine, stays secret for.
inline seed published(const seed& secret) noexcept {
    auto block = chacha20_stream_block(secret, stream_domain::published);
    const memory::wipe_guard guard(block);
    seed result;
    std::copy_n(block.begin(), seed_bytes, result.bytes.begin());
    return result;
}

/// A public seed that two parties determine together: the XOR of what each nonce stands for, in the
/// joint_nonce lane of its party (0 client, 1 server). docs/design/random-streams.md fixes every byte of it.
///
/// Whoever chooses last can try many nonces, but not reach a chosen seed. A nonce is used for nothing else.
/// Everything here is public.
inline seed joint_seed(const seed& client_nonce, const seed& server_nonce) noexcept {
    const auto client = chacha20_stream_block(client_nonce, stream_domain::joint_nonce, 0);
    const auto server = chacha20_stream_block(server_nonce, stream_domain::joint_nonce, 1);
    seed result;
    for (std::size_t i = 0; i < seed_bytes; ++i) {
        result.bytes[i] = static_cast<std::uint8_t>(client[i] ^ server[i]);
    }
    return result;
}

}  // namespace tensafe::random
