#include "model_fixture.hpp"

using namespace tests;
using namespace model_fixture;

static_assert(lora::offers_blocks<small, lora::protects_adapter_rows<>>);
static_assert(lora::offers_blocks<ckks::private_n4096, lora::protects_adapter_rows<>>);
static_assert(lora::offers_blocks<ckks::quantum_n4096, lora::protects_adapter_rows<>>);
static_assert(lora::offers_blocks<ckks::compact_n4096, average_case>);
static_assert(!lora::offers_blocks<small, lora::reveals_adapter_rows>);
static_assert(!std::is_copy_constructible_v<model_server> && !std::is_move_constructible_v<model_server>);
static_assert(!std::is_copy_constructible_v<server_zeros> && !std::is_move_constructible_v<server_zeros>);

TEST_CASE("the server's own scale of a merged site is 1 if all of it is zero") {
    lora::adapter from;
    from.sites = {random_site(6, 2, 20, 1)};
    from.sites[0].b.values.assign(from.sites[0].b.values.size(), 0.0F);
    lora::model_options options;
    options.mode = lora::mode::blind;
    const model_server server(from, options);
    CHECK(server.layout().groups[0].sites[0].scale == 1);
    CHECK(server.layout().groups[0].row_norm == 0);
}

TEST_CASE("bytes_for before packing is bytes after it, and packing asks for little more than that") {
    const lora::adapter from = random_adapter(1);
    for (const auto mode : {lora::mode::client_held_b, lora::mode::blind}) {
        lora::model_options options = with_blocks();
        options.mode = mode;
        const std::size_t with = model_server::bytes_for(from, options);
        const model_server server(from, options);
        CHECK(server.bytes() == with);
        options.tokens_ahead = 0;
        CHECK(model_server(from, options).bytes() == model_server::bytes_for(from, options));
        // Blocks keep A as 32-bit integers, eight rows at a time.
        std::size_t integers = 0;
        for (const auto& group : server.layout().groups) {
            integers += (group.rows(mode) + 7) / 8 * 8 * group.d * 4;
        }
        CHECK(with - model_server::bytes_for(from, options) == integers);
    }
    // q, k, v: 12 rows in 3 products of one input; o: 2 of 2 inputs; gate and up: 2 of 1; down: 2 of 1.
    CHECK(model_server::bytes_for(from) == (3 + 4 + 2 + 2) * 2 * 1024 * 8);
    const model_server server(from, with_blocks());
    CHECK(server.zeros_per_token() == 3 + 2 + 2 + 2);
    CHECK(server.zeros_per_block() == 12 + 5 + 8 + 5);
}

TEST_CASE("the weights that a visitor is shown are those that the server multiplies with") {
    for (const auto mode : {lora::mode::client_held_b, lora::mode::blind}) {
        lora::adapter from = random_adapter(1);
        lora::model_options options;
        options.mode = mode;
        const auto shown_of = [&] {
            std::vector<arith::word> words;
            model_server::visit_weights(
                from, options, [&](auto some) { words.insert(words.end(), some.begin(), some.end()); });
            return words;
        };
        const auto shown = shown_of();
        const model_server server(from, options);
        std::vector<arith::word> used;
        for (std::size_t g = 0; g < server.layout().groups.size(); ++g) {
            const auto& weights = lora::detail::server_internals::weights(*server.decode(g));
            const auto& plan = server.plan(g);
            used.insert(used.end(), {plan.rank(), plan.d()});
            std::vector<std::vector<lora::traced_product<small>>> products(plan.inputs());
            for (std::size_t i = 0; i < plan.inputs(); ++i) {  // 1 there makes c1 the plaintext itself
                lora::expanded_request<small> one;
                one.c0.resize(plan.inputs());
                one.c1.resize(plan.inputs());
                rns::for_each_limb<lora::traced_product<small>::basis>(
                    [&]<int I>() { std::ranges::fill(one.c1[i].limb<I>(), arith::word{1}); });
                products[i].resize(plan.outputs());
                lora::product_workspace<small> work;
                for (std::size_t p = 0; p < weights.panels(); ++p) {
                    weights.multiply(plan, p, std::span(&one, 1), work,
                                     std::span(products[i])
                                         .subspan(p * rns::panel_outputs, weights.shape_of(plan, p).outputs),
                                     {});
                }
            }
            for (std::size_t o = 0; o < plan.outputs(); ++o) {
                for (auto& of_input : products) {
                    const auto plain = rns::inverse(std::move(of_input[o].c1));
                    rns::for_each_limb<lora::traced_product<small>::basis>([&]<int I>() {
                        used.insert(used.end(), plain.template limb<I>().begin(),
                                    plain.template limb<I>().end());
                    });
                }
            }
        }
        REQUIRE(used.size() == shown.size());
        CHECK(std::ranges::equal(used, shown));

        // An entry of A that is one unit larger, of the integers of a row of norm 1.
        float& entry = from.sites[0].a.values[3];
        entry += static_cast<float>(norm(from.sites[0].a.row(0)) / server.plan(0).budget().weight_norm);
        CHECK(shown_of() != shown);
    }
}

