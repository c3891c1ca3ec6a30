#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/dp/round_up.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tensafe::dp {

/// A promise of differential privacy: for any two inputs that count as neighbours, and any set S of outputs,
/// P(output of the one in S) <= e^epsilon * P(output of the other in S) + delta. Smaller is more private.
/// Dwork, Roth, "The algorithmic foundations of differential privacy" (2014), definition 2.4.
///
/// A plain value. docs/differential-privacy.md says what counts as a neighbour here.
struct privacy_budget {
    /// The bound of the privacy loss, positive and finite. 1 is a strong promise, 10 a weak one.
    double epsilon;
    /// The additive part, in (0, 1). A chance that the promise fails altogether is within it: choose it far
    /// below one over the number of people.
    double delta;

    /// Checks the budget.  @throws parameter_error unless epsilon > 0 is finite and 0 < delta < 1
    void check() const {
        require<parameter_error>(
            epsilon > 0 && std::isfinite(epsilon),
            {"privacy_budget: epsilon: got ", epsilon, ", expected a positive, finite number"});
        require<parameter_error>(delta > 0 && delta < 1, {"privacy_budget: delta: got ", delta,
                                                          ", expected a number above 0 and below 1"});
    }

    friend bool operator==(const privacy_budget&, const privacy_budget&) = default;
};

// What adding Gaussian noise promises. Balle, Wang, "Improving the Gaussian mechanism for differential
// privacy: analytical calibration and optimal denoising" (2018), theorem 8: necessary and sufficient, so
// that no other formula gives less noise. Proofs, and of the rounding too:
// docs/differential-privacy.md.
//
// mu is the sensitivity (the largest distance of what two neighbours release, in the Euclidean norm) divided
// by the noise's standard deviation: it says all about a release. All functions are thread-safe.

// The tail of the normal distribution, for arguments of any size without underflow: divided by its density.

namespace detail {

inline constexpr double root_of_two = 1.41421356237309504880;
inline constexpr double root_of_half_pi = 1.25331413731550025121;       // sqrt(pi / 2)
inline constexpr double one_over_root_two_pi = 0.39894228040143267794;  // density at 0

/// The density of the normal distribution.
inline double normal_density(double x) noexcept {
    return one_over_root_two_pi * std::exp(-x * x / 2);
}

/// Laplace's continued fraction 1/(x + 2/(x + 3/(x + ...))): what mills_ratio(x) = 1/(x + it) needs.
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

/// The slope with which Mills' ratio falls: -R'(x) = 1 - x R(x), positive; like 1/x^2 for large x. Relative
/// error below 2^-45, under the condition of mills_ratio.
/// @pre  x >= -1
inline double mills_slope(double x) noexcept {
    TENSAFE_PRECONDITION(x >= -1);
    if (x >= 2) {
        const double fraction = laplace_fraction(x);
        return fraction / (x + fraction);
    }
    return 1 - x * mills_ratio(x);
}

/// The relative error that the computed delta may have: proved in the design page.
inline constexpr double delta_error = 0x1p-40;
/// The largest mu: beyond, the error of epsilon / mu - mu / 2 is not bounded, for an epsilon of 2^79 and
/// more.
inline constexpr double largest_computed_mu = 0x1p40;

inline void check_not_negative(const char* where, const char* what, double x) {
    require<parameter_error>(x >= 0 && std::isfinite(x), {where, ": ", what, ": got ", x,
                                                          ", expected a finite number that is not negative"});
}

inline void check_delta(const char* where, double delta) {
    require<parameter_error>(delta > 0 && delta < 1,
                             {where, ": delta: got ", delta, ", expected a number above 0 and below 1"});
}

/// Computes epsilon / mu - mu / 2, also where the two almost cancel.  @pre  0 < mu <= largest_computed_mu
inline double loss_threshold(double epsilon, double mu) noexcept {
    const double square = mu * mu;
    const double square_rest = std::fma(mu, mu, -square);
    // Exact where the two are within a factor of two of each other, one rounding elsewhere.
    const double difference = epsilon - square / 2;
    return (difference - square_rest / 2) / mu;
}

/// Computes R(a) - R(a + width), the integral of the slope: Gauss and Legendre's rule with eight points,
/// whose error is below 2^-60 of the value (the design page). No cancellation, however small the width.
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
    require<parameter_error>(
        sensitivity > 0 && std::isfinite(sensitivity),
        {"gaussian_deviation: sensitivity: got ", sensitivity, ", expected a positive, finite number"});
    const double deviation = detail::next_above(sensitivity / largest_mu(budget));
    require<parameter_error>(
        std::isfinite(deviation),
        {"gaussian_deviation: sensitivity ", sensitivity, " under epsilon ", budget.epsilon, " and delta ",
         budget.delta, ": got a deviation beyond the largest double, expected a larger budget"});
    return deviation;
}

