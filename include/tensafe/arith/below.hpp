#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/word.hpp>

#include <concepts>
#include <cstdint>

namespace tensafe::arith {

/// The largest K such that K * q is exact in `Representation` for every modulus of type `Modulus`:
/// 2^64 - 1 for words; 2^52 for doubles, which keeps the floating-point quotient within one of the true one.
template <modulus Modulus, class Representation>
inline constexpr unsigned largest_multiple = [] {
    constexpr word limit = std::same_as<Representation, word> ? ~word{0} : word{1} << 52;
    constexpr word multiple = limit / Modulus::largest;
    return multiple > (1U << 30) ? (1U << 30) : static_cast<unsigned>(multiple);
}();

/// A value in [0, K*q), in a word or exactly in a double. Widening K is implicit; narrowing is `reduce<To>`.
/// The bound is the caller's promise where a value enters and the compiler's from there on.
template <unsigned K, modulus Modulus, class Representation = word>
struct below {
    static_assert(K >= 1 && K <= largest_multiple<Modulus, Representation>,
                  "below<K>: K*q may pass the word; call reduce<To>() on an operand first");

    Representation value;

    template <unsigned Wider>
    requires(Wider > K) TENSAFE_HOST_DEVICE constexpr operator below<Wider, Modulus, Representation>()
        const noexcept {
        return {value};
    }
};

/// Returns a + b, not reduced: in [0, (A+B)*q).
template <unsigned A, unsigned B, class Modulus, class Representation>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<A + B, Modulus, Representation> operator+(
    below<A, Modulus, Representation> a, below<B, Modulus, Representation> b) noexcept {
    return {a.value + b.value};
}

/// Returns a - b modulo q, made non-negative by adding B*q: in [0, (A+B)*q).
template <unsigned A, unsigned B, class Modulus, class Representation>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<A + B, Modulus, Representation> subtract(
    const Modulus& m, below<A, Modulus, Representation> a, below<B, Modulus, Representation> b) noexcept {
    return {a.value + (static_cast<Representation>(B * m.value()) - b.value)};
}

/// Brings x into [0, To*q) modulo q, by conditional subtractions without branches; none if K <= To.
template <unsigned To, unsigned K, class Modulus, class Representation>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr below<To, Modulus, Representation> reduce(
    const Modulus& m, below<K, Modulus, Representation> x) noexcept {
    if constexpr (K <= To) {
        return {x.value};
    } else {
        // Subtracting c*q where it fits leaves a value below max(c, K - c) * q.
        constexpr unsigned c = K <= 2 * To ? To : (K + 1) / 2;
        const auto multiple = static_cast<Representation>(c * m.value());
        if constexpr (std::same_as<Representation, word>) {
            return reduce<To>(m, below<c, Modulus, word>{subtract_if_not_below(x.value, multiple)});
        } else {
            // By the sign bit: compilers make a branch of a comparison and of a masked select.
            const double difference = x.value - multiple;
            const auto negative = static_cast<std::int64_t>(__builtin_bit_cast(word, difference) >> 63);
            return reduce<To>(
                m, below<c, Modulus, double>{difference + static_cast<double>(negative) * multiple});
        }
    }
}

/// Bounds of signed residues are whole multiples of q / 256: fine enough for products that land within q/2
/// and a little more.
inline constexpr int bound_of_q = 256;

/// A residue of either sign, at most Bound * q / 256 in size, in the representation of a signed policy
/// (balanced, signed_montgomery); otherwise like `below`.
template <class Policy, int Bound>
struct within {
    static_assert(Bound >= 1 && Bound <= Policy::limit,
                  "within<Bound>: the value may pass the representation; reduce an operand first");

    typename Policy::representation value;
};

template <class Policy, int A, int B>
TENSAFE_HOST_DEVICE TENSAFE_INLINE within<Policy, A + B> operator+(within<Policy, A> a,
                                                                   within<Policy, B> b) noexcept {
    return {a.value + b.value};
}

template <class Policy, int A, int B>
TENSAFE_HOST_DEVICE TENSAFE_INLINE within<Policy, A + B> operator-(within<Policy, A> a,
                                                                   within<Policy, B> b) noexcept {
    return {a.value - b.value};
}

}  // namespace tensafe::arith
