#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/portable.hpp>
#include <tensafe/simd/dispatch.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/transpose.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

/// One pass over the values to be encoded, which multiplies them with the scale and finds the largest
/// magnitude.
/// Time does not depend on the values. No alignment is needed.
namespace tensafe::encoding::detail {

/// The bodies of kernels. What is left behind the last whole vector is done with narrower ones.
template <class Target>
struct scaling {
    using reals = typename Target::template vector<double>;
    using integers = typename Target::template vector<std::int64_t>;
    static constexpr std::size_t width = reals::width;

    /// The bits of the magnitudes. They compare as integers like the magnitudes, and NaN stands above
    /// infinity: a maximum of bits misses none.
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

    /// The bits of the magnitudes of scaled values from number i on. Pairs are written to `out`, and the bits
    /// are those of the squared magnitudes of pairs times unit, each twice.
    template <bool pairs>
    static TENSAFE_INLINE integers scaled_bits(const double* values, std::size_t i, const reals& scale,
                                               [[maybe_unused]] const reals& unit,
                                               [[maybe_unused]] double* out) noexcept {
        const reals scaled = reals::load(values + i) * scale;
        if constexpr (pairs) {
            scaled.store(out + i);
            const reals part = scaled * unit;
            const reals square = Target::product(part, part);
            return magnitude_bits(square + simd::swap_neighbours(square));
        } else {
            return magnitude_bits(scaled);
        }
    }
    /// The largest of the scaled_bits.  @param count  of pairs, real and imaginary parts together
    template <bool pairs>
    static TENSAFE_INLINE std::int64_t largest(const double* values, std::size_t count, double scale,
                                               double unit, double* out) noexcept {
        const reals factor = Target::broadcast(scale);
        const reals units = Target::broadcast(unit);
        // Two, so that one comparison does not wait for the other.
        integers first = Target::broadcast(std::int64_t{0});
        integers second = first;
        std::size_t i = 0;
        for (; i + 2 * width <= count; i += 2 * width) {
            first = Target::maximum(first, scaled_bits<pairs>(values, i, factor, units, out));
            second = Target::maximum(second, scaled_bits<pairs>(values, i + width, factor, units, out));
        }
        for (; i + width <= count; i += width) {
            first = Target::maximum(first, scaled_bits<pairs>(values, i, factor, units, out));
        }
        std::int64_t result = largest_lane(Target::maximum(first, second));
        using rest = scaling<std::conditional_t<pairs, simd::portable, simd::scalar>>;
        if constexpr (width > rest::width) {
            result = std::max(result, rest::template largest<pairs>(values + i, count - i, scale, unit,
                                                                    pairs ? out + i : out));
        }
        return result;
    }

    /// Writes values times, or divided by, a number to `out`, which may be `values`.
    template <bool divides>
    static TENSAFE_INLINE void map_values(const double* values, std::size_t count, double by,
                                          double* out) noexcept {
        const reals factor = Target::broadcast(by);
        std::size_t i = 0;
        for (; i + width <= count; i += width) {
            const reals x = reals::load(values + i);
            if constexpr (divides) {
                (x / factor).store(out + i);
            } else {
                (x * factor).store(out + i);
            }
        }
        if constexpr (width > 1) {
            scaling<simd::scalar>::template map_values<divides>(values + i, count - i, by, out + i);
        }
    }
};

/// The largest |value| * scale; a NaN if there is one among them, 0 if there are no values.
TENSAFE_COMPILED_INLINE double largest_magnitude(std::span<const double> values, double scale) {
    return bit_cast<double>(simd::on_active_target([&](auto target) {
        return target.template kernel<&scaling<decltype(target)>::template largest<false>>(
            values.data(), values.size(), scale, 1.0, nullptr);
    }));
}

/// Multiplies values: out = values * scale.  @pre out.size() == values.size()
TENSAFE_COMPILED_INLINE void scale_values(std::span<const double> values, double scale,
                                          std::span<double> out) {
    simd::on_active_target([&](auto target) {
        target.template kernel<&scaling<decltype(target)>::template map_values<false>>(
            values.data(), values.size(), scale, out.data());
    });
}

/// Divides values in place: values = values / divisor.
TENSAFE_COMPILED_INLINE void divide_values(std::span<double> values, double divisor) {
    simd::on_active_target([&](auto target) {
        target.template kernel<&scaling<decltype(target)>::template map_values<true>>(
            values.data(), values.size(), divisor, values.data());
    });
}

/// Multiplies `count` complex numbers, as real and imaginary part in turn: out = pairs * scale. Returns the
/// largest squared magnitude of a scaled number times unit; a NaN if there is one among them, 0 if there are
/// none.
TENSAFE_COMPILED_INLINE double scale_pairs(const double* pairs, std::size_t count, double scale, double unit,
                                           double* out) {
    return bit_cast<double>(simd::on_active_target([&](auto target) {
        return target.template kernel<&scaling<decltype(target)>::template largest<true>>(pairs, 2 * count,
                                                                                          scale, unit, out);
    }));
}

}  // namespace tensafe::encoding::detail
