#pragma once

#include <tensafe/arith/word.hpp>

#include <array>
#include <cstddef>

namespace tensafe::rns {

/// Outputs that are computed together, and neighbouring coefficients that stand together.
inline constexpr std::size_t panel_outputs = 4;
inline constexpr std::size_t panel_lanes = 8;

/// Weights of a few outputs, packed as matrix products pack them: eight coefficients of each output, input by
/// input, then the next eight coefficients.
struct panel_shape {
    std::size_t inputs = 0;   ///< at least 1
    std::size_t outputs = 0;  ///< 1 to panel_outputs

    constexpr std::size_t words(std::size_t degree) const noexcept { return degree * inputs * outputs; }
    /// Where coefficient k of a weight stands; k + 1 stands next to it unless it is a multiple of 8.
    constexpr std::size_t index(std::size_t k, std::size_t input, std::size_t output) const noexcept {
        return (k / panel_lanes * inputs + input) * outputs * panel_lanes + output * panel_lanes +
               k % panel_lanes;
    }
};

/// One limb of a panel.
struct panel_view {
    panel_shape shape;
    const arith::word* words = nullptr;
};

/// One limb of the ciphertexts that it meets: for each input the words of both halves.
struct ciphertext_views {
    std::size_t degree = 0;
    const arith::word* const* c0 = nullptr;
    const arith::word* const* c1 = nullptr;
};

/// One limb of the results, for each output of the panel.
struct panel_results {
    std::size_t blocks = 0;                                  ///< of c0
    std::array<arith::word*, panel_outputs> c0{};            ///< `blocks` words each
    std::array<arith::word*, panel_outputs> c1{};            ///< N words each
    std::array<const arith::word*, panel_outputs> addend{};  ///< N words each, or null for zero
};

/// Blocks [first, end) of coefficients: what is computed at once, so that its weights stay in cache.
struct block_range {
    std::size_t first = 0;
    std::size_t end = 0;
};

}  // namespace tensafe::rns
