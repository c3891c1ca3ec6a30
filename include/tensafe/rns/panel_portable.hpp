#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/rns/limb_portable.hpp>
#include <tensafe/rns/panel_view.hpp>

#include <algorithm>
#include <cstddef>

namespace tensafe::rns::portable {

/// As rns::multiply_panel.
template <arith::modulus M>
void multiply_panel(arith::barrett<M> p, const panel_view& panel, const ciphertext_views& in,
                    const panel_results& out, block_range range) noexcept {
    using arith::word;
    const panel_shape shape = panel.shape;
    const std::size_t block = in.degree / out.blocks;
    for (std::size_t g = 0; g < shape.outputs; ++g) {
        std::fill(out.c0[g] + range.first, out.c0[g] + range.end, word{0});
        // Blocks may be shorter than eight coefficients.
        for (std::size_t k = range.first * block / panel_lanes * panel_lanes; k < range.end * block;
             k += panel_lanes) {
            for (std::size_t lane = 0; lane < panel_lanes; ++lane) {
                if (k + lane < range.first * block || k + lane >= range.end * block) {
                    continue;
                }
                const word* w = panel.words + shape.index(k + lane, 0, g);
                word sum0 = out.c0[g][(k + lane) / block];
                word sum1 = out.addend[g] == nullptr ? 0 : out.addend[g][k + lane];
                for (std::size_t first = 0; first < shape.inputs; first += limb::lazy_terms<M>) {
                    const std::size_t end = std::min(shape.inputs, first + limb::lazy_terms<M>);
                    arith::wide lazy0 = sum0;
                    arith::wide lazy1 = sum1;
                    for (std::size_t i = first; i < end; ++i, w += shape.outputs * panel_lanes) {
                        lazy0 += arith::mul_wide(in.c0[i][k + lane], *w);
                        lazy1 += arith::mul_wide(in.c1[i][k + lane], *w);
                    }
                    sum0 = p.reduce_fully(lazy0);
                    sum1 = p.reduce_fully(lazy1);
                }
                out.c0[g][(k + lane) / block] = sum0;
                out.c1[g][k + lane] = sum1;
            }
        }
    }
}

}  // namespace tensafe::rns::portable
