#pragma once

#include <tensafe/arith/policy.hpp>

#include <algorithm>

namespace tensafe::arith {

/// Multiplication of two variable operands: the 128-bit product, and a quotient estimated from its upper bits
/// by one more multiplication with floor(2^(least_bits+63) / q). Barrett (1986) with single-word precision;
/// docs/design/arithmetic.md proves the bounds. Immutable; thread-safe.
template <arith::modulus Modulus>
class barrett : public word_representation {
  public:
    using modulus_type = Modulus;
    using factor = word;  ///< w in [0, q): nothing to precompute
    static constexpr unsigned product_bound = 3;
    /// The product must stay below 2^(63 + least_bits).
    static constexpr unsigned max_multiple =
        std::clamp(largest_multiple<Modulus, word> / 2, 1U,
                   1U << std::min(63 + Modulus::least_bits - 2 * Modulus::bits, 30));

    TENSAFE_HOST_DEVICE constexpr explicit barrett(Modulus m = Modulus()) noexcept
        : modulus_(m), ratio_(static_cast<word>((uint128{1} << (shift + 64)) / m.value())) {}

    TENSAFE_HOST_DEVICE constexpr Modulus modulus() const noexcept { return modulus_; }
    TENSAFE_HOST_DEVICE constexpr factor prepare(word w) const noexcept { return w; }

    /// Returns x * w mod q, in [0, 3q), for x below max_multiple*q and w in [0, q).
    template <unsigned K>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus> multiply(
        below<K, Modulus> x, factor w) const noexcept {
        static_assert(K <= max_multiple, "barrett::multiply: call reduce<To>() on the operand first");
        return reduce_wide(mul_wide(x.value, w));
    }

    /// Returns x mod q, in [0, 3q).  @pre x < 2^(63 + least_bits)
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus> reduce_wide(
        uint128 x) const noexcept {
        const word estimate = mul_hi(low_word(x >> shift), ratio_);
        return {low_word(x) - estimate * modulus_.value()};
    }

    /// Returns x mod q, in [0, q).  @pre x < 2^(63 + least_bits)
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr word reduce_fully(uint128 x) const noexcept {
        return arith::reduce<1>(modulus_, reduce_wide(x)).value;
    }

    /// Returns x mod q in [0, q) for any 128-bit x: the upper word is folded in with 2^64 mod q first.
    TENSAFE_HOST_DEVICE constexpr word reduce_any(uint128 x) const noexcept {
        const word q = modulus_.value();
        const word upper = reduce_fully(high_word(x));
        const word half = reduce_fully(mul_wide(upper, reduce_fully(uint128{1} << 63)));
        const word shifted = subtract_if_not_below(half + half, q);  // upper * 2^64 mod q
        return subtract_if_not_below(shifted + reduce_fully(low_word(x)), q);
    }

  private:
    /// Operands are shifted right by this before their quotient is estimated: the upper part of every operand
    /// below 2^(63 + least_bits) is then a word, and so is the ratio of every modulus of the type.
    static constexpr int shift = Modulus::least_bits - 1;

    [[no_unique_address]] Modulus modulus_;
    word ratio_;
};

static_assert(modular_policy<barrett<fixed_modulus<17>>>);

}  // namespace tensafe::arith
