#include <tensafe/dp/gaussian_release.hpp>
#include <tensafe/dp/ledger.hpp>

#include "../backends.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

using dp::discrete_noise_slack;
using dp::gaussian_release;
using dp::release_charge;
using tensafe::random::generator;
using tensafe::random::seed;

// Seeds are fixed; thresholds are five standard deviations.

/// From a ledger with a budget that these tests cannot use up.
release_charge charge_for(const gaussian_release& release, std::uint64_t releases = 1) {
    dp::ledger ledger({1e9, 0.5});
    return ledger.charge("alice", release.cost(), releases);
}

std::vector<float> released(const gaussian_release& release, generator& random, const std::vector<float>& h) {
    release_charge charge = charge_for(release);
    std::vector<float> out(h.size());
    release(charge, random, h, out);
    return out;
}

/// The smallest epsilon at which these releases, of `more` times the mu, keep delta = 1e-5, if nothing was
/// rounded up on the way.
double last_epsilon(const gaussian_release& release, std::uint64_t releases, double more = 1) {
    const double mu = more * release.mu() * std::sqrt(static_cast<double>(releases));
    const double slack = release.delta_slack() * static_cast<double>(releases);
    double low = 0;
    double high = dp::gaussian_epsilon(0.9e-5, mu);
    for (double middle = high / 2; low < middle && middle < high; middle = low + (high - low) / 2) {
        (dp::gaussian_delta(middle, mu) + slack <= 1e-5 ? high : low) = middle;
    }
    return high;
}

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

TEST_CASE("the cost of a release is 2C / deviation, rounded up, and its slack") {
    for (const double deviation : {0.125, 0.3, 1.0, 17.0, 1e4}) {
        const gaussian_release release(1, deviation, 2048);
        CHECK(release.mu() <= 2 / deviation * (1 + 1e-12));
        // A whole number of steps fits into C: up to one is lost.
        CHECK(release.mu() > 2 / deviation - 3 / tensafe::dp::discrete_gaussian_deviation);
        CHECK(release.delta_slack() == dp::discrete_noise_slack(std::min(release.mu(), 16.0), 2048));
        CHECK(release.cost() == dp::release_cost{release.mu(), release.delta_slack()});
        CHECK(release.deviation() == deviation);
        CHECK(release.clip_norm() == 1);
        CHECK(release.d() == 2048);
    }
}

TEST_CASE("the range of mu is from 1e-4 to 16 for every d to 65536, and units do not matter") {
    for (const std::size_t d : {1U, 2048U, 65536U}) {
        for (const double unit : {1e-20, 1.0, 1e20}) {
            CHECK_NOTHROW(gaussian_release(unit, 2e4 * unit, d));
            CHECK_NOTHROW(gaussian_release(unit, unit / 8, d));
            CHECK(gaussian_release(unit, 2e4 * unit, d).mu() > 0.999e-4);
            CHECK(gaussian_release(unit, unit / 8, d).mu() > 15.99);
        }
    }
}

TEST_CASE("of keeps the budget with its slack, and no noise a millionth smaller does") {
    for (const double epsilon : {0.01, 0.1, 1.0, 8.0, 50.0, 180.0}) {
        for (const double delta : {1e-5, 1e-9}) {
            if (epsilon > 100 && delta < 1e-5) {
                continue;  // refused: see below
            }
            const dp::privacy_budget each{epsilon, delta};
            const gaussian_release release = gaussian_release::of(each, 3, 512);
            CHECK(dp::gaussian_delta(epsilon, release.mu()) + release.delta_slack() <= delta);
            const gaussian_release smaller(3, release.deviation() * (1 - 1e-6), 512);
            CHECK(dp::gaussian_delta(epsilon, smaller.mu()) + smaller.delta_slack() > delta);
        }
    }
    // The known answer 3.7306 per unit of sensitivity, here 2C.
    CHECK(std::abs(gaussian_release::of({1, 1e-5}, 0.5, 2048).deviation() - 3.7306) < 1e-4);
}

