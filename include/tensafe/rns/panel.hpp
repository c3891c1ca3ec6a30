#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/rns/limb_loops.hpp>
#include <tensafe/simd/dispatch.hpp>
#include <tensafe/simd/transpose.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace tensafe::rns {

/// The numbers of outputs that are computed together, and of neighbouring coefficients that stand together.
inline constexpr std::size_t panel_outputs = 4;
inline constexpr std::size_t panel_lanes = 8;

/// Bytes of a weight: large matrices are read from memory, where six take three quarters of the time.
template <arith::modulus M>
inline constexpr std::size_t weight_bytes = M::bits <= 48 ? 6 : 8;

/// The shape of weights of a few outputs, packed as matrix products pack them: eight coefficients of each
/// output, input by input, then the next eight coefficients.
struct panel_shape {
    std::size_t inputs = 0;   ///< at least 1
    std::size_t outputs = 0;  ///< 1 to panel_outputs

    /// The bytes of one limb, with what vectors of the last weights read beyond them.
    template <arith::modulus M>
    constexpr std::size_t bytes(std::size_t degree) const noexcept {
        return (degree * inputs * outputs + panel_lanes) * weight_bytes<M>;
    }
    /// The place of coefficient k of a weight; k + 1 stands next to it unless it is a multiple of 8.
    constexpr std::size_t index(std::size_t k, std::size_t input, std::size_t output) const noexcept {
        return (k / panel_lanes * inputs + input) * outputs * panel_lanes + output * panel_lanes +
               k % panel_lanes;
    }
};

/// One limb of a panel.
struct panel_view {
    panel_shape shape;
    const std::uint8_t* weights = nullptr;
};

/// One limb of the ciphertexts that a panel is multiplied with: for each input the words of both halves.
struct ciphertext_views {
    std::size_t degree = 0;
    const arith::word* const* c0 = nullptr;
    const arith::word* const* c1 = nullptr;
};

/// One limb of the results of a product with a panel, for each of its outputs.
struct panel_results {
    std::size_t blocks = 0;                                  ///< the number of blocks of c0
    std::array<arith::word*, panel_outputs> c0{};            ///< `blocks` words each
    std::array<arith::word*, panel_outputs> c1{};            ///< N words each
    std::array<const arith::word*, panel_outputs> addend{};  ///< N words each, or null for 0
    /// N words each, or null for 0: weights of one ciphertext more, which is not the panel's.
    std::array<const arith::word*, panel_outputs> factor{};
    std::array<const arith::word*, 2> of_factors{};  ///< both halves of that ciphertext, or null
};

/// Blocks [first, end) of coefficients, which are computed at once so that their weights stay in cache.
struct block_range {
    std::size_t first = 0;
    std::size_t end = 0;
};

// The loops of multiply_panel: bodies of kernels over the arithmetic of a target.
namespace detail {

using arith::word;

template <class Arithmetic>
TENSAFE_INLINE void add_products(const Arithmetic& mod, typename Arithmetic::sum& s0,
                                 typename Arithmetic::sum& s1, const typename Arithmetic::operand& c0,
                                 const typename Arithmetic::operand& c1,
                                 const typename Arithmetic::operand& weight) noexcept {
    mod.add_product(s0, c0, weight);
    mod.add_product(s1, c1, weight);
}

/// The bytes ahead of their use at which weights and ciphertexts are called into cache: the processor alone
/// follows fewer rows than there are inputs.
inline constexpr std::size_t weights_ahead = 3072;
inline constexpr std::size_t ciphertexts_ahead = 256;
TENSAFE_INLINE void prefetch(const void* from, std::size_t ahead) noexcept {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) + ahead));
}

template <class Target, class Arithmetic, arith::modulus M>
TENSAFE_INLINE typename Arithmetic::operand load_weights(const Arithmetic& mod, arith::barrett<M>,
                                                         const std::uint8_t* from) noexcept {
    if constexpr (weight_bytes<M> == 6) {
        return mod.as_operand(Target::load_48_bits(from));
    } else {
        return arith::load_operand(mod, reinterpret_cast<const word*>(from));
    }
}

