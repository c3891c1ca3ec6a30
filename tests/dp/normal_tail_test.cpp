#include <tensafe/dp/normal_tail.hpp>

#include <doctest/doctest.h>

#include <cmath>

namespace {

using namespace tensafe::dp::detail;

struct row {
    double x;
    double ratio;
    double slope;
};

// Python's decimal with 700 digits: R(x) = 1/(2 f(x)) - sum of x^(2n+1) / (1*3*5*...*(2n+1)) below 45,
// Laplace's fraction with 3000 terms above; f the density. The slope is 1 - x R(x).
constexpr row table[] = {
    {-1, 3.47705181170369446693e+0, 4.47705181170369446693e+0},
    {-0.25, 1.54837262154765818080e+0, 1.38709315538691454520e+0},
    {0, 1.25331413731550025121e+0, 1.00000000000000000000e+0},
    {0.25, 1.03782457585372681230e+0, 7.40543856036568296925e-1},
    {0.5, 8.76364456453692346728e-1, 5.61817771773153826636e-1},
    {1, 6.55679542418798471544e-1, 3.44320457581201528456e-1},
    {1.5, 5.15815638217963355027e-1, 2.26276542673054967460e-1},
    {1.9375, 4.31410939240003253514e-1, 1.64141305222493696316e-1},
    {1.9999999, 4.21369245014209159027e-1, 1.57261552108506207970e-1},
    {2, 4.21369229288054473225e-1, 1.57261541423891053550e-1},
    {2.0625, 4.11745038298977125374e-1, 1.50775858508359678917e-1},
    {2.5, 3.54265111329793666784e-1, 1.14337221675515833040e-1},
    {3, 3.04590298710103295734e-1, 8.62291038696901127992e-2},
    {3.9375, 2.40034980006391170148e-1, 5.48622662248347675431e-2},
    {4, 2.36652382913560670624e-1, 5.33904683457573175041e-2},
    {4.0625, 2.33359997870698359635e-1, 5.19750086502879139839e-2},
    {5, 1.92808104715315764877e-1, 3.59594764234211756127e-2},
    {8, 1.23131963257932296282e-1, 1.49442939365416297426e-2},
    {10, 9.90285964717319213953e-2, 9.71403528268078604663e-3},
    {20, 4.98759259818367836582e-2, 2.48148036326432683519e-3},
    {38, 2.62976029742529643776e-2, 6.91086978387353651804e-4},
    {100, 9.99900029985010490560e-3, 9.99700149895094396185e-5},
    {1000, 9.99999000002999985000e-4, 9.99997000014999895001e-7},
    {1e6, 9.99999999999000000000e-7, 9.99999999997000000000e-13},
};

}  // namespace

TEST_CASE("Mills' ratio and its slope agree with a reference of 700 digits as closely as is promised") {
    for (const row& expected : table) {
        CAPTURE(expected.x);
        CHECK(std::abs(mills_ratio(expected.x) / expected.ratio - 1) < 0x1p-48);
        CHECK(std::abs(mills_slope(expected.x) / expected.slope - 1) < 0x1p-45);
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
