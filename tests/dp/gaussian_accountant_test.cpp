#include <tensafe/dp/gaussian_mechanism.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using namespace tensafe::dp;

__extension__ typedef unsigned __int128 wide;

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

/// An epsilon of Gaussian noise by Renyi divergences, the least of a thousand orders. Canonne, Kamath,
/// Steinke, "The discrete Gaussian for differential privacy" (2020), proposition 12.
double renyi_epsilon(double delta, double mu) {
    double best = infinity;
    for (double lambda = 0x1p-10; lambda < 0x1p31; lambda *= 1.03) {
        const double order = lambda + 1;
        best = std::min(best, order * mu * mu / 2 - std::log1p(1 / lambda) -
                                  (std::log(delta) + std::log(order)) / lambda);
    }
    return best;
}

}  // namespace

TEST_CASE("without releases nothing is spent") {
    const gaussian_accountant accountant;
    CHECK(accountant.mu() == 0);
    CHECK(accountant.mu_squared() == 0);
    CHECK(accountant.delta(0) == 0);
    CHECK(accountant.epsilon(1e-12) == 0);
}

TEST_CASE("squares of mu add up exactly where doubles can hold them") {
    gaussian_accountant accountant;
    accountant.add(3);
    accountant.add(4);
    CHECK(accountant.mu_squared() == 25);
    CHECK(accountant.mu() == 5);
    accountant.add(0.5, 300);
    CHECK(accountant.mu_squared() == 100);
    CHECK(accountant.mu() == 10);
    CHECK(accountant.delta(50) == gaussian_delta(50, 10));
    CHECK(accountant.epsilon(1e-5) == gaussian_epsilon(1e-5, 10));
}

TEST_CASE("published compositions of Gaussian mechanisms") {
    // google/differential-privacy, python/dp_accounting, pld_privacy_accountant_test.py
    // (test_gaussian_basic): noise multiplier sqrt(3), once and twice more, gives delta 0.126936 at
    // epsilon 1. That accountant works by other means: it convolves the distributions of the privacy loss.
    gaussian_accountant three;
    three.add(1 / std::sqrt(3.0));
    three.add(1 / std::sqrt(3.0), 2);
    CHECK(std::abs(three.delta(1) - 0.126936) < 1e-6);
    CHECK(std::abs(three.epsilon(0.126936) - 1) < 1e-5);

    // The same, privacy_loss_distribution_test.py (test_gaussian_self_composition): deviation 1, sensitivity
    // 1, four times, is sensitivity 2; deviation 2, sensitivity 1, nine times, is sensitivity 3.
    gaussian_accountant four_times;
    four_times.add(1, 4);
    CHECK(four_times.mu() == 2);
    gaussian_accountant nine;
    nine.add(0.5, 9);
    CHECK(nine.mu() == 1.5);

    // go/noise/gaussian_noise_test.go: four values of sensitivity 1 with deviation 20 (TestDeltaForGaussian),
    // two of sensitivity 1 with deviation 1 (thresholdGaussianTestCases).
    gaussian_accountant four;
    four.add(1.0 / 20, 4);
    CHECK(std::abs(four.delta(0.1) - 0.008751768145810) < 1e-13);
    gaussian_accountant two;
    two.add(1);
    two.add(1);
    CHECK(std::abs(two.delta(std::log(3.0)) - 0.26546844106038714) < 1e-11);
}

TEST_CASE("published compositions of thousands of steps") {
    // Bu, Dong, Long, Su, "Deep learning with Gaussian differential privacy" (2020): a step that takes each
    // example with probability p is p sqrt(e^(1/s^2) - 1) in units of mu, and the steps' squares add up.
    const double p = 256 / 60000.0;
    const auto step = [&](double noise) { return p * std::sqrt(std::exp(1 / (noise * noise)) - 1); };

    // The authors' gdp_accountant.py and README (woodyx218/Deep-Learning-with-GDP-Tensorflow): 15 epochs of
    // 60000 / 256 steps with noise 1.3 are 0.227-GDP, and epsilon is 0.8345 for delta 1e-5.
    gaussian_accountant fifteen_epochs;
    fifteen_epochs.add(step(1.3), 3515);
    fifteen_epochs.add(step(1.3) * std::sqrt(0.625));  // the rest of the 3515.625 steps
    CHECK(std::abs(fifteen_epochs.mu() - 0.227) < 5e-4);
    CHECK(std::abs(fifteen_epochs.epsilon(1e-5) - 0.8345) < 5e-5);

    // Figure 4 of the article (PMC7695347): 20 epochs with noise 1.06: mu 0.35, (1.34, 1e-5)-DP; and mu 1.78,
    // (8.68, 1e-5)-DP.
    gaussian_accountant twenty_epochs;
    twenty_epochs.add(step(1.06), 4687);
    twenty_epochs.add(step(1.06) * std::sqrt(0.5));
    CHECK(std::abs(twenty_epochs.mu() - 0.35) < 5e-3);
    CHECK(std::abs(twenty_epochs.epsilon(1e-5) - 1.34) < 5e-3);
    CHECK(gaussian_epsilon(1e-5, 1.775) < 8.68);
    CHECK(gaussian_epsilon(1e-5, 1.785) > 8.68);
}

