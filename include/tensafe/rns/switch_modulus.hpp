#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/rns/poly.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tensafe::rns {

namespace detail {

/// floor(2^128 * w / q) for w in [0, q): w/q as a fraction of 128 bits.
struct fraction {
    arith::word high;
    arith::word low;
};
constexpr fraction fraction_of(arith::word w, arith::word q) noexcept {
    const arith::wide first = static_cast<arith::wide>(w) << 64;
    const arith::wide second = (first % q) << 64;
    return {arith::low_word(first / q), arith::low_word(second / q)};
}

/// Limb I's share of p/Q modulo 1, for a residue of 1: (Q/q_I)^-1 modulo q_I, over q_I.
template <class Basis, int I>
inline constexpr fraction modulus_share = [] {
    constexpr arith::word q = Basis::template prime<I>;
    arith::word others = 1;
    for (int j = 0; j < Basis::limbs; ++j) {
        if (j != I) {
            others = arith::multiply_mod(others, Basis::primes[static_cast<std::size_t>(j)] % q, q);
        }
    }
    return fraction_of(arith::inverse_mod(others, q), q);
}();

}  // namespace detail

/// round(2^bits * p_k / Q) modulo 2^bits for the coefficients p_k with the given residues: the same message
/// for a receiver who works modulo a power of two. out[k] is an integer in [0, 2^bits) whose distance to
/// 2^bits * p_k / Q, modulo 2^bits, is below 1/2 + limbs * 2^(bits-63).
///
/// p/Q modulo 1 is a sum of one fraction per limb; each is computed to 64 bits, and the sum wraps where it
/// should. Two word products per residue, no division, no branch or index on data; docs/design/rns.md has the
/// proof. No allocation. Thread-safe.
/// @param residues  residues[i][k] is p_k modulo q_i, in [0, q_i)
/// @throws parameter_error unless bits is in [1, 32]
/// @throws shape_error unless each span of residues has out.size() words
template <class Basis>
void switch_modulus(
    exec::host,
    const std::array<std::span<const arith::word>, static_cast<std::size_t>(Basis::limbs)>& residues,
    int bits, std::span<std::uint32_t> out) {
    if (bits < 1 || bits > 32) {
        throw parameter_error("switch_modulus: bits: got " + std::to_string(bits) + ", wanted 1 to 32");
    }
    for (const auto& limb : residues) {
        if (limb.size() != out.size()) {
            throw shape_error("switch_modulus: got " + std::to_string(limb.size()) +
                              " residues of a limb, wanted " + std::to_string(out.size()));
        }
    }
    const int dropped = 64 - bits;
    const arith::word half = arith::word{1} << (dropped - 1);
    for (std::size_t k = 0; k < out.size(); ++k) {
        arith::word sum = half;
        for_each_limb<Basis>([&]<int I>() {
            constexpr detail::fraction share = detail::modulus_share<Basis, I>;
            const arith::word p = residues[static_cast<std::size_t>(I)][k];
            sum += p * share.high + arith::mul_hi(p, share.low);
        });
        out[k] = static_cast<std::uint32_t>(sum >> dropped);
    }
}

/// The same for every coefficient of a polynomial.
/// @throws parameter_error unless bits is in [1, 32]
/// @throws shape_error unless out has N entries
template <class Basis, class R>
void switch_modulus(exec::host where, const poly<Basis, coefficient_form, memory::host_space, R>& p, int bits,
                    std::span<std::uint32_t> out) {
    if (out.size() != Basis::degree) {
        throw shape_error("switch_modulus: got " + std::to_string(out.size()) +
                          " entries for the result, wanted " + std::to_string(Basis::degree));
    }
    std::array<std::span<const arith::word>, static_cast<std::size_t>(Basis::limbs)> residues;
    for_each_limb<Basis>([&]<int I>() { residues[I] = p.template limb<I>(); });
    switch_modulus<Basis>(where, residues, bits, out);
}
template <class Basis, class R>
void switch_modulus(  // rounding is of coefficients: call inverse() first
    exec::host, const poly<Basis, evaluation_form, memory::host_space, R>&, int,
    std::span<std::uint32_t>) = delete;

}  // namespace tensafe::rns
