#pragma once

#include <tensafe/rns/basis.hpp>

#include <bit>

namespace tensafe::rns {

/// Q is below 2^modulus_bits: the sum of the widths of the primes.
template <class Basis>
inline constexpr int modulus_bits = [] {
    int bits = 0;
    for (const arith::word q : Basis::primes) {
        bits += static_cast<int>(std::bit_width(q));
    }
    return bits;
}();

namespace detail {

// The constants of Garner's algorithm: digit I becomes (digit - digit J) / q_J modulo q_I, for each J < I.

/// 1/q_J modulo q_I.
template <class Basis, int I, int J>
inline constexpr arith::word garner_inverse = arith::inverse_mod(Basis::template prime<J> %
                                                                     Basis::template prime<I>,
                                                                 Basis::template prime<I>);

/// The least multiple of q_I that is not below q_J, hence less than q_I + q_J: makes the difference positive.
template <class Basis, int I, int J>
inline constexpr arith::word garner_offset = [] {
    constexpr arith::word q = Basis::template prime<I>;
    return (Basis::template prime<J> + q - 1) / q * q;
}();

}  // namespace detail

}  // namespace tensafe::rns
