#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/arith/x86/vector_avx512.hpp>
#include <tensafe/core/macros.hpp>

#if TENSAFE_X86_64

#include <immintrin.h>

// Modular arithmetic on eight lanes, for the AVX-512 transforms: a type for each class of primes, with one
// interface. docs/design/ntt.md has the bounds.

namespace tensafe::ntt::avx512 {

/// Eight residues below K*q.
template <int K>
struct lanes {
    __m512i value;
};

template <int K, int L>
struct lanes_pair {
    lanes<K> first;
    lanes<L> second;
};

namespace detail {

TENSAFE_AVX512 TENSAFE_INLINE __m512i unpack_low(__m512i a, __m512i b) noexcept {
    return _mm512_maskz_unpacklo_epi64(arith::avx512::all_lanes, a, b);
}
TENSAFE_AVX512 TENSAFE_INLINE __m512i unpack_high(__m512i a, __m512i b) noexcept {
    return _mm512_maskz_unpackhi_epi64(arith::avx512::all_lanes, a, b);
}
/// Quarters 0 and 2 of a, then of b.
TENSAFE_AVX512 TENSAFE_INLINE __m512i even_quarters(__m512i a, __m512i b) noexcept {
    return _mm512_maskz_shuffle_i64x2(arith::avx512::all_lanes, a, b, 0x88);
}
/// Quarters 1 and 3 of a, then of b.
TENSAFE_AVX512 TENSAFE_INLINE __m512i odd_quarters(__m512i a, __m512i b) noexcept {
    return _mm512_maskz_shuffle_i64x2(arith::avx512::all_lanes, a, b, 0xdd);
}

/// x below K*q to below To*q, by conditional subtractions; q is the prime.
template <int To, int K>
TENSAFE_AVX512 TENSAFE_INLINE __m512i subtract_multiples(__m512i x, arith::word q) noexcept {
    if constexpr (K <= To) {
        return x;
    } else {
        constexpr int c = K <= 2 * To ? To : (K + 1) / 2;
        const __m512i difference =
            _mm512_sub_epi64(x, arith::avx512::broadcast(static_cast<arith::word>(c) * q));
        return subtract_multiples<To, c>(arith::avx512::minimum(x, difference), q);
    }
}

/// floor(w * 2^52 / q) for w < q.
constexpr arith::word quotient52(arith::word w, arith::word q) noexcept {
    return static_cast<arith::word>((static_cast<arith::uint128>(w) << 52) / q);
}

}  // namespace detail

/// A factor of the narrow primes: w, and floor(w * 2^52 / q).
struct shoup52_factor {
    static constexpr int words = 2;

    __m512i value;
    __m512i quotient;

    static constexpr void prepare(arith::word w, arith::word q, arith::word (&out)[words]) noexcept {
        out[0] = w;
        out[1] = detail::quotient52(w, q);
    }
    /// The same factor in all lanes.
    TENSAFE_AVX512 TENSAFE_INLINE static shoup52_factor spread(const arith::word* from) noexcept {
        return {arith::avx512::broadcast(from[0]), arith::avx512::broadcast(from[1])};
    }
    /// One factor for each lane, from 64-byte aligned memory: values, then quotients.
    TENSAFE_AVX512 TENSAFE_INLINE static shoup52_factor load(const arith::word* from) noexcept {
        return {_mm512_load_si512(from), _mm512_load_si512(from + 8)};
    }
};

/// Primes with Capacity * q <= 2^52. The 52-bit multiplier reads the low 52 bits of a lane, so all arithmetic
/// is modulo 2^52, and whatever gathers above is ignored until `canonical`.
///
/// A product is x*w - floor(x*w'/2^52)*q, in [0, 2q), w' = floor(w*2^52/q): Shoup's trick with 52 bits. With
/// a capacity of 128 the forward transform reduces nothing before its end.
template <int Capacity>
class shoup52 {
    static_assert(Capacity == 128 || Capacity == 8);

