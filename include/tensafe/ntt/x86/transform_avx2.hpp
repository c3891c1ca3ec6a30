#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/x86/fp64_avx2.hpp>
#include <tensafe/ntt/x86/montgomery32_avx2.hpp>
#include <tensafe/ntt/x86/passes_avx2.hpp>

#if TENSAFE_X86_64

#include <type_traits>

namespace tensafe::ntt::avx2 {

namespace detail {

template <int Bits>
using lanes_for =
    std::conditional_t<(Bits <= fp64::max_bits), fp64_lanes<Bits>, montgomery32_lanes<(Bits > 60)>>;

}  // namespace detail

/// The tables for primes of at most `Bits` bits.
template <int Bits>
using tables_for = typename detail::lanes_for<Bits>::tables_type;

/// Forward negacyclic NTT of one limb, in place; no allocation. Costs N/2 * log2(N) butterflies, eight
/// instructions for four of them below 2^50 and eighteen or more above. Thread-safe for distinct limbs.
/// @pre  N words in natural order, each in [0, q), q of at most Bits bits
/// @post bit-reversed order, each in [0, q)
template <int Bits>
TENSAFE_AVX2 void forward(const tables_for<Bits>& t, arith::word* limb) noexcept {
    passes<detail::lanes_for<Bits>>::forward(t, limb);
}

/// Inverse negacyclic NTT of one limb, in place; no allocation. 1/N is folded into the last pass.
/// @pre  N words in bit-reversed order, each in [0, q), q of at most Bits bits
/// @post natural order, each in [0, q)
template <int Bits>
TENSAFE_AVX2 void inverse(const tables_for<Bits>& t, arith::word* limb) noexcept {
    passes<detail::lanes_for<Bits>>::inverse(t, limb);
}

}  // namespace tensafe::ntt::avx2

#endif
