#include <tensafe/dp/gaussian_mechanism.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using namespace tensafe::dp::detail;
using namespace tensafe;
using dp::gaussian_delta;
using dp::gaussian_deviation;
using dp::gaussian_epsilon;
using dp::largest_mu;
using dp::privacy_budget;

std::string refusal_of(const privacy_budget& budget) {
    return refusal<parameter_error>([&] { budget.check(); });
}

/// The rows of a reference of 700 digits in tests/data/dp, whose first lines say what they are.
std::vector<std::array<double, 3>> numbers(const char* name) {
    std::ifstream file(std::filesystem::path(TENSAFE_TEST_DATA) / "dp" / name);
    std::vector<std::array<double, 3>> rows;
    for (std::string line; std::getline(file, line);) {
        std::istringstream cells(line);
        if (std::array<double, 3> row{}; cells >> row[0] >> row[1] >> row[2]) {
            rows.push_back(row);
        }
    }
    REQUIRE(rows.size() > 20);
    return rows;
}

constexpr double least = std::numeric_limits<double>::min();

double log_uniform(random_numbers& source, double low, double high) {
    return std::exp(source.uniform(std::log(low), std::log(high)));
}

}  // namespace

TEST_CASE("every positive epsilon and every delta between 0 and 1 is a budget") {
    CHECK_NOTHROW((privacy_budget{1, 1e-5}.check()));
    CHECK_NOTHROW((privacy_budget{std::numeric_limits<double>::denorm_min(), 1e-320}.check()));
    CHECK_NOTHROW((privacy_budget{std::numeric_limits<double>::max(), 1 - 0x1p-53}.check()));
}

TEST_CASE("anything else is refused, and the message says what was given and what is needed") {
    CHECK(refusal_of({0, 0.5}) == "privacy_budget: epsilon: got 0, expected a positive, finite number");
    CHECK(refusal_of({-1e-10, 0.5}) ==
          "privacy_budget: epsilon: got -1e-10, expected a positive, finite number");
    CHECK(contains(refusal_of({not_a_number, 0.5}), "epsilon: got nan"));
    CHECK(contains(refusal_of({infinity, 0.5}), "epsilon: got inf"));
    CHECK(refusal_of({1, 0}) == "privacy_budget: delta: got 0, expected a number above 0 and below 1");
    CHECK(contains(refusal_of({1, 1}), "delta: got 1,"));
    CHECK(contains(refusal_of({1, -0.5}), "delta: got -0.5"));
    CHECK(contains(refusal_of({1, not_a_number}), "delta: got nan"));
}

TEST_CASE("two budgets are equal if both numbers are") {
    CHECK(privacy_budget{1, 1e-5} == privacy_budget{1, 1e-5});
    CHECK(privacy_budget{1, 1e-5} != privacy_budget{2, 1e-5});
    CHECK(privacy_budget{1, 1e-5} != privacy_budget{1, 1e-6});
}

TEST_CASE("Mills' ratio and its slope agree with a reference of 700 digits as closely as is promised") {
    for (const auto& row : numbers("mills_ratio.txt")) {
        const double x = row[0];
        const double ratio = row[1];
        const double slope = row[2];
        CAPTURE(x);
        CHECK(std::abs(mills_ratio(x) / ratio - 1) < 0x1p-48);
        CHECK(std::abs(mills_slope(x) / slope - 1) < 0x1p-45);
    }
}

TEST_CASE("Mills' ratio lies between the bounds that are known for it, and falls") {
    // Birnbaum's and Sampford's inequalities.
    double before = mills_ratio(0);
    for (double x = 0.01; x < 60; x *= 1.03) {
        const double ratio = mills_ratio(x);
        CAPTURE(x);
        CHECK(ratio > 2 / (x + std::sqrt(x * x + 4)));
        CHECK(ratio < 4 / (3 * x + std::sqrt(x * x + 8)));
        CHECK(ratio < before);
        CHECK(mills_slope(x) > 0);
        before = ratio;
    }
}

