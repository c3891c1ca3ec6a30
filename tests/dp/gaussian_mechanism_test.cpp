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

struct tail_row {
    double x;
    double ratio;
    double slope;
};

// Python's decimal with 700 digits: R(x) = 1/(2 f(x)) - sum of x^(2n+1) / (1*3*5*...*(2n+1)) below 45,
// Laplace's fraction with 3000 terms above; f the density. The slope is 1 - x R(x).
constexpr tail_row tail_table[] = {
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

constexpr double least = std::numeric_limits<double>::min();

struct row {
    double epsilon;
    double mu;
    double delta;
};

// Python's decimal with 700 digits, from the doubles' exact values: f(a) (R(a) - R(b)) for a = epsilon/mu -
// mu/2, b = epsilon/mu + mu/2, where f is the normal density and R(x) = 1/(2 f(x)) - sum of x^(2n+1) /
// (1*3*5*...*(2n+1)); beyond 45, R is Laplace's fraction with 3000 terms. The same R is tested above. One by
// one: epsilon = 0; the published ones; tiny mu; both sides of mu = 1/2; deep tails; a < 0; huge mu, whose
// square is no double.
constexpr row table[] = {
    {0.0, 1e-12, 3.9894228040143266991587938e-13},
    {0.0, 1e-06, 3.9894228040141603729203787e-7},
    {0.0, 0.001, 3.9894226377883829286553249e-4},
    {0.0, 0.125, 4.9835338058494442390572409e-2},
    {0.0, 0.5, 1.9741265136584744848170758e-1},
    {0.0, 0.5000001, 1.9741269003265886674653798e-1},
    {0.0, 1.0, 3.8292492254802620727540922e-1},
    {0.0, 3.0, 8.6638559746228386799101192e-1},
    {0.0, 12.0, 9.9999999802682470992460372e-1},
    {1.0, 1.0, 1.2693673750664394580082962e-1},
    {1.0, 3.0, 7.8760074136038453359287763e-1},
    {2.0, 1.0, 2.0923635821113731419603763e-2},
    {1e-12, 1e-12, 8.3315470587727954442603168e-14},
    {3e-11, 1e-12, 1.6319567341158606894781964e-211},
    {1e-06, 1e-06, 8.3315512245425392252699206e-8},
    {5e-06, 1e-06, 5.3461788992627121212041619e-14},
    {0.001, 0.001, 8.3357132125208493548035173e-5},
    {0.02, 0.001, 1.3837811770864424223307036e-93},
    {0.037, 0.001, 1.5740512394510445988828999e-304},
    {0.1, 0.1, 8.7517681458095944882253270e-3},
    {1.0, 0.1, 1.2308359836427112291603758e-25},
    {3.5, 0.1, 1.8442364962988944796478361e-270},
    {0.05, 0.25, 7.8413694828197833807488416e-2},
    {1.0, 0.25, 2.9242721048564073470175880e-6},
    {8.0, 0.25, 2.3030265327224766261856791e-225},
    {0.5, 0.5, 5.2440323287669661711896716e-2},
    {1.0, 0.5, 6.8295949831145753842350129e-3},
    {5.0, 0.5, 4.4154434702996192699775817e-24},
    {18.0, 0.5, 4.5556216906417169088478765e-282},
    {1.0, 0.5000001, 6.8296036108498506637524875e-3},
    {5.0, 0.51, 3.2580959753563641885013442e-23},
    {18.0, 0.51, 4.0902744041559157658838488e-271},
    {1.0, 0.268, 9.9683751784032464923861751e-6},
    {0.5, 1.0, 2.3842170813487662831815616e-1},
    {5.0, 1.0, 5.7937216919194941042068178e-7},
    {10.0, 1.0, 9.8127058268469559492233111e-23},
    {20.0, 1.0, 2.6647067053654976526478430e-86},
    {36.0, 1.0, 6.7231899231030299190890146e-278},
    {37.5, 1.0, 1.5046216304365289221697697e-301},
    {1.0, 2.0, 5.0986166005467015307623885e-1},
    {10.0, 2.0, 9.9402028161181527684472642e-6},
    {70.0, 2.0, 6.1785353472015295131430567e-255},
    {1.0, 4.0, 9.2671128125548039454672031e-1},
    {8.0, 4.0, 4.0558935869803106332907783e-1},
    {8.5, 4.0, 3.5915799360257986368656867e-1},
    {100.0, 4.0, 3.4425794984741139965132252e-118},
    {150.0, 4.0, 2.4854433329649586235085654e-277},
    {1.0, 10.0, 9.9999905917978013832262035e-1},
    {50.0, 10.0, 4.6049330589861399705548176e-1},
    {49.0, 10.0, 5.0012879836726281537758642e-1},
    {100.0, 10.0, 1.8797170020519157446247009e-7},
    {400.0, 10.0, 2.4969886689126535536123171e-269},
    {1.0, 15.0, 9.9999999999989500809677185e-1},
    {100.0, 20.0, 9.9999961466855644680375111e-1},
    {1000.0, 30.0, 1.3899153375663527171903578e-75},
    {5000.0, 100.0, 4.9601097601864319002362808e-1},
    {8000.0, 100.0, 3.7732070407199121240233918e-198},
    {4000.0, 100.0, 9.9999999999999999999999153e-1},
    {500000.0, 1000.0, 4.9960105811853965090263562e-1},
    {520000.0, 1000.0, 2.6994972259041566745876764e-89},
    {530000.0, 1000.0, 4.7636416217278319915957765e-198},
    {490000.0, 1000.0, 9.9999999999999999999999230e-1},
    {1000000.0, 1400.0, 1.3295707085305186003557427e-46},
    {1000000.0, 1414.2, 4.9430746716496305802254514e-1},
    {1000000.0, 1380.0, 3.3396905469507968878738931e-263},
    {1000000.0, 1000000.0, 1.0000000000000000000000000e+0},
    {500000000000.0, 1000000.0, 4.9999960105771959896626434e-1},
    {0.001, 1.0, 3.8261640680978579000488461e-1},
    {0.3, 0.02, 5.6369986145919120113366350e-54},
    {500020100002.005, 1000000.1, 2.7535689086772823700595661e-89},
    {499997099999.70496, 1000000.1, 9.9865009753660021365848838e-1},
    {76393067.809842, 12345.678, 3.6664917606522540957275905e-51},
    {76652327.047842, 12345.678, 4.1704536257013051007588208e-284},
    {5.555555888888888e+16, 333333333.3333333, 7.6198533164361047565038904e-24},
    {5.555556555555555e+16, 333333333.3333333, 4.9067121290718294732016041e-198},
    {5.555555555722221e+22, 333333333333.3333, 2.8666848082632081242563798e-7},
    {5.5555555566555545e+22, 333333333333.3333, 4.0628324294871213648806281e-239},
};

double log_uniform(std::mt19937_64& source, double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(source));
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
    for (const tail_row& expected : tail_table) {
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

TEST_CASE("delta is never below a reference of 700 digits, and at most 2^-38 above it") {
    for (const row& expected : table) {
        INFO("expected.epsilon := ", expected.epsilon, ", expected.mu := ", expected.mu);
        const double delta = gaussian_delta(expected.epsilon, expected.mu);
        CHECK(delta >= expected.delta);
        CHECK(delta <= expected.delta * (1 + 0x1p-38));
    }
}

TEST_CASE("epsilon is never below the reference, and close to it") {
    for (const row& expected : table) {
        if (expected.delta > 0.95) {
            continue;  // hardly any digits of epsilon are in such a delta
        }
        INFO("expected.epsilon := ", expected.epsilon, ", expected.mu := ", expected.mu);
        const double epsilon = gaussian_epsilon(expected.delta, expected.mu);
        CHECK(epsilon >= expected.epsilon);
        CHECK(epsilon <= expected.epsilon * (1 + 1e-10) + 1e-11 * expected.mu);
    }
}

TEST_CASE("the largest mu is never above the reference, and at most 2^-36 below it") {
    for (const row& expected : table) {
        if (expected.epsilon == 0 || expected.delta > 0.25) {
            continue;
        }
        INFO("expected.epsilon := ", expected.epsilon, ", expected.mu := ", expected.mu);
        const double mu = largest_mu({expected.epsilon, expected.delta});
        CHECK(mu <= expected.mu);
        CHECK(mu >= expected.mu * (1 - 0x1p-36));
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
    std::mt19937_64 source(1);
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
    std::mt19937_64 source(2);
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
