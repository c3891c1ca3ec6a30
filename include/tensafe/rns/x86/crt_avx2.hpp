#pragma once

#include <tensafe/arith/shoup.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/crt_garner.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::rns::detail {

/// to_double for 4 numbers at a time: the same digits, and the same roundings in the same order. All words
/// are below 2^63.
template <class Basis>
class to_doubles_avx2 {
  public:
    using residue_spans = std::array<std::span<const arith::word>, static_cast<std::size_t>(Basis::limbs)>;

    TENSAFE_AVX2 static void run(const residue_spans& residues, std::span<double> out) noexcept {
        const std::size_t whole = out.size() / lanes * lanes;
        for (std::size_t k = 0; k < whole; k += lanes) {
            _mm256_storeu_pd(out.data() + k, reconstruct<false>(residues, k, _mm256_setzero_si256()));
        }
        if (whole != out.size()) {
            const auto rest = static_cast<long long>(out.size() - whole);
            const __m256i wanted =
                _mm256_cmpgt_epi64(_mm256_set1_epi64x(rest), _mm256_set_epi64x(3, 2, 1, 0));
            _mm256_maskstore_pd(out.data() + whole, wanted, reconstruct<true>(residues, whole, wanted));
        }
    }

  private:
    static constexpr std::size_t lanes = 4;

    template <bool Masked>
    TENSAFE_AVX2 TENSAFE_INLINE static __m256d reconstruct(const residue_spans& residues, std::size_t k,
                                                           __m256i wanted) noexcept {
        __m256i digits[Basis::limbs];
        find_digits<Masked>(residues, k, wanted, digits, std::make_integer_sequence<int, Basis::limbs>());
        __m256d value = centred<Basis::limbs - 1>(digits);
        add_lower_digits(value, digits, std::make_integer_sequence<int, Basis::limbs - 1>());
        return value;
    }

    template <bool Masked, int... I>
    TENSAFE_AVX2 TENSAFE_INLINE static void find_digits(const residue_spans& residues, std::size_t k,
                                                        __m256i wanted, __m256i (&digits)[Basis::limbs],
                                                        std::integer_sequence<int, I...>) noexcept {
        (find_digit<Masked, I>(residues, k, wanted, digits, std::make_integer_sequence<int, I>()), ...);
    }

    template <bool Masked, int I, int... J>
    TENSAFE_AVX2 TENSAFE_INLINE static void find_digit(const residue_spans& residues, std::size_t k,
                                                       __m256i wanted, __m256i (&digits)[Basis::limbs],
                                                       std::integer_sequence<int, J...>) noexcept {
        constexpr arith::word q = Basis::template prime<I>;
        const arith::word* const from = residues[static_cast<std::size_t>(I)].data() + k;
        __m256i residue;
        if constexpr (Masked) {
            residue = _mm256_maskload_epi64(reinterpret_cast<const long long*>(from), wanted);
        } else {
            residue = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        }
        __m256i digit = subtract_if_not_below<q>(_mm256_add_epi64(residue, spread((q - 1) / 2)));
        ((digit = divide_difference<I, J>(digit, digits[J])), ...);
        digits[I] = digit;
    }

