#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/arith/x86/vector_avx512.hpp>
#include <tensafe/core/macros.hpp>

#if TENSAFE_X86_64

#include <algorithm>
#include <immintrin.h>

// Modular arithmetic on eight lanes, for the AVX-512 transforms: a type for each class of primes, with one
// interface. Bounds are template arguments, in multiples of q; docs/design/ntt.md proves them.

namespace tensafe::ntt::avx512 {

using arith::word;
using arith::avx512::broadcast;
using arith::avx512::vector;

/// Returns floor(w * 2^52 / q) for w < q.
constexpr word quotient52(word w, word q) noexcept {
    return static_cast<word>((static_cast<arith::uint128>(w) << 52) / q);
}

/// A factor of the narrow primes: w, and floor(w * 2^52 / q).
struct shoup52_factor {
    static constexpr int words = 2;

    vector value;
    vector quotient;

    static constexpr void prepare(word w, word q, word* out) noexcept {
        out[0] = w;
        out[1] = quotient52(w, q);
    }
    /// Loads one factor into all lanes.
    TENSAFE_AVX512 TENSAFE_INLINE static shoup52_factor spread(const word* from) noexcept {
        return {broadcast(from[0]), broadcast(from[1])};
    }
    /// Loads one factor for each lane, from 64-byte aligned memory: values, then quotients.
    TENSAFE_AVX512 TENSAFE_INLINE static shoup52_factor load(const word* from) noexcept {
        return {_mm512_load_si512(from), _mm512_load_si512(from + 8)};
    }
};

/// A factor of the wide primes: a shoup52_factor with 52 more bits of w/q.
struct shoup104_factor : shoup52_factor {
    static constexpr int words = 3;

    vector rest;

    static constexpr void prepare(word w, word q, word* out) noexcept {
        shoup52_factor::prepare(w, q, out);
        out[2] = quotient52(static_cast<word>((static_cast<arith::uint128>(w) << 52) % q), q);
    }
    TENSAFE_AVX512 TENSAFE_INLINE static shoup104_factor spread(const word* from) noexcept {
        return {shoup52_factor::spread(from), broadcast(from[2])};
    }
    TENSAFE_AVX512 TENSAFE_INLINE static shoup104_factor load(const word* from) noexcept {
        return {shoup52_factor::load(from), _mm512_load_si512(from + 16)};
    }
};

/// The butterflies that all arithmetics have. A says which bound an entry may reach (`capacity`), which one a
/// product has and to which one operands are `reduced` where a result would pass the capacity; it multiplies
/// what is below the capacity, and replaces what it does better.
template <class A>
class butterflies {
  public:
    /// The bounds of both results of a forward butterfly, and of the sum of an inverse one.
    static constexpr int after_forward(int k) noexcept { return std::min(k + A::product, A::capacity); }
    static constexpr int after_inverse(int k) noexcept { return 2 * summand(k); }

    /// Brings signed numbers of magnitude below q to below 2q.
    TENSAFE_AVX512 TENSAFE_INLINE vector lift(vector x) const noexcept {
        return _mm512_add_epi64(x, broadcast(q_));
    }
    /// The bound of first operands when a forward pass begins.
    static constexpr int lazy_bound = A::reduced;
    /// Readies x for `Stages` stages before it may be a factor, or leaves the pass: below lazy_bound*q.
    template <int Stages>
    TENSAFE_AVX512 TENSAFE_INLINE vector lazy_operand(vector x) const noexcept {
        return self().template reduce<lazy_bound, A::forward_bound>(x);
    }
    /// Makes x and y x + w*y and x - w*y, for x below K*q after `lazy_operand`.
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE void forward_butterfly(vector& x, vector& y, const auto& w) const noexcept {
        const vector a = self().template reduce<after_forward(K) - A::product, K>(x);
        const vector t = self().multiply(y, w);
        x = _mm512_add_epi64(a, t);
        y = _mm512_sub_epi64(_mm512_add_epi64(a, broadcast(word{A::product} * q_)), t);
    }
    /// Makes x and y x + y and (x - y) * w, for both below K*q.
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE void inverse_butterfly(vector& x, vector& y, const auto& w) const noexcept {
        const vector a = self().template reduce<summand(K), K>(x);
        const vector b = self().template reduce<summand(K), K>(y);
        const vector offset = broadcast(static_cast<word>(summand(K)) * q_);
        x = _mm512_add_epi64(a, b);
        y = self().multiply(_mm512_sub_epi64(_mm512_add_epi64(a, offset), b), w);
    }
    /// Brings x from below K*q to below To*q by conditional subtractions.
    template <int To, int K>
    TENSAFE_AVX512 TENSAFE_INLINE vector reduce(vector x) const noexcept {
        if constexpr (K <= To) {
            return x;
        } else {
            constexpr int c = K <= 2 * To ? To : (K + 1) / 2;
            const vector multiple = broadcast(static_cast<word>(c) * q_);
            return reduce<To, c>(arith::avx512::subtract_if_not_below(x, multiple));
        }
    }
    /// The residue in [0, q), exact in all 64 bits.
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE vector canonical(vector x) const noexcept {
        return reduce<1, K>(x);
    }

