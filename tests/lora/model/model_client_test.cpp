#include "../../allocation_count.hpp"
#include "model_fixture.hpp"

using namespace tests;
using namespace model_fixture;

TEST_CASE(
    "deltas of every site are those of plaintext LoRA, one by one and in blocks, when the client has B") {
    const lora::adapter from = random_adapter(2);
    served_small s(from);
    CHECK(s.server.layout().groups.size() == 8);  // requests for 14 sites
    check_tokens_and_blocks(s, from);
    CHECK(s.client.in_the_clear().empty());
    for (const auto& group : s.server.layout().groups) {
        CHECK(group.row_norm == 1);  // balanced: tells nothing
    }
}

TEST_CASE("they are so in mode blind, where sites of a group may have norms of any sizes") {
    lora::adapter from = random_adapter(1);
    scale(from.sites[1].b.values, 1e-6F);
    lora::model_options options;
    options.mode = lora::mode::blind;
    options.tokens_ahead = 128;
    served_small s(from, options);
    CHECK(s.server.layout().groups.size() == 4);
    CHECK(lora::client_part(from, options).sites.empty());
    check_tokens_and_blocks(s, from);
    for (const auto& group : s.server.layout().groups) {
        CHECK(group.row_norm > 0.5);
        CHECK(group.row_norm <= 1);
        for (const auto& site : group.sites) {
            CHECK(std::frexp(site.scale, std::vector<int>(1).data()) == 0.5);  // a power of two
        }
    }
}

namespace {

/// The worst error of the group's deltas, of their norms, for a state alone and in a block.
template <class Served>
double worst_error(Served& s, const lora::adapter& from, const std::vector<float>& h) {
    const auto query = s.client.encrypt(0, h);
    typename Served::client_type::reply_type reply;
    s.session.apply(s.server, 0, query.request, reply);
    prepared_block block(s, 0);
    std::vector<double> product;
    block.product(s, 0, h, product);
    double worst = 0;
    for (const auto& deltas : {s.client.deltas(0, reply, query), s.client.deltas(0, product)}) {
        for (std::size_t i = 0; i < deltas.size(); ++i) {
            auto wrong = lora::plain_delta(from.site(s.server.layout().groups[0].sites[i].name), h);
            const double size = norm(std::span<const double>(wrong));
            std::transform(wrong.begin(), wrong.end(), deltas[i].begin(), wrong.begin(), std::minus());
            worst = worse(worst, norm(std::span<const double>(wrong)) / size);
        }
    }
    return worst;
}

}  // namespace

TEST_CASE("with column scales a few huge entries, which the adapter hardly reads, cost no precision") {
    lora::adapter from = random_adapter(1);
    from.sites.resize(3);
    auto h = random_state(70, 1);
    for (auto& site : from.sites) {
        for (std::size_t r = 0; r < site.rank(); ++r) {
            site.a.row(r)[17] = 0;
            site.a.row(r)[40] *= 1e-4F;
            site.a.row(r)[69] *= 30;
        }
    }
    h[17] = 12000;
    h[40] = -4000;
    h[69] /= 30;
    for (const auto mode : {lora::mode::client_held_b, lora::mode::blind}) {
        lora::model_options options = with_blocks();
        options.mode = mode;
        served_small plain(from, options);
        CHECK(plain.server.layout().groups[0].column_exponents.empty());
        CHECK(worst_error(plain, from, h) > 0.1);
        options.column_scales = true;
        served_small scaled(from, options);
        const auto& exponents = scaled.server.layout().groups[0].column_exponents;
        REQUIRE(exponents.size() == 70);
        CHECK(exponents[17] == lora::detail::largest_column_exponent);
        CHECK(worst_error(scaled, from, h) < 8 * scaled.server.plan(0).layout().budget().relative_error);
        CHECK(exponents[69] < -2);
        lora::model_layout layout = scaled.server.layout();
        layout.groups[0].column_exponents[5] = -120;  // a delta of 2^120 times the hidden state
        CHECK_THROWS_WITH_AS(model_client(layout, lora::client_part(from, options)),
                             Contains("got a gain of"), parameter_error);
        layout.groups[0].column_exponents[5] = 121;
        CHECK_THROWS_WITH_AS(layout.check(), Contains("has the column exponent 121, expected"),
                             parameter_error);
        layout.groups[0].column_exponents.pop_back();
        CHECK_THROWS_WITH_AS(model_client(layout, lora::client_part(from, options)),
                             Contains("69 column exponents, expected 70 or none"), shape_error);
        const std::vector<float> nothing(69);
        CHECK_THROWS_AS(scaled.client.encrypt(0, nothing), shape_error);
        auto block = scaled.client.prepare(0);
        lora::token_query query;
        CHECK_THROWS_AS(block.encrypt(nothing, query), shape_error);
        h[3] = std::numeric_limits<float>::infinity();
        CHECK_THROWS_WITH_AS(block.encrypt(h, query), Contains("entry 3 of the hidden state is infinite"),
                             encoding_error);
        CHECK_FALSE(block.encrypt_or_zeros(h, query));
        h[3] = 1;
    }
}

