#pragma once

#include <tensafe/arith/policy.hpp>

namespace tensafe::arith {

/// Multiplication by a fixed operand w with its precomputed quotient floor(w * 2^64 / q): two low products
/// and one high product. Any word times w lands below 2q. V. Shoup's trick: Harvey, "Faster arithmetic for
/// number-theoretic transforms" (2014), section 2. Immutable; safe to share between threads.
template <modulus Modulus>
class shoup : public word_representation {
  public:
    using modulus_type = Modulus;
    struct factor {
        word value;     ///< w in [0, q)
        word quotient;  ///< floor(w * 2^64 / q)
    };
    static constexpr unsigned product_bound = 2;
    static constexpr unsigned max_multiple = largest_multiple<Modulus, word>;

    TENSAFE_HOST_DEVICE constexpr explicit shoup(Modulus m = Modulus()) noexcept : modulus_(m) {}

    TENSAFE_HOST_DEVICE constexpr Modulus modulus() const noexcept { return modulus_; }

    /// Makes the factor for w by a 128-bit division: for tables.  @pre w in [0, q)
    TENSAFE_HOST_DEVICE constexpr factor prepare(word w) const noexcept {
        return {w, static_cast<word>((static_cast<uint128>(w) << 64) / modulus_.value())};
    }

    /// Returns x * w mod q, in [0, 2q), whatever the bound of x.
    template <unsigned K>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus> multiply(
        below<K, Modulus> x, factor w) const noexcept {
        return multiply_word(x.value, w);
    }

    /// Returns x * w mod q for any word x, in [0, 2q). With h = floor(x * quotient / 2^64), x*w/q - h lies in
    /// [0, 1 + x/2^64).
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus> multiply_word(
        word x, factor w) const noexcept {
        return {x * w.value - mul_hi(x, w.quotient) * modulus_.value()};
    }

    /// Returns any word modulo q, in [0, 2q): `one` must be prepare(1).
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus> reduce_word(
        word x, factor one) const noexcept {
        return {x - mul_hi(x, one.quotient) * modulus_.value()};
    }

  private:
    [[no_unique_address]] Modulus modulus_;
};

static_assert(modular_policy<shoup<fixed_modulus<17>>>);

}  // namespace tensafe::arith
