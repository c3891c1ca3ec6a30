#include <tensafe/dp/clip.hpp>

#include <cfenv>

#include "../test.hpp"

using namespace tests;

namespace {

__extension__ using wide = __int128;

std::vector<float> random_vector(random_numbers& source, std::size_t d, double magnitude) {
    std::normal_distribution<double> normal(0, magnitude);
    return source.many(d, [&] { return static_cast<float>(normal(source)); });
}

double norm_of(const std::vector<double>& v) {
    long double sum = 0;
    for (const double x : v) {
        sum += static_cast<long double>(x) * x;
    }
    return static_cast<double>(std::sqrt(sum));
}

wide square_of(const std::vector<std::int64_t>& v) {
    wide sum = 0;
    for (const std::int64_t x : v) {
        sum += static_cast<wide>(x) * x;
    }
    return sum;
}

std::vector<std::int64_t> on_grid(const std::vector<float>& h, double step, std::int64_t bound) {
    std::vector<std::int64_t> out(h.size());
    dp::clip_to_grid(h, step, bound, out);
    return out;
}

}  // namespace

TEST_CASE("inverse_root is right to 2^-48 over the range of sums of squares") {
    for (int exponent = -400; exponent <= 300; ++exponent) {
        for (const double m : {1.0, 1.1, 1.41421356, 1.5, 1.9999999}) {
            const double x = std::ldexp(m, exponent);
            CHECK(std::abs(dp::detail::inverse_root(x) * std::sqrt(x) - 1) < 0x1p-48);
        }
    }
}

TEST_CASE("smaller is the minimum") {
    const double values[] = {0x1p-1022, 1e-30, 0.99999999, 1, 1.00000001, 3e40, 1e300};
    for (const double a : values) {
        for (const double b : values) {
            CHECK(dp::detail::smaller(a, b) == (a < b ? a : b));
        }
    }
}

TEST_CASE("clip leaves shorter vectors as they are and gives longer ones the norm asked for") {
    random_numbers source(1);
    for (const std::size_t d : {1U, 2U, 3U, 4U, 5U, 63U, 64U, 1000U}) {
        for (const double magnitude : {1e-44, 1e-30, 1e-3, 1.0, 1e10, 1e37}) {
            const std::vector<float> h = random_vector(source, d, magnitude);
            const std::vector<double> exact(h.begin(), h.end());
            const double norm = norm_of(exact);
            std::vector<double> out(d);
            dp::clip(h, 1.5, out);
            if (norm <= 1.5) {
                CHECK(out == exact);
            } else {
                CHECK(std::abs(norm_of(out) / 1.5 - 1) < 1e-12);
                CHECK(std::abs(out[0] / exact[0] * norm / 1.5 - 1) < 1e-12);
            }
        }
    }
}

TEST_CASE("the zero vector and the empty one stay what they are") {
    const std::vector<float> zeros(9);
    std::vector<double> out(9, 5);
    dp::clip(zeros, 1e-30, out);
    CHECK(out == std::vector<double>(9));
    CHECK(on_grid(zeros, 1, 100) == std::vector<std::int64_t>(9));
    CHECK(on_grid({}, 1, 100).empty());
}

TEST_CASE("whatever a vector is, its integers are within the bound, exactly") {
    random_numbers source(2);
    std::size_t close = 0;
    for (const std::size_t d : {1U, 2U, 5U, 100U, 2048U}) {
        for (const std::int64_t bound :
             {std::int64_t{50}, std::int64_t{1000}, std::int64_t{1} << 33, (std::int64_t{1} << 40) - 1}) {
            for (const double around : {1e-45, 1e-30, 0.5, 0.999, 1.0, 1.0 + 1e-9, 1.001, 50.0, 1e30}) {
                const double step = 1 / static_cast<double>(bound);  // the bound is a norm of 1
                const std::vector<float> h =
                    random_vector(source, d, around / std::sqrt(static_cast<double>(d)));
                const std::vector<std::int64_t> v = on_grid(h, step, bound);
                const wide square = square_of(v);
                CHECK((square <= static_cast<wide>(bound) * bound));
                close += static_cast<double>(square) >
                         0.9 * static_cast<double>(bound) * static_cast<double>(bound);
            }
        }
    }
    CHECK(close > 40);  // the bound is used, not avoided
}

TEST_CASE("the bound holds in every rounding mode, where the estimate for rounding to nearest does not") {
    // Entries of (1010060 - 50) / 100 = 10100.1 steps, which rounding upwards makes 10101: a norm of 1010100.
    const std::vector<float> h(10000, 1.0F);
    constexpr std::int64_t bound = 1010060;
    const int before = std::fegetround();
    for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        CAPTURE(mode);
        std::fesetround(mode);
        const std::vector<std::int64_t> v = on_grid(h, 1e-9, bound);
        std::fesetround(before);
        CHECK((square_of(v) <= static_cast<wide>(bound) * bound));
        CHECK(v[0] == (mode == FE_UPWARD ? 0 : 10100));
    }
}

