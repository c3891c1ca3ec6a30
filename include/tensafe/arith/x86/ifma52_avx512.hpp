#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/x86/lanes_avx512.hpp>

#include <bit>
#include <cstddef>

#if TENSAFE_X86_64

namespace tensafe::arith::avx512 {

/// Eight residues at a time modulo q < 2^50, by 52-bit multiply-adds. A product is kept as high * 2^52 + low.
/// The remainders below are formed modulo 2^52, which holds 4q. Bounds: docs/design/arithmetic.md.
template <arith::modulus M>
class ifma52 : public sums {
    static_assert(M::bits <= 50, "avx512::ifma52: the modulus must be below 2^50; use barrett_fp64");

  public:
    using operand = words;
    /// A sum of products: high * 2^52 + low, both words.
    struct sum {
        words parts[2];  ///< low, high
    };
    struct factor {
        vector value;
        vector quotient;  ///< floor(value * 2^52 / q)
    };
    /// So many products, each with one residue, and one residue more can be added up.
    static constexpr std::size_t terms = 2048;
    /// Whether sums must be normalized before their lanes are added to others.
    static constexpr bool joins_residues = false;
    /// So much of a block can be summed, over all lanes.
    static constexpr std::size_t block_terms(bool) noexcept { return terms; }

    TENSAFE_AVX512 explicit ifma52(M m) noexcept
        : sums(m.value()),
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

    static TENSAFE_INLINE const operand& as_operand(const words& x) noexcept { return x; }

    /// a * b in [0, q), for a and b in [0, q): Barrett's estimate, with the product cut where both errors of
    /// the quotient are about equal, so that together they are below one up to 49 bits.
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
        return lanes(subtract_if_not_below(r, q_));
    }

    TENSAFE_AVX512 static sum zero() noexcept {
        return {{lanes(_mm512_setzero_si512()), lanes(_mm512_setzero_si512())}};
    }
    TENSAFE_AVX512 static void add_product(sum& s, const words& a, const words& b) noexcept {
        s.parts[0] = lanes(_mm512_madd52lo_epu64(raw(s.parts[0]), raw(a), raw(b)));
        s.parts[1] = lanes(_mm512_madd52hi_epu64(raw(s.parts[1]), raw(a), raw(b)));
    }
    TENSAFE_AVX512 static void add_product(sum& s, const words& a, const words& b,
                                           const words& residue) noexcept {
        add_product(s, a, b);
        add_residue(s, residue);
    }
    static TENSAFE_INLINE void add_residue(sum& s, const words& a) noexcept { s.parts[0] = s.parts[0] + a; }
    /// To one residue.
    TENSAFE_AVX512 void normalize(sum& s) const noexcept { s = {{reduce(s), lanes(_mm512_setzero_si512())}}; }

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
        return lanes(reduce_folded(low, high));
    }

    TENSAFE_AVX512 static factor prepare(typename shoup<M>::factor w) noexcept {
        return {broadcast(w.value), broadcast(w.quotient >> 12)};
    }
    /// x * w in [0, q), for x below 2^52.
    TENSAFE_AVX512 words scale(const words& x, const factor& w) const noexcept {
        return lanes(multiply(raw(x), w));
    }
    /// (a - b) * w in [0, q), for a and b in [0, q).
    TENSAFE_AVX512 words scale_difference(const words& a, const words& b, const factor& w) const noexcept {
        return lanes(multiply(_mm512_add_epi64(_mm512_sub_epi64(raw(a), raw(b)), q_), w));
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

    /// (high * 2^52 + low mod 2^52) modulo q, in [0, q), for high below 2^52. Two Shoup products, of high
    /// with 2^52 mod q and of low with 1, each below 2q, share the multiplication by q.
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

}  // namespace tensafe::arith::avx512

#endif
