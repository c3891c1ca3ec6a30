#pragma once

#include <tensafe/rns/basis.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensafe::rns {

/// Chinese remainder reconstruction to double: residues of x modulo each prime of the chain give x, taken in
/// (-Q/2, Q/2), with a relative error of at most `Basis::limbs` * 2^-52; integers below 2^53 are exact.
///
/// Garner's mixed-radix digits of x + (Q-1)/2, each then centred: the digits of (Q-1)/2 are (q_i - 1)/2, so
/// the result is a sum of signed digits that cannot cancel, without any comparison with Q/2. No branches, no
/// tables. docs/design/rns.md has the proof.  @pre residues[i] in [0, q_i)
template <class Basis>
double to_double(const std::array<arith::word, static_cast<std::size_t>(Basis::limbs)>& residues) noexcept {
    std::array<arith::word, static_cast<std::size_t>(Basis::limbs)> digits{};
    for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        constexpr auto policy = fixed_arithmetic<q>;
        constexpr auto one = policy.prepare(1);
        constexpr arith::word half_of_modulus = [] {
            arith::word product = 1;
            for (const arith::word p : Basis::primes) {
                product = arith::multiply_mod(product, p % q, q);
            }
            // (Q - 1) / 2 modulo q, where Q = 0 modulo q.
            return arith::multiply_mod(product + q - 1, arith::inverse_mod(2, q), q);
        }();
        arith::word digit = arith::subtract_if_not_below(residues[I] + half_of_modulus, q);
        [&]<int... J>(std::integer_sequence<int, J...>) {
            (
                [&] {
                    constexpr auto inverse =
                        policy.prepare(arith::inverse_mod(Basis::template prime<J> % q, q));
                    const auto earlier =
                        arith::reduce<1>(policy.modulus(), policy.reduce_word(digits[J], one));
                    const arith::below<2, modulus_of<q>> difference{digit + q - earlier.value};
                    digit = arith::reduce<1>(policy.modulus(), policy.multiply(difference, inverse)).value;
                }(),
                ...);
        }
        (std::make_integer_sequence<int, I>{});
        digits[I] = digit;
    });
    double value = 0;
    for (std::size_t i = digits.size(); i-- > 0;) {
        const arith::word q = Basis::primes[i];
        const auto centred = static_cast<std::int64_t>(digits[i] - (q - 1) / 2);
        value = value * static_cast<double>(q) + static_cast<double>(centred);
    }
    return value;
}

/// x modulo q in [0, q) for a signed word x with |x| < 2^63, without branches on x.
template <arith::word Q>
constexpr arith::word residue_of(std::int64_t x) noexcept {
    constexpr auto policy = fixed_arithmetic<Q>;
    constexpr auto one = policy.prepare(1);
    const arith::word negative = static_cast<arith::word>(x >> 63);  // all ones if x < 0
    const arith::word magnitude = (static_cast<arith::word>(x) ^ negative) - negative;
    const arith::word r = arith::reduce<1>(policy.modulus(), policy.reduce_word(magnitude, one)).value;
    // -r mod q is q - r, and 0 for r = 0.
    return arith::subtract_if_not_below((r ^ negative) - negative + (Q & negative), Q);
}

}  // namespace tensafe::rns
