#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/server_zeros.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/serving/forecast.hpp>

#include "../../bench/machine_times.hpp"
#include "../random_values.hpp"
#include "../sides.hpp"
#include "../test.hpp"

using namespace tests;
using set = ckks::private_n4096;

namespace {

serving::transformer_shape tiny() {
    return {.layers = 3, .d_model = 60, .d_query = 280, .d_key = 10, .d_mlp = 20, .rank = 3, .mlp = "mlp"};
}

lora::adapter with_values(lora::adapter shapes) {
    std::uint64_t seed = 1;
    for (auto& site : shapes.sites) {
        site.a = random_matrix(site.a.rows, site.a.columns, ++seed);
        site.b = random_matrix(site.b.rows, site.b.columns, ++seed);
    }
    return shapes;
}

}  // namespace

TEST_CASE("the default shape is that of the example data: 40 layers of seven sites") {
    const lora::adapter shapes = serving::sites_of({});
    REQUIRE(shapes.sites.size() == 280);
    const auto& q = shapes.site("layers.0.self_attn.q_proj");
    CHECK(q.rank() == 32);
    CHECK(q.d_in() == 2048);
    CHECK(q.d_out() == 4096);
    CHECK(q.b.columns == 32);
    CHECK(q.a.values.empty());
    CHECK(shapes.site("layers.39.self_attn.v_proj").d_out() == 512);
    CHECK(shapes.site("layers.39.self_attn.o_proj").d_in() == 4096);
    CHECK(shapes.site("layers.39.mlp.experts.7.gate_proj").d_out() == 512);
    CHECK(shapes.site("layers.39.mlp.experts.7.down_proj").d_in() == 512);
    CHECK(shapes.site("layers.39.mlp.experts.7.down_proj").d_out() == 2048);
    // A generated token through one layer, as docs/serving.md says.
    const auto bytes_of = [](std::size_t rank, std::size_t d) {
        return lora::cost_of<set, lora::coefficient_tiles<4>>({rank, d, d}).bytes();
    };
    CHECK(bytes_of(96, 2048) + bytes_of(32, 4096) + bytes_of(64, 2048) + bytes_of(32, 512) == 1'099'560);
}

TEST_CASE("predicted bytes and memory are those of the messages and of the packed model, in both modes") {
    for (const auto mode : {lora::mode::client_held_b, lora::mode::blind}) {
        lora::model_options options;
        options.mode = mode;
        options.tokens_ahead = 8;
        const lora::adapter shapes = serving::sites_of(tiny());
        const auto forecast = serving::model_forecast<small>(shapes, options);
        REQUIRE(forecast.groups.size() == 12);
        CHECK(forecast.block_tokens == 8);

        const lora::adapter from = with_values(shapes);
        const lora::model_server<small> server(from, options);
        lora::model_client<small> client(server.layout(), lora::client_part(from, options));
        const auto nonce = tensafe::random::fresh_nonce();
        lora::server_zeros<small> session(nonce, client.rerandomization_key(nonce));
        for (std::size_t g = 0; g < 4; ++g) {  // of the first layer
            const std::size_t d = server.layout().groups[g].d;
            CHECK(forecast.groups[g].input == server.layout().groups[g].input);
            CHECK(forecast.groups[g].layer == 0U);
            const auto query = client.encrypt(g, random_state(d, g));
            lora::model_client<small>::reply_type reply;
            session.apply(server, g, query.request, reply);
            CHECK(query.request.bytes() == forecast.groups[g].decode.bytes_up);
            CHECK(reply.bytes() == forecast.groups[g].decode.bytes_down);
            auto block = client.prepare(g);
            lora::block_workspace<small> work;
            lora::server_block<small> at_server;
            lora::block_reply ahead;
            session.prepare(tensafe::exec::host{}, server, g, block.request(), work, at_server, ahead);
            client.accept(block, ahead);
            std::size_t up = block.request().bytes();
            std::size_t down = ahead.bytes();
            lora::token_query token;
            lora::token_reply answers;
            for (std::size_t t = 0; t < 8; ++t) {
                block.encrypt(random_state(d, t), token);
                server.blocks(g)->answer(at_server, token.request, work, answers);
                up += token.request.bytes();
                down += answers.bytes();
            }
            CHECK(up == forecast.groups[g].block.bytes_up);
            CHECK(down == forecast.groups[g].block.bytes_down);
        }
        const auto all = forecast.totals();
        CHECK(all.packed_bytes == server.bytes());
        CHECK(all.zeros == server.zeros_per_token());
    }
}

