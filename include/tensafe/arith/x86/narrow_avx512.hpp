#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/x86/vector_avx512.hpp>

#include <bit>
#include <cstddef>

#if TENSAFE_X86_64

namespace tensafe::arith::avx512 {

/// Eight residues at a time modulo q < 2^50, by 52-bit multiply-adds. A product is kept as high * 2^52 + low.
/// The remainders below are formed modulo 2^52, which holds 4q. Bounds: docs/design/arithmetic.md.
template <arith::modulus M>
class narrow {
    static_assert(M::bits <= 50, "avx512::narrow: the modulus must be below 2^50; use wide");

  public:
    /// A sum of products: high * 2^52 + low, both words.
    struct sum {
        vector low;
        vector high;
    };
    /// So many products, each with one residue, and one residue more can be added up.
    static constexpr std::size_t terms = 2048;

    TENSAFE_AVX512 TENSAFE_INLINE explicit narrow(M m) noexcept
        : q_(broadcast(m.value())),
          twice_q_(broadcast(2 * m.value())),
          minus_q_(broadcast((word{1} << 52) - m.value())),
          fold_(broadcast((word{1} << 52) % m.value())),
          fold_quotient_(
              broadcast(static_cast<word>((arith::wide{(word{1} << 52) % m.value()} << 52) / m.value()))),
          one_quotient_(broadcast((word{1} << 52) / m.value())),
          product_quotient_(broadcast(static_cast<word>((arith::wide{1} << (52 + cut(m))) / m.value()))),
          cut_(broadcast(cut(m))),
          rest_(broadcast(52 - cut(m))),
          high_quotient_(broadcast((word{1} << 60) / m.value())),
          mask_(broadcast((word{1} << 52) - 1)) {}

    TENSAFE_AVX512 TENSAFE_INLINE vector q() const noexcept { return q_; }

    /// a * b in [0, q), for a and b in [0, q): Barrett's estimate, with the product cut where both errors of
    /// the quotient are about equal, so that together they are below one up to 49 bits.
    TENSAFE_AVX512 TENSAFE_INLINE vector multiply(vector a, vector b) const noexcept {
        const vector zero = _mm512_setzero_si512();
        const vector low = _mm512_madd52lo_epu64(zero, a, b);
        const vector high = _mm512_madd52hi_epu64(zero, a, b);
        const vector upper = _mm512_or_si512(shift_left(high, rest_), shift_right(low, cut_));
        const vector estimate = _mm512_madd52hi_epu64(zero, upper, product_quotient_);
        vector r = _mm512_and_si512(_mm512_madd52lo_epu64(low, estimate, minus_q_), mask_);
        if constexpr (M::bits == 50) {
            r = subtract_if_not_below(r, twice_q_);
        }
        return subtract_if_not_below(r, q_);
    }

    TENSAFE_AVX512 TENSAFE_INLINE static sum zero() noexcept {
        return {_mm512_setzero_si512(), _mm512_setzero_si512()};
    }
    TENSAFE_AVX512 TENSAFE_INLINE static void add_product(sum& s, vector a, vector b) noexcept {
        s.low = _mm512_madd52lo_epu64(s.low, a, b);
        s.high = _mm512_madd52hi_epu64(s.high, a, b);
    }
    TENSAFE_AVX512 TENSAFE_INLINE static void add_residue(sum& s, vector a) noexcept {
        s.low = _mm512_add_epi64(s.low, a);
    }
    TENSAFE_AVX512 TENSAFE_INLINE static sum add(const sum& a, const sum& b) noexcept {
        return {_mm512_add_epi64(a.low, b.low), _mm512_add_epi64(a.high, b.high)};
    }
    TENSAFE_AVX512 TENSAFE_INLINE static sum add_neighbours(const sum& a, const sum& b) noexcept {
        return {avx512::add_neighbours(a.low, b.low), avx512::add_neighbours(a.high, b.high)};
    }
    TENSAFE_AVX512 TENSAFE_INLINE static sum add_neighbouring_pairs(const sum& a, const sum& b) noexcept {
        return {avx512::add_neighbouring_pairs(a.low, b.low), avx512::add_neighbouring_pairs(a.high, b.high)};
    }

    /// The sum modulo q, in [0, q).
    TENSAFE_AVX512 TENSAFE_INLINE vector reduce(const sum& s) const noexcept {
        vector high = _mm512_add_epi64(s.high, shift_right<52>(s.low));
        if constexpr (2 * M::bits + 11 > 104) {
            // Up to 59 bits, where the multiplier takes 52.
            const vector estimate =
                _mm512_madd52hi_epu64(_mm512_setzero_si512(), shift_right<8>(high), high_quotient_);
            high = _mm512_and_si512(_mm512_madd52lo_epu64(high, estimate, minus_q_), mask_);
        }
        return reduce_folded(s.low, high);
    }

    /// x * w in [0, q), for x below 2^52 and a Shoup factor of 52 bits: floor(w * 2^52 / q).
    TENSAFE_AVX512 TENSAFE_INLINE vector multiply(vector x, vector w, vector w_quotient) const noexcept {
        const vector zero = _mm512_setzero_si512();
        const vector estimate = _mm512_madd52hi_epu64(zero, x, w_quotient);
        const vector product = _mm512_madd52lo_epu64(zero, x, w);
        const vector r = _mm512_and_si512(_mm512_madd52lo_epu64(product, estimate, minus_q_), mask_);
        return subtract_if_not_below(r, q_);
    }

  private:
    /// Bits of a product below the part that its quotient is estimated from: for the width of m itself.
    static constexpr word cut(M m) noexcept {
        const int bits = static_cast<int>(std::bit_width(m.value()));
        return static_cast<word>(bits == 50 ? 48 : bits > 18 ? (3 * bits - 53) / 2 : 0);
    }

    /// (high * 2^52 + low mod 2^52) modulo q, in [0, q), for high below 2^52. Two Shoup products, of high
    /// with 2^52 mod q and of low with 1, each below 2q, share the multiplication by q.
    TENSAFE_AVX512 TENSAFE_INLINE vector reduce_folded(vector low, vector high) const noexcept {
        const vector first = _mm512_madd52hi_epu64(_mm512_setzero_si512(), low, one_quotient_);
        const vector estimate = _mm512_madd52hi_epu64(first, high, fold_quotient_);
        const vector trace = _mm512_madd52lo_epu64(low, high, fold_);
        const vector r = _mm512_and_si512(_mm512_madd52lo_epu64(trace, estimate, minus_q_), mask_);
        return subtract_if_not_below(subtract_if_not_below(r, twice_q_), q_);
    }

    vector q_;
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

}  // namespace tensafe::arith::avx512

#endif