TEST_CASE(
    "another theory, that of Renyi divergences, gives up to 15 % more than the exact epsilon, never less") {
    // google/differential-privacy, rdp_privacy_accountant_test.py (test_compute_epsilon_delta_gaussian), and
    // opendp/opendp, test_gaussian_curve.
    CHECK(renyi_epsilon(1e-6, 1 / 4.530877117) == doctest::Approx(1).epsilon(1e-4));
    CHECK(renyi_epsilon(1e-3, 1.0 / 4) == doctest::Approx(0.6880024554878085).epsilon(1e-4));
    for (const double mu : {0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0}) {
        for (const double delta : {1e-5, 1e-6, 1e-9, 1e-12, 1e-20, 1e-100}) {
            INFO("mu := ", mu, ", delta := ", delta);
            gaussian_accountant accountant;
            accountant.add(mu / 4, 16);
            CHECK(renyi_epsilon(delta, mu) >= accountant.epsilon(delta));
            CHECK(renyi_epsilon(delta, mu) <= 1.15 * accountant.epsilon(delta));
        }
    }
}

TEST_CASE("a sum is never below the true one, and hardly above it") {
    random_numbers source(1);
    for (int round = 0; round < 100; ++round) {
        // Numbers of 20 bits: the true sum of squares is a whole number of 2^-60.
        gaussian_accountant accountant;
        wide exact = 0;
        for (int k = 0; k < 50; ++k) {
            const std::uint64_t bits = (source() >> 44) + 1;
            const std::uint64_t times = (source() >> (1 + source() % 60)) + 1;
            accountant.add(std::ldexp(static_cast<double>(bits), -30), times);
            exact += static_cast<wide>(bits * bits) * times;
        }
        const double scaled = std::ldexp(accountant.mu_squared(), 60);
        CHECK(static_cast<wide>(scaled) >= exact);
        CHECK(scaled <= static_cast<double>(exact) * (1 + 53 * 0x1p-52));
    }
}

TEST_CASE("mu is never below the root of the sum") {
    for (const double mu_squared : {2.0, 3.0, 0.1, 1e-9, 1e20}) {
        const double mu = gaussian_accountant(mu_squared).mu();
        CHECK(std::fma(mu, mu, -mu_squared) >= 0);
    }
}

TEST_CASE("the smallest release counts, whatever there is already") {
    gaussian_accountant accountant(1.0);
    accountant.add(1e-30);
    CHECK(accountant.mu_squared() > 1.0);
    gaussian_accountant fresh;
    fresh.add(1e-300);  // its square is below the smallest double
    CHECK(fresh.mu_squared() > 0);
}

TEST_CASE("saved and reloaded, an accountant goes on as if nothing had happened") {
    random_numbers source(2);
    gaussian_accountant whole;
    gaussian_accountant reloaded;
    for (int k = 0; k < 1000; ++k) {
        const double mu = source.uniform(0, 1);
        const std::uint64_t times = source() % 10;
        whole.add(mu, times);
        reloaded = gaussian_accountant(reloaded.mu_squared());
        reloaded.add(mu, times);
        REQUIRE(whole == reloaded);
    }
    CHECK(whole.mu() == reloaded.mu());
}

TEST_CASE("a number of releases that is no double is rounded up") {
    gaussian_accountant accountant;
    accountant.add(1, (std::uint64_t{1} << 53) + 1);
    CHECK(accountant.mu_squared() == 0x1p53 + 2);
}

TEST_CASE("2^64 - 1 releases are counted in one step") {
    gaussian_accountant accountant;
    accountant.add(0x1p-32, most);
    CHECK(accountant.mu_squared() == 1);  // 1 - 2^-64, rounded up
    CHECK(accountant.mu() == 1);
    CHECK(std::abs(accountant.delta(1) - 0.12693674) < 1e-8);
    accountant.add(0x1p-32, 0);
    accountant.add(1e200, 0);
    accountant.add(0, most);
    CHECK(accountant.mu_squared() == 1);
}

TEST_CASE("what cannot be counted is refused, and nothing is lost") {
    gaussian_accountant accountant;
    accountant.add(3);
    for (const double bad : {not_a_number, infinity, -1.0}) {
        CHECK_THROWS_AS(accountant.add(bad), parameter_error);
        CHECK_THROWS_AS(accountant.add(bad, 0), parameter_error);
        CHECK_THROWS_AS(gaussian_accountant{bad}, parameter_error);
    }
    CHECK_THROWS_AS(accountant.add(1e200), parameter_error);
    CHECK_THROWS_AS(accountant.add(1e150, most), parameter_error);
    CHECK_THROWS_WITH_AS(
        accountant.add(1e154, 2),
        "gaussian_accountant::add: mu: got 1e+154, 2 times, expected a sum of mu^2 that a double can hold",
        parameter_error);
    CHECK(accountant.mu_squared() == 9);
    gaussian_accountant full(std::numeric_limits<double>::max());
    CHECK_THROWS_AS(full.add(1e150), parameter_error);
    CHECK(full.mu_squared() == std::numeric_limits<double>::max());
    CHECK_THROWS_AS(accountant.delta(-1), parameter_error);
    CHECK_THROWS_AS(accountant.epsilon(0), parameter_error);
}
