#include "renyi_accountant.hpp"

#include <tensafe/dp/gaussian_mechanism.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using namespace tensafe::dp;

std::vector<double> orders_between(double low, double high, double step) {
    std::vector<double> orders;
    for (double order = low; order < high; order += step) {
        orders.push_back(order);
    }
    return orders;
}

}  // namespace

TEST_CASE("without releases nothing is spent") {
    const renyi_accountant accountant;
    CHECK(accountant.epsilon(1e-12) == 0);
    CHECK(accountant.delta(0) == 0);
    CHECK(accountant.orders().size() == accountant.divergences().size());
}

TEST_CASE("the usual orders are between 1 and 2^32, rising by an eighth of alpha - 1 at most") {
    const renyi_accountant accountant;
    const auto orders = accountant.orders();
    CHECK(orders.front() == 1 + 0x1p-10);
    CHECK(orders.back() == 1 + 0x1.ep30);
    for (std::size_t i = 1; i < orders.size(); ++i) {
        CHECK(orders[i] > orders[i - 1]);
        CHECK(orders[i] - 1 <= (orders[i - 1] - 1) * 1.125);
    }
}

TEST_CASE("published divergences of the Gaussian mechanism and their sums") {
    // google/differential-privacy, python/dp_accounting, rdp_privacy_accountant_test.py
    // (test_compute_rdp_gaussian, test_compute_rdp_multi_gaussian): alpha / (2 sigma^2); Mironov (2017),
    // proposition 7.
    renyi_accountant accountant({3.14159});
    accountant.add_gaussian(1 / 2.71828);
    CHECK(accountant.divergences()[0] == doctest::Approx(3.14159 / (2 * 2.71828 * 2.71828)).epsilon(1e-14));
    accountant.add_gaussian(1 / 6.28319, 6);
    CHECK(accountant.divergences()[0] ==
          doctest::Approx(3.14159 / (2 * 2.71828 * 2.71828) + 6 * 3.14159 / (2 * 6.28319 * 6.28319))
              .epsilon(1e-14));
}

TEST_CASE("published conversions to epsilon and delta") {
    // rdp_privacy_accountant_test.py, test_compute_epsilon_delta_pure_dp: a divergence of 1.1 at the orders 2
    // to 32.
    renyi_accountant pure(orders_between(2, 33, 1));
    pure.add(std::vector<double>(pure.orders().size(), 1.1));
    CHECK(std::abs(pure.epsilon(1e-5) - 1.32783806176) < 1e-11);
    CHECK(std::abs(pure.delta(1.32783806176) - 1e-5) < 1e-14);

    // test_compute_epsilon_delta_gaussian: noise 4.530877117 is (1, 1e-6), by orders a thousandth apart.
    renyi_accountant dense(orders_between(20, 40, 0.001));
    dense.add_gaussian(1 / 4.530877117);
    CHECK(std::abs(dense.epsilon(1e-6) - 1) < 1e-7);
    CHECK(std::abs(dense.delta(1) - 1e-6) < 1e-12);

    // opendp/opendp, test_gaussian_curve (make_zCDP_to_approxDP of make_gaussian): deviation 4,
    // sensitivity 1.
    renyi_accountant zero_concentrated(orders_between(1.01, 20, 0.001));
    zero_concentrated.add_gaussian(1.0 / 4);
    CHECK(std::abs(zero_concentrated.epsilon(1e-3) - 0.6880024554878085) < 1e-7);
    CHECK(std::abs(zero_concentrated.delta(0) - 0.1508457845622862) < 1e-7);
}

TEST_CASE("for Gaussian noise the result is never below the exact one, and at most 15 % above it") {
    for (const double mu : {0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0}) {
        for (const double delta : {1e-5, 1e-6, 1e-9, 1e-12, 1e-20, 1e-100}) {
            INFO("mu := ", mu, ", delta := ", delta);
            renyi_accountant accountant;
            accountant.add_gaussian(mu);
            const double exact = gaussian_epsilon(delta, mu);
            CHECK(accountant.epsilon(delta) >= exact);
            CHECK(accountant.epsilon(delta) <= 1.15 * exact);
            CHECK(accountant.delta(exact) >= delta);
            CHECK(accountant.delta(2 * exact) >= gaussian_delta(2 * exact, mu));
        }
    }
}

