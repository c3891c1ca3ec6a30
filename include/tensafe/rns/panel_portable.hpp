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
    constexpr std::size_t most = limb::lazy_terms<M>;
    const panel_shape shape = panel.shape;
    const std::size_t block = in.degree / out.blocks;
    const std::size_t step = shape.outputs * panel_lanes;
    for (std::size_t g = 0; g < shape.outputs; ++g) {
        for (std::size_t b = range.first; b < range.end; ++b) {
            arith::wide total = 0;
            std::size_t terms = 0;  // in `total` since it was a residue
            for (std::size_t k = b * block; k < (b + 1) * block; ++k) {
                const word* w = panel.words + shape.index(k, 0, g);
                arith::wide sum = out.addend[g] == nullptr ? 0 : out.addend[g][k];
                for (std::size_t first = 0; first < shape.inputs; first += most) {
                    const std::size_t end = std::min(shape.inputs, first + most);
                    if (terms + (end - first) > most) {
                        total = p.reduce_fully(total);
                        terms = 0;
                    }
                    terms += end - first;
                    if (first != 0) {
                        sum = p.reduce_fully(sum);
                    }
                    for (std::size_t i = first; i < end; ++i, w += step) {
                        total += arith::mul_wide(in.c0[i][k], *w);
                        sum += arith::mul_wide(in.c1[i][k], *w);
                    }
                }
                out.c1[g][k] = p.reduce_fully(sum);
            }
            out.c0[g][b] = p.reduce_fully(total);
        }
    }
}

}  // namespace tensafe::rns::portable
