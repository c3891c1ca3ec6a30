#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::arith::avx2 {

using vector = __m256i;
using reals = __m256d;

TENSAFE_AVX2 TENSAFE_INLINE vector load(const word* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
TENSAFE_AVX2 TENSAFE_INLINE void store(word* to, vector x) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
}
TENSAFE_AVX2 TENSAFE_INLINE vector broadcast(word x) noexcept {
    return _mm256_set1_epi64x(static_cast<std::int64_t>(x));
}

/// x + c where x is negative, else x.
TENSAFE_AVX2 TENSAFE_INLINE vector add_if_negative(vector x, vector c) noexcept {
    const reals sum = _mm256_castsi256_pd(_mm256_add_epi64(x, c));
    return _mm256_castpd_si256(_mm256_blendv_pd(_mm256_castsi256_pd(x), sum, _mm256_castsi256_pd(x)));
}

/// a + b modulo q, all in [0, q).
TENSAFE_AVX2 TENSAFE_INLINE vector add(vector a, vector b, vector q) noexcept {
    return add_if_negative(_mm256_add_epi64(a, _mm256_sub_epi64(b, q)), q);
}

/// a - b modulo q, all in [0, q).
TENSAFE_AVX2 TENSAFE_INLINE vector subtract(vector a, vector b, vector q) noexcept {
    return add_if_negative(_mm256_sub_epi64(a, b), q);
}

/// Four residues at a time modulo q < 2^50, as integers in doubles. Remainders are symmetric, and every sum
/// of them is exact below 2^53. Bounds: docs/design/arithmetic.md.
template <arith::modulus M>
class narrow {
    static_assert(M::bits <= 50, "avx2::narrow: the modulus must be below 2^50");

  public:
    /// So many products or residues can be added to a remainder.
    static constexpr std::size_t terms = (std::size_t{1} << std::min(53 - M::bits, 12)) - 1;

    TENSAFE_AVX2 TENSAFE_INLINE explicit narrow(M m) noexcept
        : q_(_mm256_set1_pd(static_cast<double>(m.value()))),
          inverse_(_mm256_set1_pd(1 / static_cast<double>(m.value()))) {}

    /// Words below 2^52: with the upper bits of 2^52 they are the double 2^52 + x.
    TENSAFE_AVX2 TENSAFE_INLINE static reals from_words(vector x) noexcept {
        const reals two_52 = _mm256_set1_pd(0x1p52);
        return _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(x, _mm256_castpd_si256(two_52))), two_52);
    }
    TENSAFE_AVX2 TENSAFE_INLINE static reals load(const word* from) noexcept {
        return from_words(avx2::load(from));
    }
    /// Signed words of magnitude below 2^51.
    TENSAFE_AVX2 TENSAFE_INLINE static reals from_signed_words(vector x) noexcept {
        const reals middle = _mm256_set1_pd(0x1.8p52);
        return _mm256_sub_pd(_mm256_castsi256_pd(_mm256_add_epi64(x, _mm256_castpd_si256(middle))), middle);
    }
    /// x modulo q as words in [0, q), for integers x in (-q, q).
    TENSAFE_AVX2 TENSAFE_INLINE vector to_words(reals x) const noexcept {
        const reals two_52 = _mm256_set1_pd(0x1p52);
        return _mm256_xor_si256(_mm256_castpd_si256(_mm256_add_pd(canonical(x), two_52)),
                                _mm256_castpd_si256(two_52));
    }
    /// x modulo q in [0, q), for integers x in [-q, q); not for -0, which no difference is.
    TENSAFE_AVX2 TENSAFE_INLINE reals canonical(reals x) const noexcept {
        return _mm256_blendv_pd(x, _mm256_add_pd(x, q_), x);
    }

    /// a * b modulo q, for integers a and b, b below q in magnitude: in (-q, q) for a below 2^50 in
    /// magnitude, in (-2q, 2q) for a below 2^52.
    TENSAFE_AVX2 TENSAFE_INLINE reals multiply(reals a, reals b) const noexcept {
        const reals product = _mm256_mul_pd(a, b);
        const reals rounding = _mm256_fmsub_pd(a, b, product);
        return _mm256_add_pd(reduce(product), rounding);
    }

    /// x modulo q in (-q, q), for integers x below 2^50 * q in magnitude.
    TENSAFE_AVX2 TENSAFE_INLINE reals reduce(reals x) const noexcept {
        return subtract_multiple(x, _mm256_mul_pd(x, inverse_));
    }

    /// upper + lower modulo q in (-q, q), for integers whose sum is below 2^50 * q, lower below 2^32.
    TENSAFE_AVX2 TENSAFE_INLINE reals reduce_sum(reals upper, reals lower) const noexcept {
        const reals estimate = _mm256_fmadd_pd(lower, inverse_, _mm256_mul_pd(upper, inverse_));
        return _mm256_add_pd(subtract_multiple(upper, estimate), lower);
    }

  private:
    /// x - h*q, h the integer nearest to the estimate.
    TENSAFE_AVX2 TENSAFE_INLINE reals subtract_multiple(reals x, reals estimate) const noexcept {
        const reals h = _mm256_round_pd(estimate, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        return _mm256_fnmadd_pd(h, q_, x);
    }

    reals q_;
    reals inverse_;  // 1 / q
};

}  // namespace tensafe::arith::avx2

#endif
