#include <tensafe/ckks/precision.hpp>

#include "fixture.hpp"

using namespace fixture;
using ckks::measure_precision;

TEST_CASE("slots are compared with real values") {
    const std::vector<double> expected = {1, 2};
    const std::vector<std::complex<double>> obtained = {{1, 0.25}, 2};
    CHECK(measure_precision(expected, obtained).worst_error == 0.25);
}

TEST_CASE("The statistics of a worked example") {
    const std::vector<double> expected{1, -2, 2, 0};
    const std::vector<double> obtained{1.25, -2.5, 2, -0.125};
    const auto report = measure_precision(expected, obtained);
    CHECK(report.worst_error == 0.5);
    CHECK(report.worst_index == 1);
    CHECK(report.worst_bits() == 1);
    CHECK(report.mean_error == 0.875 / 4);
    CHECK(report.mean_bits() == -std::log2(0.875 / 4));
    CHECK(report.relative_error == doctest::Approx(std::sqrt(0.328125) / 3));
}

TEST_CASE("Complex errors are measured by their magnitude") {
    const slot_vector expected{{1, 1}, {0, 0}};
    const slot_vector obtained{{1, 1}, {3, 4}};
    const auto report = measure_precision(expected, obtained);
    CHECK(report.worst_error == 5);
    CHECK(report.worst_index == 1);
    CHECK(report.mean_error == 2.5);
    CHECK(report.relative_error == doctest::Approx(5 / std::sqrt(2.0)));
}

TEST_CASE("Exact values have infinitely many bits and no relative error, even if all are zero") {
    for (const double value : {0.0, 3.0}) {
        const std::vector<double> values(3, value);
        const auto report = measure_precision(values, values);
        CHECK(report.worst_error == 0);
        CHECK(report.worst_index == 0);
        CHECK(report.worst_bits() == std::numeric_limits<double>::infinity());
        CHECK(report.relative_error == 0);
    }
}

TEST_CASE("NaN is the worst error of all, wherever it stands") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> expected{1, 2, 3};
    for (const std::size_t place : {0U, 1U, 2U}) {
        std::vector<double> obtained{1, 2, 4};
        obtained[place] = nan;
        const auto report = measure_precision(expected, obtained);
        CHECK(report.worst_index == place);
        CHECK(report.worst_bits() == -std::numeric_limits<double>::infinity());
    }
}

TEST_CASE("Different sizes, or nothing to compare, throw") {
    const std::vector<double> none;
    const std::vector<double> two(2);
    const std::vector<double> three(3);
    CHECK(refusal<tensafe::shape_error>([&] { measure_precision(two, three); }) ==
          "measure_precision: got 2 expected and 3 obtained values, expected equally many and at least one");
    CHECK(refusal<tensafe::shape_error>([&] { measure_precision(none, none); }) ==
          "measure_precision: got 0 expected and 0 obtained values, expected equally many and at least one");
}
