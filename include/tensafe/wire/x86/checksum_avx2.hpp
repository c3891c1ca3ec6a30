#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/wire/checksum_tables.hpp>

#if TENSAFE_X86_64

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <span>

// The instruction crc32 came with SSE4.2, which every processor with AVX2 has.

namespace tensafe::wire::detail {

/// The instruction takes three cycles and one can start in each: three streams keep it busy.
inline constexpr std::size_t checksum_stream_bytes = 1024;

TENSAFE_AVX2 TENSAFE_INLINE std::uint64_t checksum_word(std::uint64_t remainder,
                                                        const std::uint8_t* from) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, from, sizeof word);
    return _mm_crc32_u64(remainder, word);
}

/// The remainder after `checksum_stream_bytes` zero bytes.
inline std::uint32_t shift_remainder(std::uint32_t remainder) noexcept {
    const auto& rows = checksum_shift_table<checksum_stream_bytes>;
    return rows[0][remainder & 255] ^ rows[1][(remainder >> 8) & 255] ^ rows[2][(remainder >> 16) & 255] ^
           rows[3][remainder >> 24];
}

/// The remainder of `bytes` behind what gave `remainder`.
TENSAFE_AVX2 inline std::uint32_t checksum_avx2(std::span<const std::uint8_t> bytes,
                                                std::uint32_t remainder) noexcept {
    const std::uint8_t* from = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 3 * checksum_stream_bytes; left -= 3 * checksum_stream_bytes) {
        std::uint64_t first = remainder;
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        for (std::size_t i = 0; i < checksum_stream_bytes; i += 8) {
            first = checksum_word(first, from + i);
            second = checksum_word(second, from + checksum_stream_bytes + i);
            third = checksum_word(third, from + 2 * checksum_stream_bytes + i);
        }
        remainder = shift_remainder(shift_remainder(static_cast<std::uint32_t>(first)) ^
                                    static_cast<std::uint32_t>(second)) ^
                    static_cast<std::uint32_t>(third);
        from += 3 * checksum_stream_bytes;
    }
    std::uint64_t rest = remainder;
    for (; left >= 8; left -= 8) {
        rest = checksum_word(rest, from);
        from += 8;
    }
    remainder = static_cast<std::uint32_t>(rest);
    for (; left != 0; --left) {
        remainder = _mm_crc32_u8(remainder, *from++);
    }
    return remainder;
}

}  // namespace tensafe::wire::detail

#endif