  protected:
    explicit butterflies(word q) noexcept : q_(q) {}

    word q_;

  private:
    static constexpr int summand(int k) noexcept { return 2 * k <= A::capacity ? k : A::reduced; }
    TENSAFE_AVX512 TENSAFE_INLINE const A& self() const noexcept { return static_cast<const A&>(*this); }
};

/// Arithmetic for primes with Capacity * q <= 2^52. The 52-bit multiplier reads the low 52 bits of a lane, so
/// all arithmetic is modulo 2^52, and whatever gathers above is ignored until `canonical`.
///
/// A product is x*w - floor(x*w'/2^52)*q, in [0, 2q), w' = floor(w*2^52/q): Shoup's trick with 52 bits. With
/// a capacity of 128 the forward transform reduces nothing before its end.
template <int Capacity>
class shoup52 : public butterflies<shoup52<Capacity>> {
    static_assert(Capacity == 128 || Capacity == 8);
    using base = butterflies<shoup52>;

  public:
    using factor = shoup52_factor;
    static constexpr int max_bits = Capacity == 128 ? 45 : 49;
    static constexpr int capacity = Capacity;
    static constexpr int product = 2;
    static constexpr int reduced = 2;
    static constexpr bool never_reduces = Capacity == 128;
    /// The bound between passes. Where nothing is reduced a stage adds up to 4q, and there are at most 17.
    static constexpr int forward_bound = never_reduces ? 2 + 4 * 17 : Capacity;
    static constexpr int inverse_bound = never_reduces ? 8 : 2;
    /// Whether inverse butterflies take their offsets from block_rows.
    static constexpr bool takes_offsets = never_reduces;

    TENSAFE_AVX512 TENSAFE_INLINE explicit shoup52(word q) noexcept
        : base(q),
          two_primes_(broadcast(2 * q)),
          minus_prime_(broadcast((word{1} << 52) - q)),
          one_quotient_(broadcast(quotient52(1, q))) {}

    static constexpr int lazy_bound = never_reduces ? forward_bound : reduced;
    static constexpr int after_forward(int k) noexcept { return never_reduces ? k : k + product; }

