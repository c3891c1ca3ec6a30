#pragma once

#include <tensafe/arith/below.hpp>
#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/word.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tensafe::device {

/// Products by fixed factors modulo a prime below 2^50 in double precision, for GPUs: residues are integers
/// of either sign and stay doubles through a whole transform. Quotients are rounded by adding and subtracting
/// 1.5 * 2^52, four times as fast on GPUs as conversions. A product is six instructions, and lands within q/2
/// and a little more, so that sums are reduced much less often than in arith::fp64.
///
/// After van der Hoeven, Lecerf and Quintin, "Modular SIMD arithmetic in Mathemagix" (2016), with balanced
/// residues; docs/gpu.md proves the bounds. An empty class; all members run on host and device.
template <arith::word Q>
class balanced {
    static_assert(Q % 2 == 1 && Q > 256 && Q < arith::word{1} << 50,
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

    /// The largest bound that an operand may have: 2^52 in size.
    static constexpr int limit = [] {
        constexpr arith::word bound = (arith::word{1} << 60) / Q;
        return bound > (arith::word{1} << 24) ? 1 << 24 : static_cast<int>(bound);
    }();
    /// The bound of what `reduce` returns: q/2 and one half.
    static constexpr int reduced = arith::bound_of_q / 2 + 1;
    /// The bound of a product of an operand of this bound: q (1/2 + |y| 2^-53), and one unit for the rest.
    TENSAFE_HOST_DEVICE static constexpr int product(int bound) noexcept {
        return arith::bound_of_q / 2 + 2 + static_cast<int>(static_cast<arith::word>(bound) * Q >> 53);
    }

    static void prepare(arith::word w, arith::word* table) noexcept {
        const double value = w > Q / 2 ? -static_cast<double>(Q - w) : static_cast<double>(w);
        *table = __builtin_bit_cast(arith::word, value);
    }
    TENSAFE_HD_INLINE static factor factor_at(const arith::word* table, std::size_t index) noexcept {
        const double value = __builtin_bit_cast(double, table[index]);
        return {value, value * (1 / q)};
    }

    /// Returns x as a residue of this arithmetic.  @pre x < q
    TENSAFE_HD_INLINE static arith::within<balanced, arith::bound_of_q> from_word(arith::word x) noexcept {
        // Put into the mantissa of 2^52. A word that is none of ours must not reach the exponent.
        return {__builtin_bit_cast(double, (x & 0x000fffffffffffffU) | 0x4330000000000000U) - 0x1p52};
    }

    /// Returns y * w modulo q. Every operation but the rounding of the quotient is exact.
    template <int Bound>
    TENSAFE_HD_INLINE static arith::within<balanced, product(Bound)> multiply(
        arith::within<balanced, Bound> y, factor w) noexcept {
        const double h = std::fma(y.value, w.over_q, rounding) - rounding;
        const double high = y.value * w.value;
        const double low = std::fma(y.value, w.value, -high);
        return {std::fma(-h, q, high) + low};
    }

    template <int Bound>
    TENSAFE_HD_INLINE static arith::within<balanced, reduced> reduce(
        arith::within<balanced, Bound> x) noexcept {
        const double h = std::fma(x.value, 1 / q, rounding) - rounding;
        return {std::fma(-h, q, x.value)};
    }

    /// Returns x modulo q, in [0, q).
    template <int Bound>
    TENSAFE_HD_INLINE static arith::word canonical(arith::within<balanced, Bound> x) noexcept {
        // The integer in the mantissa of 1.5 * 2^52 + r: no conversion instruction.
        const double shifted = reduce(x).value + rounding;
        const arith::word r = bits_of(shifted) - 0x4338000000000000U;
        return r + (static_cast<arith::word>(static_cast<std::int64_t>(r) >> 63) & Q);
    }

  private:
    TENSAFE_HD_INLINE static arith::word bits_of(double x) noexcept {
        return __builtin_bit_cast(arith::word, x);
    }

    static constexpr double q = static_cast<double>(Q);
    /// The number whose addition rounds to an integer: the doubles from 2^52 to 2^53 are the integers.
    static constexpr double rounding = 0x1.8p52;
};

/// Products by fixed factors modulo a prime of 51 to 61 bits in signed 32-bit digits, for GPUs: six wide
/// multiply-adds and one narrow multiplication, where 64-bit products as in arith::shoup take six wide ones,
/// four narrow ones and the carries between them.
///
/// Montgomery's reduction (1985) with a radix of 2^32, of y0 * a + y1 * b, where y = y1 * 2^32 + y0 and the
/// factor w is stored as a = 2^32 w and b = 2^64 w: the product is y * w without a power of the radix.
/// docs/gpu.md proves the bounds. An empty class; all members run on host and device.
template <arith::word Q>
class signed_montgomery {
    static constexpr int bits = std::bit_width(Q);
    static_assert(Q % 2 == 1 && bits >= 51 && bits <= arith::max_modulus_bits,
                  "signed_montgomery: the modulus must be odd and have 51 to 61 bits");

