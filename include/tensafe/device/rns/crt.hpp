#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/crt_garner.hpp>

#include <cstddef>
#include <utility>

namespace tensafe::rns {

namespace detail {

/// A signed word, rounded once to double: two exact sums and a rounded one, since conversions of words run
/// at a quarter of the rate of additions on GPUs.
TENSAFE_HOST_DEVICE TENSAFE_INLINE double double_of_signed(arith::word x) noexcept {
    // Halves in the mantissas of 2^84 (units of 2^32, made positive by 2^31 of them) and of 2^52.
    const arith::word upper = (x >> 32) ^ 0x80000000U ^ 0x4530000000000000U;
    const arith::word lower = (x & 0xFFFFFFFFU) | 0x4330000000000000U;
    constexpr double offset = 0x1p84 + 0x1p63 + 0x1p52;
    return (__builtin_bit_cast(double, upper) - offset) + __builtin_bit_cast(double, lower);
}

/// One step of Garner's algorithm: digit I after digit J is known.
template <class Basis, int I, int J>
TENSAFE_HOST_DEVICE TENSAFE_INLINE arith::word garner_step(arith::word digit, arith::word of_j) noexcept {
    constexpr arith::word q = Basis::template prime<I>;
    constexpr arith::shoup<arith::fixed_modulus<q>> p{};
    constexpr auto inverse = p.prepare(garner_inverse<Basis, I, J>);
    constexpr arith::word offset = garner_offset<Basis, I, J>;
    return arith::reduce<1>(p.modulus(), p.multiply_word(digit + offset - of_j, inverse)).value;
}

/// Digit I, from x modulo prime I and the digits before.
template <class Basis, int I, int... J>
TENSAFE_HOST_DEVICE TENSAFE_INLINE arith::word garner_digit(arith::word residue, const arith::word* digits,
                                                            std::integer_sequence<int, J...>) noexcept {
    constexpr arith::word q = Basis::template prime<I>;
    arith::word digit = arith::subtract_if_not_below(residue + (q - 1) / 2, q);
    ((digit = garner_step<Basis, I, J>(digit, digits[J])), ...);
    return digit;
}

/// value * q + the centred digit: one step of the sum, from the last prime to the first.
template <arith::word Q>
TENSAFE_HOST_DEVICE TENSAFE_INLINE double add_digit(double value, arith::word digit) noexcept {
    constexpr auto q = static_cast<double>(Q);
    return arith::rounded_product(value, q) + double_of_signed(digit - (Q - 1) / 2);
}

template <class Basis, int... I>
TENSAFE_HOST_DEVICE TENSAFE_INLINE double to_double_of(const arith::word* residues,
                                                       std::integer_sequence<int, I...>) noexcept {
    arith::word digits[sizeof...(I)];
    ((digits[I] = garner_digit<Basis, I>(residues[I], digits, std::make_integer_sequence<int, I>{})), ...);
    double value = 0;
    ((value = add_digit<Basis::template prime<Basis::limbs - 1 - I>>(value, digits[Basis::limbs - 1 - I])),
     ...);
    return value;
}

}  // namespace detail

/// rns::to_double for block kernels: the same integer in (-Q/2, Q/2), rounded by the same steps to the same
/// bits. No branch, no index depends on a residue.  @pre residues[i] in [0, q_i)
template <class Basis>
TENSAFE_HOST_DEVICE TENSAFE_INLINE double to_double_of(const arith::word (&residues)[Basis::limbs]) noexcept {
    static_assert(
        modulus_bits<Basis> <= 1023,
        "rns::to_double_of: the modulus must be below 2^1023, the range of double; use fewer limbs");
    return detail::to_double_of<Basis>(residues, std::make_integer_sequence<int, Basis::limbs>{});
}

}  // namespace tensafe::rns
