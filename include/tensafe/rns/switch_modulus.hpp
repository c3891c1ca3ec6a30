#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/rns/switch_modulus_share.hpp>
#include <tensafe/rns/x86/switch_modulus_avx512.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tensafe::rns {

/// Switches coefficients p_k to a power of two: out[k] = round(2^bits * p_k / Q) modulo 2^bits; they hold the
/// same message modulo a power of two. The distance to 2^bits * p_k / Q, modulo 2^bits, is below 1/2 +
/// limbs * 2^(bits-53), and 1/2 + limbs * 2^(bits-63) if all primes are below 2^52: docs/design/rns.md.
///
/// p/Q modulo 1 is a sum of one fraction per limb, computed in units of 2^-64. Two word products per residue,
/// no branch or index on data. No allocation. Thread-safe.
/// @throws parameter_error unless bits is in [1, 32]
/// @throws shape_error unless each span of residues has out.size() words
template <class Basis>
void switch_modulus(const residue_spans<Basis>& residues, int bits, std::span<std::uint32_t> out) {
    if (bits < 1 || bits > 32) {
        throw parameter_error("switch_modulus: bits: got " + std::to_string(bits) + ", expected 1 to 32");
    }
    for (const auto& limb : residues) {
        check_count("switch_modulus: got ", limb.size(), " residues of a limb, expected ", out.size());
    }
    std::size_t whole = 0;
#if TENSAFE_X86_64
    // AVX2 has no product of 64 bits: the portable loop is as fast as one made of 32-bit products.
    if (exec::active_backend() == exec::backend::avx512) {
        whole = detail::switch_modulus_avx512<Basis>::run(residues, bits, out);
    }
#endif
    const int dropped = 64 - bits;
    const arith::word half = arith::word{1} << (dropped - 1);
    for (std::size_t k = whole; k < out.size(); ++k) {
        arith::word sum = half;
        for_each_limb<Basis>(
            [&]<int I>() { sum += detail::share_of<Basis, I>(residues[static_cast<std::size_t>(I)][k]); });
        out[k] = static_cast<std::uint32_t>(sum >> dropped);
    }
}

/// Switches every coefficient of a polynomial to the modulus 2^bits.
/// @throws parameter_error unless bits is in [1, 32]
/// @throws shape_error unless out has N entries
template <class Basis, class R>
void switch_modulus(const poly<Basis, coefficient_form, memory::host_space, R>& p, int bits,
                    std::span<std::uint32_t> out) {
    check_count("switch_modulus: got ", out.size(), " entries for the result, expected ", Basis::degree);
    residue_spans<Basis> residues;
    for_each_limb<Basis>([&]<int I>() { residues[I] = p.template limb<I>(); });
    switch_modulus<Basis>(residues, bits, out);
}
template <class Basis, class R>
void switch_modulus(  // rounding is of coefficients: call inverse() first
    const poly<Basis, evaluation_form, memory::host_space, R>&, int, std::span<std::uint32_t>) = delete;

}  // namespace tensafe::rns
