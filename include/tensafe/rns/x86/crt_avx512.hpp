#pragma once

#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/x86/vector_avx512.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/crt_garner.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::rns::detail {

/// to_double for 8 numbers at a time: the same digits, and the same roundings in the same order.
template <class Basis>
class to_doubles_avx512 {
  public:
    using residue_spans = std::array<std::span<const arith::word>, static_cast<std::size_t>(Basis::limbs)>;

    TENSAFE_AVX512 static void run(const residue_spans& residues, std::span<double> out) noexcept {
        const std::size_t whole = out.size() / lanes * lanes;
        for (std::size_t k = 0; k < whole; k += lanes) {
            _mm512_storeu_pd(out.data() + k, reconstruct<false>(residues, k, arith::avx512::all_lanes));
        }
        if (whole != out.size()) {
            const auto wanted = static_cast<__mmask8>((1U << (out.size() - whole)) - 1);
            _mm512_mask_storeu_pd(out.data() + whole, wanted, reconstruct<true>(residues, whole, wanted));
        }
    }

  private:
    static constexpr std::size_t lanes = 8;

    template <bool Masked>
    TENSAFE_AVX512 TENSAFE_INLINE static __m512d reconstruct(const residue_spans& residues, std::size_t k,
                                                             __mmask8 wanted) noexcept {
        __m512i digits[Basis::limbs];
        find_digits<Masked>(residues, k, wanted, digits, std::make_integer_sequence<int, Basis::limbs>());
        __m512d value = centred<Basis::limbs - 1>(digits);
        add_lower_digits(value, digits, std::make_integer_sequence<int, Basis::limbs - 1>());
        return value;
    }

    template <bool Masked, int... I>
    TENSAFE_AVX512 TENSAFE_INLINE static void find_digits(const residue_spans& residues, std::size_t k,
                                                          __mmask8 wanted, __m512i (&digits)[Basis::limbs],
                                                          std::integer_sequence<int, I...>) noexcept {
        (find_digit<Masked, I>(residues, k, wanted, digits, std::make_integer_sequence<int, I>()), ...);
    }

    template <bool Masked, int I, int... J>
    TENSAFE_AVX512 TENSAFE_INLINE static void find_digit(const residue_spans& residues, std::size_t k,
                                                         __mmask8 wanted, __m512i (&digits)[Basis::limbs],
                                                         std::integer_sequence<int, J...>) noexcept {
        constexpr arith::word q = Basis::template prime<I>;
        const arith::word* const from = residues[static_cast<std::size_t>(I)].data() + k;
        const __m512i residue = Masked ? _mm512_maskz_loadu_epi64(wanted, from) : _mm512_loadu_si512(from);
        __m512i digit =
            subtract_if_not_below<q>(_mm512_add_epi64(residue, arith::avx512::broadcast((q - 1) / 2)));
        ((digit = divide_difference<I, J>(digit, digits[J])), ...);
        digits[I] = digit;
    }

    /// (digit - earlier) / q_J modulo q_I, by Shoup's product with the upper word of difference * quotient up
    /// to 2 too small: in [0, 4q) before the subtractions.
    template <int I, int J>
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i divide_difference(__m512i digit, __m512i earlier) noexcept {
        constexpr arith::word q = Basis::template prime<I>;
        constexpr auto inverse = fixed_arithmetic<q>.prepare(garner_inverse<Basis, I, J>);
        const __m512i difference = _mm512_sub_epi64(
            _mm512_add_epi64(digit, arith::avx512::broadcast(garner_offset<Basis, I, J>)), earlier);
        const __m512i upper = _mm512_maskz_srli_epi64(arith::avx512::all_lanes, difference, 32);
        const __m512i upper_lower =
            multiply32(upper, arith::avx512::broadcast(inverse.quotient & 0xffffffff));
        const __m512i lower_upper = multiply32(difference, arith::avx512::broadcast(inverse.quotient >> 32));
        const __m512i upper_upper = multiply32(upper, arith::avx512::broadcast(inverse.quotient >> 32));
        const __m512i estimate = _mm512_add_epi64(
            upper_upper,
            _mm512_add_epi64(_mm512_maskz_srli_epi64(arith::avx512::all_lanes, upper_lower, 32),
                             _mm512_maskz_srli_epi64(arith::avx512::all_lanes, lower_upper, 32)));
        const __m512i product =
            _mm512_sub_epi64(_mm512_mullo_epi64(difference, arith::avx512::broadcast(inverse.value)),
                             _mm512_mullo_epi64(estimate, arith::avx512::broadcast(q)));
        return subtract_if_not_below<q>(subtract_if_not_below<2 * q>(product));
    }

    template <int... I>
    TENSAFE_AVX512 TENSAFE_INLINE static void add_lower_digits(__m512d& value,
                                                               const __m512i (&digits)[Basis::limbs],
                                                               std::integer_sequence<int, I...>) noexcept {
        (add_digit<Basis::limbs - 2 - I>(value, digits), ...);
    }
    template <int I>
    TENSAFE_AVX512 TENSAFE_INLINE static void add_digit(__m512d& value,
                                                        const __m512i (&digits)[Basis::limbs]) noexcept {
        constexpr auto q = static_cast<double>(Basis::template prime<I>);
        // With a rounding of its own the product is not fused with the sum, which would round once less.
        const __m512d product = _mm512_maskz_mul_round_pd(arith::avx512::all_lanes, value, _mm512_set1_pd(q),
                                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        value = _mm512_add_pd(product, centred<I>(digits));
    }

    /// Digit I less (q-1)/2.
    template <int I>
    TENSAFE_AVX512 TENSAFE_INLINE static __m512d centred(const __m512i (&digits)[Basis::limbs]) noexcept {
        constexpr arith::word half = (Basis::template prime<I> - 1) / 2;
        return _mm512_maskz_cvtepi64_pd(arith::avx512::all_lanes,
                                        _mm512_sub_epi64(digits[I], arith::avx512::broadcast(half)));
    }

    /// Of the lower halves of the lanes.
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i multiply32(__m512i x, __m512i y) noexcept {
        return _mm512_maskz_mul_epu32(arith::avx512::all_lanes, x, y);
    }
    template <arith::word C>
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i subtract_if_not_below(__m512i x) noexcept {
        return arith::avx512::subtract_if_not_below(x, arith::avx512::broadcast(C));
    }
};

}  // namespace tensafe::rns::detail

#endif
