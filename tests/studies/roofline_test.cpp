#include "../../studies/roofline/roofline.hpp"

#include "../../studies/roofline/short_number.hpp"
#include "../test.hpp"

using doctest::Approx;

namespace {

constexpr roofline::language_model three_billion{"m", 35e9, 3e9, 2048, 40, 0, 0, 0};
constexpr roofline::gpu slow{"g", 1.5};

}  // namespace

TEST_CASE("a token's decoding takes as long as reading its active weights") {
    CHECK(roofline::weight_bytes(three_billion, roofline::precision::bf16) == 6e9);
    CHECK(roofline::weight_bytes(three_billion, roofline::precision::q4) == 1.5e9);
    CHECK(roofline::decode_milliseconds(three_billion, roofline::precision::bf16, slow) == Approx(4.0));
    CHECK(roofline::decode_milliseconds(three_billion, roofline::precision::q4, slow) == Approx(1.0));
    CHECK(roofline::transfer_milliseconds(262144, 32) == Approx(0.008192));
    CHECK(roofline::transfer_milliseconds(0, 32) == 0);
}

TEST_CASE("published transfers are those of the analyses") {
    CHECK(roofline::published_transfer_milliseconds(roofline::interconnect::pcie4) == 28);
    CHECK(roofline::published_transfer_milliseconds(roofline::interconnect::pcie5) == 14);
    CHECK(roofline::published_transfer_milliseconds(roofline::interconnect::gh200) == 1.5);
    CHECK(roofline::published_transfer_milliseconds(roofline::interconnect::m4_max) == 0);
    CHECK(roofline::published_transfer_milliseconds(roofline::interconnect::gb200) == 0.8);
    CHECK_THROWS_AS(roofline::published_transfer_milliseconds(static_cast<roofline::interconnect>(99)),
                    tensafe::parameter_error);
}

TEST_CASE("batches are ranks over rows of a ciphertext, rounded up") {
    CHECK(roofline::columns_per_ciphertext(16384, 2048) == 8);
    CHECK(roofline::columns_per_ciphertext(16384, 1536) == 10);
    CHECK(roofline::columns_per_ciphertext(2048, 2048) == 1);
    for (std::size_t rank = 0; rank < 70; ++rank) {
        const auto expected = static_cast<std::size_t>(std::ceil(static_cast<double>(rank) / 10));
        CHECK(roofline::batches(rank, 16384, 1536) == expected);
    }
    CHECK(roofline::batches(std::numeric_limits<std::size_t>::max(), 4096, 2048) ==
          std::numeric_limits<std::size_t>::max() / 2 + 1);
    CHECK_THROWS_AS(roofline::batches(32, 2047, 2048), tensafe::parameter_error);
    CHECK_THROWS_AS(roofline::batches(32, 2048, 0), tensafe::parameter_error);
}

TEST_CASE("T_HE is every phase once, and those of a batch once for each batch") {
    CHECK(roofline::encrypted_phases{1, 10, 100, 1000, 10000, 3}.total() == Approx(11331));
    CHECK(roofline::encrypted_phases{1, 10, 100, 1000, 10000, 0}.total() == Approx(11001));
    constexpr roofline::measured_phases measured{1, 2, 4, 8, 16, 32, 64};
    CHECK(measured.client() == 1 + 32 + 64);
    CHECK(measured.server() == 2 + 4 + 8 + 16);
    CHECK(measured.total() == 127);
}

TEST_CASE("one sequence gets the published serial rate whatever the workers") {
    CHECK(roofline::latency(2.9, 9.3) == Approx(12.2));
    CHECK(roofline::serial_tokens_per_second(2.9, 9.3) == Approx(1000 / 12.2));
    CHECK(roofline::tokens_per_second({{2.9, 1}, {9.3, 1}}, 1) == Approx(1000 / 12.2));
    CHECK(roofline::tokens_per_second({{2.9, 7}, {9.3, 50}}, 1) == Approx(1000 / 12.2));
    CHECK(roofline::tokens_per_second({{2.9}, {9.3}}, 1, 7.8) == Approx(50));
}

TEST_CASE("two sequences on two stages get 1000 / max, and more do not help") {
    for (const std::size_t sequences : std::vector<std::size_t>{2, 3, 8, 1000}) {
        CHECK(roofline::tokens_per_second({{2.9}, {9.3}}, sequences) == Approx(1000 / 9.3));
        CHECK(roofline::tokens_per_second({{9.3}, {2.9}}, sequences) == Approx(1000 / 9.3));
    }
    CHECK(roofline::tokens_per_second({{2.0}, {10.0, 4}}, 1000) == Approx(400));  // four workers
    CHECK(roofline::tokens_per_second({{2.0}, {10.0, 9}}, 1000) == Approx(500));  // then the other stage
    CHECK(roofline::tokens_per_second({{0.0}, {10.0}}, 3) == Approx(100));
}

