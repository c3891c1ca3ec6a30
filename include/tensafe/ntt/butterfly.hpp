#pragma once

#include <tensafe/arith/policy.hpp>

namespace tensafe::ntt {

/// A residue of the policy's modulus in the policy's representation, below K*q.
template <class Policy, unsigned K>
using residue = arith::below<K, typename Policy::modulus_type, typename Policy::representation>;

template <class Policy, unsigned K, unsigned L = K>
struct residue_pair {
    residue<Policy, K> first;
    residue<Policy, L> second;
};

/// The bound to which a lazy operand of bound K must be reduced so that adding `Headroom` fits, at most K.
template <class Policy, unsigned K, unsigned Headroom>
inline constexpr unsigned bound_before_adding =
    K + Headroom <= Policy::max_multiple ? K : Policy::max_multiple - Headroom;

/// Decimation in time (Cooley-Tukey): (x + w*y, x - w*y). Only x may need a reduction, and only when the
/// bound of the result would pass the representation: the compiler decides, from the types.
template <class Policy, unsigned K, unsigned L>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr auto forward_butterfly(const Policy& policy,
                                                                    residue<Policy, K> x,
                                                                    residue<Policy, L> y,
                                                                    typename Policy::factor w) noexcept {
    constexpr unsigned bound = bound_before_adding<Policy, K, Policy::product_bound>;
    const auto reduced = arith::reduce<bound>(policy.modulus(), x);
    const auto product = policy.multiply(y, w);
    return residue_pair<Policy, bound + Policy::product_bound>{
        reduced + product, arith::subtract(policy.modulus(), reduced, product)};
}

/// Decimation in frequency (Gentleman-Sande): (x + y, (x - y) * w), the sum left lazy. The operands are
/// reduced only when their sum would pass the representation.
template <class Policy, unsigned K>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr auto inverse_butterfly(const Policy& policy,
                                                                    residue<Policy, K> x,
                                                                    residue<Policy, K> y,
                                                                    typename Policy::factor w) noexcept {
    constexpr unsigned bound = 2 * K <= Policy::max_multiple ? K : Policy::max_multiple / 2;
    const auto reduced_x = arith::reduce<bound>(policy.modulus(), x);
    const auto reduced_y = arith::reduce<bound>(policy.modulus(), y);
    return residue_pair<Policy, 2 * bound, Policy::product_bound>{
        reduced_x + reduced_y, policy.multiply(arith::subtract(policy.modulus(), reduced_x, reduced_y), w)};
}

}  // namespace tensafe::ntt