/// Computes outputs first, first + 1, ... of a panel, one for each g: sums that stay in registers.
template <class Target, class Arithmetic, arith::modulus M, std::size_t... g>
TENSAFE_INLINE void multiply_outputs(const Arithmetic& mod, arith::barrett<M> p, const panel_view& panel,
                                     const ciphertext_views& in, const panel_results& out, block_range range,
                                     std::size_t first, std::index_sequence<g...>) noexcept {
    using arith::load_operand;
    constexpr std::size_t width = Arithmetic::words::width;
    static_assert(Arithmetic::terms >= 2, "multiply_panel: a sum has no room for a factor beside an input");
    const std::size_t inputs = panel.shape.inputs;
    const std::size_t block = in.degree / out.blocks;
    constexpr std::size_t group = panel_lanes * weight_bytes<M>;
    const std::size_t step = panel.shape.outputs * group;
    for (std::size_t b = range.first; b < range.end; ++b) {
        typename Arithmetic::sum sums0[] = {(static_cast<void>(g), mod.zero())...};
        std::size_t room = mod.terms;  // of sums0
        for (std::size_t k = b * block; k < (b + 1) * block; k += width) {
            typename Arithmetic::sum sums1[] = {(static_cast<void>(g), mod.zero())...};
            ((out.addend[first + g] == nullptr
                  ? static_cast<void>(0)
                  : mod.add_residue(sums1[g], load_operand(mod, out.addend[first + g] + k))),
             ...);
            const std::uint8_t* w = panel.weights + panel.shape.index(k, 0, first) * weight_bytes<M>;
            const auto take_room = [&](std::size_t count) {
                if (count > room) {
                    (mod.normalize(sums0[g]), ...);
                    room = mod.terms;
                }
                room -= count;
            };
            std::size_t room1 = mod.terms;
            if (out.of_factors[0] != nullptr) [[unlikely]] {  // registers are for the inputs
                take_room(1);
                --room1;
                const auto c0 = load_operand(mod, out.of_factors[0] + k);
                const auto c1 = load_operand(mod, out.of_factors[1] + k);
                ((out.factor[first + g] == nullptr
                      ? static_cast<void>(0)
                      : add_products(mod, sums0[g], sums1[g], c0, c1,
                                     load_operand(mod, out.factor[first + g] + k))),
                 ...);
            }
            for (std::size_t i = 0; i < inputs; room1 = mod.terms) {
                const std::size_t count = std::min(inputs - i, room1);
                take_room(count);
                if (i != 0) {
                    (mod.normalize(sums1[g]), ...);
                }
                for (const std::size_t end = i + count; i < end; ++i, w += step) {
                    if (width == panel_lanes || k % panel_lanes == 0) {  // once for a line
                        prefetch(in.c0[i] + k, ciphertexts_ahead);
                        prefetch(in.c1[i] + k, ciphertexts_ahead);
                        (prefetch(w + g * group, weights_ahead), ...);
                    }
                    const auto c0 = load_operand(mod, in.c0[i] + k);
                    const auto c1 = load_operand(mod, in.c1[i] + k);
                    (add_products(mod, sums0[g], sums1[g], c0, c1,
                                  load_weights<Target>(mod, p, w + g * group)),
                     ...);
                }
            }
            (mod.reduce(sums1[g]).store(out.c1[first + g] + k), ...);
        }
        // The residues of all lanes fit a word.
        ((out.c0[first + g][b] = p.reduce_fully(simd::add_lanes(mod.reduce(sums0[g])))), ...);
    }
}

/// The body of rns::multiply_panel.  @pre  blocks of c0 are whole vectors
template <class Target, arith::modulus M>
TENSAFE_INLINE void multiply_panel(arith::barrett<M> p, const panel_view& panel, const ciphertext_views& in,
                                   const panel_results& out, block_range range) noexcept {
    using arithmetic = typename arith::lanes_of<Target>::template products<M>;
    const auto mod = arith::arithmetic_for<arithmetic>(p);
    std::size_t first = 0;
    // As many sums as the registers hold.
    if constexpr (arithmetic::words::width == 8 && M::bits <= 50) {
        for (; first + 4 <= panel.shape.outputs; first += 4) {
            multiply_outputs<Target>(mod, p, panel, in, out, range, first, std::make_index_sequence<4>());
        }
    }
    if constexpr (arithmetic::words::width > 1) {
        for (; first + 2 <= panel.shape.outputs; first += 2) {
            multiply_outputs<Target>(mod, p, panel, in, out, range, first, std::make_index_sequence<2>());
        }
    }
    for (; first < panel.shape.outputs; ++first) {
        multiply_outputs<Target>(mod, p, panel, in, out, range, first, std::make_index_sequence<1>());
    }
}

}  // namespace detail

/// Puts one limb of a plaintext in its place in a panel: shape.bytes<M>(limb.size()) of them.
/// @pre  input < shape.inputs, output < shape.outputs, limb.size() is a multiple of 8
template <arith::modulus M>
void fill_panel(arith::barrett<M>, panel_shape shape, std::span<const arith::word> limb, std::size_t input,
                std::size_t output, std::span<std::uint8_t> panel) noexcept {
    TENSAFE_PRECONDITION(panel.size() == shape.bytes<M>(limb.size()));
    constexpr std::size_t bytes = weight_bytes<M>;
    for (std::size_t k = 0; k < limb.size(); ++k) {
        std::memcpy(panel.data() + shape.index(k, input, output) * bytes, &limb[k], bytes);
    }
}

/// Multiplies a panel with ciphertexts, one limb of everything: for each output g of the panel
///
///     c1[g][k] = addend[g][k] + factor[g][k] * of_factors[1][k] + sum over inputs i of w[g][i][k] * c1_i[k]
///     c0[g][b] = sum over block b of k of (factor[g][k] * of_factors[0][k] + sum over i of w[g][i][k] *
///     c0_i[k])
///
/// modulo q, all values in [0, q), for the given blocks. Every weight is read once, in the order in which it
/// is stored. No allocation; no branch or index depends on a value.
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
