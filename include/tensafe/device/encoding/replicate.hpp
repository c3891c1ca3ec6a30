#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/encoding/complex.hpp>

#include <cstddef>
#include <cstdint>

namespace tensafe::encoding {

/// Hidden states as slots that to_coefficients_blocks reads: each entry in `2^log_stride` neighbouring slots,
/// times the state's scale, as slot_geometry::replicate and encode_slots make them. Replication, scaling and
/// the slot transform are one launch.
///
/// Slot r + 2^log_stride * t of polynomial p is entry (p % inputs) * entries + t of state p / inputs, and
/// zero beyond d. A plain value; pointers into the launch's memory.
template <class Real>
struct load_replicated {
    const Real* states;     ///< [state][d]
    std::size_t d;          ///< entries of a state
    const double* scales;   ///< one for each state
    std::uint32_t inputs;   ///< polynomials of a state: ceil(d / entries)
    std::uint32_t entries;  ///< of a polynomial: N/2 / 2^log_stride
    int log_stride;

    /// The slots of one polynomial.
    struct row_type {
        const Real* entries;
        std::size_t count;
        double scale;
        int log_stride;

        TENSAFE_HOST_DEVICE TENSAFE_INLINE complex_value slot(std::size_t j) const noexcept {
            const std::size_t t = j >> log_stride;
            return {arith::rounded_product(t < count ? static_cast<double>(entries[t]) : 0.0, scale), 0.0};
        }
    };

    TENSAFE_HOST_DEVICE TENSAFE_INLINE row_type row(std::size_t polynomial) const noexcept {
        const auto p = static_cast<std::uint32_t>(polynomial);
        const std::size_t state = p / inputs;
        const std::size_t first = std::size_t{p % inputs} * entries;
        return {states + state * d + first, first < d ? d - first : 0, scales[state], log_stride};
    }
};

}  // namespace tensafe::encoding
