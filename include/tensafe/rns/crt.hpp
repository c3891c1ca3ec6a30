#pragma once

#include <tensafe/memory/wipe.hpp>
#include <tensafe/rns/basis.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

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

/// Chinese remainder reconstruction to double: residues of x modulo each prime of the chain give x, taken in
/// (-Q/2, Q/2), with a relative error below 3 * `Basis::limbs` * 2^-53; integers of magnitude up to 2^52 are
/// exact.
///
/// Garner's mixed-radix digits of x + (Q-1)/2, each then centred: the digits of (Q-1)/2 are (q_i - 1)/2, so
/// the result is a sum of signed digits that cannot cancel, without any comparison with Q/2. No branches, no
/// tables. docs/design/rns.md has the proof.  @pre residues[i] in [0, q_i)
template <class Basis>
double to_double(const std::array<arith::word, static_cast<std::size_t>(Basis::limbs)>& residues) noexcept {
    static_assert(modulus_bits<Basis> <= 1023,
                  "rns::to_double: the modulus must be below 2^1023, the range of double; use fewer limbs");
    std::array<arith::word, static_cast<std::size_t>(Basis::limbs)> digits{};
    memory::wipe_guard guard(digits);
    for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        constexpr auto policy = fixed_arithmetic<q>;
        constexpr auto one = policy.prepare(1);
        // (Q - 1) / 2 modulo q, since q is odd and divides Q.
        constexpr arith::word half_of_modulus = (q - 1) / 2;
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

}  // namespace tensafe::rns