TEST_CASE("entries at the largest float, the smallest one and minus zero are clipped as others are") {
    const float largest = std::numeric_limits<float>::max();
    const float smallest = std::numeric_limits<float>::denorm_min();
    const std::vector<std::int64_t> one = on_grid({largest, -largest, smallest, -0.0F}, 1, 1000);
    CHECK(one == std::vector<std::int64_t>{706, -706, 0, 0});  // (1000 - 1) / sqrt(2)
    CHECK(on_grid({smallest, -smallest}, 0x1p-150, 1000) == std::vector<std::int64_t>{2, -2});
}

TEST_CASE("vectors within the norm are rounded to the nearest step") {
    CHECK(on_grid({0.26F, -0.26F, 1.0F, 0.74F, -0.76F}, 0.5, 100) ==
          std::vector<std::int64_t>{1, -1, 2, 1, -2});
    random_numbers source(3);
    const std::vector<float> h = random_vector(source, 500, 1);
    const std::vector<std::int64_t> v = on_grid(h, 0x1p-30, std::int64_t{1} << 39);
    for (std::size_t i = 0; i < h.size(); ++i) {
        CHECK(v[i] == std::llrint(std::ldexp(static_cast<double>(h[i]), 30)));
    }
}

TEST_CASE("scaled vectors keep their direction") {
    random_numbers source(4);
    const std::vector<float> h = random_vector(source, 64, 1e4);
    const std::vector<std::int64_t> v = on_grid(h, 1e-9, std::int64_t{1} << 36);
    std::vector<double> exact(h.begin(), h.end());
    const double norm = norm_of(exact);
    for (std::size_t i = 0; i < h.size(); ++i) {
        CHECK(std::abs(static_cast<double>(v[i]) - exact[i] / norm * 0x1p36) < 10);
    }
}

TEST_CASE("enforce_norm lets through what is within the bound, to the last unit") {
    using values = std::vector<std::int64_t>;
    struct example {
        values v;
        std::int64_t bound;
        bool within;
    };
    constexpr std::int64_t large = (std::int64_t{1} << 40) - 1;
    const example examples[] = {
        {{3, -4}, 5, true},
        {{3, -4}, 4, false},
        {{3, -4, 1}, 5, false},
        {{0, 0}, 0, true},
        {{0, 1}, 0, false},
        {{large}, large, true},
        {{-large}, large, true},
        {{large, 1}, large, false},
        {{large + 1}, large, false},
        {{-large - 1}, large, false},
        {{std::numeric_limits<std::int64_t>::min()}, large, false},
        {{std::numeric_limits<std::int64_t>::max()}, large, false},
        {values(8, std::numeric_limits<std::int64_t>::min()), large, false},
        {values(1000, large), large, false},
        {{}, 7, true},
    };
    for (const example& e : examples) {
        values v = e.v;
        CHECK(dp::detail::enforce_norm(v, e.bound) == e.within);
        CHECK(v == (e.within ? e.v : values(e.v.size())));
    }
}

TEST_CASE("NaN and infinity are refused, named, and nothing is written") {
    const float bad_values[] = {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()};
    for (const float bad : bad_values) {
        for (const std::size_t place : {0U, 3U, 6U}) {
            std::vector<float> h(7, 1.0F);
            h[place] = bad;
            std::vector<double> out(7, 5);
            std::vector<std::int64_t> integers(7, 5);
            const std::string entry = "entry " + std::to_string(place) + ":";
            CHECK_THROWS_AS(dp::clip(h, 1, out), encoding_error);
            CHECK_THROWS_AS(dp::clip_to_grid(h, 1, 100, integers), encoding_error);
            CHECK(contains(refusal<tensafe::error>([&] { dp::clip(h, 1, out); }), entry));
            CHECK(contains(refusal<tensafe::error>([&] { dp::clip_to_grid(h, 1, 100, integers); }), entry));
            CHECK(out == std::vector<double>(7, 5));
            CHECK(integers == std::vector<std::int64_t>(7, 5));
        }
    }
}

TEST_CASE("norms, steps, bounds and sizes that make no sense are refused") {
    const std::vector<float> h(4, 1.0F);
    std::vector<double> out(4);
    std::vector<double> shorter(3);
    std::vector<std::int64_t> integers(4);
    std::vector<std::int64_t> longer(5);
    for (const double bad : {0.0, -1.0, not_a_number, 1e-50, 1e50, infinity}) {
        CHECK_THROWS_AS(dp::clip(h, bad, out), parameter_error);
        CHECK_THROWS_AS(dp::clip_to_grid(h, bad, 100, integers), parameter_error);
    }
    for (const std::int64_t bad :
         {std::int64_t{-5}, std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 40}) {
        CHECK_THROWS_AS(dp::clip_to_grid(h, 1, bad, integers), parameter_error);
    }
    CHECK_NOTHROW(dp::clip_to_grid(h, 1, 2, integers));
    CHECK_THROWS_AS(dp::clip(h, 1, shorter), shape_error);
    CHECK_THROWS_AS(dp::clip_to_grid(h, 1, 100, longer), shape_error);
}
