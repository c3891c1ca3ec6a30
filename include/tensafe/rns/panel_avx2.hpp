#pragma once

#include <tensafe/arith/narrow_avx2.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/panel_view.hpp>

#include <algorithm>
#include <cstddef>

namespace tensafe::rns::avx2 {

/// Wider primes are for portable code: without 64-bit products vectors do not win.
inline constexpr int most_panel_bits = 50;

#if TENSAFE_X86_64

namespace detail {

using arith::word;

/// One output of a panel, four coefficients at a time.
template <arith::modulus M>
TENSAFE_AVX2 void multiply_output(M m, const panel_view& panel, const ciphertext_views& in,
                                  const panel_results& out, block_range range, std::size_t g) noexcept {
    namespace simd = arith::avx2;
    using arithmetic = simd::narrow<M>;
    constexpr std::size_t lanes = 4;
    const arithmetic a(m);
    const word q = m.value();
    const std::size_t block = in.degree / out.blocks;
    const std::size_t step = panel.shape.outputs * panel_lanes;
    for (std::size_t b = range.first; b < range.end; ++b) {
        word total = 0;
        for (std::size_t k = b * block; k < (b + 1) * block; k += lanes) {
            simd::reals sum0 = _mm256_setzero_pd();
            simd::reals sum1 =
                out.addend[g] == nullptr ? _mm256_setzero_pd() : arithmetic::load(out.addend[g] + k);
            const word* w = panel.words + panel.shape.index(k, 0, g);
            for (std::size_t first = 0; first < panel.shape.inputs; first += arithmetic::terms) {
                const std::size_t end = std::min(panel.shape.inputs, first + arithmetic::terms);
                for (std::size_t i = first; i < end; ++i, w += step) {
                    const simd::reals weight = arithmetic::load(w);
                    sum0 = _mm256_add_pd(sum0, a.multiply(arithmetic::load(in.c0[i] + k), weight));
                    sum1 = _mm256_add_pd(sum1, a.multiply(arithmetic::load(in.c1[i] + k), weight));
                }
                sum0 = a.reduce(sum0);
                sum1 = a.reduce(sum1);
            }
            simd::store(out.c1[g] + k, a.to_words(sum1));
            alignas(32) word sums[lanes];
            simd::store(sums, a.to_words(sum0));
            for (const word x : sums) {
                total = arith::subtract_if_not_below(total + x, q);
            }
        }
        out.c0[g][b] = total;
    }
}

}  // namespace detail

/// As rns::multiply_panel.  @pre  blocks of c0 are multiples of 8 long
template <arith::modulus M>
TENSAFE_AVX2 void multiply_panel(M m, const panel_view& panel, const ciphertext_views& in,
                                 const panel_results& out, block_range range) noexcept {
    for (std::size_t g = 0; g < panel.shape.outputs; ++g) {
        detail::multiply_output(m, panel, in, out, range, g);
    }
}

#endif

}  // namespace tensafe::rns::avx2
