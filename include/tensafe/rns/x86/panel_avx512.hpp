#pragma once

#include <tensafe/arith/x86/narrow_avx512.hpp>
#include <tensafe/arith/x86/wide_avx512.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/panel_view.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#if defined(__CUDACC__)  // hands the pragma on to the host's compiler, but warns of it
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif

#if TENSAFE_X86_64

namespace tensafe::rns::avx512 {

namespace detail {

using arith::word;

/// Adds the eight lanes of each, in [0, q), to totals[g] in [0, q).
template <std::size_t Outputs, class Arithmetic>
TENSAFE_AVX512 TENSAFE_INLINE void flush(const Arithmetic& a, typename Arithmetic::sum (&sums)[Outputs],
                                         word q, word (&totals)[Outputs]) noexcept {
#pragma GCC unroll 4
    for (std::size_t g = 0; g < Outputs; ++g) {
        alignas(64) word lanes[panel_lanes];
        arith::avx512::store(lanes, a.reduce(sums[g]));
        sums[g] = Arithmetic::zero();
        for (const word x : lanes) {
            totals[g] = arith::subtract_if_not_below(totals[g] + x, q);
        }
    }
}

/// Outputs [first, first + Outputs) of a panel; inputs [begin, end), added to what is there unless begin is
/// 0.
template <std::size_t Outputs, class Arithmetic, arith::modulus M>
TENSAFE_AVX512 void multiply_outputs(M m, const panel_view& panel, const ciphertext_views& in,
                                     const panel_results& out, block_range range, std::size_t first,
                                     std::size_t begin, std::size_t end) noexcept {
    namespace simd = arith::avx512;
    const Arithmetic a(m);
    const word q = m.value();
    const std::size_t block = in.degree / out.blocks;
    const std::size_t step = panel.shape.outputs * panel_lanes;
    // Eight coefficients at a time, until as many products are added up as may be.
    const std::size_t at_once = std::max(Arithmetic::terms / (end - begin), std::size_t{1}) * panel_lanes;
    for (std::size_t b = range.first; b < range.end; ++b) {
        word totals[Outputs];
        for (std::size_t g = 0; g < Outputs; ++g) {
            totals[g] = begin == 0 ? 0 : out.c0[first + g][b];
        }
        for (std::size_t from = b * block; from < (b + 1) * block; from += at_once) {
            const std::size_t to = std::min(from + at_once, (b + 1) * block);
            typename Arithmetic::sum sums0[Outputs];
#pragma GCC unroll 4
            for (auto& sum : sums0) {
                sum = Arithmetic::zero();
            }
            for (std::size_t k = from; k < to; k += panel_lanes) {
                typename Arithmetic::sum sums1[Outputs];
#pragma GCC unroll 4
                for (std::size_t g = 0; g < Outputs; ++g) {
                    const word* const addend = begin == 0 ? out.addend[first + g] : out.c1[first + g];
                    sums1[g] = Arithmetic::zero();
                    if (addend != nullptr) {
                        Arithmetic::add_residue(sums1[g], simd::load(addend + k));
                    }
                }
                const word* w = panel.words + panel.shape.index(k, begin, first);
                for (std::size_t i = begin; i < end; ++i, w += step) {
                    const simd::vector c0 = simd::load(in.c0[i] + k);
                    const simd::vector c1 = simd::load(in.c1[i] + k);
#pragma GCC unroll 4
                    for (std::size_t g = 0; g < Outputs; ++g) {
                        const simd::vector weight = simd::load(w + g * panel_lanes);
                        Arithmetic::add_product(sums0[g], c0, weight);
                        Arithmetic::add_product(sums1[g], c1, weight);
                    }
                }
#pragma GCC unroll 4
                for (std::size_t g = 0; g < Outputs; ++g) {
                    simd::store(out.c1[first + g] + k, a.reduce(sums1[g]));
                }
            }
            flush(a, sums0, q, totals);
        }
        for (std::size_t g = 0; g < Outputs; ++g) {
            out.c0[first + g][b] = totals[g];
        }
    }
}

}  // namespace detail

/// As rns::multiply_panel.  @pre  blocks of c0 are multiples of 8 long
template <arith::modulus M>
TENSAFE_AVX512 void multiply_panel(M m, const panel_view& panel, const ciphertext_views& in,
                                   const panel_results& out, block_range range) noexcept {
    constexpr bool is_narrow = M::bits <= 50;
    using arithmetic = typename std::conditional_t<is_narrow, std::type_identity<arith::avx512::narrow<M>>,
                                                   std::type_identity<arith::avx512::wide<M>>>::type;
    // As many sums as the registers hold.
    constexpr std::size_t at_once = is_narrow ? 4 : 2;
    // One term of each sum is the addend.
    constexpr std::size_t inputs = arithmetic::terms - 1;
    for (std::size_t begin = 0; begin < panel.shape.inputs; begin += inputs) {
        const std::size_t end = std::min(panel.shape.inputs, begin + inputs);
        std::size_t first = 0;
        for (; first + at_once <= panel.shape.outputs; first += at_once) {
            detail::multiply_outputs<at_once, arithmetic>(m, panel, in, out, range, first, begin, end);
        }
        for (; first + 2 <= panel.shape.outputs; first += 2) {
            detail::multiply_outputs<2, arithmetic>(m, panel, in, out, range, first, begin, end);
        }
        if (first < panel.shape.outputs) {
            detail::multiply_outputs<1, arithmetic>(m, panel, in, out, range, first, begin, end);
        }
    }
}

}  // namespace tensafe::rns::avx512

#endif

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