TEST_CASE("an average-case range serves a model too, in blocks as well") {
    lora::adapter attention = random_adapter(1);
    attention.sites.resize(3);
    served<small, lora::coefficient_tiles<4>, average_case> s(attention);
    check_tokens_and_blocks(s, attention);
    lora::model_layout too_long = s.server.layout();
    too_long.groups[0].d = 20000;  // well-formed, but the range is too narrow for it
    const std::string message = refusal<parameter_error>([&] {
        lora::model_client<small, lora::coefficient_tiles<4>, average_case>(too_long,
                                                                            lora::client_part(attention));
    });
    CHECK(contains(message, "model_client: input \"model.layers.0.self_attn.input\": "));
    CHECK(contains(message, "cannot hold"));

    // A hidden state along a row of A makes one answer as large as it can be: with overflow margin it fits.
    const auto& row = attention.sites[0].a.row(0);
    const std::vector<float> h(row.begin(), row.end());
    auto query = s.client.encrypt(0, h, 1);
    lora::reply<small, lora::coefficient_tiles<4>, average_case> reply;
    s.session.apply(s.server, 0, query.request, reply);
    CHECK_THROWS_WITH_AS(s.client.deltas(0, reply, query),
                         Contains("model_client::decrypt: input \"model.layers.0.self_attn.input\": "),
                         range_exceeded_error);
    query = s.client.encrypt(0, h, 2);
    s.session.apply(s.server, 0, query.request, reply);
    const auto deltas = s.client.deltas(0, reply, query);
    const auto expected = lora::plain_delta(attention.sites[0], h);
    for (std::size_t k = 0; k < expected.size(); ++k) {
        CHECK(deltas[0][k] == doctest::Approx(expected[k]).epsilon(0.01).scale(1));
    }
}

TEST_CASE("a client refuses layouts and parts that do not fit each other, and says which site or input") {
    const lora::adapter from = random_adapter(1);
    const model_server server(from);
    const auto refusal_of = [&](auto error, auto change) {
        lora::model_layout l = server.layout();
        lora::adapter held = lora::client_part(from);
        change(l, held);
        return refusal<decltype(error)>([&] { model_client(l, held); });
    };
    using layout = lora::model_layout;
    using lora::adapter;
    const parameter_error parameter("");
    const shape_error shape("");
    CHECK(contains(refusal_of(parameter, [](layout& l, adapter&) { l.groups[0].row_norm = -1; }),
                   "attn.input"));
    CHECK(contains(refusal_of(parameter, [](layout& l, adapter&) { l.tokens_ahead = 1025; }), "1025"));
    CHECK(contains(refusal_of(parameter, [](layout&, adapter& a) { a.sites.erase(a.sites.begin() + 2); }),
                   "v_proj\" of the layout was not given"));
    CHECK(contains(refusal_of(parameter, [](layout&, adapter& a) { a.sites.push_back(a.sites[2]); }),
                   "v_proj\" was given twice"));
    CHECK(contains(refusal_of(parameter, [](layout&, adapter& a) { a.sites[0].scale = 3; }), "scale 3"));
    CHECK(contains(refusal_of(parameter, [&](layout&, adapter& a) { a.sites[0] = from.sites[0]; }),
                   "has an A"));
    CHECK(contains(refusal_of(shape, [](layout& l, adapter&) { l.groups[0].sites[1].rank = 4; }),
                   "k_proj\" is 9 x 3, expected 9 x 4"));
    CHECK(contains(refusal_of(shape, [](layout&, adapter& a) { a.sites[0].b.values.pop_back(); }), "q_proj"));
    CHECK(contains(refusal_of(shape, [](layout&, adapter& a) { a.sites[0].name = "model.embed"; }),
                   "model.embed\" is not in the layout"));
    CHECK(contains(refusal_of(parameter, [](layout& l, adapter&) { l.mode = lora::mode::blind; }),
                   "in mode blind"));
    CHECK_THROWS_WITH_AS(model_client(std::shared_ptr<lora::client<small>>(), server.layout()),
                         Contains("no keys"), parameter_error);
}

