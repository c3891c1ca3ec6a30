#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/shortest_text.hpp>

#include <cmath>
#include <cstddef>
#include <string>

namespace tensafe::dp {

/// Beyond this mu, noise made of words of 126 bits does not reach far enough to hide a shift.
inline constexpr double largest_release_mu = 16;

/// By how much the noise of random::sample_discrete_gaussian falls short of rounded Gaussian noise: a release
/// of d integers that it is added to, whose two neighbours differ by at most mu deviations, is a Gaussian
/// mechanism of that mu but for this, added to delta. For every epsilon: no factor e^epsilon belongs to it.
/// Releases add up. Grows with mu and with d; 2^-76.9 for mu <= 1 and d = 2048.
///
/// Bounds the table's last digits, its end, and the smoothing of the sums:
/// docs/design/differential-privacy.md.
/// @param mu  in [0, 16];  @param d  at least 1, at most 2^30
/// @throws parameter_error for anything else
/// Cost: a few microseconds.
inline double discrete_noise_slack(double mu, std::size_t d) {
    if (!(mu >= 0 && mu <= largest_release_mu)) {
        throw parameter_error("dp::discrete_noise_slack: mu: got " + tensafe::detail::shortest_text(mu) +
                              ", expected 0 to 16");
    }
    if (d < 1 || d > std::size_t{1} << 30) {
        throw parameter_error("dp::discrete_noise_slack: d: got " + std::to_string(d) +
                              ", expected 1 to 2^30");
    }
    constexpr double leaves = 16;
    constexpr int last = 89;                               // the largest magnitude of a leaf
    constexpr double leaf_deviation = 6.7945744023041525;  // the root of 32 / ln 2
    constexpr double largest_share = 0.3105;               // of the result's deviation that one leaf carries
    constexpr double table_error = 0x1p-126;               // of each probability
    constexpr double smoothing_error = 0x1p-88;  // relative, in both worlds, with the rounded Gaussian's
    const double shift = largest_share * mu;
    double unlikely = 0;
    for (int i = -last; i <= last; ++i) {
        unlikely += std::exp(shift * (i / leaf_deviation - shift / 2));
    }
    const double beyond = std::erfc((last / leaf_deviation - shift) / 1.4142135623730951);  // both ends
    const double one = leaves * (table_error * unlikely + beyond) + smoothing_error;
    // A thousandth covers all rounding here.
    return 1.001 * static_cast<double>(d) * one;
}

}  // namespace tensafe::dp
