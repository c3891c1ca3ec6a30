#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/wire/checksum_tables.hpp>
#include <tensafe/wire/x86/checksum_avx2.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensafe::wire {

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "wire: the checksum reads words as they are in memory, which must be little endian");

/// The remainder of `bytes` behind what gave `remainder`: eight bytes a step, a table for each.
inline std::uint32_t checksum_portable(std::span<const std::uint8_t> bytes,
                                       std::uint32_t remainder) noexcept {
    const std::uint8_t* from = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, from, sizeof word);
        word ^= remainder;
        remainder = 0;
        for (std::size_t k = 0; k < 8; ++k) {
            remainder ^= checksum_table[7 - k][(word >> (8 * k)) & 255];
        }
        from += 8;
    }
    for (; left != 0; --left) {
        remainder = (remainder >> 8) ^ checksum_table[0][(remainder ^ *from++) & 255];
    }
    return remainder;
}

}  // namespace detail

/// CRC-32C (Castagnoli; RFC 3720): reflected polynomial 0x82F63B78, first and last XOR 0xFFFFFFFF. It shows
/// accidents; whoever changes bytes on purpose can make it fit.
///
/// @param before  the checksum of what comes before: crc32c(b, crc32c(a)) is the checksum of a and then b
/// Cost: a table look-up for each byte, or with the back-ends avx2 and avx512 a third of an instruction for
/// eight. Not for secrets: look-ups depend on the bytes. Thread-safe.
inline std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before = 0) noexcept {
#if TENSAFE_X86_64
    if (exec::active_backend() != exec::backend::portable) {
        return ~detail::checksum_avx2(bytes, ~before);
    }
#endif
    return ~detail::checksum_portable(bytes, ~before);
}

}  // namespace tensafe::wire
