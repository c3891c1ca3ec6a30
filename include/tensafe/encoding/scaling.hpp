#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/simd/dispatch.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/transpose.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

/// One pass over the values to be encoded: multiplied with the scale, and the largest magnitude that occurs.
/// Time does not depend on the values. No alignment is needed.
namespace tensafe::encoding::detail {

/// Bodies of kernels. What is left behind the last whole vector is done with narrower ones.
template <class Target>
struct scaling {
    using reals = typename Target::template vector<double>;
    using integers = typename Target::template vector<std::int64_t>;
    static constexpr std::size_t width = reals::width;

    /// Magnitudes compare like their bits, as integers, and NaN stands above infinity: a maximum of bits
    /// misses none.
    static TENSAFE_INLINE integers magnitude_bits(const reals& x) noexcept {
        return simd::bit_cast<std::int64_t>(x) & Target::broadcast(std::int64_t{0x7fffffffffffffff});
    }
    static TENSAFE_INLINE std::int64_t largest_lane(const integers& x) noexcept {
        std::int64_t values[width];
        x.store(values);
        std::int64_t largest = 0;
        for (const std::int64_t value : values) {
            largest = std::max(largest, value);
        }
        return largest;
    }

    /// The bits of the magnitude.
    static TENSAFE_INLINE std::int64_t largest_magnitude(const double* values, std::size_t count,
                                                         double scale) noexcept {
        const reals factor = Target::broadcast(scale);
        // Two, so that one comparison does not wait for the other.
        integers largest = Target::broadcast(std::int64_t{0});
        integers other = largest;
        std::size_t i = 0;
        for (; i + 2 * width <= count; i += 2 * width) {
            largest = Target::maximum(largest, magnitude_bits(reals::load(values + i) * factor));
            other = Target::maximum(other, magnitude_bits(reals::load(values + i + width) * factor));
        }
        for (; i + width <= count; i += width) {
            largest = Target::maximum(largest, magnitude_bits(reals::load(values + i) * factor));
        }
        std::int64_t result = largest_lane(Target::maximum(largest, other));
        if constexpr (width > 1) {
            result = std::max(result, scaling<simd::scalar>::largest_magnitude(values + i, count - i, scale));
        }
        return result;
    }

    static TENSAFE_INLINE void scale_values(const double* values, std::size_t count, double scale,
                                            double* out) noexcept {
        const reals factor = Target::broadcast(scale);
        std::size_t i = 0;
        for (; i + width <= count; i += width) {
            (reals::load(values + i) * factor).store(out + i);
        }
        if constexpr (width > 1) {
            scaling<simd::scalar>::scale_values(values + i, count - i, scale, out + i);
        }
    }

    static TENSAFE_INLINE void divide_values(double* values, std::size_t count, double divisor) noexcept {
        const reals by = Target::broadcast(divisor);
        std::size_t i = 0;
        for (; i + width <= count; i += width) {
            (reals::load(values + i) / by).store(values + i);
        }
        if constexpr (width > 1) {
            scaling<simd::scalar>::divide_values(values + i, count - i, divisor);
        }
    }

    /// One vector of scale_pairs: the bits of the squared magnitudes, each twice.
    static TENSAFE_INLINE integers scale_vector(const double* pairs, const reals& factor, const reals& unit,
                                                double* out) noexcept {
        const reals scaled = reals::load(pairs) * factor;
        scaled.store(out);
        const reals part = scaled * unit;
        const reals square = Target::product(part, part);
        return magnitude_bits(square + simd::swap_neighbours(square));
    }

    /// The bits of the squared magnitude.  @param count  real and imaginary parts together
    static TENSAFE_INLINE std::int64_t scale_pairs(const double* pairs, std::size_t count, double scale,
                                                   double unit, double* out) noexcept {
        const reals factor = Target::broadcast(scale);
        const reals units = Target::broadcast(unit);
        integers largest = Target::broadcast(std::int64_t{0});
        integers other = largest;
        std::size_t i = 0;
        for (; i + 2 * width <= count; i += 2 * width) {
            largest = Target::maximum(largest, scale_vector(pairs + i, factor, units, out + i));
            other = Target::maximum(other, scale_vector(pairs + i + width, factor, units, out + i + width));
        }
        for (; i + width <= count; i += width) {
            largest = Target::maximum(largest, scale_vector(pairs + i, factor, units, out + i));
        }
        std::int64_t result = largest_lane(Target::maximum(largest, other));
        if constexpr (width > 2) {
            result = std::max(
                result, scaling<simd::portable>::scale_pairs(pairs + i, count - i, scale, unit, out + i));
        }
        return result;
    }
};

/// The largest |value| * scale; a NaN if there is one among them, 0 if there are no values.
TENSAFE_COMPILED_INLINE double largest_magnitude(std::span<const double> values, double scale) {
    return std::bit_cast<double>(simd::on_active_target([&](auto target) {
        using body = scaling<decltype(target)>;
        return target.template kernel<&body::largest_magnitude>(values.data(), values.size(), scale);
    }));
}

/// out = values * scale.  @pre out.size() == values.size()
TENSAFE_COMPILED_INLINE void scale_values(std::span<const double> values, double scale,
                                          std::span<double> out) {
    simd::on_active_target([&](auto target) {
        using body = scaling<decltype(target)>;
        target.template kernel<&body::scale_values>(values.data(), values.size(), scale, out.data());
    });
}

/// values = values / divisor.
TENSAFE_COMPILED_INLINE void divide_values(std::span<double> values, double divisor) {
    simd::on_active_target([&](auto target) {
        using body = scaling<decltype(target)>;
        target.template kernel<&body::divide_values>(values.data(), values.size(), divisor);
    });
}

/// out = pairs * scale, for `count` complex numbers as real and imaginary part in turn. Returns the largest
/// squared magnitude of scaled number times unit; a NaN if there is one among them, 0 if there are none.
TENSAFE_COMPILED_INLINE double scale_pairs(const double* pairs, std::size_t count, double scale, double unit,
                                           double* out) {
    return std::bit_cast<double>(simd::on_active_target([&](auto target) {
        using body = scaling<decltype(target)>;
        return target.template kernel<&body::scale_pairs>(pairs, 2 * count, scale, unit, out);
    }));
}

}  // namespace tensafe::encoding::detail
