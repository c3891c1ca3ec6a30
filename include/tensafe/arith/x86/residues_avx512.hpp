#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/scalar_lanes.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/x86/vector_avx512.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/x86/target_avx512.hpp>

#include <bit>
#include <cstddef>
#include <type_traits>

#if TENSAFE_X86_64

namespace tensafe::arith::avx512 {

/// The vector of words that bodies (simd/lanes.hpp) hand to the arithmetic of this folder.
using words = simd::lanes<word, 8>;

using simd::to_lanes;

/// Sums and differences of residues modulo q.
class sums {
  public:
    using words = avx512::words;

    TENSAFE_AVX512 explicit sums(word q) noexcept : q_(broadcast(q)) {}

    TENSAFE_AVX512 words add(const words& a, const words& b) const noexcept {
        return to_lanes(avx512::add(raw(a), raw(b), q_));
    }
    TENSAFE_AVX512 words subtract(const words& a, const words& b) const noexcept {
        return to_lanes(avx512::subtract(raw(a), raw(b), q_));
    }
    /// Eight signed bytes of magnitude below q, added to residues.
    TENSAFE_AVX512 words add_small(const words& a, const std::int8_t* small) const noexcept {
        return to_lanes(avx512::add(raw(a), add_if_negative(load(small), q_), q_));
    }
    TENSAFE_AVX512 static words spread(word x) noexcept { return to_lanes(broadcast(x)); }

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

/// The members that both arithmetics of words share.
template <std::size_t Terms>
class word_products : public sums {
  public:
    using operand = words;
    /// The number of products, each with one residue, that can be added up together with one more residue.
    static constexpr std::size_t terms = Terms;
    /// Whether sums must be normalized before their lanes are added to others.
    static constexpr bool joins_residues = false;
    /// The number of terms of a block sum that can be added up without a reduction, all lanes together.
    static constexpr std::size_t block_terms(bool) noexcept { return terms; }

    static TENSAFE_INLINE const operand& as_operand(const words& x) noexcept { return x; }

  protected:
    TENSAFE_AVX512 explicit word_products(word q) noexcept : sums(q) {}
};

/// Doubles and words modulo q of at least 16 bits: the quotient of a word by q fits a double's mantissa.
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

    /// Eight doubles of magnitude below 2^112, rounded to integers with ties away from zero, modulo q: the
    /// integer part is split at 2^60, so that the upper part is a double's 52 bits.
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
        return to_lanes(subtract_if_not_below(add_if_negative(signed_r, twice_q_), q_));
    }

    /// Returns x - shift modulo q, in [0, q), for any words and shift in [0, q).
    TENSAFE_AVX512 words reduce(const words& x, const words& shift) const noexcept {
        const vector estimate = _mm512_cvtpd_epi64(_mm512_mul_pd(_mm512_cvtepu64_pd(raw(x)), inverse_));
        // The remainder is in (-q, q), and less the shift in (-2q, q).
        const vector r =
            _mm512_sub_epi64(_mm512_sub_epi64(raw(x), raw(shift)), _mm512_mullo_epi64(estimate, q_));
        return to_lanes(subtract_if_not_below(add_if_negative(r, twice_q_), q_));
    }

  private:
    vector twice_q_;
    vector power_;  // 2^60 mod q
    __m512d inverse_;
    __m512d power_ratio_;  // power / q
};

/// Eight residues at a time modulo q < 2^50, by 52-bit multiply-adds. A product is kept as high * 2^52 + low.
/// The remainders below are formed modulo 2^52, which holds 4q. Bounds: docs/design/arithmetic.md.
template <arith::modulus M>
class ifma52 : public word_products<2048> {
    static_assert(M::bits <= 50, "avx512::ifma52: the modulus must be below 2^50; use barrett_fp64");