TEST_CASE("totals add up over what is chosen") {
    lora::model_options options;
    options.tokens_ahead = 8;
    const auto forecast = serving::model_forecast<small>(serving::sites_of(tiny()), options,
                                                         bench::times_of_this_machine<small>(8));
    CHECK(forecast.block_tokens == 8);
    const auto all = forecast.totals();
    CHECK(all.requests == 12);
    CHECK(all.sites == 21);
    CHECK(all.block_tokens == 8);
    const auto first = forecast.totals([](const serving::group_forecast& g) { return g.layer == 0U; });
    const auto rest = forecast.totals([](const serving::group_forecast& g) { return g.layer != 0U; });
    CHECK(first.requests == 4);
    CHECK(first.sites == 7);
    CHECK(3 * first.bytes_up == all.bytes_up);
    CHECK(3 * first.bytes_down == all.bytes_down);
    CHECK(all.bytes() == all.bytes_up + all.bytes_down);
    CHECK(3 * first.zeros == all.zeros);
    CHECK(first.packed_bytes + rest.packed_bytes == all.packed_bytes);
    CHECK(first.block_bytes_up + rest.block_bytes_up == all.block_bytes_up);
    CHECK(first.block_bytes_down + rest.block_bytes_down == all.block_bytes_down);
    for (const auto part : {&serving::forecast_times::decode, &serving::forecast_times::delta,
                            &serving::forecast_times::block}) {
        CHECK(*first.milliseconds.*part + *rest.milliseconds.*part ==
              doctest::Approx(*all.milliseconds.*part));
        CHECK(*first.milliseconds.*part > 0);
    }
    // Equal layers have equal forecasts: units are measured once for each length.
    CHECK(forecast.groups[0].milliseconds->decode == forecast.groups[4].milliseconds->decode);
    CHECK(forecast.groups[1].milliseconds->block == forecast.groups[9].milliseconds->block);
    CHECK(forecast.totals([](const serving::group_forecast&) { return false; }).bytes() == 0);
}

TEST_CASE("times of a forecast follow from those of the machine, one input, product and output at a time") {
    lora::model_options options;
    options.tokens_ahead = 8;
    std::vector<std::size_t> asked;
    const serving::machine_times times{[&](std::size_t entries) {
                                           asked.push_back(entries);
                                           return serving::unit_times{100, 10, static_cast<double>(entries)};
                                       },
                                       {3, 2, 1},
                                       0.5};
    const auto forecast = serving::model_forecast<small>(serving::sites_of(tiny()), options, times);
    for (std::size_t g = 0; g < forecast.groups.size(); ++g) {
        const serving::group_forecast& of = forecast.groups[g];
        const auto inputs = static_cast<double>(of.decode.inputs);
        const auto outputs = static_cast<double>(of.decode.outputs);
        CHECK(of.milliseconds->decode ==
              100 * inputs + 10 * inputs * outputs + static_cast<double>(asked[g]) * outputs);
        const auto block_inputs = static_cast<double>(of.block.inputs);
        const auto block_outputs = static_cast<double>(of.block.outputs);
        CHECK(of.milliseconds->block == 3 * block_inputs + 2 * block_inputs * block_outputs + block_outputs);
    }
    CHECK(asked[0] == 60);
    CHECK(forecast.groups[0].milliseconds->delta == 0.5 * 3 * (280 + 10 + 10));
    options.mode = lora::mode::blind;
    options.tokens_ahead = 0;
    const auto blind = serving::model_forecast<small>(serving::sites_of(tiny()), options, times).totals();
    CHECK(blind.milliseconds->delta == 0);
    CHECK(blind.milliseconds->block == 0);
    // What is not known is not 0.
    const auto without = serving::model_forecast<small>(serving::sites_of(tiny()), options);
    CHECK_FALSE(without.groups[0].milliseconds.has_value());
    CHECK_FALSE(without.totals().milliseconds.has_value());
    CHECK_THROWS_WITH_AS(
        serving::model_forecast<small>(serving::sites_of(tiny()), options, serving::machine_times{}),
        Contains("machine_times without of_requests"), parameter_error);
}

