#include "../../examples/roofline/roofline.hpp"

#include <tensafe/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace perf = tensafe::perf;
using doctest::Approx;

namespace {

constexpr perf::language_model three_billion{"m", 35e9, 3e9, 2048, 40, 0, 0, 0};
constexpr perf::gpu slow{"g", 1.5};

/// The same bound by playing the pipeline through: sequences take turns at stages, first come, first served.
double simulated(const std::vector<perf::stage>& stages, std::size_t sequences, double waiting) {
    std::vector<std::vector<double>> free_at;  // of each worker of each stage
    for (const perf::stage& one : stages) {
        free_at.emplace_back(one.workers, 0.0);
    }
    std::vector<double> ready(sequences, 0.0);
    std::vector<std::size_t> next(sequences, 0);  // stage
    std::size_t tokens = 0;
    double end = 0;
    while (tokens < 4000) {
        const auto s = static_cast<std::size_t>(std::min_element(ready.begin(), ready.end()) - ready.begin());
        const std::size_t at = next[s];
        const auto worker = std::min_element(free_at[at].begin(), free_at[at].end());
        *worker = std::max(*worker, ready[s]) + stages[at].milliseconds;
        ready[s] = *worker;
        next[s] = (at + 1) % stages.size();
        if (next[s] == 0) {
            end = std::max(end, ready[s]);
            ready[s] += waiting;
            ++tokens;
        }
    }
    return 1000.0 * static_cast<double>(tokens) / end;
}

std::string message_of(void (*f)()) {
    try {
        f();
    } catch (const tensafe::parameter_error& e) {
        return e.what();
    }
    return "nothing thrown";
}

}  // namespace

TEST_CASE("a token's decoding takes as long as reading its active weights") {
    CHECK(perf::weight_bytes(three_billion, perf::precision::bf16) == 6e9);
    CHECK(perf::weight_bytes(three_billion, perf::precision::q4) == 1.5e9);
    CHECK(perf::decode_milliseconds(three_billion, perf::precision::bf16, slow) == Approx(4.0));
    CHECK(perf::decode_milliseconds(three_billion, perf::precision::q4, slow) == Approx(1.0));
    CHECK(perf::transfer_milliseconds(262144, 32) == Approx(0.008192));
    CHECK(perf::transfer_milliseconds(0, 32) == 0);
}

TEST_CASE("published transfers are those of the analyses") {
    CHECK(perf::published_transfer_milliseconds(perf::interconnect::pcie4) == 28);
    CHECK(perf::published_transfer_milliseconds(perf::interconnect::pcie5) == 14);
    CHECK(perf::published_transfer_milliseconds(perf::interconnect::gh200) == 1.5);
    CHECK(perf::published_transfer_milliseconds(perf::interconnect::m4_max) == 0);
    CHECK(perf::published_transfer_milliseconds(perf::interconnect::gb200) == 0.8);
    CHECK_THROWS_AS(perf::published_transfer_milliseconds(static_cast<perf::interconnect>(99)),
                    tensafe::parameter_error);
}

TEST_CASE("batches are ranks over rows of a ciphertext, rounded up") {
    CHECK(perf::columns_per_ciphertext(16384, 2048) == 8);
    CHECK(perf::columns_per_ciphertext(16384, 1536) == 10);
    CHECK(perf::columns_per_ciphertext(2048, 2048) == 1);
    for (std::size_t rank = 0; rank < 70; ++rank) {
        const auto wanted = static_cast<std::size_t>(std::ceil(static_cast<double>(rank) / 10));
        CHECK(perf::batches(rank, 16384, 1536) == wanted);
    }
    CHECK(perf::batches(std::numeric_limits<std::size_t>::max(), 4096, 2048) ==
          std::numeric_limits<std::size_t>::max() / 2 + 1);
    CHECK_THROWS_AS(perf::batches(32, 2047, 2048), tensafe::parameter_error);
    CHECK_THROWS_AS(perf::batches(32, 2048, 0), tensafe::parameter_error);
}