  public:
    /// A sum of products: high * 2^52 + low, both words.
    struct sum {
        words parts[2];  ///< low, high
    };
    struct factor {
        vector value;
        vector quotient;  ///< floor(value * 2^52 / q)
    };
    TENSAFE_AVX512 explicit ifma52(M m) noexcept
        : word_products(m.value()),
          twice_q_(broadcast(2 * m.value())),
          minus_q_(broadcast((word{1} << 52) - m.value())),
          fold_(broadcast((word{1} << 52) % m.value())),
          fold_quotient_(
              broadcast(static_cast<word>((arith::uint128{(word{1} << 52) % m.value()} << 52) / m.value()))),
          one_quotient_(broadcast((word{1} << 52) / m.value())),
          product_quotient_(broadcast(static_cast<word>((arith::uint128{1} << (52 + cut(m))) / m.value()))),
          cut_(broadcast(cut(m))),
          rest_(broadcast(52 - cut(m))),
          high_quotient_(broadcast((word{1} << 60) / m.value())),
          mask_(broadcast((word{1} << 52) - 1)) {}

    /// Returns a * b in [0, q), for a and b in [0, q): Barrett's estimate, with the product cut where both
    /// errors of the quotient are about equal, so that together they are below one up to 49 bits.
    TENSAFE_AVX512 words multiply(const words& a, const words& b) const noexcept {
        const vector zero = _mm512_setzero_si512();
        const vector low = _mm512_madd52lo_epu64(zero, raw(a), raw(b));
        const vector high = _mm512_madd52hi_epu64(zero, raw(a), raw(b));
        const vector upper = _mm512_or_si512(shift_left(high, rest_), shift_right(low, cut_));
        const vector estimate = _mm512_madd52hi_epu64(zero, upper, product_quotient_);
        vector r = _mm512_and_si512(_mm512_madd52lo_epu64(low, estimate, minus_q_), mask_);
        if constexpr (M::bits == 50) {
            r = subtract_if_not_below(r, twice_q_);
        }
        return to_lanes(subtract_if_not_below(r, q_));
    }

    TENSAFE_AVX512 static sum zero() noexcept {
        return {{to_lanes(_mm512_setzero_si512()), to_lanes(_mm512_setzero_si512())}};
    }
    /// Adds a * b to s, and a residue if one is given.
    TENSAFE_AVX512 static void add_product(sum& s, const words& a, const words& b,
                                           const auto&... residue) noexcept {
        s.parts[0] = to_lanes(_mm512_madd52lo_epu64(raw(s.parts[0]), raw(a), raw(b)));
        s.parts[1] = to_lanes(_mm512_madd52hi_epu64(raw(s.parts[1]), raw(a), raw(b)));
        (add_residue(s, residue), ...);
    }
    static TENSAFE_INLINE void add_residue(sum& s, const words& a) noexcept { s.parts[0] = s.parts[0] + a; }
    /// Reduces s to one residue.
    TENSAFE_AVX512 void normalize(sum& s) const noexcept {
        s = {{reduce(s), to_lanes(_mm512_setzero_si512())}};
    }

    /// The sum modulo q, in [0, q).
    TENSAFE_AVX512 words reduce(const sum& s) const noexcept {
        const vector low = raw(s.parts[0]);
        vector high = _mm512_add_epi64(raw(s.parts[1]), shift_right<52>(low));
        if constexpr (2 * M::bits + 11 > 104) {
            // Up to 59 bits, where the multiplier takes 52.
            const vector estimate =
                _mm512_madd52hi_epu64(_mm512_setzero_si512(), shift_right<8>(high), high_quotient_);
            high = _mm512_and_si512(_mm512_madd52lo_epu64(high, estimate, minus_q_), mask_);
        }
        return to_lanes(reduce_folded(low, high));
    }

