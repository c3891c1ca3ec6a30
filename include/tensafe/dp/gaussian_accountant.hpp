#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/shortest_text.hpp>
#include <tensafe/dp/gaussian_mechanism.hpp>
#include <tensafe/dp/round_up.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace tensafe::dp {

/// What several releases with Gaussian noise cost together: exactly as much as one whose mu is the root of
/// the sum of their mu^2, also where later questions depend on earlier answers. No inequality is involved, so
/// that nothing is lost. Dong, Roth, Su, "Gaussian differential privacy" (2019), corollary 3.3.
///
/// The sum is one double, rounded up wherever it is rounded: it never counts too little, and n additions
/// count at most (n + 3) * 2^-52 of it too much, unless a square is below 1e-250. It is all there is to save:
/// gaussian_accountant(a.mu_squared()) goes on exactly like a.
///
/// If the number or the costs of releases were chosen by earlier answers, delta and epsilon of what was added
/// are not promised afterwards: only what was a limit beforehand is (docs/design/differential-privacy.md).
///
/// A plain value; two threads may read one, but not while another adds.
class gaussian_accountant {
  public:
    /// Nothing released yet.
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
        if (!(sum <= std::numeric_limits<double>::max())) {
            throw parameter_error("gaussian_accountant::add: mu: got " + tensafe::detail::shortest_text(mu) +
                                  ", " + std::to_string(times) +
                                  " times, expected a sum of mu^2 that a double can hold");
        }
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
