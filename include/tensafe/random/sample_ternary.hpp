#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/x86/ternary.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensafe::random {

namespace detail {

/// Coefficients of a word: its first base-3 digits, less one.
inline constexpr std::size_t word_trits = 4;

/// Coefficients of the words [first, words), each 8 bytes, little endian.
inline void ternary_portable(const std::uint8_t* bytes, std::size_t first, std::size_t words,
                             std::int8_t* out) noexcept {
    for (std::size_t i = first; i < words; ++i) {
        arith::word fraction;
        std::memcpy(&fraction, bytes + i * sizeof fraction, sizeof fraction);
        for (std::size_t trit = 0; trit < word_trits; ++trit) {
            const arith::uint128 product = arith::mul_wide(fraction, 3);
            out[i * word_trits + trit] =
                static_cast<std::int8_t>(static_cast<int>(arith::high_word(product)) - 1);
            fraction = arith::low_word(product);
        }
    }
}

/// Four coefficients of each word.
inline void ternary_words(const std::uint8_t* bytes, std::size_t words, std::int8_t* out) noexcept {
    std::size_t done = 0;
#if TENSAFE_X86_64
    if (exec::active_backend() == exec::backend::avx512) {
        done = ternary_avx512(bytes, words, out);
    } else if (exec::active_backend() == exec::backend::avx2) {
        done = ternary_avx2(bytes, words, out);
    }
#endif
    ternary_portable(bytes, done, words, out);
}

}  // namespace detail

/// Fills `out` with values uniform in {-1, 0, 1}, for secret keys: the first four base-3 digits of each
/// 64-bit word read as a fraction, at a statistical distance below 2^-58 per word. Secret values: constant
/// time, and the buffer in between is wiped.
/// @pre  out.size() is a multiple of 4 and at most 2^37
/// Cost: 2 bytes of key stream per coefficient.
TENSAFE_COMPILED_INLINE void sample_ternary(const seed& key, stream_domain domain, std::uint32_t lane,
                                            std::span<std::int8_t> out) noexcept {
    constexpr std::size_t chunk_words = 512;
    TENSAFE_PRECONDITION(out.size() % detail::word_trits == 0);
    TENSAFE_PRECONDITION(out.size() / detail::word_trits <=
                         chacha20_stream_blocks * chacha20_block_bytes / sizeof(std::uint64_t));

    const chacha20_stream stream(key, domain, lane);
    alignas(64) std::uint8_t bytes[chunk_words * sizeof(std::uint64_t)];
    std::size_t used = 0;
    const std::size_t words = out.size() / detail::word_trits;
    for (std::size_t done = 0; done < words; done += chunk_words) {
        const std::size_t count = std::min(chunk_words, words - done);
        const std::size_t blocks =
            (count * sizeof(std::uint64_t) + chacha20_block_bytes - 1) / chacha20_block_bytes;
        stream.generate(done * sizeof(std::uint64_t) / chacha20_block_bytes,
                        {bytes, blocks * chacha20_block_bytes});
        detail::ternary_words(bytes, count, out.data() + done * detail::word_trits);
        used = std::max(used, blocks * chacha20_block_bytes);
    }
    memory::wipe(bytes, used);
}

}  // namespace tensafe::random