TEST_CASE("a forecast is the pipeline of its parts, and its latency follows from its rate") {
    constexpr roofline::measured_phases phases{0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.4};
    const roofline::deployment_forecast serial = roofline::forecast({3, phases, 2, 1});
    CHECK(serial.encrypted_milliseconds == Approx(2));
    CHECK(serial.latency == Approx(5));
    CHECK(serial.tokens_per_second == Approx(200));
    CHECK(!serial.bound_by_model);

    const roofline::deployment_forecast model = roofline::forecast({3, phases, 2, 6});
    CHECK(model.tokens_per_second == Approx(1000 / 3.0));
    CHECK(model.latency == Approx(18));
    CHECK(model.bound_by_model);

    const roofline::deployment_forecast cores = roofline::forecast({3, phases, 30, 64, 4});
    CHECK(cores.tokens_per_second == Approx(4 * 1000 / 30.0));
    CHECK(!cores.bound_by_model);

    const roofline::deployment_forecast far = roofline::forecast({3, phases, 2, 1, 1, 10});
    CHECK(far.latency == Approx(25));
    CHECK(roofline::forecast({3, phases, 0, 1}).latency == Approx(3));  // no adapter at all
}

TEST_CASE("launches are stages that are not fused, the fused one, and what stands beside") {
    CHECK(roofline::transform_launches(14, 8) == 7);
    CHECK(roofline::transform_launches(14, 9, 1) == 7);
    CHECK(roofline::transform_launches(14, 0) == 14);
    CHECK(roofline::transform_launches(14, 0, 1) == 15);
    CHECK(roofline::transform_launches(14, 14) == 1);
    CHECK(roofline::product_launches(4, 7, 7, 1) == 116);
    CHECK(roofline::product_launches(4, 7, 7, 2) == 120);
    CHECK(roofline::product_launches(1, 5, 9, 0) == 28);
    CHECK_THROWS_AS(roofline::transform_launches(14, 15), tensafe::parameter_error);
    CHECK_THROWS_AS(roofline::transform_launches(14, -1), tensafe::parameter_error);
    CHECK_THROWS_AS(roofline::transform_launches(-1, 0), tensafe::parameter_error);
    CHECK_THROWS_AS(roofline::transform_launches(14, 8, -1), tensafe::parameter_error);
}

TEST_CASE("95 % of the variance leave 22 % relative error") {
    CHECK(roofline::relative_error_of_variance(0.95) == Approx(std::sqrt(0.05)));
    CHECK(roofline::relative_error_of_variance(1) == 0);
    CHECK(roofline::relative_error_of_variance(0) == 1);
    CHECK_THROWS_AS(roofline::relative_error_of_variance(1.001), tensafe::parameter_error);
    CHECK_THROWS_AS(roofline::relative_error_of_variance(std::nan("")), tensafe::parameter_error);
}

TEST_CASE("numbers that cannot be are refused by name") {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr double infinite = std::numeric_limits<double>::infinity();
    using roofline::precision;
    const auto refused = [](auto call, const char* part) {
        CHECK(tests::contains(tests::refusal<tensafe::parameter_error>(call), part));
    };
    refused([] { return roofline::latency(-1, 2); }, "milliseconds of the model: got -1");
    refused(
        [] {
            return roofline::decode_milliseconds(three_billion, precision::q4, {"g", 0});
        },
        "terabytes a second: got 0");
    refused([] { return roofline::weight_bytes({}, precision::q4); }, "active parameters");
    for (const double bad : {nan, infinite, -infinite, -0.5}) {
        CHECK_THROWS_AS(roofline::latency(1, bad), tensafe::parameter_error);
        CHECK_THROWS_AS(roofline::tokens_per_second({{bad}, {1.0}}, 1), tensafe::parameter_error);
        CHECK_THROWS_AS(roofline::tokens_per_second({{1.0}}, 1, bad), tensafe::parameter_error);
        CHECK_THROWS_AS(roofline::transfer_milliseconds(bad, 1), tensafe::parameter_error);
        CHECK_THROWS_AS(roofline::transfer_milliseconds(1, bad), tensafe::parameter_error);
        CHECK_THROWS_AS(roofline::forecast({1, {}, 0, 1, 1, bad}), tensafe::parameter_error);
    }
    CHECK_THROWS_AS(roofline::serial_tokens_per_second(0, 0), tensafe::parameter_error);
    CHECK_THROWS_AS(roofline::tokens_per_second({{1.0}}, 0), tensafe::parameter_error);
    CHECK_THROWS_AS(roofline::tokens_per_second({{1.0, 0}}, 1), tensafe::parameter_error);
    CHECK_THROWS_AS(roofline::tokens_per_second({}, 1), tensafe::parameter_error);
}

TEST_CASE("short numbers have three digits") {
    using studies::short_number;
    CHECK(short_number(0) == "0.00");
    CHECK(short_number(0.25) == "0.25");
    CHECK(short_number(7.694) == "7.69");
    CHECK(short_number(9.996) == "10.0");
    CHECK(short_number(81.967) == "82.0");
    CHECK(short_number(99.96) == "100");
    CHECK(short_number(1321.4) == "1321");
    CHECK(short_number(0.0013) == "1.3e-03");
    CHECK(short_number(std::numeric_limits<double>::max()).size() == 309);
}
