#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/portable.hpp>
#include <tensafe/core/precondition.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

// Vectors scaled down to a Euclidean norm: what bounds how much one input can change what is released. The
// time depends on the number of entries, not on their values (but for subnormal floats, which processors
// convert more slowly): no branch, and no division or square root of a secret.
namespace tensafe::dp {

namespace detail {

/// The sum of the squares. A double holds the square of any float: only NaN and infinity make it not finite.
/// @throws encoding_error, naming the entry, if one is NaN or infinite
inline double finite_square_sum(const char* where, std::span<const float> h) {
    double sums[4] = {};
    std::size_t i = 0;
    for (; i + 4 <= h.size(); i += 4) {
        for (std::size_t lane = 0; lane < 4; ++lane) {
            const double x = h[i + lane];
            sums[lane] += x * x;
        }
    }
    for (; i < h.size(); ++i) {
        const double x = h[i];
        sums[0] += x * x;
    }
    const double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (!(sum - sum == 0)) {
        std::size_t entry = 0;
        while (std::isfinite(h[entry])) {
            ++entry;
        }
        throw encoding_error(
            {where, ": entry ", entry, ": got ", shortest_text(h[entry]), ", expected a finite number"});
    }
    return sum;
}

/// Computes 1 / sqrt(x) to a relative 2^-48, in multiplications alone: divisions and roots may take a time
/// that depends on their operands.
/// @pre  x >= 2^-1000, finite
inline double inverse_root(double x) noexcept {
    TENSAFE_PRECONDITION(x >= 0x1p-1000 && x - x == 0);
    // Halving the exponent leaves an error below 4 %, which a step of Newton's method squares, times 3/2.
    double root = bit_cast<double>(std::uint64_t{0x5fe6eb50c7b537a9} - (bit_cast<std::uint64_t>(x) >> 1));
    for (int step = 0; step < 4; ++step) {
        root *= 1.5 - 0.5 * x * root * root;
    }
    return root;
}

/// The smaller of two numbers, without a branch.  @pre  both are positive
inline double smaller(double a, double b) noexcept {
    const auto of_a = bit_cast<std::uint64_t>(a);
    const auto of_b = bit_cast<std::uint64_t>(b);
    const std::uint64_t less = std::uint64_t{0} - ((of_a - of_b) >> 63);
    return bit_cast<double>(of_b ^ ((of_a ^ of_b) & less));
}

/// Added to a sum of squares, so that 0 has an inverse root too; lost next to the smallest float's.
inline constexpr double nearly_zero = 0x1p-400;

/// Integers of magnitude 2^largest_grid_bits or more are never within a bound.
inline constexpr int largest_grid_bits = 40;

/// Sets all entries to 0 if the norm is larger than `bound`, exactly, whatever the integers are.
/// @pre  0 <= bound < 2^40; v.size() <= 2^40
/// @return whether the norm was within the bound
inline bool enforce_norm(std::span<std::int64_t> v, std::int64_t bound) noexcept {
    TENSAFE_PRECONDITION(bound >= 0 && bound < std::int64_t{1} << largest_grid_bits);
    TENSAFE_PRECONDITION(v.size() <= std::uint64_t{1} << 40);
    __extension__ using wide = unsigned __int128;
    wide sum = 0;
    std::uint64_t large = 0;
    constexpr std::uint64_t mask = (std::uint64_t{1} << largest_grid_bits) - 1;
    for (const std::int64_t entry : v) {
        const auto word = static_cast<std::uint64_t>(entry);
        const std::uint64_t sign = std::uint64_t{0} - (word >> 63);
        const std::uint64_t magnitude = (word ^ sign) - sign;
        large |= magnitude >> largest_grid_bits;
        const std::uint64_t low = magnitude & mask;
        sum += static_cast<wide>(low) * low;
    }
    const auto side = static_cast<std::uint64_t>(bound);
    const wide difference = static_cast<wide>(side) * side - sum;  // wraps if the sum is larger
    const std::uint64_t beyond =
        static_cast<std::uint64_t>(difference >> 127) | ((large + mask) >> largest_grid_bits);
    std::uint64_t keep = (beyond & 1) - 1;
    __asm__("" : "+r"(keep));  // or clang makes branches of it again
    for (std::int64_t& entry : v) {
        entry = static_cast<std::int64_t>(static_cast<std::uint64_t>(entry) & keep);
    }
    return keep != 0;
}

}  // namespace detail

/// Clips a vector: out = h, scaled down to the norm `clip_norm` if its own is larger; unchanged if not.
///
/// The norm is right to a relative 2^-45: a release that promises something takes clip_to_grid, whose bound
/// is exact.
/// @param clip_norm  in [2^-100, 2^100];  @param out  as many entries as h
/// @throws parameter_error, shape_error; encoding_error, naming the entry, if one is NaN or infinite. `out`
///         is unchanged then
inline void clip(std::span<const float> h, double clip_norm, std::span<double> out) {
    require<shape_error>(out.size() == h.size(),
                         {"dp::clip: out: got ", out.size(), " entries, expected ", h.size()});
    require<parameter_error>(clip_norm >= 0x1p-100 && clip_norm <= 0x1p100,
                             {"dp::clip: clip_norm: got ", clip_norm, ", expected 2^-100 to 2^100"});
    const double sum = detail::finite_square_sum("dp::clip", h);
    const double factor = detail::smaller(1, clip_norm * detail::inverse_root(sum + detail::nearly_zero));
    for (std::size_t i = 0; i < h.size(); ++i) {
        out[i] = h[i] * factor;
    }
}

/// Clips a vector to integers: out = h / step, rounded to nearest, scaled down first if need be, so that the
/// norm of `out` is at most `bound`, exactly and for every h. Integers prove it at the end, whatever rounding
/// did before.
///
/// Rounding may add sqrt(d)/2 to a norm, so that scaling starts at bound - sqrt(d)/2: choose a step with
/// bound much larger than sqrt(d).
/// @param step   one unit of `out`, in the units of h; in [2^-150, 2^150]
/// @param bound  at least sqrt(d), below 2^40
/// @param out    d = h.size() entries, at most 2^30
/// @throws parameter_error, shape_error; encoding_error, naming the entry, if one is NaN or infinite. `out`
///         is unchanged then
inline void clip_to_grid(std::span<const float> h, double step, std::int64_t bound,
                         std::span<std::int64_t> out) {
    require<shape_error>(
        out.size() == h.size() && h.size() <= std::size_t{1} << 30,
        {"dp::clip_to_grid: out: got ", out.size(), " entries, expected ", h.size(), ", and at most 2^30"});
    require<parameter_error>(step >= 0x1p-150 && step <= 0x1p150,
                             {"dp::clip_to_grid: step: got ", step, ", expected 2^-150 to 2^150"});
    const double root = std::sqrt(static_cast<double>(h.size()));
    require<parameter_error>(bound >= 1 && static_cast<double>(bound) >= root &&
                                 bound < std::int64_t{1} << detail::largest_grid_bits,
                             {"dp::clip_to_grid: bound: got ", bound, ", expected at least the root of ",
                              h.size(), " entries, and less than 2^40"});
    const double sum = detail::finite_square_sum("dp::clip_to_grid", h);
    // 2^-40 is more than all that rounding can do to the norm.
    const double limit = (static_cast<double>(bound) - root / 2) * (1 - 0x1p-40);
    const double factor = detail::smaller(1 / step, limit * detail::inverse_root(sum + detail::nearly_zero));
    // Adding this number leaves a double whose last digit is worth 1: its bits are those of the integer.
    constexpr double shift = 0x1.8p52;
    for (std::size_t i = 0; i < h.size(); ++i) {
        const double shifted = h[i] * factor + shift;
        out[i] = bit_cast<std::int64_t>(shifted) - bit_cast<std::int64_t>(shift);
    }
    detail::enforce_norm(out, bound);
}

}  // namespace tensafe::dp
