#pragma once

#include <tensafe/arith/shoup.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/simd/dispatch.hpp>
#include <tensafe/simd/lanes.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace tensafe::rns {

/// Chinese remainder reconstruction to double: residues of x modulo each prime of the chain give x, taken in
/// (-Q/2, Q/2), with a relative error below 3 * `Basis::limbs` * 2^-53; integers of magnitude up to 2^52 are
/// exact.
///
/// Garner's mixed-radix digits of x + (Q-1)/2, each then centred, so that their sum cannot cancel:
/// docs/design/rns.md. No branches, no tables.  @pre residues[i] in [0, q_i)
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
        value = arith::rounded_product(value, static_cast<double>(q)) + static_cast<double>(centred);
    }
    return value;
}

namespace detail {

/// Does to_double for a vector of numbers at a time, as bodies of kernels: with the same digits, and the same
/// roundings in the same order. All words are below 2^63.
template <class Target, class Basis>
struct crt_lanes {
    using word = arith::word;
    using words = typename Target::template vector<word>;
    using reals = typename Target::template vector<double>;

    /// Writes whole vectors; returns how many numbers.
    static TENSAFE_INLINE std::size_t run(const residue_spans<Basis>& residues,
                                          std::span<double> out) noexcept {
        std::size_t k = 0;
        for (; k + words::width <= out.size(); k += words::width) {
            words digits[Basis::limbs];
            find_digits(residues, k, digits, std::make_integer_sequence<int, Basis::limbs>());
            reals value = centred<Basis::limbs - 1>(digits);
            add_lower_digits(value, digits, std::make_integer_sequence<int, Basis::limbs - 1>());
            value.store(&out[k]);
        }
        return k;
    }

  private:
    template <int... I>
    static TENSAFE_INLINE void find_digits(const residue_spans<Basis>& residues, std::size_t k,
                                           words (&digits)[Basis::limbs],
                                           std::integer_sequence<int, I...>) noexcept {
        (find_digit<I>(residues, k, digits, std::make_integer_sequence<int, I>()), ...);
    }
    template <int I, int... J>
    static TENSAFE_INLINE void find_digit(const residue_spans<Basis>& residues, std::size_t k,
                                          words (&digits)[Basis::limbs],
                                          std::integer_sequence<int, J...>) noexcept {
        constexpr word q = Basis::template prime<I>;
        const words residue = words::load(residues[static_cast<std::size_t>(I)].data() + k);
        digits[I] =
            Target::subtract_if_not_below(residue + Target::broadcast((q - 1) / 2), Target::broadcast(q));
        ((digits[I] = divide_difference<I, J>(digits[I], digits[J])), ...);
    }

    /// Returns (digit - earlier) / q_J modulo q_I, by Shoup's product with the upper word of difference *
    /// quotient up to 2 too small: in [0, 4q) before the subtractions.
    template <int I, int J>
    static TENSAFE_INLINE words divide_difference(const words& digit, const words& earlier) noexcept {
        constexpr word q = Basis::template prime<I>;
        constexpr auto inverse = fixed_arithmetic<q>.prepare(garner_inverse<Basis, I, J>);
        const words difference = digit + Target::broadcast(garner_offset<Basis, I, J>) - earlier;
        const words estimate = Target::multiply_upper(difference, inverse.quotient);
        const words product =
            Target::multiply_low(difference, inverse.value) - Target::multiply_low(estimate, q);
        return Target::subtract_if_not_below(Target::subtract_if_not_below(product, Target::broadcast(2 * q)),
                                             Target::broadcast(q));
    }

    template <int... I>
    static TENSAFE_INLINE void add_lower_digits(reals& value, const words (&digits)[Basis::limbs],
                                                std::integer_sequence<int, I...>) noexcept {
        ((value = Target::product(value, Target::broadcast(static_cast<double>(
                                             Basis::template prime<Basis::limbs - 2 - I>))) +
                  centred<Basis::limbs - 2 - I>(digits)),
         ...);
    }
    /// Digit I less (q-1)/2, of magnitude below 2^60.
    template <int I>
    static TENSAFE_INLINE reals centred(const words (&digits)[Basis::limbs]) noexcept {
        return Target::to_reals(digits[I], (Basis::template prime<I> - 1) / 2);
    }
};

}  // namespace detail

/// Converts many numbers: out[k] is to_double of the residues[i][k]. No branch or index depends on a residue;
/// no allocation. Thread-safe.
/// @throws shape_error unless each span of residues has out.size() words
template <class Basis>
void to_doubles(const residue_spans<Basis>& residues, std::span<double> out) {
    for (const auto& limb : residues) {
        check_count("to_doubles: got ", limb.size(), " residues of a limb, expected ", out.size());
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
