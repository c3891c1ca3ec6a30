#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/shortest_text.hpp>
#include <tensafe/dp/normal_tail.hpp>
#include <tensafe/dp/privacy_budget.hpp>
#include <tensafe/dp/round_up.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

// What adding Gaussian noise promises. Balle, Wang, "Improving the Gaussian mechanism for differential
// privacy: analytical calibration and optimal denoising" (2018), theorem 8: necessary and sufficient, so
// that no other formula gives less noise. Proofs, and of the rounding too:
// docs/design/differential-privacy.md.
//
// mu is the sensitivity (the largest distance of what two neighbours release, in the Euclidean norm) divided
// by the noise's standard deviation: it says all about a release. All functions are thread-safe.
namespace tensafe::dp {

namespace detail {

/// How far the computed delta may be from the true one, relatively: proved in the design page.
inline constexpr double delta_error = 0x1p-40;
/// Beyond, the error of epsilon / mu - mu / 2 would have to be bounded anew, for an epsilon of 2^79 and more.
inline constexpr double largest_computed_mu = 0x1p40;

inline void check_not_negative(const char* where, const char* what, double x) {
    if (!(x >= 0) || !std::isfinite(x)) {
        throw parameter_error(std::string(where) + ": " + what + ": got " +
                              tensafe::detail::shortest_text(x) +
                              ", expected a finite number that is not negative");
    }
}

inline void check_delta(const char* where, double delta) {
    if (!(delta > 0 && delta < 1)) {
        throw parameter_error(std::string(where) + ": delta: got " + tensafe::detail::shortest_text(delta) +
                              ", expected a number above 0 and below 1");
    }
}

/// epsilon / mu - mu / 2, also where the two almost cancel.  @pre  0 < mu <= largest_computed_mu
inline double loss_threshold(double epsilon, double mu) noexcept {
    const double square = mu * mu;
    const double square_rest = std::fma(mu, mu, -square);
    // Exact where the two are within a factor of two of each other, one rounding elsewhere.
    const double difference = epsilon - square / 2;
    return (difference - square_rest / 2) / mu;
}

/// R(a) - R(a + width), the integral of the slope: Gauss and Legendre's rule with eight points, whose error
/// is below 2^-60 of the value (the design page). No cancellation, however small the width.
/// @pre  a >= -1/4, 0 < width <= 1/2
inline double mills_difference(double a, double width) noexcept {
    constexpr double points[] = {0.18343464249564980494, 0.52553240991632898582, 0.79666647741362673959,
                                 0.96028985649753623168};
    constexpr double weights[] = {0.36268378337836198297, 0.31370664587788728734, 0.22238103445337447054,
                                  0.10122853629037625915};
    const double half = width / 2;
    double sum = 0;
    for (int i = 3; i >= 0; --i) {
        sum +=
            weights[i] * (mills_slope(a + half * (1 - points[i])) + mills_slope(a + half * (1 + points[i])));
    }
    return half * sum;
}

/// A mu that keeps the budget, by closed form: from delta <= exp(-a^2 / 2) / 2 and delta <= mu / sqrt(2 pi).
inline double certain_mu(const privacy_budget& budget) noexcept {
    constexpr double down = 1 - 0x1p-30;
    const double width = std::sqrt(-2 * std::log(budget.delta));
    const double tail = 2 * (budget.epsilon / (std::sqrt(width * width + 2 * budget.epsilon) + width));
    return detail::next_below(down * std::max(tail, 2.5 * budget.delta));
}

}  // namespace detail

/// The smallest delta for which a release is (epsilon, delta)-differentially private. Never below the true
/// value, and at most 2^-38 of it above; but at least 2^-1022 unless mu is 0, and 1 if mu > 2^40.
/// @param epsilon  finite, not negative;  @param mu  finite, not negative
/// @throws parameter_error for anything else
/// Cost: microseconds.
inline double gaussian_delta(double epsilon, double mu) {
    detail::check_not_negative("gaussian_delta", "epsilon", epsilon);
    detail::check_not_negative("gaussian_delta", "mu", mu);
    if (mu == 0) {
        return 0;
    }
    if (mu > detail::largest_computed_mu) {
        return 1;
    }
    const double a = detail::loss_threshold(epsilon, mu);
    constexpr double least = std::numeric_limits<double>::min();
    if (a > 40) {
        return least;  // the tail beyond 40 is below 2^-1160
    }
    // With f the density and R Mills' ratio, e^epsilon f(a + mu) = f(a), and so
    // delta = tail(a) - e^epsilon tail(a + mu) = f(a) (R(a) - R(a + mu)): nothing overflows.
    double delta;
    if (mu <= 0.5) {
        delta = detail::normal_density(a) * detail::mills_difference(a, mu);
    } else if (a >= 0) {
        delta = detail::normal_density(a) * (detail::mills_ratio(a) - detail::mills_ratio(a + mu));
    } else {
        const double b = epsilon / mu + mu / 2;  // a + mu, but a may have lost its digits to mu
        delta = std::erfc(a / detail::root_of_two) / 2 - detail::normal_density(a) * detail::mills_ratio(b);
    }
    return std::clamp(delta * (1 + 2 * detail::delta_error), least, 1.0);
}

/// The smallest epsilon for which a release is (epsilon, delta)-differentially private: 0 if delta is large
/// enough for it. Never below the true value. Infinite if mu > 2^40.
/// @param delta  in (0, 1);  @param mu  finite, not negative
/// @throws parameter_error for anything else
/// Cost: a hundred of gaussian_delta at most.
inline double gaussian_epsilon(double delta, double mu) {
    detail::check_delta("gaussian_epsilon", delta);
    detail::check_not_negative("gaussian_epsilon", "mu", mu);
    if (mu == 0 || gaussian_delta(0, mu) <= delta) {
        return 0;
    }
    if (mu > detail::largest_computed_mu) {
        return std::numeric_limits<double>::infinity();
    }
    // delta <= exp(-a^2 / 2) / 2 says that this is enough, for any delta.
    double high = mu * (mu / 2 + std::sqrt(-2 * std::log(delta))) * (1 + 0x1p-30);
    if (!(gaussian_delta(high, mu) <= delta)) {
        return high;  // delta is below 2^-1022, which gaussian_delta does not go below
    }
    // Whatever is returned has been seen to suffice: this holds without any assumption of monotony.
    double low = 0;
    for (int step = 0; step < 100 && high - low > 0x1p-50 * high; ++step) {
        const double middle = low + (high - low) / 2;
        (gaussian_delta(middle, mu) <= delta ? high : low) = middle;
    }
    return high;
}

/// The largest mu that keeps the budget. Never above the true value; at most 2^-36 of it below, where delta
/// is at least 2^-1022 and at most 1/4.
/// @throws parameter_error if the budget is none
/// Cost: a hundred of gaussian_delta.
inline double largest_mu(const privacy_budget& budget) {
    budget.check();
    double low = std::min(detail::certain_mu(budget), detail::largest_computed_mu);
    double high = low;
    do {
        high *= 2;
    } while (gaussian_delta(budget.epsilon, high) <= budget.delta);
    for (int step = 0; step < 100 && high - low > 0x1p-50 * low; ++step) {
        const double middle = low + (high - low) / 2;
        (gaussian_delta(budget.epsilon, middle) <= budget.delta ? low : high) = middle;
    }
    return low;
}

/// The smallest standard deviation of noise that keeps the budget. Never below the true value; as close as
/// largest_mu. For epsilon 1, delta 1e-5 and sensitivity 1 it is 3.7306, where the classical formula
/// sqrt(2 ln(1.25 / delta)) / epsilon asks for 4.84.
/// @param sensitivity  the largest Euclidean distance between what two neighbours release; positive, finite
/// @return in the sensitivity's units
/// @throws parameter_error for anything else, and if no double is large enough
inline double gaussian_deviation(const privacy_budget& budget, double sensitivity) {
    if (!(sensitivity > 0) || !std::isfinite(sensitivity)) {
        throw parameter_error("gaussian_deviation: sensitivity: got " +
                              tensafe::detail::shortest_text(sensitivity) +
                              ", expected a positive, finite number");
    }
    const double deviation = detail::next_above(sensitivity / largest_mu(budget));
    if (!std::isfinite(deviation)) {
        throw parameter_error("gaussian_deviation: sensitivity " +
                              tensafe::detail::shortest_text(sensitivity) + " under epsilon " +
                              tensafe::detail::shortest_text(budget.epsilon) + " and delta " +
                              tensafe::detail::shortest_text(budget.delta) +
                              ": got a deviation beyond the largest double, expected a larger budget");
    }
    return deviation;
}

}  // namespace tensafe::dp