  public:
    using factor = shoup52_factor;
    static constexpr int max_bits = Capacity == 128 ? 45 : 49;
    static constexpr int product = 2;
    static constexpr bool never_reduces = Capacity == 128;
    /// Entries between passes. Where nothing is reduced a stage adds up to 4q, and there are at most 17.
    static constexpr int forward_bound = never_reduces ? 1 + 4 * 17 : Capacity;
    static constexpr int inverse_bound = never_reduces ? 8 : 2;

    TENSAFE_AVX512 TENSAFE_INLINE explicit shoup52(arith::word q) noexcept
        : q_(q),
          prime_(arith::avx512::broadcast(q)),
          two_primes_(arith::avx512::broadcast(2 * q)),
          minus_prime_(arith::avx512::broadcast((arith::word{1} << 52) - q)),
          one_quotient_(arith::avx512::broadcast(detail::quotient52(1, q))) {}

    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE lanes<product> multiply(lanes<K> y, const factor& w) const noexcept {
        const __m512i zero = _mm512_setzero_si512();
        const __m512i h = _mm512_madd52hi_epu64(zero, y.value, w.quotient);
        return lanes<product>{
            _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(zero, y.value, w.value), h, minus_prime_)};
    }

    /// The first operand of a forward pass that goes through `Stages` stages before it may be a factor, or
    /// leaves the pass: where nothing is reduced, large enough for the differences on the way.
    template <int Stages, int K>
    TENSAFE_AVX512 TENSAFE_INLINE auto lazy_operand(lanes<K> x) const noexcept {
        if constexpr (never_reduces) {
            return lanes<K>{_mm512_add_epi64(x.value, arith::avx512::broadcast(2 * Stages * q_))};
        } else {
            return reduce<2>(x);
        }
    }
    /// (x + w*y, x - w*y); after `keep`.
    template <int K, int L>
    TENSAFE_AVX512 TENSAFE_INLINE auto forward_butterfly(lanes<K> x, lanes<L> y,
                                                         const factor& w) const noexcept {
        const __m512i h = _mm512_madd52hi_epu64(_mm512_setzero_si512(), y.value, w.quotient);
        const __m512i sum =
            _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(x.value, y.value, w.value), h, minus_prime_);
        const __m512i twice = _mm512_add_epi64(x.value, x.value);
        if constexpr (never_reduces) {
            return lanes_pair<K, K>{{sum}, {_mm512_sub_epi64(twice, sum)}};
        } else {
            static_assert(K + product <= Capacity);
            return lanes_pair<K + product, K + product>{
                {sum}, {_mm512_sub_epi64(_mm512_add_epi64(twice, two_primes_), sum)}};
        }
    }

    /// (x + y, (x - y) * w).
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE auto inverse_butterfly(lanes<K> x, lanes<K> y,
                                                         const factor& w) const noexcept {
        constexpr int bound = 2 * K <= Capacity ? K : 2;
        const __m512i a = reduce<bound>(x).value;
        const __m512i b = reduce<bound>(y).value;
        const __m512i offset = arith::avx512::broadcast(static_cast<arith::word>(bound) * q_);
        const __m512i difference = _mm512_sub_epi64(_mm512_add_epi64(a, offset), b);
        return lanes_pair<2 * bound, product>{{_mm512_add_epi64(a, b)},
                                              multiply(lanes<2 * bound>{difference}, w)};
    }
    /// A product by one.
    template <int To, int K>
    TENSAFE_AVX512 TENSAFE_INLINE lanes<To> reduce(lanes<K> x) const noexcept {
        if constexpr (K <= To) {
            return {x.value};
        } else {
            static_assert(To >= product);
            const __m512i h = _mm512_madd52hi_epu64(_mm512_setzero_si512(), x.value, one_quotient_);
            return {_mm512_madd52lo_epu64(x.value, h, minus_prime_)};
        }
    }

    /// In [0, q), all 64 bits of it.
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE __m512i canonical(lanes<K> x) const noexcept {
        const __m512i exact =
            _mm512_and_si512(reduce<product>(x).value, arith::avx512::broadcast((arith::word{1} << 52) - 1));
        return arith::avx512::minimum(exact, _mm512_sub_epi64(exact, prime_));
    }

  private:
    arith::word q_;
    __m512i prime_;
    __m512i two_primes_;
    __m512i minus_prime_;
    __m512i one_quotient_;
};

