#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

// Sums, products and roots that are never below the true value: for bounds that must not come out too small.
//
// Each is the smallest double that is not below the true value; where a product or a root's argument is below
// 1e-250, that one or the next. They need IEEE doubles rounded to nearest, and no -ffast-math.
namespace tensafe::dp::detail {

/// The next double above x.
inline double next_above(double x) noexcept {
    return std::nextafter(x, std::numeric_limits<double>::infinity());
}

/// The next double below x.
inline double next_below(double x) noexcept {
    return std::nextafter(x, -std::numeric_limits<double>::infinity());
}

/// The sum a + b, rounded up; infinite if one is, or if it is too large.  @pre  neither is NaN nor negative
inline double add_up(double a, double b) noexcept {
    const double sum = a + b;
    // What rounding dropped, exactly (Knuth, "The Art of Computer Programming", 4.2.2, theorem B).
    const double part = sum - a;
    const double dropped = (a - (sum - part)) + (b - part);
    return dropped > 0 ? next_above(sum) : sum;
}

/// The product a * b, rounded up; 0 if one is 0, whatever the other.  @pre  neither is NaN nor negative
inline double multiply_up(double a, double b) noexcept {
    const double product = a * b;
    if (a == 0 || b == 0) {
        return 0;
    }
    // Below this the dropped part may itself be too small for a double.
    constexpr double exact_from = 1e-250;
    return product < exact_from || std::fma(a, b, -product) > 0 ? next_above(product) : product;
}

/// The square root of x, rounded up.  @pre  x >= 0
inline double root_up(double x) noexcept {
    const double root = std::sqrt(x);
    if (x == 0 || root == std::numeric_limits<double>::infinity()) {
        return root;
    }
    constexpr double exact_from = 1e-250;
    return x < exact_from || std::fma(root, root, -x) < 0 ? next_above(root) : root;
}

/// The integer as a double, rounded up.
inline double to_double_up(std::uint64_t x) noexcept {
    const auto rounded = static_cast<double>(x);
    // 2^64 is not a uint64_t, but no uint64_t is above it.
    return rounded < 0x1p64 && static_cast<std::uint64_t>(rounded) < x ? next_above(rounded) : rounded;
}

}  // namespace tensafe::dp::detail