TEST_CASE(
    "measured times are above zero, also of few entries and in a small set, and those of a block are short") {
    const auto times = bench::times_of_this_machine<set>(32);
    CHECK(times.of_requests(300).product > 0);
    CHECK(std::isfinite(times.of_requests(300).input + times.of_requests(300).output));
    // A site of rank 2 and 32 entries: one input, two outputs.
    const double block = times.of_blocks.input + 2 * times.of_blocks.product + 2 * times.of_blocks.output;
    CHECK(block > 0);
    CHECK(block / 32 < 10);
    CHECK(bench::times_of_this_machine<ckks::minimal_n2048>().of_requests(2).product > 0);
}

TEST_CASE("the distance of a model is the root of the sum of squares of its groups', 1 at most") {
    const auto forecast = serving::model_forecast<small>(serving::sites_of(tiny()));
    double squares = 0;
    for (const auto& g : forecast.groups) {
        REQUIRE(g.decode.statistical_distance > 0);
        REQUIRE(g.decode.statistical_distance < 0.1);
        squares += g.decode.statistical_distance * g.decode.statistical_distance;
    }
    CHECK(forecast.totals().statistical_distance / std::sqrt(squares) == doctest::Approx(1).epsilon(1e-9));
    CHECK(forecast.totals([](const auto&) { return false; }).statistical_distance == 0);
    // Equal groups: as one group with all their target coefficients.
    const auto& one = forecast.groups[0].decode;
    const auto same = forecast.totals([&](const auto& g) { return g.input.ends_with("self_attn.input"); });
    CHECK(same.requests == 3);
    CHECK(same.statistical_distance / one.budget.statistical_distance(3 * one.targets) ==
          doctest::Approx(1).epsilon(1e-9));
    const auto bare = serving::model_forecast<small, lora::coefficient_tiles<4>, lora::reveals_adapter_rows>(
        serving::sites_of(tiny()));
    CHECK(bare.totals().statistical_distance == 1);
}

TEST_CASE("the default model has the distances that docs/serving.md and docs/design/protocol.md state") {
    struct row {
        double tokens;
        double log2_distance;
    };
    for (const row& expected : {row{128, -38.5}, row{512, -37.5}, row{0x1p20, -32.0}}) {
        std::size_t targets = 0;
        std::size_t outputs = 0;
        double squares = 0;
        for (const lora::site_shape layer : {lora::site_shape{96, 2048, 1}, lora::site_shape{32, 4096, 1},
                                             lora::site_shape{64, 2048, 1}, lora::site_shape{32, 512, 1}}) {
            const auto cost = lora::cost_of<set, lora::coefficient_tiles<4>>(layer);
            targets += 40 * cost.targets;
            outputs += 40 * cost.outputs;
            const double distance = cost.budget.statistical_distance(cost.targets, expected.tokens);
            squares += 40 * distance * distance;
        }
        CHECK(targets == 8960);
        CHECK(outputs == 2240);
        CHECK(std::log2(std::sqrt(squares)) == doctest::Approx(expected.log2_distance).epsilon(0.001));
    }
}

