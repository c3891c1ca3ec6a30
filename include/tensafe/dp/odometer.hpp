#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/dp/gaussian_mechanism.hpp>
#include <tensafe/dp/round_up.hpp>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace tensafe::dp {

/// The cost of one release, which is close to a Gaussian mechanism of this mu, in a sense that adds up.
///
/// Let P and P' be the distributions of what leaves for two neighbouring inputs, in either order, given
/// everything that left before. There must be an ideal pair G, G', no easier to tell apart than N(0, 1) and
/// N(mu, 1), such that P is within statistical distance s1 of G, and P' >= (1 - W) G' for some function W of
/// what leaves, from 0 to 1, whose mean under G is at most s2. That is, P' shows what G' does, but for what
/// is rare under G. Then delta_slack = s1 + s2. One that reveals its input with probability s, visibly, and
/// is Gaussian otherwise has slack s. The squares of mu add up over releases, and so do the slacks, at every
/// epsilon.
///
/// Where nothing but a statistical distance t of both P and P' from the ideal pair is known, the slack is not
/// t but (1 + e^E) t, for the largest epsilon E that is ever asked of this ledger, also by
/// odometer::epsilon. Such slacks must not be stored under a budget that may grow.
struct release_cost {
    double mu = 0;           ///< sensitivity / standard deviation; above 0, finite
    double delta_slack = 0;  ///< what discretisation and sampling add to delta, in [0, 1)

    friend bool operator==(const release_cost&, const release_cost&) = default;

    /// Checks the cost.  @throws parameter_error unless both numbers are in range
    void check() const {
        require<parameter_error>(mu > 0 && std::isfinite(mu),
                                 {"dp::release_cost: mu: got ", mu, ", expected a finite number above 0"});
        require<parameter_error>(
            delta_slack >= 0 && delta_slack < 1,
            {"dp::release_cost: delta_slack: got ", delta_slack, ", expected 0 or more, below 1"});
    }
};

/// The right to release something a number of times at one cost, paid for already: dp::ledger gives it for a
/// charge, and gaussian_release takes one from it before it draws any noise. Only a ledger makes one that is
/// worth anything. What is left when it is destroyed is spent all the same.
///
/// It does not know its principal: whoever holds it sees to it that what is released is that one's.
///
/// Movable, not copyable: one moved from has nothing left. Threads may spend one at the same time, but not
/// move it meanwhile. Nothing allocates but the messages of errors.
class release_charge {
  public:
    /// Makes a charge that is worth nothing, to be assigned to.
    release_charge() noexcept = default;
    release_charge(const release_charge&) = delete;
    release_charge& operator=(const release_charge&) = delete;
    release_charge(release_charge&& other) noexcept
        : cost_(std::exchange(other.cost_, {})), left_(other.left_.exchange(0)) {}
    /// Takes over another charge; what this one had left is lost.
    release_charge& operator=(release_charge&& other) noexcept {
        if (this != &other) {
            cost_ = std::exchange(other.cost_, {});
            left_ = other.left_.exchange(0);
        }
        return *this;
    }
    ~release_charge() = default;

    /// The number of releases that may still be made.
    std::uint64_t left() const noexcept { return left_.load(); }
    /// The cost of each of them; 0 and 0 if this was moved from or never given by a ledger.
    const release_cost& cost() const noexcept { return cost_; }

    /// Takes one release.
    /// @param cost  that of the release to be made: exactly the one that was charged
    /// @throws budget_error if nothing is left or the cost is another one; nothing is taken then
    void spend(const release_cost& cost) {
        std::uint64_t left = left_.load();
        do {
            require<budget_error>(left != 0, {"dp::release_charge::spend: got a charge with nothing left, "
                                              "expected one release of it; charge the ledger for more"});
            if (!(cost == cost_)) {  // texts allocate
                throw budget_error({"dp::release_charge::spend: got a release of ", text(cost),
                                    ", expected one of the cost that was charged, ", text(cost_)});
            }
        } while (!left_.compare_exchange_weak(left, left - 1));
    }

  private:
    friend class ledger;

    release_charge(const release_cost& cost, std::uint64_t releases) noexcept
        : cost_(cost), left_(releases) {}

    static std::string text(const release_cost& cost) {
        return "mu " + shortest_text(cost.mu) + " and slack " + shortest_text(cost.delta_slack);
    }

    release_cost cost_;
    std::atomic<std::uint64_t> left_ = 0;
};

/// The account of what one principal's releases have cost so far. Sums are rounded up, never down.
///
/// Where earlier answers decided how many releases were made, or of which costs, only the budget was promised
/// beforehand: what is read here afterwards is then an account, and no promise of (epsilon, delta).
struct odometer {
    double mu_squared = 0;       ///< the sum over all releases: Gaussian mechanisms compose exactly so
    double delta_slack = 0;      ///< the sum over all releases
    std::uint64_t releases = 0;  ///< releases that were charged, made or not

    friend bool operator==(const odometer&, const odometer&) = default;

    /// The smallest delta for which all of it together is (epsilon, delta) differentially private, rounded
    /// up. Dong, Roth, Su, "Gaussian differential privacy" (2019).
    /// @throws parameter_error unless epsilon is finite and not negative
    double delta(double epsilon) const {
        detail::check_not_negative("odometer::delta", "epsilon", epsilon);
        const double gaussian = mu_squared > 0 ? gaussian_accountant(mu_squared).delta(epsilon) : 0.0;
        return detail::add_up(gaussian, delta_slack);
    }

    /// The smallest epsilon for which all of it together is (epsilon, delta) differentially private, rounded
    /// up; infinite if delta is not above the slack.
    /// @throws parameter_error unless delta is in (0, 1)
    double epsilon(double delta) const {
        detail::check_delta("odometer::epsilon", delta);
        const double rest = detail::next_below(delta - delta_slack);
        if (!(rest > 0)) {
            return std::numeric_limits<double>::infinity();
        }
        return mu_squared > 0 ? gaussian_accountant(mu_squared).epsilon(rest) : 0.0;
    }

    /// The account after `times` further releases of this cost.
    /// @throws budget_error if a number does not hold it; what gaussian_accountant throws
    odometer plus(const release_cost& cost, std::uint64_t times) const {
        odometer result;
        gaussian_accountant sum(mu_squared);
        sum.add(cost.mu, times);
        result.mu_squared = sum.mu_squared();
        result.delta_slack =
            detail::add_up(delta_slack, detail::multiply_up(cost.delta_slack, detail::to_double_up(times)));
        result.releases = releases + times;
        require<budget_error>(
            result.releases >= releases && std::isfinite(result.mu_squared) &&
                std::isfinite(result.delta_slack),
            {"dp::odometer::plus: got ", times, " releases beside ", releases, ", more than can be counted"});
        return result;
    }

    /// Checks an account.
    /// @param where  what messages begin with
    /// @throws format_error unless a ledger can have come to this
    void check(const std::string& where) const {
        require<format_error>(
            mu_squared >= 0 && std::isfinite(mu_squared),
            {where, ": mu_squared: got ", mu_squared, ", expected a finite number, 0 or more"});
        require<format_error>(delta_slack >= 0 && delta_slack < 1,
                              {where, ": delta_slack: got ", delta_slack, ", expected 0 or more, below 1"});
        require<format_error>(
            (releases == 0) == (mu_squared == 0) && (releases != 0 || delta_slack <= 0),
            {where, ": got ", releases, " releases for mu_squared ", mu_squared, " and delta_slack ",
             delta_slack, ", expected a cost for releases and none without"});
    }
};

}  // namespace tensafe::dp