TEST_CASE("T_HE is every phase once, and those of a batch once for each batch") {
    CHECK(perf::encrypted_phases{1, 10, 100, 1000, 10000, 3}.total() == Approx(11331));
    CHECK(perf::encrypted_phases{1, 10, 100, 1000, 10000, 0}.total() == Approx(11001));
    constexpr perf::measured_phases measured{1, 2, 4, 8, 16, 32, 64};
    CHECK(measured.client() == 1 + 32 + 64);
    CHECK(measured.server() == 2 + 4 + 8 + 16);
    CHECK(measured.total() == 127);
}

TEST_CASE("one sequence gets the published serial rate whatever the workers") {
    CHECK(perf::latency(2.9, 9.3) == Approx(12.2));
    CHECK(perf::serial_tokens_per_second(2.9, 9.3) == Approx(1000 / 12.2));
    CHECK(perf::tokens_per_second({{2.9, 1}, {9.3, 1}}, 1) == Approx(1000 / 12.2));
    CHECK(perf::tokens_per_second({{2.9, 7}, {9.3, 50}}, 1) == Approx(1000 / 12.2));
    CHECK(perf::tokens_per_second({{2.9}, {9.3}}, 1, 7.8) == Approx(50));
}

TEST_CASE("two sequences on two stages get 1000 / max, and more do not help") {
    for (const std::size_t sequences : std::vector<std::size_t>{2, 3, 8, 1000}) {
        CHECK(perf::tokens_per_second({{2.9}, {9.3}}, sequences) == Approx(1000 / 9.3));
        CHECK(perf::tokens_per_second({{9.3}, {2.9}}, sequences) == Approx(1000 / 9.3));
    }
    CHECK(perf::tokens_per_second({{2.0}, {10.0, 4}}, 1000) == Approx(400));  // four workers
    CHECK(perf::tokens_per_second({{2.0}, {10.0, 9}}, 1000) == Approx(500));  // then the other stage
    CHECK(perf::tokens_per_second({{0.0}, {10.0}}, 3) == Approx(100));
}

TEST_CASE("no pipeline that is played through passes the bound, and long ones come near it") {
    std::mt19937_64 engine(6);
    std::uniform_real_distribution<double> time(0.1, 10);
    std::uniform_int_distribution<std::size_t> few(1, 6);
    for (int round = 0; round < 60; ++round) {
        const perf::stage first{time(engine), few(engine)};
        const perf::stage second{time(engine), few(engine)};
        const std::size_t sequences = few(engine) * few(engine);
        const double waiting = round % 2 == 0 ? 0 : time(engine);
        const double bound = perf::tokens_per_second({first, second}, sequences, waiting);
        const double played = simulated({first, second}, sequences, waiting);
        INFO("sequences ", sequences, ", workers ", first.workers, " and ", second.workers);
        CHECK(played <= bound * 1.01);  // 4000 tokens, of which the last need no end of waiting
        // Constant times: what is not a bound would be far off somewhere.
        CHECK(played >= bound * 0.7);
    }
}

TEST_CASE("a forecast is the pipeline of its parts, and its latency follows from its rate") {
    constexpr perf::measured_phases phases{0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.4};
    const perf::deployment_forecast serial = perf::forecast({3, phases, 2, 1});
    CHECK(serial.encrypted_milliseconds == Approx(2));
    CHECK(serial.latency == Approx(5));
    CHECK(serial.tokens_per_second == Approx(200));
    CHECK(!serial.bound_by_model);

    const perf::deployment_forecast model = perf::forecast({3, phases, 2, 6});
    CHECK(model.tokens_per_second == Approx(1000 / 3.0));
    CHECK(model.latency == Approx(18));
    CHECK(model.bound_by_model);

    const perf::deployment_forecast cores = perf::forecast({3, phases, 30, 64, 4});
    CHECK(cores.tokens_per_second == Approx(4 * 1000 / 30.0));
    CHECK(!cores.bound_by_model);

    const perf::deployment_forecast far = perf::forecast({3, phases, 2, 1, 1, 10});
    CHECK(far.latency == Approx(25));
    CHECK(perf::forecast({3, phases, 0, 1}).latency == Approx(3));  // no adapter at all
}

