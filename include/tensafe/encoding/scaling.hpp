#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/complex_lanes.hpp>
#include <tensafe/encoding/x86/scaling_avx2.hpp>
#include <tensafe/encoding/x86/scaling_avx512.hpp>
#include <tensafe/exec/backend.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

/// One pass over the values to be encoded: multiplied with the scale, and the largest magnitude that occurs.
/// Time does not depend on the values. No alignment is needed.
namespace tensafe::encoding::detail {

namespace portable {

/// Magnitudes compare like their bits, as integers, and NaN stands above infinity: a maximum of bits misses
/// none.
TENSAFE_INLINE std::uint64_t magnitude_bits(double x) noexcept {
    return std::bit_cast<std::uint64_t>(std::fabs(x));
}

inline double largest_magnitude(const double* values, std::size_t count, double scale) noexcept {
    std::uint64_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        largest = std::max(largest, magnitude_bits(values[i] * scale));
    }
    return std::bit_cast<double>(largest);
}

inline void scale_values(const double* values, std::size_t count, double scale, double* out) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = values[i] * scale;
    }
}

inline void divide_values(double* values, std::size_t count, double divisor) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        values[i] /= divisor;
    }
}

inline double scale_pairs(const double* pairs, std::size_t count, double scale, double unit,
                          double* out) noexcept {
    std::uint64_t largest = 0;
    for (std::size_t i = 0; i < 2 * count; i += 2) {
        const lanes scaled = load(pairs + i) * scale;
        store(out + i, scaled);
        const lanes part = scaled * unit;
        const lanes square = rounded(part * part);
        largest = std::max(largest, magnitude_bits(square[0] + square[1]));
    }
    return std::bit_cast<double>(largest);
}

}  // namespace portable

/// The largest |value| * scale; a NaN if there is one among them, 0 if there are no values.
inline double largest_magnitude(std::span<const double> values, double scale) {
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return avx512::largest_magnitude(values.data(), values.size(), scale);
        case exec::backend::avx2:
            return avx2::largest_magnitude(values.data(), values.size(), scale);
        case exec::backend::portable:
            break;
    }
#endif
    return portable::largest_magnitude(values.data(), values.size(), scale);
}

/// out = values * scale.  @pre out.size() == values.size()
inline void scale_values(std::span<const double> values, double scale, std::span<double> out) {
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return avx512::scale_values(values.data(), values.size(), scale, out.data());
        case exec::backend::avx2:
            return avx2::scale_values(values.data(), values.size(), scale, out.data());
        case exec::backend::portable:
            break;
    }
#endif
    portable::scale_values(values.data(), values.size(), scale, out.data());
}

/// values = values / divisor.
inline void divide_values(std::span<double> values, double divisor) {
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return avx512::divide_values(values.data(), values.size(), divisor);
        case exec::backend::avx2:
            return avx2::divide_values(values.data(), values.size(), divisor);
        case exec::backend::portable:
            break;
    }
#endif
    portable::divide_values(values.data(), values.size(), divisor);
}

/// out = pairs * scale, for `count` complex numbers as real and imaginary part in turn. Returns the largest
/// squared magnitude of scaled number times unit; a NaN if there is one among them, 0 if there are none.
inline double scale_pairs(const double* pairs, std::size_t count, double scale, double unit, double* out) {
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return avx512::scale_pairs(pairs, count, scale, unit, out);
        case exec::backend::avx2:
            return avx2::scale_pairs(pairs, count, scale, unit, out);
        case exec::backend::portable:
            break;
    }
#endif
    return portable::scale_pairs(pairs, count, scale, unit, out);
}

}  // namespace tensafe::encoding::detail
