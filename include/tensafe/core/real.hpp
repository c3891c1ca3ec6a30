#pragma once

#include <tensafe/core/portable.hpp>
#include <tensafe/core/precondition.hpp>

#include <bit>
#include <cstdint>
#include <limits>

// Functions of real numbers in constant expressions, where the standard library's are not allowed in C++20.
namespace tensafe {

/// Returns 2^exponent, exactly.  @pre  exponent in [-1022, 1023]
constexpr double power_of_two(int exponent) noexcept {
    TENSAFE_PRECONDITION(exponent >= -1022 && exponent <= 1023);
    return bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// The square root, within one unit in the last place. At run time std::sqrt is faster and exact.
/// @pre  x >= 0 and finite
constexpr double square_root(double x) noexcept {
    TENSAFE_PRECONDITION(x >= 0 && x <= std::numeric_limits<double>::max());
    if (x < std::numeric_limits<double>::min()) {
        // Zero, or subnormal: its exponent is not where that of other numbers is.
        return x > 0 ? square_root(x * power_of_two(108)) * power_of_two(-54) : 0;
    }
    const int exponent = static_cast<int>(bit_cast<std::uint64_t>(x) >> 52) - 1023;
    const int half = exponent >> 1;
    const double m = x * power_of_two(-2 * half);  // in [1, 4)
    // Heron's rule turns a relative error e >= 0 into at most e^2 / 2: from 1/4 to 2^-104 in five steps.
    double root = (1 + m) / 2;
    for (int step = 0; step < 5; ++step) {
        root = (root + m / root) / 2;
    }
    return root * power_of_two(half);
}

/// Returns x, or 0 where its magnitude is below `least`, a positive number: no branch, and no arithmetic. The
/// default is what deltas become floats with: a subnormal one would take another time on some processors.
constexpr double flushed(double x, double least = 0x1p-100) noexcept {
    const auto bits = bit_cast<std::uint64_t>(x);
    const std::uint64_t magnitude = bits & 0x7fffffffffffffff;
    // By the sign bit: of a comparison compilers make a branch.
    const auto below = static_cast<std::int64_t>(magnitude - bit_cast<std::uint64_t>(least)) >> 63;
    return bit_cast<double>(bits & ~static_cast<std::uint64_t>(below));
}

}  // namespace tensafe
