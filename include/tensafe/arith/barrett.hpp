#pragma once

#include <tensafe/arith/policy.hpp>

#include <bit>
#include <type_traits>

namespace tensafe::arith {

/// Multiplication of two variable operands: the 128-bit product, and a quotient estimated from its upper bits
/// by one more multiplication with floor(2^(bits+63) / q).
///
/// Barrett (1986) with single-word precision; docs/design/arithmetic.md proves the bounds. Immutable;
/// thread-safe.
template <arith::modulus Modulus>
class barrett : public word_representation {
  public:
    using modulus_type = Modulus;
    using factor = word;  ///< w in [0, q): nothing to precompute
    static constexpr unsigned product_bound = 3;
    /// The product must stay below 2^63 * q.
    static constexpr unsigned max_multiple =
        largest_multiple<Modulus, word> / 2 > 0 ? largest_multiple<Modulus, word> / 2 : 1;

    TENSAFE_HOST_DEVICE constexpr explicit barrett(Modulus m = Modulus()) noexcept
        : modulus_(m),
          shift_(static_cast<int>(std::bit_width(m.value())) - 1),
          ratio_(static_cast<word>((wide{1} << (shift_ + 64)) / m.value())) {}

    TENSAFE_HOST_DEVICE constexpr Modulus modulus() const noexcept { return modulus_; }
    TENSAFE_HOST_DEVICE constexpr factor prepare(word w) const noexcept { return w; }

    /// x * w mod q, in [0, 3q), for x below max_multiple*q and w in [0, q).
    template <unsigned K>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus> multiply(
        below<K, Modulus> x, factor w) const noexcept {
        static_assert(K <= max_multiple, "barrett::multiply: call reduce<To>() on the operand first");
        return reduce_wide(mul_wide(x.value, w));
    }

    /// x mod q, in [0, 3q).  @pre x < 2^63 * q
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus> reduce_wide(
        wide x) const noexcept {
        return {low_word(x) - mul_hi(upper_part(x), ratio_) * modulus_.value()};
    }

    /// x mod q, in [0, q).  @pre x < 2^63 * q
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr word reduce_fully(wide x) const noexcept {
        return arith::reduce<1>(modulus_, reduce_wide(x)).value;
    }

    /// x mod q in [0, q) for any 128-bit x: the upper word is folded in with 2^64 mod q first.
    TENSAFE_HOST_DEVICE constexpr word reduce_any(wide x) const noexcept {
        const word q = modulus_.value();
        const word upper = reduce_fully(high_word(x));
        const word half = reduce_fully(mul_wide(upper, reduce_fully(wide{1} << 63)));
        const word shifted = subtract_if_not_below(half + half, q);  // upper * 2^64 mod q
        return subtract_if_not_below(shifted + reduce_fully(low_word(x)), q);
    }

  private:
    /// One less than the width of q: known to the compiler where all moduli of the type have one width.
    struct constant_shift {
        TENSAFE_HOST_DEVICE constexpr explicit constant_shift(int) noexcept {}
        TENSAFE_HOST_DEVICE constexpr operator int() const noexcept { return Modulus::bits - 1; }
    };
    static constexpr bool one_width = Modulus::least_bits == Modulus::bits;

    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr word upper_part(wide x) const noexcept {
        if constexpr (one_width) {
            return low_word(x >> shift_);
        } else {
            // As above; compilers test a variable shift of 128 bits for 64 and more. It is in [1, 60].
            return low_word(x) >> shift_ | high_word(x) << (64 - shift_);
        }
    }

    [[no_unique_address]] Modulus modulus_;
    [[no_unique_address]] std::conditional_t<one_width, constant_shift, int> shift_;
    word ratio_;
};

static_assert(modular_policy<barrett<fixed_modulus<17>>>);

}  // namespace tensafe::arith
