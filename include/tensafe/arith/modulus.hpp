#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>

#include <bit>
#include <concepts>
#include <string>

namespace tensafe::arith {

/// Widest modulus of the integer policies: eight times it still fits a word.
inline constexpr int max_modulus_bits = 61;

/// A modulus that is part of the type: constants become immediates. An empty class.
template <word Q>
struct fixed_modulus {
    static_assert(Q % 2 == 1 && Q >= 3, "fixed_modulus: the modulus must be odd and at least 3");
    static_assert(std::bit_width(Q) <= max_modulus_bits, "fixed_modulus: the modulus must be below 2^61");

    static constexpr int bits = std::bit_width(Q);
    static constexpr int least_bits = bits;
    static constexpr word largest = Q;  ///< no modulus of this type is larger

    TENSAFE_HOST_DEVICE static constexpr word value() noexcept { return Q; }
};

/// A modulus of `LeastBits` to `Bits` bits known at run time: all primes of these widths share their code,
/// and the compiler still checks the bounds that depend on the width alone.
template <int Bits, int LeastBits = Bits>
class runtime_modulus {
    static_assert(LeastBits >= 2 && LeastBits <= Bits && Bits <= max_modulus_bits,
                  "runtime_modulus: the width must be in [2, 61] bits");

  public:
    static constexpr int bits = Bits;
    static constexpr int least_bits = LeastBits;
    static constexpr word largest = (word{1} << Bits) - 1;

    /// Makes a modulus.  @throws parameter_error unless q is odd and of LeastBits to Bits bits
    constexpr explicit runtime_modulus(word q) : value_(q) {
        if (std::bit_width(q) < LeastBits || std::bit_width(q) > Bits || q % 2 == 0) {
            throw parameter_error("runtime_modulus: got " + std::to_string(q) +
                                  ", expected an odd modulus of " + std::to_string(LeastBits) + " to " +
                                  std::to_string(Bits) + " bits");
        }
    }

    TENSAFE_HOST_DEVICE constexpr word value() const noexcept { return value_; }

  private:
    word value_;
};

namespace detail {
constexpr int class_end(int bits) noexcept {
    // Classes end where arithmetic changes: words reduced by doubles (from 16 bits on), AVX-512 transforms
    // that reduce nothing (to 45) or work modulo 2^52 (to 49). 35 and 47 keep lazy sums long, which have room
    // for 2^(63 + least_bits - 2 * bits) products: too little above 50 bits, where each width is for itself.
    for (const int end : {15, 35, 45, 47, 49}) {
        if (bits <= end) {
            return end;
        }
    }
    return bits;
}
constexpr int class_begin(int bits) noexcept {
    int begin = bits;
    while (begin > 2 && class_end(begin - 1) == class_end(bits)) {
        --begin;
    }
    return begin;
}
}  // namespace detail

/// The run-time modulus for primes of `Bits` bits, one type for each class of widths that share their code.
template <int Bits>
using modulus_class = runtime_modulus<detail::class_end(Bits), detail::class_begin(Bits)>;

/// A modulus as the arithmetic needs it: its width is in the type, and value() gives it.
template <class M>
concept modulus = requires(const M m) {
    { M::bits } -> std::convertible_to<int>;
    { M::least_bits } -> std::convertible_to<int>;
    { M::largest } -> std::convertible_to<word>;
    { m.value() }
    noexcept->std::same_as<word>;
};

static_assert(modulus<fixed_modulus<17>>);
static_assert(modulus<runtime_modulus<60>>);

}  // namespace tensafe::arith
