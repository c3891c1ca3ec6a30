#include <tensafe/core/real.hpp>

#include "../test.hpp"

namespace {

using tensafe::power_of_two;
using tensafe::square_root;

/// How many doubles away the square root is from the right one.
std::int64_t distance_to_std(double x) {
    return std::abs(std::bit_cast<std::int64_t>(square_root(x)) - std::bit_cast<std::int64_t>(std::sqrt(x)));
}

static_assert(square_root(2.25) == 1.5);
static_assert(power_of_two(10) == 1024);

}  // namespace

TEST_CASE("power_of_two is exact over the whole range") {
    for (int exponent = -1022; exponent <= 1023; ++exponent) {
        CHECK(power_of_two(exponent) == std::ldexp(1.0, exponent));
    }
}

TEST_CASE("square_root is within one unit in the last place") {
    tests::random_numbers random(1);
    std::int64_t worst = 0;
    for (int i = 0; i < 200'000; ++i) {
        // Any positive finite double: any exponent, subnormal ones too.
        const auto x = std::bit_cast<double>(random() % std::bit_cast<std::uint64_t>(HUGE_VAL));
        worst = std::max(worst, distance_to_std(x));
    }
    for (int i = 0; i < 200'000; ++i) {
        worst = std::max(worst, distance_to_std(1 + 3 * std::ldexp(static_cast<double>(random()), -64)));
    }
    CHECK(worst <= 1);
}

TEST_CASE("square_root is right at the ends") {
    using limits = std::numeric_limits<double>;
    CHECK(square_root(0) == 0);
    for (const double x : {limits::denorm_min(), std::nextafter(limits::min(), 0), limits::min(), 1.0,
                           std::nextafter(4.0, 0), 4.0, limits::max()}) {
        CAPTURE(x);
        CHECK(distance_to_std(x) <= 1);
    }
}

TEST_CASE("square_root of a square is exact") {
    tests::random_numbers random(2);
    std::int64_t worst = 0;
    for (int i = 0; i < 100'000; ++i) {
        const auto root = static_cast<double>(random() >> 38);
        worst = std::max(worst, distance_to_std(root * root));
    }
    CHECK(worst == 0);
}

TEST_CASE("what is below a bound is 0, and everything else stays bit by bit") {
    using limits = std::numeric_limits<double>;
    const auto bits = [](double x) { return tensafe::bit_cast<std::uint64_t>(x); };
    for (const double x : {0x1p-100, -0x1p-100, 1.0, -3e300, limits::max(), limits::infinity(),
                           -limits::infinity(), limits::quiet_NaN()}) {
        CHECK(bits(tensafe::flushed(x)) == bits(x));
    }
    for (const double x : {0.0, -0.0, 0x1.fffffffffffffp-101, -0x1.fffffffffffffp-101, limits::min(),
                           limits::denorm_min(), -limits::denorm_min()}) {
        CHECK(bits(tensafe::flushed(x)) == 0);
    }
    CHECK(tensafe::flushed(0.99, 1) == 0);
    CHECK(tensafe::flushed(-1, 1) == -1);
    static_assert(tensafe::flushed(2, 1) == 2);
}
