#pragma once

#include <tensafe/core/macros.hpp>

#if TENSAFE_X86_64

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <span>

// The instructions crc32 (SSE4.2) and pclmulqdq are older than AVX2: every processor with AVX2 has them.

namespace tensafe::wire::detail {

/// The bytes of a stream: crc32 takes three cycles and one can start in each, so three streams keep it busy.
inline constexpr std::size_t checksum_stream_bytes = 1024;

/// The constant x^(8 n - 33) modulo the polynomial for n = 1024 and 2048. The product of two remainders is
/// one bit short of a word, and crc32 of a word multiplies by x^32.
inline constexpr std::uint32_t checksum_shift = 0x170076FA;
inline constexpr std::uint32_t checksum_double_shift = 0xA51B6135;

TENSAFE_AVX2 TENSAFE_INLINE std::uint64_t checksum_word(std::uint64_t remainder,
                                                        const std::uint8_t* from) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, from, sizeof word);
    return _mm_crc32_u64(remainder, word);
}

/// The remainder of `bytes` behind what gave `remainder`.
__attribute__((target("avx2,fma,pclmul"))) inline std::uint32_t checksum_avx2(
    std::span<const std::uint8_t> bytes, std::uint32_t remainder) noexcept {
    constexpr std::size_t stream = checksum_stream_bytes;
    const __m128i shifts = _mm_set_epi64x(checksum_shift, checksum_double_shift);
    const std::uint8_t* from = bytes.data();
    std::size_t left = bytes.size();
    std::uint64_t first = remainder;
    for (; left >= 3 * stream; left -= 3 * stream) {
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        for (const std::uint8_t* end = from + stream; from != end; from += 8) {
            first = checksum_word(first, from);
            second = checksum_word(second, from + stream);
            third = checksum_word(third, from + 2 * stream);
        }
        const __m128i moved = _mm_xor_si128(
            _mm_clmulepi64_si128(_mm_set_epi64x(0, static_cast<long long>(first)), shifts, 0x00),
            _mm_clmulepi64_si128(_mm_set_epi64x(0, static_cast<long long>(second)), shifts, 0x10));
        first = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(moved))) ^ third;
        from += 2 * stream;
    }
    for (; left >= 8; left -= 8) {
        first = checksum_word(first, from);
        from += 8;
    }
    remainder = static_cast<std::uint32_t>(first);
    for (; left != 0; --left) {
        remainder = _mm_crc32_u8(remainder, *from++);
    }
    return remainder;
}

}  // namespace tensafe::wire::detail

#endif