  public:
    using representation = std::int64_t;
    /// The words of a factor: a and b, each with its digits in the halves of a word.
    static constexpr int factor_words = 2;
    struct factor {
        std::int32_t a0;
        std::int32_t a1;
        std::int32_t b0;
        std::int32_t b1;
    };

    /// The largest bound of an operand: 2^63 - 2^32 in size, so that the digits of y do not overflow.
    static constexpr int limit = static_cast<int>(
        static_cast<arith::uint128>((arith::word{1} << 63) - (arith::word{1} << 32)) * arith::bound_of_q / Q);
    static constexpr int reduced = arith::bound_of_q / 2 + 1;
    /// The bound of a product of an operand of this bound: q (1 + |y1| 2^-32), y1 the upper digit.
    TENSAFE_HOST_DEVICE static constexpr int product(int bound) noexcept {
        return arith::bound_of_q + 2 +
               static_cast<int>(static_cast<arith::uint128>(static_cast<arith::word>(bound)) * Q >> 64);
    }

    static constexpr void prepare(arith::word w, arith::word* table) noexcept {
        const arith::word a = static_cast<arith::word>((static_cast<arith::uint128>(w) << 32) % Q);
        const arith::word b = static_cast<arith::word>((static_cast<arith::uint128>(a) << 32) % Q);
        table[0] = digits(with_smaller_low_digit(a));
        table[1] = digits(with_smaller_low_digit(b));
    }
    TENSAFE_HD_INLINE static factor factor_at(const arith::word* table, std::size_t index) noexcept {
        struct alignas(16) stored {
            arith::word a;
            arith::word b;
        };
        const stored w = *reinterpret_cast<const stored*>(table + 2 * index);
        return {low(w.a), high(w.a), low(w.b), high(w.b)};
    }

    /// Returns x as a residue of this arithmetic.  @pre x < q
    TENSAFE_HD_INLINE static arith::within<signed_montgomery, arith::bound_of_q> from_word(
        arith::word x) noexcept {
        return {static_cast<std::int64_t>(x)};
    }

    /// Returns y * w modulo q. No sum passes 63 bits.
    template <int Bound>
    TENSAFE_HD_INLINE static arith::within<signed_montgomery, product(Bound)> multiply(
        arith::within<signed_montgomery, Bound> y, factor w) noexcept {
        const std::int32_t y0 = low(static_cast<arith::word>(y.value));
        const std::int32_t y1 = high(static_cast<arith::word>(y.value) + (arith::word{1} << 31));
        const std::int64_t column =
            arith::multiply_add_signed(y1, w.b0, arith::multiply_add_signed(y0, w.a0, 0));
        const auto m = static_cast<std::int32_t>(static_cast<std::uint32_t>(column) * minus_inverse);
        const std::int64_t rest = arith::multiply_add_signed(m, q0, column);  // its lower half is zero
        const std::int64_t upper =
            arith::multiply_add_signed(y1, w.b1, arith::multiply_add_signed(y0, w.a1, 0));
        return {arith::multiply_add_signed(m, q1, upper) + high(static_cast<arith::word>(rest))};
    }

