#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/x86/narrow_avx2.hpp>
#include <tensafe/ntt/x86/passes_avx2.hpp>
#include <tensafe/ntt/x86/wide_avx2.hpp>

#if TENSAFE_X86_64

namespace tensafe::ntt::avx2 {

/// Forward negacyclic NTT of one limb, in place; no allocation. Costs N/2 * log2(N) butterflies, eight
/// instructions for four of them below 2^50 and eighteen or more above. Thread-safe for distinct limbs.
/// @pre  N words in natural order, each in [0, q)
/// @post bit-reversed order, each in [0, q)
TENSAFE_AVX2 inline void forward(const narrow_tables& t, arith::word* limb) noexcept {
    passes<narrow_lanes>::forward(t, limb);
}
TENSAFE_AVX2 inline void forward(const wide_tables& t, arith::word* limb) noexcept {
    t.bounds().tight() ? passes<wide_lanes<true>>::forward(t, limb)
                       : passes<wide_lanes<false>>::forward(t, limb);
}

/// Inverse negacyclic NTT of one limb, in place; no allocation. 1/N is trace into the last pass.
/// @pre  N words in bit-reversed order, each in [0, q)
/// @post natural order, each in [0, q)
TENSAFE_AVX2 inline void inverse(const narrow_tables& t, arith::word* limb) noexcept {
    passes<narrow_lanes>::inverse(t, limb);
}
TENSAFE_AVX2 inline void inverse(const wide_tables& t, arith::word* limb) noexcept {
    t.bounds().tight() ? passes<wide_lanes<true>>::inverse(t, limb)
                       : passes<wide_lanes<false>>::inverse(t, limb);
}

}  // namespace tensafe::ntt::avx2

#endif
