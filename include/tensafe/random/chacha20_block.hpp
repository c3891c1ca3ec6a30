#pragma once

#include <tensafe/core/macros.hpp>

#include <cstdint>

namespace tensafe::random {

inline constexpr int chacha20_double_rounds = 10;

/// The first four words of every state, "expand 32-byte k".
template <int I>
inline constexpr std::uint32_t chacha20_constant = I == 0   ? 0x61707865U
                                                   : I == 1 ? 0x3320646eU
                                                   : I == 2 ? 0x79622d32U
                                                            : 0x6b206574U;

namespace detail {

template <int Bits>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr std::uint32_t rotate_left(std::uint32_t x) noexcept {
    return (x << Bits) | (x >> (32 - Bits));
}

TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr void chacha20_quarter_round(std::uint32_t& a, std::uint32_t& b,
                                                                         std::uint32_t& c,
                                                                         std::uint32_t& d) noexcept {
    a += b;
    d = rotate_left<16>(d ^ a);
    c += d;
    b = rotate_left<12>(b ^ c);
    a += b;
    d = rotate_left<8>(d ^ a);
    c += d;
    b = rotate_left<7>(b ^ c);
}

}  // namespace detail

/// Computes a block of the ChaCha20 key stream (RFC 8439, section 2.3): 16 words of four little-endian bytes.
///
/// Any block can be computed alone, on the host or on the device. Constant time.
/// @param key      the 32 bytes as eight little-endian words
/// @param counter  the block's number in its stream
/// @param nonce    the 12 bytes as three little-endian words
TENSAFE_HOST_DEVICE constexpr void chacha20_block(const std::uint32_t key[8], std::uint32_t counter,
                                                  const std::uint32_t nonce[3],
                                                  std::uint32_t out[16]) noexcept {
    std::uint32_t initial[16] = {chacha20_constant<0>, chacha20_constant<1>, chacha20_constant<2>,
                                 chacha20_constant<3>};
    for (int i = 0; i < 8; ++i) {
        initial[4 + i] = key[i];
    }
    initial[12] = counter;
    for (int i = 0; i < 3; ++i) {
        initial[13 + i] = nonce[i];
    }
    std::uint32_t x[16] = {};
    for (int i = 0; i < 16; ++i) {
        x[i] = initial[i];
    }
    for (int round = 0; round < chacha20_double_rounds; ++round) {
        detail::chacha20_quarter_round(x[0], x[4], x[8], x[12]);
        detail::chacha20_quarter_round(x[1], x[5], x[9], x[13]);
        detail::chacha20_quarter_round(x[2], x[6], x[10], x[14]);
        detail::chacha20_quarter_round(x[3], x[7], x[11], x[15]);
        detail::chacha20_quarter_round(x[0], x[5], x[10], x[15]);
        detail::chacha20_quarter_round(x[1], x[6], x[11], x[12]);
        detail::chacha20_quarter_round(x[2], x[7], x[8], x[13]);
        detail::chacha20_quarter_round(x[3], x[4], x[9], x[14]);
    }
    for (int i = 0; i < 16; ++i) {
        out[i] = x[i] + initial[i];
    }
}

}  // namespace tensafe::random