TEST_CASE("deltas of a product are apply_b's bit for bit, and doubling a scale doubles them") {
    lora::adapter from;
    from.sites = {random_site(7, 3, 20, 1), random_site(4, 2, 20, 5)};  // 7 rows: four and three
    from.sites[1].name = "layers.0.k_proj";
    const model_server server(from);
    const model_client client(server.layout(), lora::client_part(from));
    std::vector<double> product;
    for (const float x : random_state(5, 3)) {
        product.push_back(static_cast<double>(x));
    }
    const auto deltas = client.deltas(0, product);
    CHECK(deltas[0] == lora::apply_b(lora::normalize_rows(from.sites[0]), std::span(product).first(3)));
    CHECK(deltas[1] == lora::apply_b(lora::normalize_rows(from.sites[1]), std::span(product).subspan(3)));
    lora::adapter doubled = from;
    doubled.sites[0].scale *= 2;
    const model_server second(doubled);
    const auto twice = model_client(second.layout(), lora::client_part(doubled)).deltas(0, product);
    for (std::size_t k = 0; k < 7; ++k) {
        CHECK(twice[0][k] == 2 * deltas[0][k]);
    }
    CHECK(twice[1] == deltas[1]);
    product.push_back(0);
    CHECK_THROWS_WITH_AS(client.deltas(0, product),
                         Contains("input \"layers.0.input\": got a product of 6 entries, expected 5"),
                         shape_error);
}

TEST_CASE("sites that are not protected go to the client whole, and only those") {
    const lora::adapter from = random_adapter(2);
    lora::model_options options = with_blocks();
    options.protect = [](const lora::adapter_site& site) {
        return lora::layer_of(site.name) == 1U && !site.name.ends_with("v_proj");
    };
    served_small s(from, options);
    CHECK(s.server.layout().groups.size() == 4);
    CHECK(s.server.layout().groups[0].sites.size() == 2);
    REQUIRE(s.client.in_the_clear().size() == 8);
    const auto h = random_state(70, 1);
    std::size_t i = 0;
    for (const auto& site : from.sites) {
        if (!options.protect(site)) {
            const auto& clear = s.client.in_the_clear()[i++];
            CHECK(clear.name == site.name);
            if (site.d_in() == 70) {
                CHECK(lora::plain_delta(clear, h) == lora::plain_delta(site, h));
            }
        }
    }
    for (const auto& held : lora::client_part(from, options).sites) {
        CHECK(held.a.values.empty() == options.protect(held));
        CHECK(held.b.values.size() == from.site(held.name).b.values.size());
    }
    check_tokens_and_blocks(s, from);

    // No site protected: the client does without a server.
    options.protect = [](const lora::adapter_site&) { return false; };
    const model_client alone(lora::model_layout{}, lora::client_part(from, options));
    CHECK(alone.in_the_clear().size() == 14);
    CHECK_THROWS_WITH_AS(model_server(from, options), Contains("none of the 14"), shape_error);
    CHECK_THROWS_AS(model_server::bytes_for(from, options), shape_error);
}

TEST_CASE("a loop that keeps its memory allocates nothing from the second token on") {
    const lora::adapter from = random_adapter(2);
    served_small s(from);
    const std::size_t groups = s.server.layout().groups.size();
    std::vector<lora::query<small>> queries(groups);
    std::vector<model_client::reply_type> replies(groups);
    std::vector<std::vector<double>> products(groups);
    std::vector<model_client::site_deltas> deltas(groups);
    model_client::workspace reading;
    std::vector<std::vector<float>> states;
    for (const auto& group : s.server.layout().groups) {
        states.push_back(random_state(group.d, group.d));
    }
    std::vector<prepared_block<served_small>> blocks;
    for (std::size_t g = 0; g < groups; ++g) {
        blocks.emplace_back(s, g);
    }
    const auto token = [&] {
        for (std::size_t g = 0; g < groups; ++g) {
            blocks[g].product(s, g, states[g], products[g]);
            s.client.encrypt(g, states[g], queries[g]);
            s.session.apply(s.server, g, queries[g].request, replies[g]);
            s.client.decrypt(g, replies[g], queries[g], reading, products[g]);
            s.client.deltas(g, products[g], deltas[g]);
        }
    };
    token();
    const std::size_t before = allocations;
    token();
    CHECK(allocations - before == 0);
    check_deltas(s, from, 0, s.server.plan(0).layout(), deltas[0], states[0]);
}