    /// (digit - earlier) / q_J modulo q_I, by Shoup's product with the upper word of difference * quotient up
    /// to 2 too small: in [0, 4q) before the subtractions.
    template <int I, int J>
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i divide_difference(__m256i digit, __m256i earlier) noexcept {
        constexpr arith::word q = Basis::template prime<I>;
        constexpr auto inverse = fixed_arithmetic<q>.prepare(garner_inverse<Basis, I, J>);
        const __m256i difference =
            _mm256_sub_epi64(_mm256_add_epi64(digit, spread(garner_offset<Basis, I, J>)), earlier);
        const __m256i upper = _mm256_srli_epi64(difference, 32);
        const __m256i upper_lower = _mm256_mul_epu32(upper, spread(inverse.quotient & 0xffffffff));
        const __m256i lower_upper = _mm256_mul_epu32(difference, spread(inverse.quotient >> 32));
        const __m256i upper_upper = _mm256_mul_epu32(upper, spread(inverse.quotient >> 32));
        const __m256i estimate = _mm256_add_epi64(
            upper_upper,
            _mm256_add_epi64(_mm256_srli_epi64(upper_lower, 32), _mm256_srli_epi64(lower_upper, 32)));
        const __m256i product = _mm256_sub_epi64(multiply_low<inverse.value>(difference, upper),
                                                 multiply_low<q>(estimate, _mm256_srli_epi64(estimate, 32)));
        return subtract_if_not_below<q>(subtract_if_not_below<2 * q>(product));
    }

    template <int... I>
    TENSAFE_AVX2 TENSAFE_INLINE static void add_lower_digits(__m256d& value,
                                                             const __m256i (&digits)[Basis::limbs],
                                                             std::integer_sequence<int, I...>) noexcept {
        (add_digit<Basis::limbs - 2 - I>(value, digits), ...);
    }
    template <int I>
    TENSAFE_AVX2 TENSAFE_INLINE static void add_digit(__m256d& value,
                                                      const __m256i (&digits)[Basis::limbs]) noexcept {
        constexpr auto q = static_cast<double>(Basis::template prime<I>);
        __m256d product = _mm256_mul_pd(value, _mm256_set1_pd(q));
        // Keeps the compiler from fusing the product with the sum, which would round once less.
        __asm__("" : "+x"(product));
        value = _mm256_add_pd(product, centred<I>(digits));
    }

    /// Digit I less (q-1)/2, of magnitude below 2^60. Shifted to positive numbers, its upper and its lower
    /// half are put into mantissas; taking off what is too much is exact, and the sum rounds once.
    template <int I>
    TENSAFE_AVX2 TENSAFE_INLINE static __m256d centred(const __m256i (&digits)[Basis::limbs]) noexcept {
        constexpr arith::word shift = (arith::word{1} << 62) - (Basis::template prime<I> - 1) / 2;
        const __m256i shifted = _mm256_add_epi64(digits[I], spread(shift));
        const __m256i unit = _mm256_castpd_si256(_mm256_set1_pd(0x1p52));
        const __m256i upper_unit = _mm256_castpd_si256(_mm256_set1_pd(0x1p84));
        const __m256i lower = _mm256_blend_epi32(shifted, unit, 0xaa);  // 2^52 + the lower half
        const __m256i upper = _mm256_or_si256(_mm256_srli_epi64(shifted, 32), upper_unit);
        const __m256d excess = _mm256_set1_pd(0x1p84 + 0x1p62 + 0x1p52);
        return _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(upper), excess), _mm256_castsi256_pd(lower));
    }

    TENSAFE_AVX2 TENSAFE_INLINE static __m256i spread(arith::word x) noexcept {
        return _mm256_set1_epi64x(static_cast<long long>(x));
    }
    /// x * C modulo 2^64;  @param upper  x >> 32
    template <arith::word C>
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i multiply_low(__m256i x, __m256i upper) noexcept {
        const __m256i low = spread(C & 0xffffffff);
        const __m256i middle =
            _mm256_add_epi64(_mm256_mul_epu32(upper, low), _mm256_mul_epu32(x, spread(C >> 32)));
        return _mm256_add_epi64(_mm256_mul_epu32(x, low), _mm256_slli_epi64(middle, 32));
    }
    template <arith::word C>
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i subtract_if_not_below(__m256i x) noexcept {
        const __m256d difference = _mm256_castsi256_pd(_mm256_sub_epi64(x, spread(C)));
        // By the sign of the difference.
        return _mm256_castpd_si256(_mm256_blendv_pd(difference, _mm256_castsi256_pd(x), difference));
    }
};

}  // namespace tensafe::rns::detail

#endif
