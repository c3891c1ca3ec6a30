#pragma once

#include <tensafe/core/precondition.hpp>

#include <cmath>

// The tail of the normal distribution, for arguments of any size without underflow: divided by its density.
namespace tensafe::dp::detail {

inline constexpr double root_of_two = 1.41421356237309504880;
inline constexpr double root_of_half_pi = 1.25331413731550025121;       // sqrt(pi / 2)
inline constexpr double one_over_root_two_pi = 0.39894228040143267794;  // density at 0

/// The density of the normal distribution.
inline double normal_density(double x) noexcept {
    return one_over_root_two_pi * std::exp(-x * x / 2);
}

/// 1/(x + 2/(x + 3/(x + ...))), Laplace's continued fraction: what mills_ratio(x) = 1/(x + it) needs.
/// Every term is positive, so that rounding errors shrink on their way. Relative error below 2^-51.
/// @pre  x >= 2
inline double laplace_fraction(double x) noexcept {
    TENSAFE_PRECONDITION(x >= 2);
    // What is left out behind `depth` terms changes the value by less than 2^-52: the design page.
    const int depth = x < 4 ? 96 : 40;
    double tail = (std::sqrt(x * x + 4.0 * (depth + 1)) - x) / 2;
    for (int k = depth; k >= 1; --k) {
        tail = k / (x + tail);
    }
    return tail;
}

/// Mills' ratio R(x): the upper tail of the normal distribution beyond x, divided by its density at x.
/// Positive and falling; like 1/x for large x. Relative error below 2^-48, if std::exp is within
/// two units in the last place and std::erfc within five.
/// @pre  x >= -1
inline double mills_ratio(double x) noexcept {
    TENSAFE_PRECONDITION(x >= -1);
    if (x >= 2) {
        return 1 / (x + laplace_fraction(x));
    }
    return root_of_half_pi * std::exp(x * x / 2) * std::erfc(x / root_of_two);
}

/// How quickly Mills' ratio falls: -R'(x) = 1 - x R(x), positive; like 1/x^2 for large x. Relative error
/// below 2^-45, under the same condition.
/// @pre  x >= -1
inline double mills_slope(double x) noexcept {
    TENSAFE_PRECONDITION(x >= -1);
    if (x >= 2) {
        const double fraction = laplace_fraction(x);
        return fraction / (x + fraction);
    }
    return 1 - x * mills_ratio(x);
}

}  // namespace tensafe::dp::detail