/// Adds up what several releases with Gaussian noise cost together: exactly as much as one whose mu is the
/// root of the sum of their mu^2, also where later questions depend on earlier answers. No inequality is
/// involved, so that nothing is lost. Dong, Roth, Su, "Gaussian differential privacy" (2019), corollary 3.3.
///
/// The sum is one double, rounded up wherever it is rounded: it never counts too little, and n additions
/// count at most (n + 3) * 2^-52 of it too much, unless a square is below 1e-250. It is all there is to save:
/// gaussian_accountant(a.mu_squared()) goes on exactly like a.
///
/// If the number or the costs of releases were chosen by earlier answers, delta and epsilon of what was added
/// are not promised afterwards: only what was a limit beforehand is (docs/differential-privacy.md).
///
/// A plain value; two threads may read one, but not while another adds.
class gaussian_accountant {
  public:
    /// Makes an accountant of nothing released yet.
    gaussian_accountant() noexcept = default;

    /// Goes on from a saved mu_squared().
    /// @throws parameter_error unless it is finite and not negative
    explicit gaussian_accountant(double mu_squared) : mu_squared_(mu_squared) {
        detail::check_not_negative("gaussian_accountant", "mu_squared", mu_squared);
    }

    /// Counts `times` releases.
    /// @param mu  the sensitivity over the noise's standard deviation; finite, not negative
    /// @throws parameter_error for another mu, or if the sum is beyond the largest double: nothing is counted
    /// then
    void add(double mu, std::uint64_t times = 1) {
        detail::check_not_negative("gaussian_accountant::add", "mu", mu);
        const double square = detail::multiply_up(mu, mu);
        const double squares = detail::multiply_up(square, detail::to_double_up(times));
        const double sum = detail::add_up(mu_squared_, squares);
        require<parameter_error>(sum <= std::numeric_limits<double>::max(),
                                 {"gaussian_accountant::add: mu: got ", mu, ", ", times,
                                  " times, expected a sum of mu^2 that a double can hold"});
        mu_squared_ = sum;
    }

    /// The sum of all mu^2: never below the true one.
    double mu_squared() const noexcept { return mu_squared_; }

    /// The mu of one release that costs as much as all: never below the true one.
    double mu() const noexcept { return detail::root_up(mu_squared_); }

    /// The delta that all releases together keep at this epsilon: gaussian_delta(epsilon, mu()).
    /// @throws parameter_error unless epsilon is finite and not negative
    double delta(double epsilon) const { return gaussian_delta(epsilon, mu()); }

    /// The epsilon that all releases together keep at this delta: gaussian_epsilon(delta, mu()).
    /// @throws parameter_error unless delta is in (0, 1)
    double epsilon(double delta) const { return gaussian_epsilon(delta, mu()); }

    friend bool operator==(const gaussian_accountant&, const gaussian_accountant&) = default;

  private:
    double mu_squared_ = 0;
};

}  // namespace tensafe::dp
