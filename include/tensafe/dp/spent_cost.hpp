#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/shortest_text.hpp>
#include <tensafe/dp/gaussian_accountant.hpp>
#include <tensafe/dp/gaussian_mechanism.hpp>
#include <tensafe/dp/release_grant.hpp>
#include <tensafe/dp/round_up.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace tensafe::dp {

/// What one principal's releases have cost so far. Sums are rounded up, never down.
///
/// Where earlier answers decided how many releases were made, or of which costs, only the budget was promised
/// beforehand: what is read here afterwards is then an account, and no promise of (epsilon, delta).
struct spent_cost {
    double mu_squared = 0;       ///< the sum over all releases: Gaussian mechanisms compose exactly so
    double delta_slack = 0;      ///< the sum over all releases
    std::uint64_t releases = 0;  ///< that were charged, made or not

    friend bool operator==(const spent_cost&, const spent_cost&) = default;

    /// The smallest delta for which all of it together is (epsilon, delta) differentially private, rounded
    /// up. Dong, Roth, Su, "Gaussian differential privacy" (2019).
    /// @throws parameter_error unless epsilon is finite and not negative
    double delta(double epsilon) const {
        detail::check_not_negative("spent_cost::delta", "epsilon", epsilon);
        const double gaussian = mu_squared > 0 ? gaussian_accountant(mu_squared).delta(epsilon) : 0.0;
        return detail::add_up(gaussian, delta_slack);
    }

    /// The smallest epsilon for which all of it together is (epsilon, delta) differentially private, rounded
    /// up; infinite if delta is not above the slack.
    /// @throws parameter_error unless delta is in (0, 1)
    double epsilon(double delta) const {
        detail::check_delta("spent_cost::epsilon", delta);
        const double rest = detail::next_below(delta - delta_slack);
        if (!(rest > 0)) {
            return std::numeric_limits<double>::infinity();
        }
        return mu_squared > 0 ? gaussian_accountant(mu_squared).epsilon(rest) : 0.0;
    }

    /// What this and further releases cost together.
    /// @throws budget_error if a number does not hold it; what gaussian_accountant throws
    spent_cost plus(const release_cost& cost, std::uint64_t times) const {
        spent_cost result;
        gaussian_accountant sum(mu_squared);
        sum.add(cost.mu, times);
        result.mu_squared = sum.mu_squared();
        result.delta_slack =
            detail::add_up(delta_slack, detail::multiply_up(cost.delta_slack, detail::to_double_up(times)));
        result.releases = releases + times;
        if (result.releases < releases || !std::isfinite(result.mu_squared) ||
            !std::isfinite(result.delta_slack)) {
            throw budget_error("dp::spent_cost::plus: got " + std::to_string(times) + " releases beside " +
                               std::to_string(releases) + ", more than can be counted");
        }
        return result;
    }

    /// @param where  what messages begin with
    /// @throws format_error unless a ledger can have come to this
    void check(const std::string& where) const {
        if (!(mu_squared >= 0) || !std::isfinite(mu_squared)) {
            throw format_error(where + ": mu_squared: got " + tensafe::detail::shortest_text(mu_squared) +
                               ", expected a finite number, 0 or more");
        }
        if (!(delta_slack >= 0 && delta_slack < 1)) {
            throw format_error(where + ": delta_slack: got " + tensafe::detail::shortest_text(delta_slack) +
                               ", expected 0 or more, below 1");
        }
        if ((releases == 0) != (mu_squared == 0) || (releases == 0 && delta_slack > 0)) {
            throw format_error(where + ": got " + std::to_string(releases) + " releases for mu_squared " +
                               tensafe::detail::shortest_text(mu_squared) + " and delta_slack " +
                               tensafe::detail::shortest_text(delta_slack) +
                               ", expected a cost for releases and none without");
        }
    }
};

}  // namespace tensafe::dp
