#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/switch_modulus_share.hpp>

#include <cstdint>

namespace tensafe::rns {

namespace detail {

/// The sum of the shares of limbs I and up.
template <class Basis, int I = 0>
TENSAFE_HOST_DEVICE TENSAFE_INLINE arith::word shares_of(
    const arith::word (&residues)[Basis::limbs]) noexcept {
    if constexpr (I + 1 < Basis::limbs) {
        return share_of<Basis, I>(residues[I]) + shares_of<Basis, I + 1>(residues);
    } else {
        return share_of<Basis, I>(residues[I]);
    }
}

}  // namespace detail

/// A sum of shares as an integer of [0, 2^bits): the last step of switch_modulus, which rounds.
/// @pre  bits in [1, 32]
TENSAFE_HOST_DEVICE TENSAFE_INLINE std::uint32_t round_shares(arith::word shares,
                                                              std::uint32_t bits) noexcept {
    const std::uint32_t dropped = 64 - bits;
    return static_cast<std::uint32_t>((shares + (arith::word{1} << (dropped - 1))) >> dropped);
}

/// rns::switch_modulus of one coefficient, for kernels: round(2^bits * p / Q) modulo 2^bits, the same
/// integer. Two word products for each limb; no branch on the residues.
/// @param residues  of p, limb after limb, in [0, q_i);  @pre  bits in [1, 32]
template <class Basis>
TENSAFE_HOST_DEVICE TENSAFE_INLINE std::uint32_t switched_to(const arith::word (&residues)[Basis::limbs],
                                                             std::uint32_t bits) noexcept {
    return round_shares(detail::shares_of<Basis>(residues), bits);
}

}  // namespace tensafe::rns
