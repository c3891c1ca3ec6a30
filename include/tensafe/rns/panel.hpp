#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/rns/panel_loops.hpp>
#include <tensafe/rns/panel_view.hpp>
#include <tensafe/simd/dispatch.hpp>

#include <algorithm>
#include <cstddef>
#include <span>

namespace tensafe::rns {

/// Puts one limb of a plaintext in its place in a panel's words: shape.words(limb.size()) of them.
/// @pre  input < shape.inputs, output < shape.outputs, limb.size() is a multiple of 8
inline void fill_panel(panel_shape shape, std::span<const arith::word> limb, std::size_t input,
                       std::size_t output, std::span<arith::word> panel) noexcept {
    TENSAFE_PRECONDITION(panel.size() == shape.words(limb.size()));
    for (std::size_t k = 0; k < limb.size(); k += panel_lanes) {
        std::copy_n(limb.data() + k, panel_lanes, panel.data() + shape.index(k, input, output));
    }
}

/// Multiplies a panel with ciphertexts, one limb of everything: for each output g of the panel
///
///     c1[g][k] = addend[g][k] + sum over inputs i of w[g][i][k] * c1_i[k]
///     c0[g][b] = sum over block b of k, and over i, of w[g][i][k] * c0_i[k]
///
/// modulo q, all values in [0, q). Every weight is read once, in the order in which it is stored, which is
/// what counts: large matrices come from memory. No allocation; no branch or index depends on a value.
/// Only the given blocks are computed.
/// @pre  N is a multiple of 8 and of the number of blocks
template <arith::modulus M>
void multiply_panel(arith::barrett<M> p, const panel_view& panel, const ciphertext_views& in,
                    const panel_results& out, block_range range) noexcept {
    TENSAFE_PRECONDITION(panel.shape.inputs >= 1 && panel.shape.outputs >= 1 &&
                         panel.shape.outputs <= panel_outputs);
    simd::on_active_target([&](auto target) {
        using vectors = decltype(target);
        // Blocks that are not whole vectors are summed one residue at a time.
        if (in.degree / out.blocks % panel_lanes == 0) {
            vectors::template kernel<&detail::multiply_panel<vectors, M>>(p, panel, in, out, range);
        } else {
            detail::multiply_panel<simd::scalar>(p, panel, in, out, range);
        }
    });
}

}  // namespace tensafe::rns
