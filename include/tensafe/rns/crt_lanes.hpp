#pragma once

#include <tensafe/arith/shoup.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/crt_garner.hpp>
#include <tensafe/simd/lanes.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace tensafe::rns::detail {

/// to_double for a vector of numbers at a time: bodies of kernels. The same digits, and the same roundings in
/// the same order. All words are below 2^63.
template <class Target, class Basis>
struct crt_lanes {
    using word = arith::word;
    using words = typename Target::template vector<word>;
    using reals = typename Target::template vector<double>;
    using residue_spans = std::array<std::span<const word>, static_cast<std::size_t>(Basis::limbs)>;

    /// Writes whole vectors; returns how many numbers.
    static TENSAFE_INLINE std::size_t run(const residue_spans& residues, std::span<double> out) noexcept {
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
    static TENSAFE_INLINE void find_digits(const residue_spans& residues, std::size_t k,
                                           words (&digits)[Basis::limbs],
                                           std::integer_sequence<int, I...>) noexcept {
        (find_digit<I>(residues, k, digits, std::make_integer_sequence<int, I>()), ...);
    }
    template <int I, int... J>
    static TENSAFE_INLINE void find_digit(const residue_spans& residues, std::size_t k,
                                          words (&digits)[Basis::limbs],
                                          std::integer_sequence<int, J...>) noexcept {
        constexpr word q = Basis::template prime<I>;
        const words residue = words::load(residues[static_cast<std::size_t>(I)].data() + k);
        digits[I] =
            Target::subtract_if_not_below(residue + Target::broadcast((q - 1) / 2), Target::broadcast(q));
        ((digits[I] = divide_difference<I, J>(digits[I], digits[J])), ...);
    }

    /// (digit - earlier) / q_J modulo q_I, by Shoup's product with the upper word of difference * quotient up
    /// to 2 too small: in [0, 4q) before the subtractions.
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

}  // namespace tensafe::rns::detail