TEST_CASE("releases fit into their budget however they are charged, where it ends at the last digit") {
    random_numbers source(1);
    for (int round = 0; round < 200; ++round) {
        const std::uint64_t releases = round % 2 == 0 ? 1 : 2 + source() % 40;
        const gaussian_release ideal(1, std::exp(4 * source.uniform(0, 1)), 64);
        const dp::privacy_budget all{last_epsilon(ideal, releases), 1e-5};
        INFO("all.epsilon := ", all.epsilon, ", releases := ", releases);
        const dp::release_cost cost = gaussian_release::of(all, 1, 64, releases).cost();
        dp::ledger at_once(all);
        CHECK(at_once.left("alice", cost) == releases);
        dp::ledger one_by_one(all);
        for (std::uint64_t k = 0; k < releases; ++k) {
            CHECK_NOTHROW(std::ignore = one_by_one.charge("alice", cost));
        }
        CHECK_THROWS_AS(std::ignore = one_by_one.charge("alice", cost), budget_error);
    }
    const dp::privacy_budget found{1.6951185692741961, 1e-5};  // once refused
    dp::ledger once(found);
    CHECK_NOTHROW(std::ignore = once.charge("alice", gaussian_release::of(found, 1, 64).cost()));

    // So many that their rounding is more than that of delta, which alone would fit.
    constexpr std::uint64_t many = 1'000'000;
    const dp::privacy_budget all{last_epsilon(gaussian_release(1, 100.7, 64), many, 1 + 0x1.2p-37), 1e-5};
    const dp::release_cost cost = gaussian_release::of(all, 1, 64, many).cost();
    dp::odometer sum;
    for (std::uint64_t k = 0; k < many; ++k) {
        sum = sum.plus(cost, 1);
    }
    CHECK(sum.delta(all.epsilon) <= all.delta);
    CHECK(dp::ledger(all).left("alice", cost) == many);
}