TEST_CASE("the density is that of the normal distribution") {
    CHECK(normal_density(0) == doctest::Approx(0.3989422804014326779).epsilon(1e-15));
    CHECK(normal_density(-2) == doctest::Approx(0.0539909665131880520).epsilon(1e-15));
    CHECK(normal_density(30) == doctest::Approx(1.4736461348785476e-196).epsilon(1e-13));
}

TEST_CASE("delta, epsilon and the largest mu err to the safe side of a reference, and hardly at all") {
    for (const auto& row : numbers("gaussian_delta.txt")) {
        const double epsilon = row[0];
        const double mu = row[1];
        const double delta = row[2];
        INFO("epsilon := ", epsilon, ", mu := ", mu);
        CHECK(gaussian_delta(epsilon, mu) >= delta);
        CHECK(gaussian_delta(epsilon, mu) <= delta * (1 + 0x1p-38));
        if (delta <= 0.95) {  // hardly any digits of epsilon are in a larger one
            CHECK(gaussian_epsilon(delta, mu) >= epsilon);
            CHECK(gaussian_epsilon(delta, mu) <= epsilon * (1 + 1e-10) + 1e-11 * mu);
        }
        if (epsilon != 0 && delta <= 0.25) {
            CHECK(largest_mu({epsilon, delta}) <= mu);
            CHECK(largest_mu({epsilon, delta}) >= mu * (1 - 0x1p-36));
        }
    }
}

TEST_CASE("published deltas of the Gaussian mechanism") {
    struct published {
        double deviation, sensitivity, epsilon, delta, digits;
    };
    // google/differential-privacy, python/dp_accounting, privacy_loss_mechanism_test.py
    // (test_gaussian_get_delta_for_epsilon)
    for (const published& p :
         {published{1, 1, 1, 0.12693674, 1e-8}, published{2, 2, 1, 0.12693674, 1e-8},
          published{1, 3, 1, 0.78760074, 1e-8}, published{2, 6, 1, 0.78760074, 1e-8},
          published{5, 5, 2, 0.02092364, 1e-8},
          // go/noise/gaussian_noise_test.go (TestDeltaForGaussian)
          published{10, 1, 0.1, 0.008751768145810, 1e-13}, published{20, 2, 0.1, 0.008751768145810, 1e-13},
          published{10, 5, std::log(3.0), 0.004159742234000802, 1e-13},
          published{0.5, 1, 0, 0.6826894921370859, 1e-11},
          // and its small delta, "3.129776773173962e-141"
          published{500, 10, 0.5, 3.129776773173962e-141, 1e-150}}) {
        CAPTURE(p.epsilon);
        CHECK(std::abs(gaussian_delta(p.epsilon, p.sensitivity / p.deviation) - p.delta) < p.digits);
    }
}

TEST_CASE("published standard deviations of the analytic Gaussian mechanism") {
    // Balle, Wang (2018): epsilon 1, delta 1e-5, sensitivity 1. The classical formula of Dwork and Roth asks
    // for 4.84: a third more.
    const double analytic = gaussian_deviation({1, 1e-5}, 1);
    CHECK(analytic == doctest::Approx(3.7306316348).epsilon(1e-10));
    const double classical = std::sqrt(2 * std::log(1.25 / 1e-5));
    CHECK(classical == doctest::Approx(4.8448).epsilon(1e-4));
    CHECK(classical / analytic == doctest::Approx(1.2987).epsilon(1e-4));

    // google/differential-privacy, privacy_loss_mechanism_test.py (test_gaussian_from_privacy_parameters):
    // three decimals.
    CHECK(std::abs(gaussian_deviation({1, 0.12693674}, 1) - 1) < 5e-4);
    CHECK(std::abs(gaussian_deviation({1, 0.78760074}, 6) - 2) < 5e-4);
    CHECK(std::abs(gaussian_deviation({2, 0.02092364}, 5) - 5) < 5e-4);
    CHECK(std::abs(gaussian_deviation({16, 1e-5}, 1) - 0.344) < 5e-4);
    CHECK(std::abs(gaussian_deviation({16, 1e-5}, 2) - 0.688) < 5e-4);

    // go/noise/gaussian_noise_test.go (TestGaussianStatistics): variances. That implementation stops its
    // search within 0.1 % above the smallest deviation.
    struct published {
        double sensitivity, epsilon, delta, variance;
    };
    const double ln3 = std::log(3.0);
    for (const published& p :
         {published{1, ln3, 1e-10, 28.76478576660}, published{2, 2 * ln3, 1e-10, 30.637955},
          published{std::sqrt(2.0), 2 * ln3, 1e-10, 15.318977}, published{1, 2 * ln3, 1e-10, 7.65948867798},
          published{1, ln3, 1e-5, 11.73597717285}}) {
        const double deviation = gaussian_deviation({p.epsilon, p.delta}, p.sensitivity);
        CHECK(deviation * deviation <= p.variance);
        CHECK(deviation * deviation >= p.variance / (1.001 * 1.001));
    }
}

