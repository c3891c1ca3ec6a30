#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/centred_binomial_groups.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>
#include <tensafe/random/x86/centred_binomial_avx2.hpp>
#include <tensafe/random/x86/centred_binomial_avx512.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::random {

namespace detail {

/// `groups` groups from their words to 64 coefficients each. `words` is used up.
inline void centred_binomial_groups(std::uint64_t* words, std::size_t groups, std::int8_t* out) noexcept {
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return centred_binomial_avx512(words, groups, out);
        case exec::backend::avx2:
            return centred_binomial_avx2(words, groups, out);
        case exec::backend::portable:
            break;
    }
#endif
    centred_binomial_portable(words, groups, out);
}

}  // namespace detail

/// Fills `out` with centred binomial values in [-21, 21], for errors: coefficient 64 g + j from bit j of the
/// 42 words of the stream from byte 336 g on. Secret values: constant time, and the buffers in between are
/// wiped.
/// @pre  out.size() is a multiple of 64 and at most 2^35
/// Cost: 5.25 bytes of key stream per coefficient.
TENSAFE_COMPILED_INLINE void sample_centred_binomial(const seed& key, stream_domain domain,
                                                     std::uint32_t lane,
                                                     std::span<std::int8_t> out) noexcept {
    constexpr std::size_t group_bytes = detail::binomial_words * sizeof(std::uint64_t);
    // 32 groups are 168 blocks, so that chunks start between blocks and leave no group of eight blocks cut
    // short.
    constexpr std::size_t chunk_groups = 32;
    static_assert(chunk_groups * group_bytes % (8 * chacha20_block_bytes) == 0);
    TENSAFE_PRECONDITION(out.size() % detail::binomial_group == 0);
    TENSAFE_PRECONDITION(out.size() <= std::uint64_t{1} << 35);

    const chacha20_stream stream(key, domain, lane);
    alignas(64) std::uint64_t words[chunk_groups * detail::binomial_words];
    std::size_t used = 0;
    const std::size_t groups = out.size() / detail::binomial_group;
    for (std::size_t done = 0; done < groups; done += chunk_groups) {
        const std::size_t count = std::min(chunk_groups, groups - done);
        const std::size_t blocks = (count * group_bytes + chacha20_block_bytes - 1) / chacha20_block_bytes;
        stream.generate(done * group_bytes / chacha20_block_bytes,
                        {reinterpret_cast<std::uint8_t*>(words), blocks * chacha20_block_bytes});
        detail::centred_binomial_groups(words, count, out.data() + done * detail::binomial_group);
        used = std::max(used, blocks * chacha20_block_bytes);
    }
    memory::wipe(words, used);
}

}  // namespace tensafe::random