    TENSAFE_AVX512 static factor prepare(typename shoup<M>::factor w) noexcept {
        return {broadcast(w.value), broadcast(w.quotient >> 12)};
    }
    /// Returns x * w modulo q, in [0, q), for x below 2^52.
    TENSAFE_AVX512 words scale(const words& x, const factor& w) const noexcept {
        return to_lanes(multiply(raw(x), w));
    }
    /// Returns (a - b) * w modulo q, in [0, q), for a and b in [0, q).
    TENSAFE_AVX512 words scale_difference(const words& a, const words& b, const factor& w) const noexcept {
        return to_lanes(multiply(_mm512_add_epi64(_mm512_sub_epi64(raw(a), raw(b)), q_), w));
    }

  private:
    /// Bits of a product below the part that its quotient is estimated from: for the width of m itself.
    static constexpr word cut(M m) noexcept {
        const int bits = static_cast<int>(std::bit_width(m.value()));
        return static_cast<word>(bits == 50 ? 48 : bits > 18 ? (3 * bits - 53) / 2 : 0);
    }

    TENSAFE_AVX512 TENSAFE_INLINE vector multiply(vector x, const factor& w) const noexcept {
        const vector zero = _mm512_setzero_si512();
        const vector estimate = _mm512_madd52hi_epu64(zero, x, w.quotient);
        const vector product = _mm512_madd52lo_epu64(zero, x, w.value);
        const vector r = _mm512_and_si512(_mm512_madd52lo_epu64(product, estimate, minus_q_), mask_);
        return subtract_if_not_below(r, q_);
    }

    /// Returns (high * 2^52 + low mod 2^52) modulo q, in [0, q), for high below 2^52. Two Shoup products, of
    /// high with 2^52 mod q and of low with 1, each below 2q, share the multiplication by q.
    TENSAFE_AVX512 TENSAFE_INLINE vector reduce_folded(vector low, vector high) const noexcept {
        const vector first = _mm512_madd52hi_epu64(_mm512_setzero_si512(), low, one_quotient_);
        const vector estimate = _mm512_madd52hi_epu64(first, high, fold_quotient_);
        const vector folded = _mm512_madd52lo_epu64(low, high, fold_);
        const vector r = _mm512_and_si512(_mm512_madd52lo_epu64(folded, estimate, minus_q_), mask_);
        return subtract_if_not_below(subtract_if_not_below(r, twice_q_), q_);
    }

    vector twice_q_;
    vector minus_q_;  // 2^52 - q
    vector fold_;     // 2^52 mod q
    vector fold_quotient_;
    vector one_quotient_;
    vector product_quotient_;  // floor(2^(52+cut) / q)
    vector cut_;
    vector rest_;           // 52 - cut
    vector high_quotient_;  // floor(2^60 / q)
    vector mask_;
};

/// Eight residues at a time modulo q < 2^61. Quotients are estimated in double precision, few enough bits at
/// a time to be right within one; remainders are formed modulo 2^64. Bounds: docs/design/arithmetic.md.
template <arith::modulus M>
class barrett_fp64 : public word_products<512> {
    static_assert(M::bits > 50, "avx512::barrett_fp64: ifma52 is faster below 2^50");

  public:
    /// A sum of products: high * 2^104 + middle * 2^52 + low, each below 2^63.
    struct sum {
        words parts[3];  ///< low, middle, high
    };
    using factor = words;
    TENSAFE_AVX512 explicit barrett_fp64(M m) noexcept
        : word_products(m.value()),
          twice_q_(broadcast(2 * m.value())),
          inverse_(_mm512_set1_pd(1 / static_cast<double>(m.value()))),
          inverse_31_(_mm512_set1_pd(0x1p31 / static_cast<double>(m.value()))),
          inverse_52_(_mm512_set1_pd(0x1p52 / static_cast<double>(m.value()))) {}

