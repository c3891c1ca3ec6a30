#include <tensafe/lora/adapter/plain.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
using namespace tensafe::lora;

namespace {

/// A = (1 2 3; 4 5 6), B = (1 -1; 2 0; 0 3; 1 1), scale = 0.5.
adapter_site small_site() {
    adapter_site site{"q_proj", matrix(2, 3), matrix(4, 2), 0.5};
    site.a.values = {1, 2, 3, 4, 5, 6};
    site.b.values = {1, -1, 2, 0, 0, 3, 1, 1};
    return site;
}

}  // namespace

TEST_CASE("apply_b is scale * B times the product") {
    CHECK(apply_b(small_site(), std::vector<double>{10, 4}) == std::vector<double>{3, 10, 6, 7});
}

TEST_CASE("plain_delta is scale * B * (A * h), worked out by hand") {
    // A h = (1 - 2 + 6, 4 - 5 + 12) = (5, 11)
    CHECK(plain_delta(small_site(), std::vector<float>{1, -1, 2}) == std::vector<double>{-3, 5, 16.5, 8});
}

TEST_CASE("plain_delta adds in double: a large entry does not swallow a small one") {
    adapter_site site{"q_proj", matrix(1, 3), matrix(1, 1), 1.0};
    site.a.values = {1, 1, 1};
    site.b.values = {1};
    CHECK(plain_delta(site, std::vector<float>{1e8F, 1, -1e8F}) == std::vector<double>{1});
}

TEST_CASE("plain_delta agrees with the definition on random sites of many shapes") {
    struct shape {
        std::size_t d_out, rank, d_in;
    };
    for (const auto& [d_out, rank, d_in] : {shape{1, 1, 1}, shape{5, 3, 17}, shape{64, 8, 33}}) {
        const adapter_site site = random_site(d_out, rank, d_in, d_in);
        const std::vector<float> h = random_state(d_in, 5);
        std::vector<double> expected = product(site.b, product(site.a, h));
        const std::vector<double> got = plain_delta(site, h);
        REQUIRE(got.size() == d_out);
        for (std::size_t k = 0; k < d_out; ++k) {
            CHECK(got[k] == doctest::Approx(2 * expected[k]).epsilon(1e-12));
        }
    }
}

TEST_CASE("vectors of the wrong size are refused, and the message says what came and what was needed") {
    const adapter_site site = small_site();
    const std::string delta = refusal<shape_error>([&] { plain_delta(site, std::vector<float>(4)); });
    CHECK(contains(delta, "got a vector of 4 entries, expected 3"));
    const std::string b = refusal<shape_error>([&] { apply_b(site, std::vector<double>(3)); });
    CHECK(contains(b, "got a vector of 3 entries, expected 2"));
}