TEST_CASE("packing reports each group, and ends when the report throws") {
    const lora::adapter from = random_adapter(2);
    std::vector<std::size_t> done;
    const model_server server(from, {}, [&](std::size_t d, std::size_t total) {
        CHECK(total == 8);
        done.push_back(d);
    });
    CHECK(done == std::vector<std::size_t>{1, 2, 3, 4, 5, 6, 7, 8});
    std::size_t calls = 0;
    const auto stop = [&](std::size_t, std::size_t) {
        if (++calls == 3) {
            throw std::runtime_error("stop");
        }
    };
    CHECK_THROWS_AS(model_server(from, {}, stop), std::runtime_error);
    CHECK(calls == 3);
}

TEST_CASE("an adapter that cannot be served is refused, and the site or its input named") {
    lora::adapter from = random_adapter(1);
    from.sites[4].a.row(1)[3] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH_AS(model_server{from},
                         Contains("input \"model.layers.0.mlp.input\": server: row 1, column 3"),
                         encoding_error);
    from = random_adapter(1);
    from.sites[6].a.values.pop_back();
    CHECK_THROWS_WITH_AS(model_server{from}, Contains("down_proj"), shape_error);
    CHECK_THROWS_AS(lora::client_part(from), shape_error);
    from = random_adapter(1);
    from.sites[6].b.rows = 69;
    CHECK_THROWS_WITH_AS(model_server{from}, Contains("down_proj"), shape_error);
    lora::model_options options;
    const model_server without(random_adapter(1), options);
    CHECK_THROWS_WITH_AS(without.blocks(0), Contains("without blocks"), parameter_error);
    CHECK_THROWS_WITH_AS(without.decode(4), Contains("got group 4"), parameter_error);
}

TEST_CASE("blocks of more tokens than the set has coefficients are refused before anything is packed") {
    const lora::adapter from = random_adapter(1);
    lora::model_options options;
    options.tokens_ahead = small::degree;
    CHECK(model_server(from, options).layout().tokens_ahead == small::degree);
    options.tokens_ahead *= 2;
    const std::string message = "got tokens_ahead of 2048, expected 0 or 2 to 1024";
    CHECK(contains(refusal<parameter_error>([&] { model_server(from, options); }), message));
    CHECK(contains(refusal<parameter_error>([&] { model_server::bytes_for(from, options); }), message));
    options.tokens_ahead = 1;
    CHECK_THROWS_WITH_AS(model_server::bytes_for(from, options), Contains("got tokens_ahead of 1"),
                         parameter_error);
    // No more than a client that cheats may have under one zero.
    options.tokens_ahead = 39;
    CHECK_THROWS_WITH_AS(lora::model_server<ckks::private_n4096>::bytes_for(from, options),
                         Contains("0 or 2 to 38; more with trusts_clients"), parameter_error);
}
