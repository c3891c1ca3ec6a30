#pragma once

#include <tensafe/arith/x86/narrow_avx2.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/panel_view.hpp>

#include <algorithm>
#include <cstddef>

#if defined(__CUDACC__)  // hands the pragma on to the host's compiler, but warns of it
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif

namespace tensafe::rns::avx2 {

/// Wider primes are for portable code: without 64-bit products vectors do not win.
inline constexpr int most_panel_bits = 50;

#if TENSAFE_X86_64

namespace detail {

using arith::word;

/// Outputs [g, g + Outputs) of a panel, four coefficients at a time.
template <std::size_t Outputs, arith::modulus M>
TENSAFE_AVX2 void multiply_outputs(M m, const panel_view& panel, const ciphertext_views& in,
                                   const panel_results& out, block_range range, std::size_t g) noexcept {
    namespace simd = arith::avx2;
    using arithmetic = simd::narrow<M>;
    constexpr std::size_t lanes = 4;
    const arithmetic a(m);
    const word q = m.value();
    const std::size_t block = in.degree / out.blocks;
    const std::size_t step = panel.shape.outputs * panel_lanes;
    for (std::size_t b = range.first; b < range.end; ++b) {
        simd::reals totals[Outputs];
#pragma GCC unroll 4
        for (auto& total : totals) {
            total = _mm256_setzero_pd();
        }
        for (std::size_t k = b * block; k < (b + 1) * block; k += lanes) {
            simd::reals sums0[Outputs];
            simd::reals sums1[Outputs];
#pragma GCC unroll 4
            for (std::size_t o = 0; o < Outputs; ++o) {
                const word* const addend = out.addend[g + o];
                sums0[o] = totals[o];
                sums1[o] = addend == nullptr ? _mm256_setzero_pd() : arithmetic::load(addend + k);
            }
            const word* w = panel.words + panel.shape.index(k, 0, g);
            for (std::size_t first = 0; first < panel.shape.inputs; first += arithmetic::terms) {
                const std::size_t end = std::min(panel.shape.inputs, first + arithmetic::terms);
                for (std::size_t i = first; i < end; ++i, w += step) {
                    const simd::reals c0 = arithmetic::load(in.c0[i] + k);
                    const simd::reals c1 = arithmetic::load(in.c1[i] + k);
#pragma GCC unroll 4
                    for (std::size_t o = 0; o < Outputs; ++o) {
                        const simd::reals weight = arithmetic::load(w + o * panel_lanes);
                        sums0[o] = _mm256_add_pd(sums0[o], a.multiply(c0, weight));
                        sums1[o] = _mm256_add_pd(sums1[o], a.multiply(c1, weight));
                    }
                }
#pragma GCC unroll 4
                for (std::size_t o = 0; o < Outputs; ++o) {
                    sums0[o] = a.reduce(sums0[o]);
                    sums1[o] = a.reduce(sums1[o]);
                }
            }
#pragma GCC unroll 4
            for (std::size_t o = 0; o < Outputs; ++o) {
                totals[o] = sums0[o];
                simd::store(out.c1[g + o] + k, a.to_words(sums1[o]));
            }
        }
        for (std::size_t o = 0; o < Outputs; ++o) {
            alignas(32) word sums[lanes];
            simd::store(sums, a.to_words(totals[o]));
            word total = 0;
            for (const word x : sums) {
                total = arith::subtract_if_not_below(total + x, q);
            }
            out.c0[g + o][b] = total;
        }
    }
}

}  // namespace detail

/// As rns::multiply_panel.  @pre  blocks of c0 are multiples of 8 long
template <arith::modulus M>
TENSAFE_AVX2 void multiply_panel(M m, const panel_view& panel, const ciphertext_views& in,
                                 const panel_results& out, block_range range) noexcept {
    std::size_t g = 0;
    for (; g + 2 <= panel.shape.outputs; g += 2) {
        detail::multiply_outputs<2>(m, panel, in, out, range, g);
    }
    if (g < panel.shape.outputs) {
        detail::multiply_outputs<1>(m, panel, in, out, range, g);
    }
}

#endif

}  // namespace tensafe::rns::avx2

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
