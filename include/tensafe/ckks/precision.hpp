#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>

#include <cmath>
#include <complex>
#include <cstddef>
#include <limits>
#include <span>
#include <string>

namespace tensafe::ckks {

/// Says how far obtained values lie from the expected ones. Errors are absolute, |obtained - expected|; the
/// bits of precision are -log2 of an error, as other CKKS libraries report them: infinite for an exact value.
struct precision_report {
    double worst_error = 0;
    std::size_t worst_index = 0;  ///< the first entry with the worst error
    double mean_error = 0;
    double relative_error = 0;  ///< 2-norm of the errors over the 2-norm of the expected values

    double worst_bits() const noexcept { return -std::log2(worst_error); }
    double mean_bits() const noexcept { return -std::log2(mean_error); }
};

namespace detail {
template <class T, class U>
precision_report measure_precision(std::span<const T> expected, std::span<const U> obtained) {
    if (expected.size() != obtained.size() || expected.empty()) {
        throw shape_error("measure_precision: got " + std::to_string(expected.size()) + " expected and " +
                          std::to_string(obtained.size()) +
                          " obtained values, expected equally many and at least one");
    }
    precision_report report;
    double squared_errors = 0;
    double squared_values = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double distance = std::abs(obtained[i] - expected[i]);
        const double error = std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
        if (error > report.worst_error) {
            report.worst_error = error;
            report.worst_index = i;
        }
        report.mean_error += error / static_cast<double>(expected.size());
        squared_errors += error * error;
        squared_values += std::norm(expected[i]);
    }
    report.relative_error = squared_errors == 0 ? 0 : std::sqrt(squared_errors / squared_values);
    return report;
}
}  // namespace detail

/// Compares values one by one. Where one side is NaN the error counts as infinite.  O(count).
/// @throws shape_error if the sizes differ or are 0
TENSAFE_COMPILED_INLINE precision_report measure_precision(std::span<const double> expected,
                                                           std::span<const double> obtained) {
    return detail::measure_precision(expected, obtained);
}
TENSAFE_COMPILED_INLINE precision_report measure_precision(std::span<const std::complex<double>> expected,
                                                           std::span<const std::complex<double>> obtained) {
    return detail::measure_precision(expected, obtained);
}
/// Compares real values with slots, which are complex.
TENSAFE_COMPILED_INLINE precision_report measure_precision(std::span<const double> expected,
                                                           std::span<const std::complex<double>> obtained) {
    return detail::measure_precision(expected, obtained);
}

}  // namespace tensafe::ckks
