#pragma once

#include <tensafe/core/macros.hpp>

namespace tensafe::arith {

/// Bounds of signed residues are whole multiples of q / 256: fine enough for products that land within q/2
/// and a little more.
inline constexpr int bound_of_q = 256;

/// A residue of either sign, at most Bound * q / 256 in size, in the representation of a signed policy
/// (balanced, signed_montgomery). As with `below`, the bound is the caller's promise where a value enters and
/// the compiler's from there on.
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
