#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/scalar_lanes.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::arith::avx2 {

using vector = __m256i;
/// The vector of words that bodies (simd/lanes.hpp) hand to the arithmetic of this folder.
using words = simd::lanes<word, 4>;
using reals = simd::lanes<double, 4>;

using simd::to_lanes;

TENSAFE_AVX2 TENSAFE_INLINE vector broadcast(word x) noexcept {
    return _mm256_set1_epi64x(static_cast<std::int64_t>(x));
}

/// Returns x + c where x is negative, else x.
TENSAFE_AVX2 TENSAFE_INLINE vector add_if_negative(vector x, vector c) noexcept {
    const __m256d sum = _mm256_castsi256_pd(_mm256_add_epi64(x, c));
    return _mm256_castpd_si256(_mm256_blendv_pd(_mm256_castsi256_pd(x), sum, _mm256_castsi256_pd(x)));
}

/// Sums and differences of residues modulo q.
class sums {
  public:
    using words = avx2::words;

    TENSAFE_AVX2 explicit sums(word q) noexcept : q_(broadcast(q)) {}

    TENSAFE_AVX2 words add(const words& a, const words& b) const noexcept {
        return to_lanes(add_if_negative(_mm256_add_epi64(raw(a), _mm256_sub_epi64(raw(b), q_)), q_));
    }
    TENSAFE_AVX2 words subtract(const words& a, const words& b) const noexcept {
        return to_lanes(add_if_negative(_mm256_sub_epi64(raw(a), raw(b)), q_));
    }
    /// Four signed bytes of magnitude below q, added to residues.
    TENSAFE_AVX2 words add_small(const words& a, const std::int8_t* small) const noexcept {
        std::int32_t four = 0;
        std::memcpy(&four, small, sizeof four);
        return add(a, to_lanes(add_if_negative(_mm256_cvtepi8_epi64(_mm_cvtsi32_si128(four)), q_)));
    }
    TENSAFE_AVX2 static words spread(word x) noexcept { return to_lanes(broadcast(x)); }

  private:
    vector q_;
};

/// Whether all words are below q.
class bound_check {
  public:
    using words = avx2::words;

    // There is no unsigned comparison: with the top bits inverted, a signed one does.
    TENSAFE_AVX2 explicit bound_check(word q) noexcept
        : bound_(_mm256_xor_si256(broadcast(q), broadcast(top_bit))), below_(_mm256_set1_epi64x(-1)) {}

    TENSAFE_AVX2 void take(const words& x) noexcept {
        below_ = _mm256_and_si256(below_,
                                  _mm256_cmpgt_epi64(bound_, _mm256_xor_si256(raw(x), broadcast(top_bit))));
    }
    TENSAFE_AVX2 bool holds() const noexcept { return _mm256_movemask_epi8(below_) == -1; }

  private:
    static constexpr word top_bit = word{1} << 63;
    vector bound_;
    vector below_;
};

/// Four residues at a time modulo q < 2^50, as integers in doubles. Remainders are symmetric, and every sum
/// of them is exact below 2^53. Bounds: docs/design/arithmetic.md.
template <arith::modulus M>
class fp64 : public sums {
    static_assert(M::bits <= 50, "avx2::fp64: the modulus must be below 2^50");

  public:
    using operand = reals;
    /// A sum of products in each lane, an integer below 2^53 in magnitude.
    struct sum {
        reals parts[1];
    };
    using factor = reals;
    /// The number of products or residues that can be added to a remainder.
    static constexpr std::size_t terms = (std::size_t{1} << std::min(53 - M::bits, 12)) - 1;
    /// Whether sums must be normalized before their lanes are added to others.
    static constexpr bool joins_residues = true;
    /// The number of terms of a block sum that can be added up without a reduction, all lanes together.
    static constexpr std::size_t block_terms(bool with_addends) noexcept {
        return 4 * (with_addends ? terms / 2 : terms);
    }

    TENSAFE_AVX2 explicit fp64(M m) noexcept
        : sums(m.value()),
          q_(_mm256_set1_pd(static_cast<double>(m.value()))),
          inverse_(_mm256_set1_pd(1 / static_cast<double>(m.value()))),
          power_(_mm256_set1_pd(static_cast<double>((word{1} << 60) % m.value()))) {}

