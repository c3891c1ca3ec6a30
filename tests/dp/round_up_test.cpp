#include <tensafe/dp/round_up.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using namespace tensafe::dp::detail;

constexpr double largest = std::numeric_limits<double>::max();
constexpr double smallest = std::numeric_limits<double>::denorm_min();

/// A number of 26 bits: products of two are exact.
double short_number(random_numbers& source, int spread) {
    const auto bits = static_cast<double>(source() >> 38);
    return std::ldexp(bits + 1, static_cast<int>(source() % static_cast<unsigned>(spread)) - spread / 2);
}

}  // namespace

TEST_CASE("exact results are not rounded") {
    CHECK(add_up(1, 2) == 3);
    CHECK(add_up(0, 0.1) == 0.1);
    CHECK(add_up(0.1, 0) == 0.1);
    CHECK(multiply_up(3, 0.5) == 1.5);
    CHECK(multiply_up(0, 7) == 0);
    CHECK(multiply_up(7, 0) == 0);
    CHECK(multiply_up(0, infinity) == 0);
    CHECK(root_up(0) == 0);
    CHECK(root_up(9) == 3);
    CHECK(root_up(infinity) == infinity);
    CHECK(to_double_up(0) == 0);
    CHECK(to_double_up(std::uint64_t{1} << 63) == 0x1p63);
    random_numbers source(1);
    for (int round = 0; round < 1000; ++round) {
        const double a = short_number(source, 40);
        const double b = short_number(source, 40);
        CHECK(multiply_up(a, b) == a * b);
        CHECK(root_up(a * a) == a);
    }
}

TEST_CASE("a sum is rounded to the next double above it, never below, in either order") {
    CHECK(add_up(1, 0x1p-53) == 1 + 0x1p-52);    // a tie that rounding to even takes down
    CHECK(add_up(1, smallest) == 1 + 0x1p-52);   // far below the last bit
    CHECK(add_up(1, 0x1.8p-53) == 1 + 0x1p-52);  // up already
    CHECK(add_up(1, 0x1p-52) == 1 + 0x1p-52);
    CHECK(add_up(0x1p-53, 1) == 1 + 0x1p-52);
    CHECK(add_up(smallest, 1) == 1 + 0x1p-52);
    CHECK(add_up(largest, 1) == infinity);
    CHECK(add_up(largest, largest) == infinity);
    CHECK(add_up(infinity, 1) == infinity);
    CHECK(add_up(1, infinity) == infinity);
    CHECK(add_up(infinity, infinity) == infinity);
    random_numbers source(2);
    for (int round = 0; round < 1000; ++round) {
        // Two integers below 2^63 that differ in size: their sum as an integer is exact.
        const std::uint64_t a = (source() | 1) >> (1 + source() % 60);
        const std::uint64_t b = (source() | 1) >> (1 + source() % 60);
        const auto x = static_cast<double>(a >> 11 << 11);
        const auto y = static_cast<double>(b >> 11 << 11);
        const std::uint64_t exact = (a >> 11 << 11) + (b >> 11 << 11);
        CHECK(add_up(x, y) == to_double_up(exact));
        CHECK(add_up(x, y) == add_up(y, x));
    }
}

TEST_CASE("a product is rounded to the next double above it, never below") {
    const double above_one = 1 + 0x1p-52;
    CHECK(multiply_up(above_one, above_one) == 1 + 0x1p-50 - 0x1p-52);  // 1 + 2^-51 + 2^-104
    const double below_one = 1 - 0x1p-53;
    CHECK(multiply_up(below_one, below_one) == 1 - 0x1p-53);  // 1 - 2^-52 + 2^-106
    CHECK(multiply_up(0.1, 0.1) > 0.01);
    CHECK(multiply_up(largest, 2) == infinity);
    CHECK(multiply_up(infinity, 0.5) == infinity);
    // Where the product underflows, and what it drops too.
    CHECK(multiply_up(smallest, 0.5) == smallest);
    CHECK(multiply_up(1e-200, 1e-200) == smallest);
    CHECK(multiply_up(1e-160, 1e-160) >= 1.0000000000000001e-320);
    CHECK(multiply_up(smallest, largest) >= std::ldexp(largest, -1074));
}

TEST_CASE("a root is rounded to the next double above it, never below") {
    for (const double x : {2.0, 3.0, 0.1, 1e-9, 1e200, 1.0 + 0x1p-52, largest}) {
        const double root = root_up(x);
        CHECK(std::fma(root, root, -x) >= 0);
        const double lower = next_below(root);
        CHECK(std::fma(lower, lower, -x) < 0);
    }
    CHECK(root_up(smallest) >= 0x1p-537);
    CHECK(root_up(smallest) <= 0x1.0000000000001p-537);
    for (int k = 2; k < 50; ++k) {
        const double scaled = std::ldexp(root_up(k * smallest), 537);
        CHECK(std::fma(scaled, scaled, -k) >= 0);
        CHECK(scaled <= std::sqrt(k) * (1 + 0x1p-51));
    }
}

TEST_CASE("an integer becomes the next double that is not below it") {
    CHECK(to_double_up((std::uint64_t{1} << 53) + 1) == 0x1p53 + 2);  // a tie that goes down
    CHECK(to_double_up((std::uint64_t{1} << 54) + 1) == 0x1p54 + 4);
    CHECK(to_double_up((std::uint64_t{1} << 54) + 3) == 0x1p54 + 4);
    CHECK(to_double_up(std::numeric_limits<std::uint64_t>::max()) == 0x1p64);
}