TEST_CASE("a deviation keeps its budget, and one a little smaller does not") {
    random_numbers source(1);
    for (int round = 0; round < 200; ++round) {
        const privacy_budget budget{log_uniform(source, 1e-6, 1e6), log_uniform(source, 1e-280, 0.25)};
        const double sensitivity = log_uniform(source, 1e-6, 1e6);
        INFO("budget.epsilon := ", budget.epsilon, ", budget.delta := ", budget.delta);
        const double deviation = gaussian_deviation(budget, sensitivity);
        CHECK(gaussian_delta(budget.epsilon, sensitivity / deviation) <= budget.delta);
        CHECK(gaussian_delta(budget.epsilon, sensitivity / deviation * (1 + 0x1p-35)) > budget.delta);
        CHECK(gaussian_epsilon(budget.delta, sensitivity / deviation) <= budget.epsilon * (1 + 1e-9));
        // It goes with the sensitivity.
        CHECK(gaussian_deviation(budget, 2 * sensitivity) == doctest::Approx(2 * deviation).epsilon(1e-14));
    }
}

TEST_CASE("more noise, more epsilon and more delta are each more private") {
    random_numbers source(2);
    for (int round = 0; round < 300; ++round) {
        const double mu = log_uniform(source, 1e-9, 1e3);
        // Beyond its tail there is nothing to compare.
        const double epsilon = mu * (mu / 2 + log_uniform(source, 1e-3, 20));
        INFO("mu := ", mu, ", epsilon := ", epsilon);
        const double delta = gaussian_delta(epsilon, mu);
        CHECK(gaussian_delta(epsilon, mu * 1.001) > delta);
        CHECK(gaussian_delta(epsilon * 1.001, mu) < delta);
        CHECK(gaussian_epsilon(delta, mu * 1.001) > gaussian_epsilon(delta, mu));
        CHECK(gaussian_epsilon(delta * 1.001, mu) < gaussian_epsilon(delta, mu));
        CHECK(largest_mu({epsilon * 1.001, delta}) > largest_mu({epsilon, delta}));
        CHECK(largest_mu({epsilon, delta * 1.001}) > largest_mu({epsilon, delta}));
    }
}

TEST_CASE("where the two ways of computing delta meet, they agree") {
    const double below = 0.5;
    const double above = std::nextafter(0.5, 1.0);
    for (double epsilon = 0; epsilon < 18; epsilon += 0.37) {
        CAPTURE(epsilon);
        CHECK(gaussian_delta(epsilon, above) ==
              doctest::Approx(gaussian_delta(epsilon, below)).epsilon(1e-12));
    }
    for (const double mu : {0.6, 1.0, 7.0, 100.0}) {
        const double edge = mu * mu / 2;  // a changes its sign
        CHECK(gaussian_delta(edge * (1 - 1e-15), mu) ==
              doctest::Approx(gaussian_delta(edge * (1 + 1e-15), mu)).epsilon(1e-12));
    }
}

