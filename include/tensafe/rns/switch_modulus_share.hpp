#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace tensafe::rns::detail {

/// A fraction w/q modulo 1 with 116 bits, floor(2^116 w/q) = high * 2^52 + low, to be multiplied by residues
/// modulo q: of those `cut` lowest bits do not meet the lower part, so that it takes a multiplier of 52 bits.
struct modulus_fraction {
    arith::word high;
    arith::word low;
    int cut;
};
constexpr modulus_fraction fraction_of(arith::word w, arith::word q) noexcept {
    const arith::uint128 first = static_cast<arith::uint128>(w) << 64;
    const arith::uint128 second = (first % q) << 52;
    return {arith::low_word(first / q), arith::low_word(second / q),
            std::max(0, static_cast<int>(std::bit_width(q)) - 52)};
}

/// Limb I's share of p/Q modulo 1, for a residue of 1: (Q/q_I)^-1 modulo q_I, over q_I.
template <class Basis, int I>
inline constexpr modulus_fraction modulus_share = [] {
    constexpr arith::word q = Basis::template prime<I>;
    arith::word others = 1;
    for (int j = 0; j < Basis::limbs; ++j) {
        if (j != I) {
            others = arith::multiply_mod(others, Basis::primes[static_cast<std::size_t>(j)] % q, q);
        }
    }
    return fraction_of(arith::inverse_mod(others, q), q);
}();

/// Limb I's share of p/Q in units of 2^-64, modulo 1, for the residue p: less than 3 * 2^cut units too small.
template <class Basis, int I>
TENSAFE_HOST_DEVICE constexpr arith::word share_of(arith::word p) noexcept {
    constexpr modulus_fraction share = modulus_share<Basis, I>;
    const arith::word lower = arith::mul_hi(p >> share.cut, share.low << 12);
    return p * share.high + (lower << share.cut);
}

}  // namespace tensafe::rns::detail