    /// Returns a * b in [0, q), for a in (-q, q) and b in [0, q): a times the upper 30 bits of b first, the
    /// remainder times 2^31 and a times the lower 31 bits after it.
    TENSAFE_AVX512 words multiply(const words& a, const words& b) const noexcept {
        const vector upper = shift_right<31>(raw(b));
        const vector lower = _mm512_and_si512(raw(b), broadcast((word{1} << 31) - 1));
        const __m512d ratio = _mm512_mul_pd(_mm512_cvtepi64_pd(raw(a)), inverse_);
        const vector first = subtract_multiple(_mm512_mullo_epi64(raw(a), upper),
                                               _mm512_mul_pd(ratio, _mm512_cvtepi64_pd(upper)));
        const __m512d estimate = _mm512_fmadd_pd(ratio, _mm512_cvtepi64_pd(lower),
                                                 _mm512_mul_pd(_mm512_cvtepi64_pd(first), inverse_31_));
        const vector whole = _mm512_add_epi64(shift_left<31>(first), _mm512_mullo_epi64(raw(a), lower));
        return to_lanes(add_if_negative(subtract_multiple(whole, estimate), q_));
    }

    TENSAFE_AVX512 static sum zero() noexcept {
        const words none = to_lanes(_mm512_setzero_si512());
        return {{none, none, none}};
    }
    /// Adds a * b to s, and a residue if one is given. The multiplier takes the lowest 52 bits of an operand.
    TENSAFE_AVX512 static void add_product(sum& s, const words& a_words, const words& b_words,
                                           const auto&... residue) noexcept {
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
        s = {{to_lanes(low), to_lanes(middle), to_lanes(high)}};
        (add_residue(s, residue), ...);
    }
    TENSAFE_AVX512 static void add_residue(sum& s, const words& a) noexcept {
        s.parts[0] = to_lanes(_mm512_madd52lo_epu64(raw(s.parts[0]), raw(a), broadcast(1)));
        s.parts[1] = to_lanes(_mm512_add_epi64(raw(s.parts[1]), shift_right<52>(raw(a))));
    }
    /// Reduces s to one residue.
    TENSAFE_AVX512 void normalize(sum& s) const noexcept {
        const words r = reduce(s);
        s = zero();
        add_residue(s, r);
    }

    /// The sum modulo q, in [0, q).
    TENSAFE_AVX512 words reduce(const sum& s) const noexcept {
        const vector x = append(append(raw(s.parts[2]), raw(s.parts[1])), raw(s.parts[0]));
        return to_lanes(subtract_if_not_below(add_if_negative(x, twice_q_), q_));
    }

    TENSAFE_AVX512 static factor prepare(typename shoup<M>::factor w) noexcept {
        return to_lanes(broadcast(w.value));
    }
    /// Returns x * w modulo q, in [0, q), for x in [0, q).
    TENSAFE_AVX512 words scale(const words& x, const factor& w) const noexcept { return multiply(x, w); }
    /// Returns (a - b) * w modulo q, in [0, q), for a and b in [0, q).
    TENSAFE_AVX512 words scale_difference(const words& a, const words& b, const factor& w) const noexcept {
        return multiply(to_lanes(_mm512_sub_epi64(raw(a), raw(b))), w);
    }

  private:
    /// Returns x - h*q, h the integer nearest to the estimate.
    TENSAFE_AVX512 TENSAFE_INLINE vector subtract_multiple(vector x, __m512d estimate) const noexcept {
        return _mm512_sub_epi64(x, _mm512_mullo_epi64(_mm512_cvtpd_epi64(estimate), q_));
    }

    /// Returns high * 2^52 + low modulo q, in (-2q, 2q), for |high| < 2^29 or at most 0.6q, and low in [0,
    /// 2^63); in (-0.6q, 0.6q) for |high| < 2^29.
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

namespace tensafe::arith {

template <>
struct lanes_of<simd::avx512> {
    using sums = avx512::sums;
    using bound_check = avx512::bound_check;
    template <arith::modulus M>
    using products = std::conditional_t<(M::bits <= 50), avx512::ifma52<M>, avx512::barrett_fp64<M>>;
    template <arith::modulus M>
    using factors = products<M>;
    template <arith::modulus M>
    using reduction = std::conditional_t<(M::bits >= 16), avx512::reduction, scalar::factors<M>>;
};

}  // namespace tensafe::arith

#endif
