#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/within.hpp>
#include <tensafe/arith/word.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tensafe::arith {

/// Products by fixed factors modulo a prime of 51 to 61 bits in signed 32-bit digits, for GPUs: six wide
/// multiply-adds and one narrow multiplication, where 64-bit products as in arith::shoup take six wide ones,
/// four narrow ones and the carries between them.
///
/// Montgomery's reduction (1985) with a radix of 2^32, of y0 * a + y1 * b, where y = y1 * 2^32 + y0 and the
/// factor w is stored as a = 2^32 w and b = 2^64 w: the product is y * w without a power of the radix.
/// docs/design/device.md proves the bounds. An empty class; all members run on host and device.
template <word Q>
class signed_montgomery {
    static constexpr int bits = std::bit_width(Q);
    static_assert(Q % 2 == 1 && bits >= 51 && bits <= max_modulus_bits,
                  "signed_montgomery: the modulus must be odd and have 51 to 61 bits");

  public:
    using representation = std::int64_t;
    /// a and b, each with its digits in the halves of a word.
    static constexpr int factor_words = 2;
    struct factor {
        std::int32_t a0;
        std::int32_t a1;
        std::int32_t b0;
        std::int32_t b1;
    };

    /// The largest bound: 2^63 - 2^32 in size, so that the digits of y do not overflow.
    static constexpr int limit =
        static_cast<int>(static_cast<wide>((word{1} << 63) - (word{1} << 32)) * bound_of_q / Q);
    static constexpr int reduced = bound_of_q / 2 + 1;
    /// The bound of a product of an operand of this bound: q (1 + |y1| 2^-32), y1 the upper digit.
    TENSAFE_HOST_DEVICE static constexpr int product(int bound) noexcept {
        return bound_of_q + 2 + static_cast<int>(static_cast<wide>(static_cast<word>(bound)) * Q >> 64);
    }

    static constexpr void prepare(word w, word* table) noexcept {
        const word a = static_cast<word>((static_cast<wide>(w) << 32) % Q);
        const word b = static_cast<word>((static_cast<wide>(a) << 32) % Q);
        table[0] = digits(with_smaller_low_digit(a));
        table[1] = digits(with_smaller_low_digit(b));
    }
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static factor factor_at(const word* table,
                                                               std::size_t index) noexcept {
        struct alignas(16) stored {
            word a;
            word b;
        };
        const stored w = *reinterpret_cast<const stored*>(table + 2 * index);
        return {low(w.a), high(w.a), low(w.b), high(w.b)};
    }

    /// @pre x < q
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static within<signed_montgomery, bound_of_q> from_word(
        word x) noexcept {
        return {static_cast<std::int64_t>(x)};
    }

    /// y * w modulo q. No sum passes 63 bits.
    template <int Bound>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static within<signed_montgomery, product(Bound)> multiply(
        within<signed_montgomery, Bound> y, factor w) noexcept {
        const std::int32_t y0 = low(static_cast<word>(y.value));
        const std::int32_t y1 = high(static_cast<word>(y.value) + (word{1} << 31));
        const std::int64_t column = multiply_add_signed(y1, w.b0, multiply_add_signed(y0, w.a0, 0));
        const auto m = static_cast<std::int32_t>(static_cast<std::uint32_t>(column) * minus_inverse);
        const std::int64_t rest = multiply_add_signed(m, q0, column);  // its lower half is zero
        const std::int64_t upper = multiply_add_signed(y1, w.b1, multiply_add_signed(y0, w.a1, 0));
        return {multiply_add_signed(m, q1, upper) + high(static_cast<word>(rest))};
    }

    /// By an estimate of the quotient from the upper half, off by less than 1/2 + 2^-17.
    template <int Bound>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static within<signed_montgomery, reduced> reduce(
        within<signed_montgomery, Bound> x) noexcept {
        return {subtract_multiple(x.value, quotient(x.value, std::int64_t{1} << (bits - 3)))};
    }

    /// x modulo q, in [0, q): with a quotient that is never too large.
    template <int Bound>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static word canonical(within<signed_montgomery, Bound> x) noexcept {
        const std::int32_t h = quotient(x.value, -(std::int64_t{1} << 31));
        return subtract_if_not_below(static_cast<word>(subtract_multiple(x.value, h)), Q);
    }

  private:
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static constexpr std::int32_t low(word x) noexcept {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(x));
    }
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static constexpr std::int32_t high(word x) noexcept {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(x >> 32));
    }
    /// x/q from the upper half of x, `shift` added at 2^(bits - 2), rounded down.
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static std::int32_t quotient(std::int64_t x,
                                                                    std::int64_t shift) noexcept {
        return static_cast<std::int32_t>(multiply_add_signed(high(static_cast<word>(x)), ratio, shift) >>
                                         (bits - 2));
    }
    /// x - h*q, modulo 2^64.
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static std::int64_t subtract_multiple(std::int64_t x,
                                                                             std::int32_t h) noexcept {
        const std::uint32_t upper = static_cast<std::uint32_t>(h) * static_cast<std::uint32_t>(q1);
        const std::int64_t lower = multiply_add_signed(-h, q0, x);
        return static_cast<std::int64_t>(static_cast<word>(lower) - (word{upper} << 32));
    }

    TENSAFE_HOST_DEVICE static constexpr word digits(std::int64_t x) noexcept {
        const auto x0 = static_cast<std::int64_t>(low(static_cast<word>(x)));
        return (static_cast<word>(x) - static_cast<word>(x0)) |
               static_cast<word>(static_cast<std::uint32_t>(x0));
    }
    /// x or x - q: one of the two low digits is at most 2^31 - (|q0| + 1) / 2 in size.
    TENSAFE_HOST_DEVICE static constexpr std::int64_t with_smaller_low_digit(word x) noexcept {
        const auto size = [](word y) {
            const auto digit = static_cast<std::int64_t>(low(y));
            return digit < 0 ? -digit : digit;
        };
        return static_cast<std::int64_t>(size(x) <= size(x - Q) ? x : x - Q);
    }

    static constexpr std::int32_t q0 = low(Q);
    static constexpr std::int32_t q1 = high(Q + (word{1} << 31));
    /// -1/q modulo 2^32, by Newton's iteration.
    static constexpr std::uint32_t minus_inverse = [] {
        auto q = static_cast<std::uint32_t>(Q);
        std::uint32_t x = q;
        for (int correct_bits = 3; correct_bits < 32; correct_bits *= 2) {
            x *= 2 - q * x;
        }
        return 0 - x;
    }();
    static constexpr auto ratio = static_cast<std::int32_t>((wide{1} << (bits + 30)) / Q);
};

}  // namespace tensafe::arith