    TENSAFE_AVX512 TENSAFE_INLINE vector multiply(vector y, const factor& w) const noexcept {
        const vector zero = _mm512_setzero_si512();
        const vector h = _mm512_madd52hi_epu64(zero, y, w.quotient);
        return _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(zero, y, w.value), h, minus_prime_);
    }
    /// Makes x, where nothing is reduced, large enough for the differences on the way.
    template <int Stages>
    TENSAFE_AVX512 TENSAFE_INLINE vector lazy_operand(vector x) const noexcept {
        if constexpr (never_reduces) {
            return _mm512_add_epi64(x, broadcast(2 * Stages * this->q_));
        } else {
            return reduce<lazy_bound, forward_bound>(x);
        }
    }
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE void forward_butterfly(vector& x, vector& y,
                                                         const factor& w) const noexcept {
        static_assert(after_forward(K) <= Capacity);
        const vector h = _mm512_madd52hi_epu64(_mm512_setzero_si512(), y, w.quotient);
        const vector sum = _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(x, y, w.value), h, minus_prime_);
        const vector twice = _mm512_add_epi64(x, x);
        y = _mm512_sub_epi64(never_reduces ? twice : _mm512_add_epi64(twice, two_primes_), sum);
        x = sum;
    }
    /// An inverse butterfly where nothing is reduced: x and y become X + y and (X - y + Between*q) * w +
    /// Product*q, for X = x + First*q.
    template <int First, int Between, int Product>
    TENSAFE_AVX512 TENSAFE_INLINE void offset_butterfly(vector& x, vector& y,
                                                        const factor& w) const noexcept {
        const vector a = add_multiple<First>(x);
        const vector b = add_multiple<Between>(_mm512_sub_epi64(a, y));
        x = _mm512_add_epi64(a, y);
        const vector h = _mm512_madd52hi_epu64(_mm512_setzero_si512(), b, w.quotient);
        y = _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(multiple(Product), b, w.value), h, minus_prime_);
    }
    /// Brings x from below K*q to below To*q as a product by one.
    template <int To, int K>
    TENSAFE_AVX512 TENSAFE_INLINE vector reduce(vector x) const noexcept {
        if constexpr (K <= To) {
            return x;
        } else {
            static_assert(To >= product && K <= Capacity);
            const vector h = _mm512_madd52hi_epu64(_mm512_setzero_si512(), x, one_quotient_);
            return _mm512_madd52lo_epu64(x, h, minus_prime_);
        }
    }
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE vector canonical(vector x) const noexcept {
        const vector exact = _mm512_and_si512(reduce<product, K>(x), broadcast((word{1} << 52) - 1));
        return base::template reduce<1, product>(exact);
    }

  private:
    TENSAFE_AVX512 TENSAFE_INLINE vector multiple(int count) const noexcept {
        return broadcast(static_cast<word>(count) * this->q_);
    }
    template <int Count>
    TENSAFE_AVX512 TENSAFE_INLINE vector add_multiple(vector x) const noexcept {
        if constexpr (Count == 0) {
            return x;
        } else {
            return _mm512_add_epi64(x, multiple(Count));
        }
    }

    vector two_primes_;
    vector minus_prime_;
    vector one_quotient_;
};

/// Arithmetic for primes below 2^50: entries stay below 4q < 2^52 and exact in all 64 bits.
class shoup52_exact : public butterflies<shoup52_exact> {
  public:
    using factor = shoup52_factor;
    static constexpr int max_bits = 50;
    static constexpr int capacity = 4;
    static constexpr int product = 2;
    static constexpr int reduced = 2;
    static constexpr int forward_bound = 4;
    static constexpr int inverse_bound = 2;
    static constexpr bool takes_offsets = false;

    TENSAFE_AVX512 TENSAFE_INLINE explicit shoup52_exact(word q) noexcept
        : butterflies(q),
          minus_prime_(broadcast((word{1} << 52) - q)),
          mask_(broadcast((word{1} << 52) - 1)) {}

    TENSAFE_AVX512 TENSAFE_INLINE vector multiply(vector y, const factor& w) const noexcept {
        const vector zero = _mm512_setzero_si512();
        const vector h = _mm512_madd52hi_epu64(zero, y, w.quotient);
        const vector low = _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(zero, y, w.value), h, minus_prime_);
        return _mm512_and_si512(low, mask_);
    }

  private:
    vector minus_prime_;
    vector mask_;
};

/// Arithmetic for primes below 2^60: 16q fits a lane.
///
/// With y = y1 * 2^52 + y0 and 104 bits of w/q in w' and w'', the quotient of y*w by q is
///
///     y1 w' + floor(y0 w' / 2^52) + floor(y1 w'' / 2^52)
///
/// short by less than 3: docs/design/ntt.md.
class shoup104 : public butterflies<shoup104> {
  public:
    using factor = shoup104_factor;
    static constexpr int max_bits = 60;
    static constexpr int capacity = 16;
    static constexpr int product = 3;
    static constexpr int reduced = 8;
    static constexpr int forward_bound = 16;
    static constexpr int inverse_bound = 4;
    static constexpr bool takes_offsets = false;

    TENSAFE_AVX512 TENSAFE_INLINE explicit shoup104(word q) noexcept : butterflies(q), prime_(broadcast(q)) {}

    TENSAFE_AVX512 TENSAFE_INLINE vector multiply(vector y, const factor& w) const noexcept {
        const vector top = arith::avx512::shift_right<52>(y);
        vector h = _mm512_madd52hi_epu64(_mm512_mullo_epi64(top, w.quotient), y, w.quotient);
        h = _mm512_madd52hi_epu64(h, top, w.rest);
        return _mm512_sub_epi64(_mm512_mullo_epi64(y, w.value), _mm512_mullo_epi64(h, prime_));
    }

  private:
    vector prime_;
};

}  // namespace tensafe::ntt::avx512

#endif
