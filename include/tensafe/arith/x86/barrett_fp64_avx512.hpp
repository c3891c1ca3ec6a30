#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/x86/lanes_avx512.hpp>

#include <cstddef>

#if TENSAFE_X86_64

namespace tensafe::arith::avx512 {

/// Eight residues at a time modulo q < 2^61. Quotients are estimated in double precision, few enough bits at
/// a time to be right within one; remainders are formed modulo 2^64. Bounds: docs/design/arithmetic.md.
template <arith::modulus M>
class barrett_fp64 : public sums {
    static_assert(M::bits > 50, "avx512::barrett_fp64: ifma52 is faster below 2^50");

  public:
    using operand = words;
    /// A sum of products: high * 2^104 + middle * 2^52 + low.
    struct sum {
        words parts[3];  ///< low, middle, high
    };
    using factor = words;
    /// So many products, each with one residue, and one residue more can be added up: the parts stay below
    /// 2^63.
    static constexpr std::size_t terms = 512;
    /// Whether sums must be normalized before their lanes are added to others.
    static constexpr bool joins_residues = false;
    /// So much of a block can be summed, over all lanes.
    static constexpr std::size_t block_terms(bool) noexcept { return terms; }

    TENSAFE_AVX512 explicit barrett_fp64(M m) noexcept
        : sums(m.value()),
          twice_q_(broadcast(2 * m.value())),
          inverse_(_mm512_set1_pd(1 / static_cast<double>(m.value()))),
          inverse_31_(_mm512_set1_pd(0x1p31 / static_cast<double>(m.value()))),
          inverse_52_(_mm512_set1_pd(0x1p52 / static_cast<double>(m.value()))) {}

    static TENSAFE_INLINE const operand& as_operand(const words& x) noexcept { return x; }

    /// a * b in [0, q), for a in (-q, q) and b in [0, q): a times the upper 30 bits of b first, the remainder
    /// times 2^31 and a times the lower 31 bits after it.
    TENSAFE_AVX512 words multiply(const words& a, const words& b) const noexcept {
        const vector upper = shift_right<31>(raw(b));
        const vector lower = _mm512_and_si512(raw(b), broadcast((word{1} << 31) - 1));
        const __m512d ratio = _mm512_mul_pd(_mm512_cvtepi64_pd(raw(a)), inverse_);
        const vector first = subtract_multiple(_mm512_mullo_epi64(raw(a), upper),
                                               _mm512_mul_pd(ratio, _mm512_cvtepi64_pd(upper)));
        const __m512d estimate = _mm512_fmadd_pd(ratio, _mm512_cvtepi64_pd(lower),
                                                 _mm512_mul_pd(_mm512_cvtepi64_pd(first), inverse_31_));
        const vector whole = _mm512_add_epi64(shift_left<31>(first), _mm512_mullo_epi64(raw(a), lower));
        return lanes(add_if_negative(subtract_multiple(whole, estimate), q_));
    }

    TENSAFE_AVX512 static sum zero() noexcept {
        const words none = lanes(_mm512_setzero_si512());
        return {{none, none, none}};
    }
    /// The multiplier takes the lowest 52 bits of an operand.
    TENSAFE_AVX512 static void add_product(sum& s, const words& a_words, const words& b_words) noexcept {
        const vector a = raw(a_words);
        const vector b = raw(b_words);
        const vector a_upper = shift_right<52>(a);
        const vector b_upper = shift_right<52>(b);
        vector low = raw(s.parts[0]);
        vector middle = raw(s.parts[1]);
        vector high = raw(s.parts[2]);
        low = _mm512_madd52lo_epu64(low, a, b);
        middle = _mm512_madd52hi_epu64(middle, a, b);
        high = _mm512_madd52hi_epu64(high, a, b_upper);
        middle = _mm512_madd52lo_epu64(middle, a, b_upper);
        high = _mm512_madd52hi_epu64(high, a_upper, b);
        middle = _mm512_madd52lo_epu64(middle, a_upper, b);
        high = _mm512_madd52lo_epu64(high, a_upper, b_upper);
        s = {{lanes(low), lanes(middle), lanes(high)}};
    }
    TENSAFE_AVX512 static void add_product(sum& s, const words& a, const words& b,
                                           const words& residue) noexcept {
        add_product(s, a, b);
        add_residue(s, residue);
    }
    TENSAFE_AVX512 static void add_residue(sum& s, const words& a) noexcept {
        s.parts[0] = lanes(_mm512_madd52lo_epu64(raw(s.parts[0]), raw(a), broadcast(1)));
        s.parts[1] = lanes(_mm512_add_epi64(raw(s.parts[1]), shift_right<52>(raw(a))));
    }
    /// To one residue.
    TENSAFE_AVX512 void normalize(sum& s) const noexcept {
        const words r = reduce(s);
        s = zero();
        add_residue(s, r);
    }

    /// The sum modulo q, in [0, q).
    TENSAFE_AVX512 words reduce(const sum& s) const noexcept {
        const vector x = append(append(raw(s.parts[2]), raw(s.parts[1])), raw(s.parts[0]));
        return lanes(subtract_if_not_below(add_if_negative(x, twice_q_), q_));
    }

    TENSAFE_AVX512 static factor prepare(typename shoup<M>::factor w) noexcept {
        return lanes(broadcast(w.value));
    }
    /// x * w in [0, q), for x in [0, q).
    TENSAFE_AVX512 words scale(const words& x, const factor& w) const noexcept { return multiply(x, w); }
    /// (a - b) * w in [0, q), for a and b in [0, q).
    TENSAFE_AVX512 words scale_difference(const words& a, const words& b, const factor& w) const noexcept {
        return multiply(lanes(_mm512_sub_epi64(raw(a), raw(b))), w);
    }

  private:
    /// x - h*q, h the integer nearest to the estimate.
    TENSAFE_AVX512 TENSAFE_INLINE vector subtract_multiple(vector x, __m512d estimate) const noexcept {
        return _mm512_sub_epi64(x, _mm512_mullo_epi64(_mm512_cvtpd_epi64(estimate), q_));
    }

    /// high * 2^52 + low modulo q, in (-2q, 2q), for |high| < 2^29 or at most 0.6q, and low in [0, 2^63). In
    /// (-0.6q, 0.6q) for |high| < 2^29.
    TENSAFE_AVX512 TENSAFE_INLINE vector append(vector high, vector low) const noexcept {
        const __m512d estimate = _mm512_fmadd_pd(_mm512_cvtepi64_pd(high), inverse_52_,
                                                 _mm512_mul_pd(_mm512_cvtepi64_pd(low), inverse_));
        return subtract_multiple(_mm512_add_epi64(shift_left<52>(high), low), estimate);
    }

    vector twice_q_;
    __m512d inverse_;     // 1 / q
    __m512d inverse_31_;  // 2^31 / q
    __m512d inverse_52_;  // 2^52 / q
};

}  // namespace tensafe::arith::avx512

#endif
