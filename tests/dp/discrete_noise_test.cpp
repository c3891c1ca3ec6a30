#include <tensafe/dp/gaussian_release.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using tensafe::dp::discrete_noise_slack;

/// The page's bound for one coordinate, by adding up the leaf's probabilities in long double.
double slack_by_definition(double mu) {
    const long double variance = 32 / std::log(2.0L);
    const long double shift = static_cast<long double>(mu) * 0.3105L / std::sqrt(variance);
    long double total = 0;
    for (int i = -400; i <= 400; ++i) {
        total += std::exp2(-static_cast<long double>(i) * i / 64);
    }
    long double unlikely = 0;
    for (int i = -400; i <= 400; ++i) {
        const long double probability = std::exp2(-static_cast<long double>(i) * i / 64) / total;
        const long double wrong = i < -89 || i > 89 ? 1 : 0x1p-126L / probability;
        const long double moved = std::exp(shift * i - shift * shift * variance / 2);
        unlikely += probability * wrong * moved;
    }
    return static_cast<double>(16 * unlikely + 0x1p-88L);
}

}  // namespace

TEST_CASE("the slack is at least what its definition adds up to, and little more") {
    for (double mu = 0; mu <= 16; mu += 0.25) {
        CAPTURE(mu);
        const double expected = slack_by_definition(mu);
        CHECK(discrete_noise_slack(mu, 1) >= expected);
        CHECK(discrete_noise_slack(mu, 1) <= 2 * expected);
    }
}

TEST_CASE("the slack grows with mu and in proportion to d") {
    double before = 0;
    for (double mu = 0; mu <= 16; mu += 0.0625) {
        const double slack = discrete_noise_slack(mu, 2048);
        CHECK(slack >= before);
        CHECK(slack > 0);
        CHECK(std::abs(slack / discrete_noise_slack(mu, 1) / 2048 - 1) < 1e-12);
        before = slack;
    }
}

TEST_CASE("the slacks are those of the page") {
    CHECK(discrete_noise_slack(1, 2048) < std::exp2(-76.9));
    CHECK(discrete_noise_slack(6, 2048) < std::exp2(-75.4));
    CHECK(discrete_noise_slack(10, 2048) < std::exp2(-57.6));
    CHECK(discrete_noise_slack(16, 2048) < std::exp2(-33.6));
    CHECK(discrete_noise_slack(16, 65536) < std::exp2(-28.6));
}

TEST_CASE("a rounded Gaussian is nowhere more likely than the discrete one by more than the page says") {
    for (const long double deviation : {1.5L, 2.0L, 4.0L}) {  // of the Gaussian that is rounded
        const long double square = deviation * deviation;
        const long double discrete = square + 1.0L / 12;
        long double total = 0;
        for (int n = -200; n <= 200; ++n) {
            total += std::exp(-n * n / (2 * discrete));
        }
        long double largest = 0;
        for (int n = 0; n <= 25; ++n) {
            const long double side = deviation * std::sqrt(2.0L);
            const long double rounded = (std::erfc((n - 0.5L) / side) - std::erfc((n + 0.5L) / side)) / 2;
            const long double quotient = rounded / (std::exp(-n * n / (2 * discrete)) / total);
            const long double bound =
                (1 + 1 / (600 * square * square)) * std::exp(n * n / (288 * discrete * square * square));
            CHECK(quotient <= bound);
            largest = std::max(largest, quotient);
        }
        CHECK(largest > 1);
    }
}

TEST_CASE("slacks are refused where they promise nothing") {
    const double bad[] = {-1e-9, 16.001, not_a_number, infinity};
    for (const double mu : bad) {
        CHECK_THROWS_AS(discrete_noise_slack(mu, 8), parameter_error);
    }
    CHECK_THROWS_AS(discrete_noise_slack(1, 0), parameter_error);
    CHECK_THROWS_AS(discrete_noise_slack(1, (std::size_t{1} << 30) + 1), parameter_error);
}
