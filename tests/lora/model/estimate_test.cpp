#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/forecast.hpp>
#include <tensafe/lora/protocol/client.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
using set = ckks::private_n4096;

TEST_CASE("row statistics are those of the matrix") {
    lora::matrix a(3, 4);
    a.values = {3, 4, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
    const lora::row_statistics rows = lora::statistics_of(a);
    CHECK(rows.smallest_norm == 0);
    CHECK(rows.largest_norm == 5);
    CHECK(rows.mean_square_norm == doctest::Approx(std::sqrt(29.0 / 3)));
    CHECK(rows.range_factor == doctest::Approx(2 * 4.0 / 5));  // the entry 4 of a row of norm 5, d = 4
    a.values[5] = std::numeric_limits<float>::infinity();
    CHECK_THROWS_AS(lora::statistics_of(a), encoding_error);
}

TEST_CASE("the forecast has the bytes of the cost model and an error that comes true") {
    lora::adapter adapter;
    adapter.sites = {random_site(16, 8, 300, 1), random_site(16, 5, 1500, 1)};
    const auto forecasts = lora::estimate<set>(adapter);
    REQUIRE(forecasts.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        const lora::adapter_site site = lora::normalize_rows(adapter.sites[i]);
        const auto& forecast = forecasts[i];
        CHECK(forecast.site == site.name);
        CHECK(
            forecast.cost.bytes() ==
            lora::cost_of<set, lora::coefficient_tiles<4>>({site.rank(), site.d_in(), site.d_out()}).bytes());
        CHECK(forecast.rows.largest_norm == doctest::Approx(1));

        const lora::server<set> server(site.a);
        lora::client<set> client;
        const auto nonce = tensafe::random::fresh_seed();
        auto zeros = server.pool(nonce, client.rerandomization_key(nonce));
        double errors = 0;
        double values = 0;
        for (std::uint64_t token = 0; token < 200; ++token) {
            const std::vector<float> h = random_state(site.d_in(), 1000 + token);  // not the numbers of A
            const auto query = client.encrypt(server.plan(), h);
            const auto answers = client.decrypt(server.plan(), server.apply(query.request, zeros), query);
            const std::vector<double> exact = product(site.a, h);
            for (std::size_t r = 0; r < site.rank(); ++r) {
                errors += (answers[r] - exact[r]) * (answers[r] - exact[r]);
                values += exact[r] * exact[r];
            }
        }
        // The mean square of the errors of a thousand answers spreads by sqrt(2 / 1000), 4.5 %. A forecast
        // that is right leaves 0.64 to 1.56 of it, which is 8 spreads away and more, less often than once in
        // 10^9; one that is off by 1.5 passes as rarely.
        const double ratio = std::sqrt(errors / values) / forecast.relative_error;
        CHECK(ratio > 0.8);
        CHECK(ratio < 1.25);
    }
}

TEST_CASE("in blind mode rows of unequal norms raise the predicted error") {
    lora::adapter_site site = random_site(12, 4, 64, 1);
    for (std::size_t k = 1; k < 12; ++k) {
        scale(site.b.row(k), 0.01F);
    }
    using blind_packing = lora::coefficient_tiles<4>;
    const auto forecast = lora::estimate<set, blind_packing>(site, lora::mode::blind);
    CHECK(forecast.rows.largest_norm > 20 * forecast.rows.smallest_norm);
    CHECK(forecast.relative_error > 3 * forecast.cost.relative_error);
}

TEST_CASE("a set that cannot hold the replies is named together with the site") {
    const lora::adapter_site site = random_site(1, 32, 2048, 1);
    const std::string message = refusal<parameter_error>([&] { lora::estimate<ckks::minimal_n2048>(site); });
    CHECK(contains(message, "site \"layers.0.q_proj\""));
    CHECK(contains(message, "its modulus is too short"));
}

TEST_CASE("blocks are forecast by the hidden state") {
    const lora::adapter_site site = random_site(4, 2, 32, 1);
    const auto forecast = lora::estimate<set, lora::token_blocks>(site);
    CHECK(forecast.cost.hidden_states == 32);
}

TEST_CASE("a site that a small set can hold is forecast, however few its entries are") {
    const lora::adapter_site site = random_site(4, 2, 4, 1);
    using tiny = ckks::minimal_n2048;
    CHECK_NOTHROW(lora::server<tiny>(lora::normalize_rows(site).a));
    CHECK(lora::estimate<tiny>(site).cost.bytes() > 0);
}
