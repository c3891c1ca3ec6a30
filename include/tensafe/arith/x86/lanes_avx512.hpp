#pragma once

#include <tensafe/arith/x86/vector_avx512.hpp>
#include <tensafe/simd/lanes.hpp>

#if TENSAFE_X86_64

namespace tensafe::arith::avx512 {

/// What bodies (simd/lanes.hpp) hand to the arithmetic of this folder: a vector.
using words = simd::lanes<word, 8>;

TENSAFE_AVX512 TENSAFE_INLINE vector raw(const words& x) noexcept {
    return reinterpret_cast<vector>(x.v);
}
TENSAFE_AVX512 TENSAFE_INLINE words lanes(vector x) noexcept {
    return {reinterpret_cast<words::native>(x)};
}

/// Sums and differences of residues modulo q.
class sums {
  public:
    using words = avx512::words;

    TENSAFE_AVX512 explicit sums(word q) noexcept : q_(broadcast(q)) {}

    TENSAFE_AVX512 words add(const words& a, const words& b) const noexcept {
        return lanes(avx512::add(raw(a), raw(b), q_));
    }
    TENSAFE_AVX512 words subtract(const words& a, const words& b) const noexcept {
        return lanes(avx512::subtract(raw(a), raw(b), q_));
    }
    /// Eight signed bytes of magnitude below q, added to residues.
    TENSAFE_AVX512 words add_small(const words& a, const std::int8_t* small) const noexcept {
        return lanes(avx512::add(raw(a), add_if_negative(widen(small), q_), q_));
    }
    TENSAFE_AVX512 static words spread(word x) noexcept { return lanes(broadcast(x)); }

  protected:
    vector q_;
};

/// Whether all words are below q.
class bound_check {
  public:
    using words = avx512::words;

    TENSAFE_AVX512 explicit bound_check(word q) noexcept
        : q_(broadcast(q)), largest_(_mm512_setzero_si512()) {}

    TENSAFE_AVX512 void take(const words& x) noexcept { largest_ = maximum(largest_, raw(x)); }
    TENSAFE_AVX512 bool holds() const noexcept { return _mm512_cmpge_epu64_mask(largest_, q_) == 0; }

  private:
    vector q_;
    vector largest_;
};

/// Doubles and any words modulo q of at least 16 bits, whose quotients by it fit a double's mantissa.
class reduction : public sums {
  public:
    TENSAFE_AVX512 explicit reduction(word q) noexcept
        : sums(q),
          twice_q_(broadcast(2 * q)),
          power_(broadcast((word{1} << 60) % q)),
          inverse_(_mm512_set1_pd(1 / static_cast<double>(q))),
          // Long doubles hold both words, so that the ratio is rounded once.
          power_ratio_(_mm512_set1_pd(static_cast<double>(static_cast<long double>((word{1} << 60) % q) /
                                                          static_cast<long double>(q)))) {}

    /// Rounded, ties away from zero, for magnitudes below 2^112: the integer part is split at 2^60, so that
    /// the upper part is a double's 52 bits.
    TENSAFE_AVX512 words round(const double* from) const noexcept {
        const __m512d x = _mm512_loadu_pd(from);
        const __m512d magnitude = _mm512_abs_pd(x);
        const vector high = _mm512_cvttpd_epi64(_mm512_mul_pd(magnitude, _mm512_set1_pd(0x1p-60)));
        const __m512d high_real = _mm512_cvtepi64_pd(high);
        const __m512d rest = _mm512_fnmadd_pd(high_real, _mm512_set1_pd(0x1p60), magnitude);
        // The double below 1/2: with 1/2 itself, the double below 1/2 would be rounded up to 1.
        const vector low = _mm512_cvttpd_epi64(_mm512_add_pd(rest, _mm512_set1_pd(0x1.fffffffffffffp-2)));
        const vector estimate =
            _mm512_cvtpd_epi64(_mm512_fmadd_pd(high_real, power_ratio_, _mm512_mul_pd(rest, inverse_)));
        // In [-2q, 2q).
        const vector r = _mm512_sub_epi64(_mm512_add_epi64(_mm512_mullo_epi64(high, power_), low),
                                          _mm512_mullo_epi64(estimate, q_));
        const __mmask8 negative = _mm512_movepi64_mask(_mm512_castpd_si512(x));
        const vector signed_r = _mm512_mask_sub_epi64(r, negative, _mm512_setzero_si512(), r);
        return lanes(subtract_if_not_below(add_if_negative(signed_r, twice_q_), q_));
    }

    /// x - shift, for any words and shift in [0, q).
    TENSAFE_AVX512 words reduce(const words& x, const words& shift) const noexcept {
        const vector estimate = _mm512_cvtpd_epi64(_mm512_mul_pd(_mm512_cvtepu64_pd(raw(x)), inverse_));
        // The remainder is in (-q, q), and less the shift in (-2q, q).
        const vector r =
            _mm512_sub_epi64(_mm512_sub_epi64(raw(x), raw(shift)), _mm512_mullo_epi64(estimate, q_));
        return lanes(subtract_if_not_below(add_if_negative(r, twice_q_), q_));
    }

  private:
    vector twice_q_;
    vector power_;  // 2^60 mod q
    __m512d inverse_;
    __m512d power_ratio_;  // power / q
};

}  // namespace tensafe::arith::avx512

#endif