TEST_CASE("the usual orders cost less than 0.5 % against dense ones") {
    for (const double mu : {0.3, 1.0, 4.0}) {
        for (const double delta : {1e-3, 1e-6, 1e-12}) {
            renyi_accountant usual;
            renyi_accountant dense(orders_between(1.001, 40, 0.001));
            usual.add_gaussian(mu);
            dense.add_gaussian(mu);
            CHECK(usual.epsilon(delta) <= 1.005 * dense.epsilon(delta));
        }
    }
}

TEST_CASE("epsilon and delta undo each other") {
    renyi_accountant accountant;
    accountant.add_gaussian(0.1, 25);
    accountant.add_gaussian(0.7);
    for (const double delta : {1e-3, 1e-6, 1e-12, 1e-100}) {
        CHECK(accountant.delta(accountant.epsilon(delta)) == doctest::Approx(delta).epsilon(1e-9));
    }
    CHECK(accountant.epsilon(0.9999) == 0);
    CHECK(accountant.delta(0) < 1);
}

TEST_CASE("orders near 1 are right too") {
    // One order alone: D + log((alpha - 1) / alpha) - (log delta + log alpha) / (alpha - 1) in Python's
    // decimal.
    struct row {
        double order, epsilon;
    };
    for (const row& expected :
         {row{1 + 0x1p-40, 17722033585806.7226871}, row{1 + 0x1p-20, 16901034.4023551832},
          row{1.5, 31.3266487970322012}, row{1e15, 0.99999999999998058}}) {
        renyi_accountant accountant({expected.order});
        accountant.add(std::vector<double>{1.0});
        CAPTURE(expected.order);
        CHECK(accountant.epsilon(1e-7) >= expected.epsilon);
        CHECK(accountant.epsilon(1e-7) <= expected.epsilon * (1 + 1e-13));
    }
}

TEST_CASE("results are rounded up") {
    // The formulas again, with a longer significand where the machine has one.
    std::mt19937_64 source(1);
    std::uniform_real_distribution<double> uniform(0, 1);
    for (int round = 0; round < 500; ++round) {
        const double order = 1 + std::exp(12 * uniform(source) - 5);
        const double divergence = std::exp(6 * uniform(source) - 4);
        const double delta = std::exp(-60 * uniform(source) - 0.1);
        renyi_accountant accountant({order});
        accountant.add(std::vector<double>{divergence});
        const auto alpha = static_cast<long double>(order);
        const long double shift = static_cast<long double>(divergence) + std::log((alpha - 1) / alpha);
        const long double epsilon =
            shift - (std::log(static_cast<long double>(delta)) + std::log(alpha)) / (alpha - 1);
        CHECK(static_cast<long double>(accountant.epsilon(delta)) >= epsilon);
        const double larger = accountant.epsilon(delta) + 0.01;
        const long double expected =
            std::exp((alpha - 1) * (shift - static_cast<long double>(larger))) / alpha;
        CHECK(static_cast<long double>(accountant.delta(larger)) >= std::min(expected, 1.0L));
    }
}

TEST_CASE("any mechanism can be counted, one by one or many at once") {
    renyi_accountant one_by_one;
    renyi_accountant at_once;
    std::vector<double> curve(one_by_one.orders().size());
    // Randomised response with probability 3/4: Mironov (2017), proposition 5.
    std::transform(one_by_one.orders().begin(), one_by_one.orders().end(), curve.begin(), [](double order) {
        return std::log(3.0) + std::log(0.75 + 0.75 * std::pow(3.0, 1 - 2 * order)) / (order - 1);
    });
    for (int k = 0; k < 10; ++k) {
        one_by_one.add(curve);
    }
    at_once.add(curve, 10);
    CHECK(one_by_one.epsilon(1e-6) == doctest::Approx(at_once.epsilon(1e-6)).epsilon(1e-12));
    // Below ten times log 3, which holds at delta = 0.
    CHECK(at_once.epsilon(1e-6) < 10 * std::log(3.0));
    CHECK(at_once.epsilon(1e-6) > std::log(3.0));
    const renyi_accountant before = at_once;
    at_once.add(curve, 0);
    CHECK(at_once == before);
    renyi_accountant all;
    all.add(curve, std::numeric_limits<std::uint64_t>::max());
    CHECK(all.divergences()[100] >= curve[100] * 0x1p64 * (1 - 0x1p-50));
}

