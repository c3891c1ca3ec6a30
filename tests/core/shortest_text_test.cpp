#include <tensafe/core/shortest_text.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

using tensafe::detail::shortest_text;

TEST_CASE("the text is the shortest one") {
    CHECK(shortest_text(0) == "0");
    CHECK(shortest_text(0.1) == "0.1");
    CHECK(shortest_text(-1) == "-1");
    CHECK(shortest_text(1e-10) == "1e-10");
    CHECK(shortest_text(-std::numeric_limits<double>::min()) == "-2.2250738585072014e-308");
    CHECK(shortest_text(std::numeric_limits<double>::infinity()) == "inf");
    CHECK(shortest_text(std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("the text stands for exactly the number") {
    std::mt19937_64 source(1);
    std::uniform_real_distribution<double> exponent(-300, 300);
    for (int round = 0; round < 200; ++round) {
        const double x = std::pow(10.0, exponent(source));
        CHECK(std::strtod(shortest_text(x).c_str(), nullptr) == x);
    }
}
