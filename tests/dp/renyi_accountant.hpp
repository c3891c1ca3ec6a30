#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/dp/gaussian_mechanism.hpp>
#include <tensafe/dp/round_up.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::dp {

/// What several releases of any kind cost together, by their Renyi divergences: for each of some orders
/// alpha > 1, the divergences of all releases add up, and any one of the sums gives an epsilon or a delta.
/// Mironov, "Renyi differential privacy" (2017), propositions 1 and 3.
///
/// For mechanisms that have no gaussian_accountant, and to see it confirmed by another theory. For Gaussian
/// noise alone, gaussian_accountant is exact, and this one is above it: by at most 15 % of epsilon for mu
/// from 0.01 to 100 and delta up to 1e-5, and by more where delta is large and epsilon small.
///
/// Everything is rounded up. A plain value; two threads may read one, but not while another adds.
class renyi_accountant {
  public:
    /// With orders from 1 + 2^-10 to nearly 1 + 2^31, eight between two powers of two: so near each other
    /// that the best one in between would give an epsilon less than 0.5 % smaller.
    renyi_accountant() : renyi_accountant(usual_orders()) {}

    /// With orders of one's own; any set of them is right, a poor one gives poor numbers.
    /// @throws parameter_error if there is none, or one is not a finite number above 1
    explicit renyi_accountant(std::vector<double> orders) : orders_(std::move(orders)) {
        if (orders_.empty()) {
            throw parameter_error("renyi_accountant: got no orders, expected one at least");
        }
        for (std::size_t i = 0; i < orders_.size(); ++i) {
            if (!(orders_[i] > 1) || !std::isfinite(orders_[i])) {
                throw parameter_error("renyi_accountant: order " + std::to_string(i) + ": got " +
                                      shortest_text(orders_[i]) + ", expected a finite number above 1");
            }
        }
        divergences_.assign(orders_.size(), 0.0);
    }

    /// The orders, in the sequence of every curve.
    std::span<const double> orders() const noexcept { return orders_; }

    /// The sum of all divergences, at each of orders(); infinite where one was.
    std::span<const double> divergences() const noexcept { return divergences_; }

    /// Counts `times` releases with Gaussian noise: each has the divergence alpha * mu^2 / 2.
    /// @param mu  the sensitivity over the noise's standard deviation; finite, not negative
    /// @throws parameter_error for another mu; nothing is counted then
    void add_gaussian(double mu, std::uint64_t times = 1) {
        detail::check_not_negative("renyi_accountant::add_gaussian", "mu", mu);
        const double half_square = detail::multiply_up(detail::multiply_up(mu, mu), 0.5);
        std::vector<double> curve(orders_.size());
        std::transform(orders_.begin(), orders_.end(), curve.begin(),
                       [&](double order) { return detail::multiply_up(order, half_square); });
        add(curve, times);
    }

    /// Counts `times` releases of which the Renyi divergence between neighbours is known, or bounded.
    /// @param curve  at each of orders(), the bound; not negative, infinite where there is none
    /// @throws shape_error unless there is one for each order;  @throws parameter_error if one is NaN or
    /// negative; nothing is counted then
    void add(std::span<const double> curve, std::uint64_t times = 1) {
        if (curve.size() != orders_.size()) {
            throw shape_error("renyi_accountant::add: got " + std::to_string(curve.size()) +
                              " divergences, expected one for each of " + std::to_string(orders_.size()) +
                              " orders");
        }
        for (std::size_t i = 0; i < curve.size(); ++i) {
            if (!(curve[i] >= 0)) {
                throw parameter_error("renyi_accountant::add: divergence " + std::to_string(i) + ": got " +
                                      shortest_text(curve[i]) + ", expected a number that is not negative");
            }
        }
        if (times == 0) {
            return;
        }
        const double count = detail::to_double_up(times);
        for (std::size_t i = 0; i < curve.size(); ++i) {
            divergences_[i] = detail::add_up(divergences_[i], detail::multiply_up(curve[i], count));
        }
    }

    /// An epsilon that all releases together keep at this delta: the smallest over all orders of
    /// D + log((alpha - 1) / alpha) - (log delta + log alpha) / (alpha - 1). Canonne, Kamath, Steinke, "The
    /// discrete Gaussian for differential privacy" (2020), proposition 12. Infinite if no order has a finite
    /// D; 0 without any inequality only if all D are 0, so that one that was rounded away is not taken for
    /// none.
    /// @throws parameter_error unless delta is in (0, 1)
    double epsilon(double delta) const {
        detail::check_delta("renyi_accountant::epsilon", delta);
        if (nothing_depends_on_the_input()) {
            return 0;
        }
        double best = std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < orders_.size(); ++i) {
            const double lambda = orders_[i] - 1;
            const double shrink = std::log1p(1 / lambda);  // log(alpha / (alpha - 1)), near 1 too
            const double wide = -std::log(delta) / lambda;
            const double narrow = std::log(orders_[i]) / lambda;
            // A bound of all rounding: each term is within 2^-49 of its size, if std::log and std::log1p are
            // within two units in the last place.
            const double rounding = 0x1p-47 * (divergences_[i] + shrink + wide + narrow);
            best = std::min(best, divergences_[i] - shrink + wide - narrow + rounding);
        }
        return std::max(best, 0.0);
    }

    /// A delta that all releases together keep at this epsilon, from the same bound. At most 1.
    /// @throws parameter_error unless epsilon is finite and not negative
    double delta(double epsilon) const {
        detail::check_not_negative("renyi_accountant::delta", "epsilon", epsilon);
        if (nothing_depends_on_the_input()) {
            return 0;
        }
        double best = 0;  // logarithms
        for (std::size_t i = 0; i < orders_.size(); ++i) {
            if (divergences_[i] == std::numeric_limits<double>::infinity()) {
                continue;
            }
            const double lambda = orders_[i] - 1;
            const double shrink = std::log1p(1 / lambda);
            const double narrow = std::log(orders_[i]);
            const double rounding = 0x1p-47 * (lambda * (divergences_[i] + shrink + epsilon) + narrow);
            const double exponent = lambda * (divergences_[i] - shrink - epsilon) - narrow + rounding;
            best = std::min(best, exponent);  // an infinite rounding gives infinity or NaN: passed over
        }
        return std::min(std::max(std::exp(best) * (1 + 0x1p-49), std::numeric_limits<double>::min()), 1.0);
    }

    friend bool operator==(const renyi_accountant&, const renyi_accountant&) = default;

  private:
    bool nothing_depends_on_the_input() const noexcept {
        return std::all_of(divergences_.begin(), divergences_.end(), [](double d) { return d == 0; });
    }

    static std::vector<double> usual_orders() {
        std::vector<double> orders;
        for (int exponent = -10; exponent <= 30; ++exponent) {
            for (int eighth = 8; eighth < 16; ++eighth) {
                orders.push_back(1 + std::ldexp(eighth / 8.0, exponent));  // exactly
            }
        }
        return orders;
    }

    std::vector<double> orders_;
    std::vector<double> divergences_;
};

}  // namespace tensafe::dp
