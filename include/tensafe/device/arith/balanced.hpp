#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/within.hpp>
#include <tensafe/arith/word.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tensafe::arith {

/// Products by fixed factors modulo a prime below 2^50 in double precision, for GPUs: residues are integers
/// of either sign and stay doubles through a whole transform. Quotients are rounded by adding and subtracting
/// 1.5 * 2^52, since conversions between integers and doubles run at a quarter of the rate of a GPU's fused
/// multiply-adds. A product is six instructions, and lands within q/2 and a little more, which is why sums
/// have to be reduced much less often than in arith::fp64.
///
/// After van der Hoeven, Lecerf and Quintin, "Modular SIMD arithmetic in Mathemagix" (2016), with balanced
/// residues; docs/design/device.md proves the bounds. An empty class; all members run on host and device.
template <word Q>
class balanced {
    static_assert(Q % 2 == 1 && Q > 256 && Q < word{1} << 50,
                  "balanced: the modulus must be odd, above 256 and below 2^50");

  public:
    using representation = double;
    /// A factor as it is stored: w as the double next to zero. w/q is computed where it is used, which halves
    /// the tables for one more multiplication for each factor.
    static constexpr int factor_words = 1;
    struct factor {
        double value;   ///< |w| <= (q - 1) / 2
        double over_q;  ///< w/q, off by at most 2^-53 (1 + 2^-53)
    };

    /// The largest bound: 2^52 in size.
    static constexpr int limit = [] {
        constexpr word bound = (word{1} << 60) / Q;
        return bound > (word{1} << 24) ? 1 << 24 : static_cast<int>(bound);
    }();
    /// The bound of what `reduce` returns: q/2 and one half.
    static constexpr int reduced = bound_of_q / 2 + 1;
    /// The bound of a product of an operand of this bound: q (1/2 + |y| 2^-53), and one unit for what is
    /// left.
    TENSAFE_HOST_DEVICE static constexpr int product(int bound) noexcept {
        return bound_of_q / 2 + 2 + static_cast<int>(static_cast<word>(bound) * Q >> 53);
    }

    static void prepare(word w, word* table) noexcept {
        const double value = w > Q / 2 ? -static_cast<double>(Q - w) : static_cast<double>(w);
        *table = __builtin_bit_cast(word, value);
    }
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static factor factor_at(const word* table,
                                                               std::size_t index) noexcept {
        const double value = __builtin_bit_cast(double, table[index]);
        return {value, value * (1 / q)};
    }

    /// @pre x < q
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static within<balanced, bound_of_q> from_word(word x) noexcept {
        // Put into the mantissa of 2^52. A word that is none of ours must not reach the exponent.
        return {__builtin_bit_cast(double, (x & 0x000fffffffffffffU) | 0x4330000000000000U) - 0x1p52};
    }

    /// y * w modulo q. Every operation but the rounding of the quotient is exact.
    template <int Bound>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static within<balanced, product(Bound)> multiply(
        within<balanced, Bound> y, factor w) noexcept {
        const double h = std::fma(y.value, w.over_q, rounding) - rounding;
        const double high = y.value * w.value;
        const double low = std::fma(y.value, w.value, -high);
        return {std::fma(-h, q, high) + low};
    }

    template <int Bound>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static within<balanced, reduced> reduce(
        within<balanced, Bound> x) noexcept {
        const double h = std::fma(x.value, 1 / q, rounding) - rounding;
        return {std::fma(-h, q, x.value)};
    }

    /// x modulo q, in [0, q).
    template <int Bound>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static word canonical(within<balanced, Bound> x) noexcept {
        // The integer in the mantissa of 1.5 * 2^52 + r: no conversion instruction.
        const double shifted = reduce(x).value + rounding;
        const word r = bits_of(shifted) - 0x4338000000000000U;
        return r + (static_cast<word>(static_cast<std::int64_t>(r) >> 63) & Q);
    }

  private:
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static word bits_of(double x) noexcept {
        return __builtin_bit_cast(word, x);
    }

    static constexpr double q = static_cast<double>(Q);
    /// The doubles from 2^52 to 2^53 are the integers.
    static constexpr double rounding = 0x1.8p52;
};

}  // namespace tensafe::arith
