#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/crt_garner.hpp>
#include <tensafe/rns/crt_lanes.hpp>
#include <tensafe/simd/dispatch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace tensafe::rns {

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
        // (Q - 1) / 2 modulo q, since q is odd and divides Q.
        constexpr arith::word half_of_modulus = (q - 1) / 2;
        arith::word digit = arith::subtract_if_not_below(residues[I] + half_of_modulus, q);
        [&]<int... J>(std::integer_sequence<int, J...>) {
            (
                [&] {
                    constexpr auto inverse = policy.prepare(detail::garner_inverse<Basis, I, J>);
                    const arith::word difference = digit + detail::garner_offset<Basis, I, J> - digits[J];
                    digit =
                        arith::reduce<1>(policy.modulus(), policy.multiply_word(difference, inverse)).value;
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
        double product = value * static_cast<double>(q);
#if TENSAFE_X86_64
        // Keeps the compiler from fusing it with the sum where it may use FMA: the vectors round it too.
        __asm__("" : "+x"(product));
#endif
        value = product + static_cast<double>(centred);
    }
    return value;
}

/// The same for many: out[k] is to_double of the residues[i][k]. No branch or index depends on a residue; no
/// allocation. Thread-safe.
/// @param residues  residues[i][k] is x_k modulo q_i, in [0, q_i)
/// @throws shape_error unless each span of residues has out.size() words
template <class Basis>
void to_doubles(
    const std::array<std::span<const arith::word>, static_cast<std::size_t>(Basis::limbs)>& residues,
    std::span<double> out) {
    for (const auto& limb : residues) {
        if (limb.size() != out.size()) {
            throw shape_error("to_doubles: got " + std::to_string(limb.size()) +
                              " residues of a limb, expected " + std::to_string(out.size()));
        }
    }
    const std::size_t whole = simd::on_active_target([&](auto target) -> std::size_t {
        using vectors = decltype(target);
        if constexpr (std::is_same_v<vectors, simd::portable>) {
            return 0;  // its lanes have no products
        } else {
            return vectors::template kernel<&detail::crt_lanes<vectors, Basis>::run>(residues, out);
        }
    });
    std::array<arith::word, static_cast<std::size_t>(Basis::limbs)> of_one{};
    memory::wipe_guard guard(of_one);
    for (std::size_t k = whole; k < out.size(); ++k) {
        for (std::size_t i = 0; i < of_one.size(); ++i) {
            of_one[i] = residues[i][k];
        }
        out[k] = to_double<Basis>(of_one);
    }
}

}  // namespace tensafe::rns
