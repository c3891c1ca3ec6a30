#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/centred_binomial_groups.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/x86/centred_binomial_avx512.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/transpose.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace tensafe::random {

namespace detail {

/// Four groups at once, one per lane. Traces, because g++ does not unroll loops at -O2.
struct binomial_lanes4 {
    using lanes = simd::lanes<std::uint64_t, 4>;
    using words = lanes::native;

    /// Four words of each group: word i of group g into lane g of to[i].
    static TENSAFE_INLINE void load(const std::uint64_t* from, words* to) noexcept {
        lanes r[4] = {lanes::load(from), lanes::load(from + binomial_words),
                      lanes::load(from + 2 * binomial_words), lanes::load(from + 3 * binomial_words)};
        simd::transpose(r);
        to[0] = r[0].v;
        to[1] = r[1].v;
        to[2] = r[2].v;
        to[3] = r[3].v;
    }
    template <std::size_t... I>
    static TENSAFE_INLINE void load_all(const std::uint64_t* from, words* to,
                                        std::index_sequence<I...>) noexcept {
        (load(from + 4 * I, to + 4 * I), ...);
        // 42 is not a multiple of four: the last load takes two words for the second time.
        load(from + binomial_words - 4, to + binomial_words - 4);
    }
    /// Four rows into the 32 coefficients of each group that they hold.
    static TENSAFE_INLINE void store(const words* rows, std::int8_t* out) noexcept {
        lanes r[4] = {{rows[0]}, {rows[1]}, {rows[2]}, {rows[3]}};
        simd::transpose(r);
        std::memcpy(out, &r[0], sizeof(lanes));
        std::memcpy(out + binomial_group, &r[1], sizeof(lanes));
        std::memcpy(out + 2 * binomial_group, &r[2], sizeof(lanes));
        std::memcpy(out + 3 * binomial_group, &r[3], sizeof(lanes));
    }
};

/// Converts whole vectors of groups, and returns their number: the body of a kernel.
TENSAFE_INLINE std::size_t centred_binomial_fours(const std::uint64_t* from, std::size_t groups,
                                                  std::int8_t* out) noexcept {
    using four = binomial_lanes4;
    four::words words[binomial_words];
    four::words rows[8];
    std::size_t done = 0;
    for (; done + 4 <= groups; done += 4) {
        four::load_all(from + done * binomial_words, words, std::make_index_sequence<binomial_words / 4>());
        centred_binomial_rows(words, rows);
        four::store(rows, out + done * binomial_group);
        four::store(rows + 4, out + done * binomial_group + 32);
    }
    memory::wipe(words);
    memory::wipe(rows);
    return done;
}

/// `groups` groups from their words to 64 coefficients each. `words` is used up.
inline void centred_binomial_groups(std::uint64_t* words, std::size_t groups, std::int8_t* out) noexcept {
    std::size_t done = 0;
#if TENSAFE_X86_64
    if (exec::active_backend() == exec::backend::avx512) {
        return centred_binomial_avx512(words, groups, out);
    }
    if (exec::active_backend() == exec::backend::avx2) {
        done = simd::avx2::kernel<&centred_binomial_fours>(words, groups, out);
    }
#endif
    centred_binomial_portable(words + done * binomial_words, groups - done, out + done * binomial_group);
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