TEST_CASE("options choose sites, mode and blocks of a forecast as those of a model") {
    lora::model_options options;
    options.protect = [](const lora::adapter_site& s) { return s.name.find("mlp") != s.name.npos; };
    const auto forecast = serving::model_forecast<small>(serving::sites_of(tiny()), options);
    CHECK(forecast.groups.size() == 6);
    CHECK(forecast.totals().packed_bytes ==
          lora::model_server<small>::bytes_for(serving::sites_of(tiny()), options));
    CHECK(forecast.totals().block_bytes_up == 0);
    options.mode = lora::mode::blind;
    const auto blind = serving::model_forecast<small>(serving::sites_of(tiny()), options);
    CHECK(blind.totals().bytes_down > forecast.totals().bytes_down);
    CHECK(blind.totals().bytes_up == forecast.totals().bytes_up);
}

TEST_CASE("a forecast of what no model can be is refused") {
    CHECK(serving::model_forecast<small>({}).totals().requests == 0);  // nothing protected, nothing sent
    lora::model_options options;
    options.tokens_ahead = 1025;
    CHECK_THROWS_WITH_AS(serving::model_forecast<small>({}, options),
                         Contains("got tokens_ahead of 1025, expected 0 or 2 to 1024"), parameter_error);
    options.tokens_ahead = 2;
    CHECK_THROWS_WITH_AS(serving::model_forecast<ckks::minimal_n2048>({}, options),
                         Contains("expected 0: this parameter set has no room for blocks"), parameter_error);
    lora::adapter shapes = serving::sites_of(tiny());
    shapes.sites[1].a.columns = 61;
    CHECK_THROWS_WITH_AS(serving::model_forecast<small>(shapes), Contains("k_proj"), shape_error);
}

TEST_CASE("row statistics are those of the matrix") {
    lora::matrix a(3, 4);
    a.values = {3, 4, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
    const serving::row_statistics rows = serving::statistics_of(a);
    CHECK(rows.smallest_norm == 0);
    CHECK(rows.largest_norm == 5);
    CHECK(rows.mean_square_norm == doctest::Approx(std::sqrt(29.0 / 3)));
    CHECK(rows.range_factor == doctest::Approx(2 * 4.0 / 5));  // the entry 4 of a row of norm 5, d = 4
    a.values[5] = std::numeric_limits<float>::infinity();
    CHECK_THROWS_AS(serving::statistics_of(a), encoding_error);
}

TEST_CASE("the forecast has the bytes of the cost model and an error that comes true") {
    lora::adapter adapter;
    adapter.sites = {random_site(16, 8, 300, 1), random_site(16, 5, 1500, 1)};
    const auto forecasts = serving::estimate<set>(adapter);
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
        const auto nonce = tensafe::random::fresh_nonce();
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
    const auto forecast = serving::estimate<set, blind_packing>(site, lora::mode::blind);
    CHECK(forecast.rows.largest_norm > 20 * forecast.rows.smallest_norm);
    CHECK(forecast.relative_error > 3 * forecast.cost.relative_error);
}

TEST_CASE("a set that cannot hold the replies is named together with the site") {
    const lora::adapter_site site = random_site(1, 32, 2048, 1);
    const std::string message =
        refusal<parameter_error>([&] { serving::estimate<ckks::minimal_n2048>(site); });
    CHECK(contains(message, "site \"layers.0.q_proj\""));
    CHECK(contains(message, "its modulus is too short"));
}

TEST_CASE("blocks are forecast by the hidden state") {
    const lora::adapter_site site = random_site(4, 2, 32, 1);
    const auto forecast = serving::estimate<set, lora::token_blocks>(site);
    CHECK(forecast.cost.hidden_states == 32);
}

TEST_CASE("a site that a small set can hold is forecast, however few its entries are") {
    const lora::adapter_site site = random_site(4, 2, 4, 1);
    using tiny = ckks::minimal_n2048;
    CHECK_NOTHROW(lora::server<tiny>(lora::normalize_rows(site).a));
    CHECK(serving::estimate<tiny>(site).cost.bytes() > 0);
}
