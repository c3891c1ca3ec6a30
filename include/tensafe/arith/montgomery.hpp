#pragma once

#include <tensafe/arith/policy.hpp>

namespace tensafe::arith {

/// Multiplication by operands held as w * 2^64 mod q: one wide, one low and one high product. Montgomery,
/// "Modular multiplication without trial division" (1985), in the subtracting form: a residue times a
/// prepared factor is an ordinary residue again. Immutable; safe to share between threads.
template <arith::modulus Modulus>
class montgomery : public word_representation {
  public:
    using modulus_type = Modulus;
    struct factor {
        word value;  ///< w * 2^64 mod q
    };
    static constexpr unsigned product_bound = 2;
    static constexpr unsigned max_multiple = largest_multiple<Modulus, word>;

    TENSAFE_HOST_DEVICE constexpr explicit montgomery(Modulus m = Modulus()) noexcept
        : modulus_(m), inverse_(inverse_of(m.value())) {}

    TENSAFE_HOST_DEVICE constexpr Modulus modulus() const noexcept { return modulus_; }

    /// Makes the factor for w by a 128-bit division: for tables.  @pre w in [0, q)
    TENSAFE_HOST_DEVICE constexpr factor prepare(word w) const noexcept {
        return {static_cast<word>((static_cast<uint128>(w) << 64) % modulus_.value())};
    }

    /// Returns x * w mod q, in [0, 2q). The product is below 2^64 * q, so both upper words are below q.
    template <unsigned K>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus> multiply(
        below<K, Modulus> x, factor w) const noexcept {
        const uint128 product = mul_wide(x.value, w.value);
        const word m = low_word(product) * inverse_;
        return {high_word(product) + (modulus_.value() - mul_hi(m, modulus_.value()))};
    }

  private:
    /// Returns q^-1 modulo 2^64 by Newton's iteration from q, which is its inverse modulo 8 as q is odd.
    TENSAFE_HOST_DEVICE static constexpr word inverse_of(word q) noexcept {
        word x = q;
        for (int correct_bits = 3; correct_bits < 64; correct_bits *= 2) {
            x *= 2 - q * x;
        }
        return x;
    }

    [[no_unique_address]] Modulus modulus_;
    word inverse_;
};

static_assert(modular_policy<montgomery<fixed_modulus<17>>>);

}  // namespace tensafe::arith