/// Primes below 2^50: entries stay below 4q < 2^52 and exact in all 64 bits.
class shoup52_exact {
  public:
    using factor = shoup52_factor;
    static constexpr int max_bits = 50;
    static constexpr int product = 2;
    static constexpr int capacity = 4;
    static constexpr int forward_bound = 4;
    static constexpr int inverse_bound = 2;

    TENSAFE_AVX512 TENSAFE_INLINE explicit shoup52_exact(arith::word q) noexcept
        : q_(q),
          two_primes_(arith::avx512::broadcast(2 * q)),
          minus_prime_(arith::avx512::broadcast((arith::word{1} << 52) - q)),
          mask_(arith::avx512::broadcast((arith::word{1} << 52) - 1)) {}

    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE lanes<product> multiply(lanes<K> y, const factor& w) const noexcept {
        static_assert(K <= capacity);
        const __m512i zero = _mm512_setzero_si512();
        const __m512i h = _mm512_madd52hi_epu64(zero, y.value, w.quotient);
        const __m512i low =
            _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(zero, y.value, w.value), h, minus_prime_);
        return {_mm512_and_si512(low, mask_)};
    }
    template <int K, int L>
    TENSAFE_AVX512 TENSAFE_INLINE lanes_pair<4, 4> forward_butterfly(lanes<K> x, lanes<L> y,
                                                                     const factor& w) const noexcept {
        const __m512i reduced = reduce<2>(x).value;
        const __m512i t = multiply(y, w).value;
        return {{_mm512_add_epi64(reduced, t)},
                {_mm512_sub_epi64(_mm512_add_epi64(reduced, two_primes_), t)}};
    }
    template <int Stages, int K>
    TENSAFE_AVX512 TENSAFE_INLINE lanes<K> lazy_operand(lanes<K> x) const noexcept {
        return x;
    }
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE lanes_pair<4, product> inverse_butterfly(lanes<K> x, lanes<K> y,
                                                                           const factor& w) const noexcept {
        const __m512i a = reduce<2>(x).value;
        const __m512i b = reduce<2>(y).value;
        const __m512i difference = _mm512_sub_epi64(_mm512_add_epi64(a, two_primes_), b);
        return {{_mm512_add_epi64(a, b)}, multiply(lanes<4>{difference}, w)};
    }
    template <int To, int K>
    TENSAFE_AVX512 TENSAFE_INLINE lanes<To> reduce(lanes<K> x) const noexcept {
        return {detail::subtract_multiples<To, K>(x.value, q_)};
    }
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE __m512i canonical(lanes<K> x) const noexcept {
        return reduce<1>(x).value;
    }

  private:
    arith::word q_;
    __m512i two_primes_;
    __m512i minus_prime_;
    __m512i mask_;
};

/// A factor of the wide primes: w, then 104 bits of w/q, upper half first.
struct shoup104_factor {
    static constexpr int words = 3;

    __m512i value;
    __m512i quotient;
    __m512i rest;