TEST_CASE("many releases cost noise by the root of their number, and their slacks count") {
    const double one = gaussian_release::of({1, 1e-5}, 1, 64).deviation();
    CHECK(std::abs(gaussian_release::of({1, 1e-5}, 1, 64, 10'000).deviation() / (100 * one) - 1) < 1e-9);
    // Fifty slacks of 2^-77 are a third of this delta, a thousand more than all.
    const dp::privacy_budget tight{1, 1e-21};
    CHECK(dp::ledger(tight).left("alice", gaussian_release::of(tight, 1, 2048, 50).cost()) == 50);
    CHECK_THROWS_WITH_AS(gaussian_release::of(tight, 1, 2048, 1000),
                         Contains("delta: got 1e-21, expected at least 1.3"), tensafe::error);
    CHECK_THROWS_WITH_AS(gaussian_release::of({1, 1e-5}, 1, 64, 0), Contains("releases: got 0"),
                         tensafe::error);
    CHECK_THROWS_AS(gaussian_release::of({1, 1e-5}, 1, 64, std::uint64_t{1} << 60), parameter_error);
}

TEST_CASE("budgets that the noise cannot keep are refused with what to do") {
    CHECK_THROWS_WITH_AS(gaussian_release::of({500, 1e-5}, 1, 8), Contains("less epsilon"), parameter_error);
    CHECK_THROWS_AS(gaussian_release::of({170, 1e-26}, 1, 2048), parameter_error);
    CHECK_THROWS_WITH_AS(gaussian_release::of({1, 1e-30}, 1, 2048), Contains("delta: got 1e-30"),
                         parameter_error);
    CHECK_THROWS_AS(gaussian_release::of({-1, 1e-5}, 1, 8), parameter_error);
}

TEST_CASE("norms, deviations and sizes out of range are refused") {
    for (const double bad : {0.0, -1.0, not_a_number, 1e-40, 1e40, infinity}) {
        CHECK_THROWS_AS(gaussian_release(bad, 1, 8), parameter_error);
        CHECK_THROWS_AS(gaussian_release(1, bad, 8), parameter_error);
        CHECK_THROWS_AS(gaussian_release::of({1, 1e-5}, bad, 8), parameter_error);
    }
    for (const std::size_t bad : {std::size_t{0}, gaussian_release::largest_d + 1}) {
        CHECK_THROWS_AS(gaussian_release(1, 1, bad), parameter_error);
        CHECK_THROWS_AS(gaussian_release::of({1, 1e-5}, 1, bad), parameter_error);
    }
    CHECK_THROWS_AS(gaussian_release(1, 0.12499, 8), parameter_error);
    CHECK_NOTHROW(gaussian_release(1, 8.6e7, 1));
    CHECK_THROWS_AS(gaussian_release(1, 8.7e7, 1), parameter_error);
    CHECK_THROWS_AS(gaussian_release(1, 8.6e7, 2), parameter_error);
}

TEST_CASE("a release is the clipped vector plus noise of the deviation that was asked for") {
    constexpr std::size_t d = 1024;
    constexpr std::size_t releases = 32;
    std::vector<float> h(d);
    for (std::size_t i = 0; i < d; ++i) {
        h[i] = static_cast<float>(std::sin(static_cast<double>(i)));  // of norm 22.6
    }
    for (const double clip_norm : {5.0, 100.0}) {
        const gaussian_release release(clip_norm, 12.5, d);
        std::vector<double> clipped(d);
        dp::clip(h, clip_norm, clipped);
        generator random(tests::numbered_seed(1));
        release_charge charge = charge_for(release, releases);
        double sum = 0;
        double squares = 0;
        double along = 0;  // the direction of h
        double norm = 0;
        for (std::size_t r = 0; r < releases; ++r) {
            std::vector<float> out(d);
            release(charge, random, h, out);
            for (std::size_t i = 0; i < d; ++i) {
                const double noise = (static_cast<double>(out[i]) - clipped[i]) / 12.5;
                sum += noise;
                squares += noise * noise;
                along += noise * clipped[i];
                norm += clipped[i] * clipped[i];
            }
        }
        const double count = d * releases;
        CHECK(std::abs(sum / std::sqrt(count)) < 5);
        CHECK(std::abs((squares - count) / std::sqrt(2 * count)) < 5);
        CHECK(std::abs(along / std::sqrt(norm)) < 5);
        CHECK(charge.left() == 0);
    }
}

TEST_CASE("neighbours are told apart as well as delta says, and no better") {
    // h and -h on the sphere of norm C: the best test looks at the sum of the entries.
    constexpr std::size_t d = 16;
    constexpr std::uint64_t releases = 20000;
    const gaussian_release release(1, 1, d);  // mu = 2
    const std::vector<float> h(d, 1.0F);
    const std::vector<float> minus_h(d, -1.0F);
    generator random(tests::numbered_seed(2));
    release_charge charge = charge_for(release, 2 * releases);
    for (const double epsilon : {0.0, 1.0, 2.0}) {
        CAPTURE(epsilon);
        // Where the densities' quotient is e^epsilon; entries are 1/4 long, and their sum's deviation is 4.
        const double threshold = 4 * epsilon / release.mu();
        double first = 0;
        double second = 0;
        for (std::uint64_t r = 0; r < releases / 3; ++r) {
            std::vector<float> out(d);
            release(charge, random, h, out);
            first += std::accumulate(out.begin(), out.end(), 0.0) > threshold;
            release(charge, random, minus_h, out);
            second += std::accumulate(out.begin(), out.end(), 0.0) > threshold;
        }
        const double count = static_cast<double>(releases / 3);
        const double p = first / count;
        const double q = second / count;
        const double spread =
            std::sqrt(p * (1 - p) / count) + std::exp(epsilon) * std::sqrt((q * (1 - q) + 1 / count) / count);
        const double delta = dp::gaussian_delta(epsilon, release.mu());
        CHECK(p - std::exp(epsilon) * q < delta + 5 * spread);
        CHECK(p - std::exp(epsilon) * q > delta - 5 * spread);
    }
}

TEST_CASE("the noise is the sampler's under the generator's next seed, in a domain of its own") {
    const gaussian_release release(1, 3, 20);
    generator random(tests::numbered_seed(10));
    const std::vector<float> out = released(release, random, std::vector<float>(20));
    generator again(tests::numbered_seed(10));
    std::vector<std::int64_t> noise(20);
    tensafe::dp::sample_discrete_gaussian(again.next_seed(), tensafe::random::stream_domain::privacy_noise, 0,
                                          noise);
    const double step = 3 / tensafe::dp::discrete_gaussian_deviation;
    for (std::size_t i = 0; i < out.size(); ++i) {
        CHECK(out[i] == static_cast<float>(static_cast<double>(noise[i]) * step));
    }
}

TEST_CASE("the released vector may take the secret's place") {
    const gaussian_release release(1, 1, 50);
    std::vector<float> h(50, 0.3F);
    generator random(tests::numbered_seed(6));
    const std::vector<float> expected = released(release, random, h);
    generator again(tests::numbered_seed(6));
    release_charge charge = charge_for(release);
    release(charge, again, h, h);
    CHECK(h == expected);
}

TEST_CASE("each release takes one of the charge, and none is made without") {
    const gaussian_release release(1, 1, 9);
    release_charge charge = charge_for(release, 2);
    generator random(tests::numbered_seed(7));
    const std::vector<float> h(9, 0.3F);
    std::vector<float> out(9, 5);
    release(charge, random, h, out);
    CHECK(charge.left() == 1);
    release(charge, random, h, out);
    CHECK(charge.left() == 0);

    std::vector<float> untouched(9, 5);
    CHECK_THROWS_AS(release(charge, random, h, untouched), budget_error);
    CHECK(untouched == std::vector<float>(9, 5));

    // A charge that paid for more noise does not buy less.
    release_charge cheaper = charge_for(gaussian_release(1, 2, 9));
    CHECK_THROWS_AS(release(cheaper, random, h, untouched), budget_error);
    CHECK(cheaper.left() == 1);
    release_charge none;
    CHECK_THROWS_AS(release(none, random, h, untouched), budget_error);
    CHECK(untouched == std::vector<float>(9, 5));
}

TEST_CASE("bad vectors are refused before anything is spent or drawn") {
    const gaussian_release release(1, 1, 9);
    release_charge charge = charge_for(release);
    generator random(tests::numbered_seed(8));
    std::vector<float> out(9, 5);
    std::vector<float> h(9, 0.3F);
    h[4] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_AS(release(charge, random, h, out), encoding_error);
    CHECK_THROWS_AS(release(charge, random, std::span<const float>(h).first(8), out), shape_error);
    CHECK_THROWS_AS(release(charge, random, h, std::span<float>(out).first(8)), shape_error);
    CHECK(charge.left() == 1);
    CHECK(out == std::vector<float>(9, 5));
    generator fresh(tests::numbered_seed(8));
    CHECK(random.next_seed().bytes == fresh.next_seed().bytes);
}

TEST_CASE("without randomness nothing is written and nothing is lost") {
    const gaussian_release release(1, 1, 9);
    release_charge charge = charge_for(release);
    generator moved_from(tests::numbered_seed(9));
    const generator taken = std::move(moved_from);
    std::vector<float> out(9, 5);
    CHECK_THROWS_AS(release(charge, moved_from, std::vector<float>(9, 0.3F), out), tensafe::error);
    CHECK(charge.left() == 1);
    CHECK(out == std::vector<float>(9, 5));
}

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
