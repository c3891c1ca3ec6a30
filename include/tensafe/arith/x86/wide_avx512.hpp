#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/x86/vector_avx512.hpp>

#include <cstddef>

#if TENSAFE_X86_64

namespace tensafe::arith::avx512 {

/// Eight residues at a time modulo q < 2^61. Quotients are estimated in double precision, few enough bits at
/// a time to be right within one; remainders are formed modulo 2^64. Bounds: docs/design/arithmetic.md.
template <arith::modulus M>
class wide {
    static_assert(M::bits > 50, "avx512::wide: narrow is faster below 2^50");

  public:
    /// A sum of products: high * 2^104 + middle * 2^52 + low.
    struct sum {
        vector low;
        vector middle;
        vector high;
    };
    /// So many products, each with one residue, and one residue more can be added up: the parts stay below
    /// 2^63.
    static constexpr std::size_t terms = 512;

    TENSAFE_AVX512 TENSAFE_INLINE explicit wide(M m) noexcept
        : q_(broadcast(m.value())),
          twice_q_(broadcast(2 * m.value())),
          inverse_(_mm512_set1_pd(1 / static_cast<double>(m.value()))),
          inverse_31_(_mm512_set1_pd(0x1p31 / static_cast<double>(m.value()))),
          inverse_52_(_mm512_set1_pd(0x1p52 / static_cast<double>(m.value()))) {}

    TENSAFE_AVX512 TENSAFE_INLINE vector q() const noexcept { return q_; }

    /// a * b in [0, q), for a in (-q, q) and b in [0, q): a times the upper 30 bits of b first, the remainder
    /// times 2^31 and a times the lower 31 bits after it.
    TENSAFE_AVX512 TENSAFE_INLINE vector multiply(vector a, vector b) const noexcept {
        const vector upper = shift_right<31>(b);
        const vector lower = _mm512_and_si512(b, broadcast((word{1} << 31) - 1));
        const __m512d ratio = _mm512_mul_pd(_mm512_cvtepi64_pd(a), inverse_);
        const vector first =
            subtract_multiple(_mm512_mullo_epi64(a, upper), _mm512_mul_pd(ratio, _mm512_cvtepi64_pd(upper)));
        const __m512d estimate = _mm512_fmadd_pd(ratio, _mm512_cvtepi64_pd(lower),
                                                 _mm512_mul_pd(_mm512_cvtepi64_pd(first), inverse_31_));
        const vector whole = _mm512_add_epi64(shift_left<31>(first), _mm512_mullo_epi64(a, lower));
        return add_if_negative(subtract_multiple(whole, estimate), q_);
    }

    TENSAFE_AVX512 TENSAFE_INLINE static sum zero() noexcept {
        return {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    }
    /// The multiplier takes the lowest 52 bits of an operand.
    TENSAFE_AVX512 TENSAFE_INLINE static void add_product(sum& s, vector a, vector b) noexcept {
        const vector a_upper = shift_right<52>(a);
        const vector b_upper = shift_right<52>(b);
        s.low = _mm512_madd52lo_epu64(s.low, a, b);
        s.middle = _mm512_madd52hi_epu64(s.middle, a, b);
        s.high = _mm512_madd52hi_epu64(s.high, a, b_upper);
        s.middle = _mm512_madd52lo_epu64(s.middle, a, b_upper);
        s.high = _mm512_madd52hi_epu64(s.high, a_upper, b);
        s.middle = _mm512_madd52lo_epu64(s.middle, a_upper, b);
        s.high = _mm512_madd52lo_epu64(s.high, a_upper, b_upper);
    }
    TENSAFE_AVX512 TENSAFE_INLINE static void add_residue(sum& s, vector a) noexcept {
        s.low = _mm512_madd52lo_epu64(s.low, a, broadcast(1));
        s.middle = _mm512_add_epi64(s.middle, shift_right<52>(a));
    }
    TENSAFE_AVX512 TENSAFE_INLINE static sum add(const sum& a, const sum& b) noexcept {
        return {_mm512_add_epi64(a.low, b.low), _mm512_add_epi64(a.middle, b.middle),
                _mm512_add_epi64(a.high, b.high)};
    }
    TENSAFE_AVX512 TENSAFE_INLINE static sum add_neighbours(const sum& a, const sum& b) noexcept {
        return {avx512::add_neighbours(a.low, b.low), avx512::add_neighbours(a.middle, b.middle),
                avx512::add_neighbours(a.high, b.high)};
    }
    TENSAFE_AVX512 TENSAFE_INLINE static sum add_neighbouring_pairs(const sum& a, const sum& b) noexcept {
        return {avx512::add_neighbouring_pairs(a.low, b.low),
                avx512::add_neighbouring_pairs(a.middle, b.middle),
                avx512::add_neighbouring_pairs(a.high, b.high)};
    }

    /// The sum modulo q, in [0, q).
    TENSAFE_AVX512 TENSAFE_INLINE vector reduce(const sum& s) const noexcept {
        return reduce_nearly(append(append(s.high, s.middle), s.low));
    }

    /// x modulo q in [0, q), for x in [-2q, 2q).
    TENSAFE_AVX512 TENSAFE_INLINE vector reduce_nearly(vector x) const noexcept {
        return subtract_if_not_below(add_if_negative(x, twice_q_), q_);
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

    vector q_;
    vector twice_q_;
    __m512d inverse_;     // 1 / q
    __m512d inverse_31_;  // 2^31 / q
    __m512d inverse_52_;  // 2^52 / q
};

}  // namespace tensafe::arith::avx512

#endif
