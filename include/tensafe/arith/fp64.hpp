#pragma once

#include <tensafe/arith/policy.hpp>

#include <cmath>
#include <cstdint>

namespace tensafe::arith {

/// Multiplication in double precision with fused multiply-add, for q < 2^50: residues stay doubles through a
/// whole transform. After van der Hoeven, Lecerf and Quintin, "Modular SIMD arithmetic in Mathemagix" (2016);
/// docs/design/arithmetic.md proves the bounds for lazy operands. Immutable; safe to share between threads.
template <arith::modulus Modulus>
class fp64 {
    static_assert(Modulus::bits <= 50, "fp64: the modulus must be below 2^50; use shoup for wider primes");

  public:
    using modulus_type = Modulus;
    using representation = double;
    struct factor {
        double value;     ///< w in [0, q)
        double quotient;  ///< w / q, rounded
    };
    static constexpr unsigned product_bound = 3;
    static constexpr unsigned max_multiple = largest_multiple<Modulus, double>;

    TENSAFE_HOST_DEVICE constexpr explicit fp64(Modulus m = Modulus()) noexcept : modulus_(m) {}

    TENSAFE_HOST_DEVICE constexpr Modulus modulus() const noexcept { return modulus_; }
    TENSAFE_HOST_DEVICE constexpr factor prepare(word w) const noexcept {
        return {from_word(w), from_word(w) / from_word(modulus_.value())};
    }
    // Both are below 2^52. The signed conversion is one instruction; the unsigned one branches on the top
    // bit.
    TENSAFE_HOST_DEVICE static constexpr double from_word(word x) noexcept {
        return static_cast<double>(static_cast<std::int64_t>(x));
    }
    TENSAFE_HOST_DEVICE static constexpr word to_word(double x) noexcept {
        return static_cast<word>(static_cast<std::int64_t>(x));
    }

    /// Returns x * w mod q, in [0, 3q). The estimated quotient is off by less than two, and both differences
    /// below are exact.
    template <unsigned K>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<product_bound, Modulus, double> multiply(
        below<K, Modulus, double> x, factor w) const noexcept {
        const double q = from_word(modulus_.value());
        const auto estimate = static_cast<std::int64_t>(x.value * w.quotient);
        const auto h = static_cast<double>(estimate);
        if (__builtin_is_constant_evaluated()) {
            // std::fma is not constexpr in C++20; the same integer, computed modulo 2^64.
            const word r = static_cast<word>(x.value) * static_cast<word>(w.value) -
                           (static_cast<word>(estimate) - 1) * modulus_.value();
            return {static_cast<double>(r)};
        }
        const double product = x.value * w.value;
        const double rounding = std::fma(x.value, w.value, -product);
        return {std::fma(-h, q, product) + rounding + q};
    }

  private:
    [[no_unique_address]] Modulus modulus_;
};

static_assert(modular_policy<fp64<fixed_modulus<17>>>);

}  // namespace tensafe::arith