TEST_CASE("the ends of the ranges") {
    // Nothing depends on the input.
    CHECK(gaussian_delta(0, 0) == 0);
    CHECK(gaussian_epsilon(1e-300, 0) == 0);
    // A tail below the smallest double is not nothing.
    CHECK(gaussian_delta(1e6, 1) == least);
    CHECK(gaussian_delta(1e308, 1e-300) == least);
    CHECK(gaussian_delta(0, std::numeric_limits<double>::denorm_min()) == least);
    CHECK(gaussian_delta(std::numeric_limits<double>::max(), 0x1p40) == least);
    CHECK(gaussian_delta(40.6, 1) == least);
    // No noise to speak of.
    CHECK(gaussian_delta(1, 1e6) == 1);
    CHECK(gaussian_delta(1, 0x1p40) == 1);
    CHECK(gaussian_delta(1, 1e200) == 1);
    CHECK(gaussian_epsilon(0.5, 1e200) == infinity);
    CHECK(gaussian_epsilon(0.5, 0x1p40) == doctest::Approx(0x1p79));
    CHECK(gaussian_epsilon(1e-5, 1e6) > 5e11);
    // A delta that a release has anyway costs no epsilon.
    CHECK(gaussian_epsilon(0.39, 1) == 0);
    CHECK(gaussian_epsilon(0.3829, 1) > 0);
    CHECK(gaussian_epsilon(1 - 0x1p-53, 1) == 0);
    // delta below the smallest normal double: the closed form, which is safe but not tight.
    const double epsilon = gaussian_epsilon(1e-310, 1);
    CHECK(epsilon >= 38);
    CHECK(epsilon <= 40);
    const double mu = largest_mu({1, 1e-310});
    CHECK(mu > 0.026);
    CHECK(mu < 0.0266);
    CHECK(gaussian_delta(1, mu) <= least);
    CHECK(largest_mu({std::numeric_limits<double>::denorm_min(), 1e-320}) > 0);
    // With hardly any epsilon, delta alone decides: delta = erf(mu / sqrt 8).
    CHECK(largest_mu({1e-300, 1e-5}) ==
          doctest::Approx(1e-5 * std::sqrt(2 * 3.14159265358979)).epsilon(1e-9));
    CHECK(largest_mu({1e-300, 0.5}) == doctest::Approx(1.3489795003921634).epsilon(1e-10));
    CHECK(largest_mu({1e-300, 1 - 0x1p-53}) > 8);
    // With much, epsilon alone: mu^2 / 2.
    CHECK(largest_mu({1e6, 0.5}) == doctest::Approx(1414.2).epsilon(1e-3));
    CHECK(largest_mu({std::numeric_limits<double>::max(), 0.5}) == doctest::Approx(0x1p40));
    CHECK(largest_mu({0x1p80, 0.5}) == 0x1p40);
}

TEST_CASE("what is no number, negative or infinite is refused by name") {
    for (const double bad : {not_a_number, infinity, -1.0, -1e-300}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(gaussian_delta(bad, 1), parameter_error);
        CHECK_THROWS_AS(gaussian_delta(1, bad), parameter_error);
        CHECK_THROWS_AS(gaussian_epsilon(0.1, bad), parameter_error);
        CHECK_THROWS_AS(gaussian_epsilon(bad, 1), parameter_error);
        CHECK_THROWS_AS(largest_mu({bad, 0.1}), parameter_error);
        CHECK_THROWS_AS(largest_mu({1, bad}), parameter_error);
        CHECK_THROWS_AS(gaussian_deviation({1, 0.1}, bad), parameter_error);
        CHECK_THROWS_AS(gaussian_deviation({bad, 0.1}, 1), parameter_error);
    }
    CHECK_THROWS_AS(gaussian_epsilon(0, 1), parameter_error);
    CHECK_THROWS_AS(gaussian_epsilon(1, 1), parameter_error);
    CHECK_THROWS_AS(gaussian_deviation({1, 0.1}, 0), parameter_error);
    CHECK_THROWS_WITH_AS(gaussian_delta(1, -2),
                         "gaussian_delta: mu: got -2, expected a finite number that is not negative",
                         parameter_error);
    CHECK(refusal<parameter_error>([] {
              gaussian_delta(not_a_number, 1);
          }).find("gaussian_delta: epsilon: got nan") == 0);
    CHECK_THROWS_WITH_AS(gaussian_epsilon(1.5, 1),
                         "gaussian_epsilon: delta: got 1.5, expected a number above 0 and below 1",
                         parameter_error);
    CHECK_THROWS_WITH_AS(gaussian_deviation({1e-300, 1e-300}, 1e300), Contains("expected a larger budget"),
                         parameter_error);
}
