#pragma once

#include <tensafe/core/macros.hpp>

#include <cstdint>

namespace tensafe::random {

inline constexpr int chacha20_double_rounds = 10;

/// "expand 32-byte k": the first four words of every state.
template <int I>
inline constexpr std::uint32_t chacha20_constant = I == 0   ? 0x61707865U
                                                   : I == 1 ? 0x3320646eU
                                                   : I == 2 ? 0x79622d32U
                                                            : 0x6b206574U;

/// Rotation of a 32-bit word, or of every 32-bit lane of a vector, by two shifts.
struct shift_rotation {
    template <int Bits, class Word>
    TENSAFE_HOST_DEVICE static TENSAFE_INLINE constexpr void rotate_left(Word& x) noexcept {
        x = (x << Bits) | (x >> (32 - Bits));
    }
};

/// One quarter round on one block, or on as many blocks as Word has lanes. Arguments go by reference because
/// vectors wider than the baseline's registers cannot be passed by value.
template <class Rotation, class Word>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr void chacha20_quarter_round(Word& a, Word& b, Word& c,
                                                                         Word& d) noexcept {
    a += b;
    d ^= a;
    Rotation::template rotate_left<16>(d);
    c += d;
    b ^= c;
    Rotation::template rotate_left<12>(b);
    a += b;
    d ^= a;
    Rotation::template rotate_left<8>(d);
    c += d;
    b ^= c;
    Rotation::template rotate_left<7>(b);
}

/// Two of the twenty rounds: the columns, then the diagonals.
template <class Rotation, class Word>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr void chacha20_double_round(Word (&x)[16]) noexcept {
    chacha20_quarter_round<Rotation>(x[0], x[4], x[8], x[12]);
    chacha20_quarter_round<Rotation>(x[1], x[5], x[9], x[13]);
    chacha20_quarter_round<Rotation>(x[2], x[6], x[10], x[14]);
    chacha20_quarter_round<Rotation>(x[3], x[7], x[11], x[15]);
    chacha20_quarter_round<Rotation>(x[0], x[5], x[10], x[15]);
    chacha20_quarter_round<Rotation>(x[1], x[6], x[11], x[12]);
    chacha20_quarter_round<Rotation>(x[2], x[7], x[8], x[13]);
    chacha20_quarter_round<Rotation>(x[3], x[4], x[9], x[14]);
}

/// One block of the ChaCha20 key stream (RFC 8439, section 2.3): 16 words, each four bytes in little-endian
/// order.
///
/// Any block can be computed alone, on the host or on the device. Constant time.
/// @param key      the 32 bytes as eight little-endian words
/// @param counter  the block's number in its stream
/// @param nonce    the 12 bytes as three little-endian words
TENSAFE_HOST_DEVICE constexpr void chacha20_block(const std::uint32_t key[8], std::uint32_t counter,
                                                  const std::uint32_t nonce[3],
                                                  std::uint32_t out[16]) noexcept {
    const std::uint32_t initial[16] = {chacha20_constant<0>,
                                       chacha20_constant<1>,
                                       chacha20_constant<2>,
                                       chacha20_constant<3>,
                                       key[0],
                                       key[1],
                                       key[2],
                                       key[3],
                                       key[4],
                                       key[5],
                                       key[6],
                                       key[7],
                                       counter,
                                       nonce[0],
                                       nonce[1],
                                       nonce[2]};
    std::uint32_t x[16] = {};
    for (int i = 0; i < 16; ++i) {
        x[i] = initial[i];
    }
    for (int round = 0; round < chacha20_double_rounds; ++round) {
        chacha20_double_round<shift_rotation>(x);
    }
    for (int i = 0; i < 16; ++i) {
        out[i] = x[i] + initial[i];
    }
}

}  // namespace tensafe::random
