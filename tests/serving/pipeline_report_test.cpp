#include <tensafe/serving/pipeline_report.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using std::chrono::nanoseconds;
using tensafe::serving::latency;

constexpr std::int64_t longest = std::numeric_limits<std::int64_t>::max();

/// Log-uniform from 1 ns to 2^50 ns.
std::vector<std::int64_t> random_durations(std::size_t count, unsigned seed) {
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<double> exponent(0, 50);
    std::vector<std::int64_t> result(count);
    for (auto& d : result) {
        d = static_cast<std::int64_t>(std::exp2(exponent(engine)));
    }
    return result;
}

latency histogram_of(const std::vector<std::int64_t>& durations) {
    latency result;
    for (const std::int64_t d : durations) {
        result.record(nanoseconds(d));
    }
    return result;
}

/// Nearest rank.
std::int64_t exact_percentile(std::vector<std::int64_t> durations, double percent) {
    std::sort(durations.begin(), durations.end());
    const double rank = std::ceil(percent * static_cast<double>(durations.size()) / 100);
    return durations[rank < 1 ? 0 : static_cast<std::size_t>(rank) - 1];
}

}  // namespace

TEST_CASE("percentiles are those of the sorted samples, to within the documented error") {
    for (const std::size_t count : {1U, 2U, 3U, 10U, 99U, 100U, 101U, 5000U}) {
        const auto durations = random_durations(count, static_cast<unsigned>(count));
        const latency h = histogram_of(durations);
        for (const double percent : {0.0, 1.0, 10.0, 25.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
            INFO("count := ", count, ", percent := ", percent);
            const auto exact = static_cast<double>(exact_percentile(durations, percent));
            const auto got = static_cast<double>(h.percentile(percent).count());
            CHECK(std::fabs(got - exact) <= latency::relative_error * exact);
        }
    }
}

TEST_CASE("whole percentiles of two values change at the rank that integers give") {
    for (const std::uint64_t count : {10U, 50U, 100U, 1000U}) {
        for (std::uint64_t percent = 1; percent < 100; ++percent) {
            INFO("count := ", count, ", percent := ", percent);
            const std::uint64_t rank = (percent * count + 99) / 100;
            latency enough;  // of the smaller value
            latency one_less;
            for (std::uint64_t i = 0; i < count; ++i) {
                enough.record(nanoseconds(i < rank ? 1 : 2));
                one_less.record(nanoseconds(i + 1 < rank ? 1 : 2));
            }
            CHECK(enough.percentile(static_cast<double>(percent)).count() == 1);
            CHECK(one_less.percentile(static_cast<double>(percent)).count() == 2);
        }
    }
}

TEST_CASE("a percentile of equal durations is that duration, whatever its size") {
    for (int shift = 0; shift < 63; ++shift) {
        for (const std::int64_t d :
             {std::int64_t{1} << shift, (std::int64_t{1} << shift) - 1, longest >> shift}) {
            latency h;
            h.record(nanoseconds(d));
            h.record(nanoseconds(d));
            CHECK(h.percentile(50).count() == d);
        }
    }
}

TEST_CASE("each bucket's middle is within the documented error of both of its ends") {
    // A shorter and a longer duration beside it, so that neither smallest nor largest helps.
    for (int shift = 0; shift < 57; ++shift) {
        for (std::int64_t part = 32; part < 64; ++part) {
            for (const std::int64_t d : {part << shift, ((part + 1) << shift) - 1}) {
                latency h;
                h.record(nanoseconds(0));
                h.record(nanoseconds(d));
                h.record(nanoseconds(longest));
                const auto got = static_cast<double>(h.percentile(50).count());
                CHECK(std::fabs(got - static_cast<double>(d)) <=
                      latency::relative_error * static_cast<double>(d));
            }
        }
    }
}

TEST_CASE("below 64 ns percentiles are exact") {
    latency h;
    for (int d = 0; d < 64; ++d) {
        h.record(nanoseconds(d));
    }
    for (int d = 0; d < 64; ++d) {
        CHECK(h.percentile(100.0 * (d + 1) / 64).count() == d);
    }
}

TEST_CASE("count, smallest and largest are exact") {
    const latency h = histogram_of({1'000'003, 8, 999'999'999'999});
    CHECK(h.count() == 3);
    CHECK(h.min().count() == 8);
    CHECK(h.max().count() == 999'999'999'999);
    CHECK(h.percentile(100).count() == 999'999'999'999);
}

TEST_CASE("an empty histogram says 0") {
    const latency empty;
    CHECK(empty.count() == 0);
    CHECK(empty.min().count() == 0);
    CHECK(empty.max().count() == 0);
    CHECK(empty.percentile(50).count() == 0);
}

TEST_CASE("the longest duration has a bucket, and a negative one counts as 0") {
    latency h;
    h.record(nanoseconds(longest));
    CHECK(h.max().count() == longest);
    h.record(nanoseconds(-5));
    CHECK(h.min().count() == 0);
    CHECK(h.percentile(50).count() == 0);
}

TEST_CASE("a percentile outside of 0 to 100 is refused") {
    const latency h = histogram_of({1});
    CHECK_THROWS_AS(h.percentile(-0.1), parameter_error);
    CHECK_THROWS_AS(h.percentile(100.1), parameter_error);
    CHECK_THROWS_AS(h.percentile(not_a_number), parameter_error);
}