    static constexpr void prepare(arith::word w, arith::word q, arith::word (&out)[words]) noexcept {
        out[0] = w;
        out[1] = detail::quotient52(w, q);
        out[2] = detail::quotient52(static_cast<arith::word>((static_cast<arith::uint128>(w) << 52) % q), q);
    }
    TENSAFE_AVX512 TENSAFE_INLINE static shoup104_factor spread(const arith::word* from) noexcept {
        return {arith::avx512::broadcast(from[0]), arith::avx512::broadcast(from[1]),
                arith::avx512::broadcast(from[2])};
    }
    TENSAFE_AVX512 TENSAFE_INLINE static shoup104_factor load(const arith::word* from) noexcept {
        return {_mm512_load_si512(from), _mm512_load_si512(from + 8), _mm512_load_si512(from + 16)};
    }
};

/// Primes below 2^60: 16q fits a lane.
///
/// With y = y1 * 2^52 + y0 and 104 bits of w/q in w' and w'', the quotient of y*w by q is
///
///     y1 w' + floor(y0 w' / 2^52) + floor(y1 w'' / 2^52)
///
/// short by less than 3: docs/design/ntt.md.
class shoup104 {
  public:
    using factor = shoup104_factor;
    static constexpr int max_bits = 60;
    static constexpr int product = 3;
    static constexpr int capacity = 16;
    static constexpr int forward_bound = 16;
    static constexpr int inverse_bound = 4;

    TENSAFE_AVX512 TENSAFE_INLINE explicit shoup104(arith::word q) noexcept
        : q_(q), prime_(arith::avx512::broadcast(q)) {}

    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE lanes<product> multiply(lanes<K> y, const factor& w) const noexcept {
        const __m512i top = arith::avx512::shift_right<52>(y.value);
        __m512i h = _mm512_madd52hi_epu64(_mm512_mullo_epi64(top, w.quotient), y.value, w.quotient);
        h = _mm512_madd52hi_epu64(h, top, w.rest);
        return lanes<product>{
            _mm512_sub_epi64(_mm512_mullo_epi64(y.value, w.value), _mm512_mullo_epi64(h, prime_))};
    }
    template <int K, int L>
    TENSAFE_AVX512 TENSAFE_INLINE auto forward_butterfly(lanes<K> x, lanes<L> y,
                                                         const factor& w) const noexcept {
        constexpr int bound = K + product <= capacity ? K : capacity - product;
        const __m512i reduced = reduce<bound>(x).value;
        const __m512i t = multiply(y, w).value;
        const __m512i offset = arith::avx512::broadcast(static_cast<arith::word>(product) * q_);
        return lanes_pair<bound + product, bound + product>{
            {_mm512_add_epi64(reduced, t)}, {_mm512_sub_epi64(_mm512_add_epi64(reduced, offset), t)}};
    }
    template <int Stages, int K>
    TENSAFE_AVX512 TENSAFE_INLINE auto lazy_operand(lanes<K> x) const noexcept {
        constexpr int bound = K > 8 ? 8 : K;
        return reduce<bound>(x);
    }
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE auto inverse_butterfly(lanes<K> x, lanes<K> y,
                                                         const factor& w) const noexcept {
        constexpr int bound = 2 * K <= capacity ? K : capacity / 2;
        const __m512i a = reduce<bound>(x).value;
        const __m512i b = reduce<bound>(y).value;
        const __m512i offset = arith::avx512::broadcast(static_cast<arith::word>(bound) * q_);
        const __m512i difference = _mm512_sub_epi64(_mm512_add_epi64(a, offset), b);
        return lanes_pair<2 * bound, product>{{_mm512_add_epi64(a, b)},
                                              multiply(lanes<2 * bound>{difference}, w)};
    }
    template <int To, int K>
    TENSAFE_AVX512 TENSAFE_INLINE lanes<To> reduce(lanes<K> x) const noexcept {
        return {detail::subtract_multiples<To, K>(x.value, q_)};
    }
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE __m512i canonical(lanes<K> x) const noexcept {
        return reduce<1>(x).value;
    }

  private:
    arith::word q_;
    __m512i prime_;
};

}  // namespace tensafe::ntt::avx512

#endif