TEST_CASE("an order without a bound is passed over, and without any bound nothing is promised") {
    renyi_accountant accountant({2, 3});
    accountant.add(std::vector<double>{0.5, infinity});
    accountant.add(std::vector<double>{0.5, infinity}, 3);
    accountant.add(std::vector<double>{0.5, 0});
    CHECK(accountant.divergences()[0] == 2.5);
    CHECK(accountant.divergences()[1] == infinity);
    CHECK(accountant.epsilon(0.01) == doctest::Approx(2.5 - std::log(2.0) - std::log(0.01) - std::log(2.0)));
    CHECK(accountant.delta(10) == doctest::Approx(std::exp(2.5 - 10 - std::log(2.0) - std::log(2.0))));
    accountant.add(std::vector<double>{infinity, 0});
    CHECK(accountant.epsilon(0.01) == infinity);
    CHECK(accountant.delta(10) == 1);
    renyi_accountant overflow;
    overflow.add_gaussian(1e200);
    CHECK(overflow.epsilon(0.5) == infinity);
    CHECK(overflow.delta(1e300) == 1);
    renyi_accountant tail;
    tail.add_gaussian(1);
    CHECK(tail.delta(1e6) == std::numeric_limits<double>::min());
}

TEST_CASE("a divergence that was rounded away at some orders is not taken for none") {
    // Randomised response of epsilon 1e-7 in doubles: at orders near 1 rounding leaves zeros.
    renyi_accountant accountant;
    std::vector<double> curve(accountant.orders().size());
    const double p = 1 / (1 + std::exp(-1e-7));
    std::transform(accountant.orders().begin(), accountant.orders().end(), curve.begin(), [&](double order) {
        const double likely = std::pow(p, order) * std::pow(1 - p, 1 - order);
        const double unlikely = std::pow(1 - p, order) * std::pow(p, 1 - order);
        const double divergence = std::log(likely + unlikely) / (order - 1);
        return divergence >= 0 ? std::min(divergence, 1e-7) : divergence < 0 ? 0 : infinity;
    });
    REQUIRE(std::count(curve.begin(), curve.end(), 0.0) > 0);
    accountant.add(curve, 400'000'000'000'000);
    // Nearly a Gaussian mechanism of mu = 2.
    CHECK(accountant.epsilon(1e-5) > 0.8 * gaussian_epsilon(1e-5, 2));
    CHECK(accountant.delta(5) > 0.1 * gaussian_delta(5, 2));

    renyi_accountant two({2, 3});
    two.add(std::vector<double>{0.5, 0});
    // Order 3 with D = 0.
    CHECK(two.epsilon(1e-5) == doctest::Approx(std::log(2.0 / 3) - (std::log(1e-5) + std::log(3.0)) / 2));
    CHECK(two.delta(1) == doctest::Approx(std::exp(2 * (std::log(2.0 / 3) - 1)) / 3));
}

TEST_CASE("what makes no sense is refused, and nothing is lost") {
    for (const double bad : {1.0, 0.5, -2.0, infinity, not_a_number}) {
        CHECK_THROWS_AS(renyi_accountant({2, bad}), parameter_error);
    }
    CHECK_THROWS_AS(renyi_accountant(std::vector<double>{}), parameter_error);
    CHECK_THROWS_WITH_AS(renyi_accountant({2, 1}),
                         "renyi_accountant: order 1: got 1, expected a finite number above 1",
                         parameter_error);
    renyi_accountant accountant({2, 3});
    accountant.add_gaussian(1);
    const renyi_accountant before = accountant;
    CHECK_THROWS_AS(accountant.add(std::vector<double>{1}), shape_error);
    CHECK_THROWS_AS(accountant.add(std::vector<double>{1, 2, 3}), shape_error);
    CHECK_THROWS_AS(accountant.add(std::vector<double>{1, -1}), parameter_error);
    CHECK_THROWS_AS(accountant.add(std::vector<double>{1, not_a_number}), parameter_error);
    for (const double bad : {not_a_number, infinity, -1.0}) {
        CHECK_THROWS_AS(accountant.add_gaussian(bad), parameter_error);
        CHECK_THROWS_AS(accountant.epsilon(bad), parameter_error);
        CHECK_THROWS_AS(accountant.delta(bad), parameter_error);
    }
    CHECK_THROWS_AS(accountant.epsilon(0), parameter_error);
    CHECK_THROWS_AS(accountant.epsilon(1), parameter_error);
    CHECK(accountant == before);
}