    /// Words below 2^52 as doubles: with the upper bits of 2^52 they are the double 2^52 + x.
    TENSAFE_AVX2 static reals as_operand(const words& x) noexcept {
        const __m256d two_52 = _mm256_set1_pd(0x1p52);
        return {
            _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(raw(x), _mm256_castpd_si256(two_52))), two_52)};
    }

    /// Returns a * b modulo q, in [0, q).
    TENSAFE_AVX2 words multiply(const reals& a, const reals& b) const noexcept {
        return to_words(product(a.v, b.v));
    }

    /// The empty sum, as -0: compilers leave out an addition to -0, and what is reduced is 0.
    TENSAFE_AVX2 static sum zero() noexcept { return {{{_mm256_set1_pd(-0.0)}}}; }
    /// Adds a * b, and a residue if one is given, to s: below 2q in magnitude together.
    TENSAFE_AVX2 void add_product(sum& s, const reals& a, const reals& b,
                                  const auto&... residue) const noexcept {
        s.parts[0].v = _mm256_add_pd(s.parts[0].v, (product(a.v, b.v) + ... + residue.v));
    }
    TENSAFE_AVX2 static void add_residue(sum& s, const reals& a) noexcept {
        s.parts[0].v = _mm256_add_pd(s.parts[0].v, a.v);
    }
    /// Reduces s to one residue, in (-q, q).
    TENSAFE_AVX2 void normalize(sum& s) const noexcept { s.parts[0].v = remainder(s.parts[0].v); }
    /// The sum modulo q, in [0, q).
    TENSAFE_AVX2 words reduce(const sum& s) const noexcept { return to_words(remainder(s.parts[0].v)); }

    TENSAFE_AVX2 static factor prepare(typename shoup<M>::factor w) noexcept {
        return {_mm256_set1_pd(static_cast<double>(w.value))};
    }
    /// Returns x * w modulo q, in [0, q), for x in [0, q).
    TENSAFE_AVX2 words scale(const words& x, const factor& w) const noexcept {
        return to_words(product(as_operand(x).v, w.v));
    }
    /// Returns (a - b) * w modulo q, in [0, q), for a and b in [0, q).
    TENSAFE_AVX2 words scale_difference(const words& a, const words& b, const factor& w) const noexcept {
        // A signed word of magnitude below 2^51 is the lower bits of 1.5 * 2^52.
        const __m256d middle = _mm256_set1_pd(0x1.8p52);
        const vector difference = _mm256_sub_epi64(raw(a), raw(b));
        const __m256d shifted =
            _mm256_castsi256_pd(_mm256_add_epi64(difference, _mm256_castpd_si256(middle)));
        return to_words(product(_mm256_sub_pd(shifted, middle), w.v));
    }

    /// Four doubles of magnitude below 2^112, rounded to integers with ties away from zero, modulo q: the
    /// integer part is split at 2^60, so that the upper part is a double's 52 bits.
    TENSAFE_AVX2 words round(const double* from) const noexcept {
        const __m256d sign_bit = _mm256_set1_pd(-0.0);
        const __m256d x = _mm256_loadu_pd(from);
        const __m256d magnitude = _mm256_andnot_pd(sign_bit, x);
        const __m256d high = whole_part(_mm256_mul_pd(magnitude, _mm256_set1_pd(0x1p-60)));
        const __m256d rest = _mm256_fnmadd_pd(high, _mm256_set1_pd(0x1p60), magnitude);
        // The double below 1/2: with 1/2 itself, the double below 1/2 would be rounded up to 1.
        const __m256d low = whole_part(_mm256_add_pd(rest, _mm256_set1_pd(0x1.fffffffffffffp-2)));
        const __m256d joined = _mm256_add_pd(product(high, power_), remainder(low));
        const __m256d r = _mm256_xor_pd(remainder(joined), _mm256_and_pd(sign_bit, x));
        return to_words(_mm256_add_pd(r, _mm256_setzero_pd()));  // -0 is no residue
    }

    /// Returns x - shift modulo q, in [0, q), for any words and shift in [0, q).
    TENSAFE_AVX2 words reduce(const words& x, const words& shift) const noexcept {
        // Each half becomes the lower bits of a large power of two.
        const __m256d two_52 = _mm256_set1_pd(0x1p52);
        const __m256d two_84 = _mm256_set1_pd(0x1p84);
        const vector upper_bits = _mm256_or_si256(_mm256_srli_epi64(raw(x), 32), _mm256_castpd_si256(two_84));
        const vector lower_bits = _mm256_blend_epi32(raw(x), _mm256_castpd_si256(two_52), 0xaa);
        const __m256d upper = _mm256_sub_pd(_mm256_castsi256_pd(upper_bits), two_84);
        const __m256d lower = _mm256_sub_pd(_mm256_castsi256_pd(lower_bits), two_52);
        const __m256d estimate = _mm256_fmadd_pd(lower, inverse_, _mm256_mul_pd(upper, inverse_));
        const __m256d r = _mm256_add_pd(subtract_multiple(upper, estimate), lower);
        return to_words(_mm256_sub_pd(canonical(r), as_operand(shift).v));
    }

  private:
    TENSAFE_AVX2 TENSAFE_INLINE static __m256d whole_part(__m256d x) noexcept {
        return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    }
    /// Returns x modulo q in [0, q), for integers x in [-q, q); not for -0, which no difference is.
    TENSAFE_AVX2 TENSAFE_INLINE __m256d canonical(__m256d x) const noexcept {
        return _mm256_blendv_pd(x, _mm256_add_pd(x, q_), x);
    }
    /// Returns x modulo q as words in [0, q), for integers x in (-q, q).
    TENSAFE_AVX2 TENSAFE_INLINE words to_words(__m256d x) const noexcept {
        const __m256d two_52 = _mm256_set1_pd(0x1p52);
        return to_lanes(_mm256_xor_si256(_mm256_castpd_si256(_mm256_add_pd(canonical(x), two_52)),
                                         _mm256_castpd_si256(two_52)));
    }

    /// Returns a * b modulo q, for integers a and b, b below q in magnitude: in (-q, q) for a below 2^50 in
    /// magnitude, in (-2q, 2q) for a below 2^52.
    TENSAFE_AVX2 TENSAFE_INLINE __m256d product(__m256d a, __m256d b) const noexcept {
        const __m256d upper = _mm256_mul_pd(a, b);
        const __m256d rounding = _mm256_fmsub_pd(a, b, upper);
        return _mm256_add_pd(remainder(upper), rounding);
    }

    /// Returns x modulo q in (-q, q), for integers x below 2^50 * q in magnitude.
    TENSAFE_AVX2 TENSAFE_INLINE __m256d remainder(__m256d x) const noexcept {
        return subtract_multiple(x, _mm256_mul_pd(x, inverse_));
    }

    /// Returns x - h*q, h the integer nearest to the estimate.
    TENSAFE_AVX2 TENSAFE_INLINE __m256d subtract_multiple(__m256d x, __m256d estimate) const noexcept {
        const __m256d h = _mm256_round_pd(estimate, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        return _mm256_fnmadd_pd(h, q_, x);
    }

    __m256d q_;
    __m256d inverse_;  // 1 / q
    __m256d power_;    // 2^60 mod q
};

}  // namespace tensafe::arith::avx2

namespace tensafe::arith {

/// The arithmetic of AVX2. Primes that are too wide for `fp64` take the scalar multiplier: there is no 64-bit
/// multiplication of vectors, and one made of 32-bit ones takes more instructions for four products.
template <>
struct lanes_of<simd::avx2> {
    using sums = avx2::sums;
    using bound_check = avx2::bound_check;
    template <arith::modulus M>
    using products = std::conditional_t<(M::bits <= 50), avx2::fp64<M>, scalar::products<M>>;
    template <arith::modulus M>
    using factors = std::conditional_t<(M::bits <= 50), avx2::fp64<M>, scalar::factors<M>>;
    /// The reduction of any words: from 16 bits on, their quotient by q fits a double's mantissa.
    template <arith::modulus M>
    using reduction = std::conditional_t<(M::bits >= 16), factors<M>, scalar::factors<M>>;
};

}  // namespace tensafe::arith

#endif