TEST_CASE("launches are stages that are not fused, the fused one, and what stands beside") {
    CHECK(perf::transform_launches(14, 8) == 7);
    CHECK(perf::transform_launches(14, 9, 1) == 7);
    CHECK(perf::transform_launches(14, 0) == 14);
    CHECK(perf::transform_launches(14, 0, 1) == 15);
    CHECK(perf::transform_launches(14, 14) == 1);
    CHECK(perf::product_launches(4, 7, 7, 1) == 116);
    CHECK(perf::product_launches(4, 7, 7, 2) == 120);
    CHECK(perf::product_launches(1, 5, 9, 0) == 28);
    CHECK_THROWS_AS(perf::transform_launches(14, 15), tensafe::parameter_error);
    CHECK_THROWS_AS(perf::transform_launches(14, -1), tensafe::parameter_error);
    CHECK_THROWS_AS(perf::transform_launches(-1, 0), tensafe::parameter_error);
    CHECK_THROWS_AS(perf::transform_launches(14, 8, -1), tensafe::parameter_error);
}

TEST_CASE("95 % of the variance leave 22 % relative error") {
    CHECK(perf::relative_error_of_variance(0.95) == Approx(std::sqrt(0.05)));
    CHECK(perf::relative_error_of_variance(1) == 0);
    CHECK(perf::relative_error_of_variance(0) == 1);
    CHECK_THROWS_AS(perf::relative_error_of_variance(1.001), tensafe::parameter_error);
    CHECK_THROWS_AS(perf::relative_error_of_variance(std::nan("")), tensafe::parameter_error);
}

TEST_CASE("numbers that cannot be are refused by name") {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr double infinite = std::numeric_limits<double>::infinity();
    CHECK(message_of([] {
              static_cast<void>(perf::latency(-1, 2));
          }).find("milliseconds of the model: got -1") != std::string::npos);
    CHECK(message_of([] {
              static_cast<void>(perf::decode_milliseconds(three_billion, perf::precision::q4, {"g", 0}));
          }).find("terabytes a second: got 0") != std::string::npos);
    CHECK(message_of([] {
              static_cast<void>(perf::weight_bytes({}, perf::precision::q4));
          }).find("active parameters") != std::string::npos);
    for (const double bad : {nan, infinite, -infinite, -0.5}) {
        CHECK_THROWS_AS(perf::latency(1, bad), tensafe::parameter_error);
        CHECK_THROWS_AS(perf::tokens_per_second({{bad}, {1.0}}, 1), tensafe::parameter_error);
        CHECK_THROWS_AS(perf::tokens_per_second({{1.0}}, 1, bad), tensafe::parameter_error);
        CHECK_THROWS_AS(perf::transfer_milliseconds(bad, 1), tensafe::parameter_error);
        CHECK_THROWS_AS(perf::transfer_milliseconds(1, bad), tensafe::parameter_error);
        CHECK_THROWS_AS(perf::forecast({1, {}, 0, 1, 1, bad}), tensafe::parameter_error);
    }
    CHECK_THROWS_AS(perf::serial_tokens_per_second(0, 0), tensafe::parameter_error);
    CHECK_THROWS_AS(perf::tokens_per_second({{1.0}}, 0), tensafe::parameter_error);
    CHECK_THROWS_AS(perf::tokens_per_second({{1.0, 0}}, 1), tensafe::parameter_error);
    CHECK_THROWS_AS(perf::tokens_per_second({}, 1), tensafe::parameter_error);
}