    /// Reduces x by an estimate of the quotient from the upper half, off by less than 1/2 + 2^-17.
    template <int Bound>
    TENSAFE_HD_INLINE static arith::within<signed_montgomery, reduced> reduce(
        arith::within<signed_montgomery, Bound> x) noexcept {
        return {subtract_multiple(x.value, quotient(x.value, std::int64_t{1} << (bits - 3)))};
    }

    /// Returns x modulo q, in [0, q), with a quotient that is never too large.
    template <int Bound>
    TENSAFE_HD_INLINE static arith::word canonical(arith::within<signed_montgomery, Bound> x) noexcept {
        const std::int32_t h = quotient(x.value, -(std::int64_t{1} << 31));
        return arith::subtract_if_not_below(static_cast<arith::word>(subtract_multiple(x.value, h)), Q);
    }

  private:
    TENSAFE_HD_INLINE static constexpr std::int32_t low(arith::word x) noexcept {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(x));
    }
    TENSAFE_HD_INLINE static constexpr std::int32_t high(arith::word x) noexcept {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(x >> 32));
    }
    /// Returns x/q from the upper half of x, `shift` added at 2^(bits - 2), rounded down.
    TENSAFE_HD_INLINE static std::int32_t quotient(std::int64_t x, std::int64_t shift) noexcept {
        return static_cast<std::int32_t>(
            arith::multiply_add_signed(high(static_cast<arith::word>(x)), ratio, shift) >> (bits - 2));
    }
    /// Returns x - h*q, modulo 2^64.
    TENSAFE_HD_INLINE static std::int64_t subtract_multiple(std::int64_t x, std::int32_t h) noexcept {
        const std::uint32_t upper = static_cast<std::uint32_t>(h) * static_cast<std::uint32_t>(q1);
        const std::int64_t lower = arith::multiply_add_signed(-h, q0, x);
        return static_cast<std::int64_t>(static_cast<arith::word>(lower) - (arith::word{upper} << 32));
    }

    TENSAFE_HOST_DEVICE static constexpr arith::word digits(std::int64_t x) noexcept {
        const auto x0 = static_cast<std::int64_t>(low(static_cast<arith::word>(x)));
        return (static_cast<arith::word>(x) - static_cast<arith::word>(x0)) |
               static_cast<arith::word>(static_cast<std::uint32_t>(x0));
    }
    /// Returns x or x - q: one of the two low digits is at most 2^31 - (|q0| + 1) / 2 in size.
    TENSAFE_HOST_DEVICE static constexpr std::int64_t with_smaller_low_digit(arith::word x) noexcept {
        const auto size = [](arith::word y) {
            const auto digit = static_cast<std::int64_t>(low(y));
            return digit < 0 ? -digit : digit;
        };
        return static_cast<std::int64_t>(size(x) <= size(x - Q) ? x : x - Q);
    }

    static constexpr std::int32_t q0 = low(Q);
    static constexpr std::int32_t q1 = high(Q + (arith::word{1} << 31));
    /// The constant -1/q modulo 2^32, by Newton's iteration.
    static constexpr std::uint32_t minus_inverse = [] {
        auto q = static_cast<std::uint32_t>(Q);
        std::uint32_t x = q;
        for (int correct_bits = 3; correct_bits < 32; correct_bits *= 2) {
            x *= 2 - q * x;
        }
        return 0 - x;
    }();
    static constexpr auto ratio = static_cast<std::int32_t>((arith::uint128{1} << (bits + 30)) / Q);
};

/// The arithmetic of the transforms of kernels, by the width of the prime: doubles below 2^50, signed
/// 32-bit digits above. docs/gpu.md counts the instructions of the alternatives.
template <arith::word Q>
using arithmetic = typename std::conditional_t<(Q < (arith::word{1} << 50)), std::type_identity<balanced<Q>>,
                                               std::type_identity<signed_montgomery<Q>>>::type;

}  // namespace tensafe::device
