#include <tensafe/lora/model/shared_input.hpp>
#include <tensafe/lora/protocol/cost.hpp>

#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

namespace {

constexpr std::size_t d_in = 96;

adapter_site site_of(const std::string& name, std::size_t d_out, std::size_t rank, double scale) {
    adapter_site site = random_site(d_out, rank, d_in, 7 * rank + d_out);
    site.name = name;
    site.scale = scale;
    return site;
}

adapter attention_adapter() {
    return {{site_of("model.layers.0.self_attn.q_proj", 24, 8, 32.0 / 8),
             site_of("model.layers.0.self_attn.k_proj", 12, 8, 32.0 / 8)}};
}

/// With rank-stabilised LoRA, so that scales are no short binary fractions.
adapter expert_adapter(std::size_t rank, double alpha) {
    return {
        {site_of("model.layers.0.self_attn.q_proj", 24, rank, alpha / std::sqrt(static_cast<double>(rank)))}};
}

using site_references = std::vector<std::reference_wrapper<const adapter_site>>;

site_references references_to(const adapter& a) {
    return {a.sites.begin(), a.sites.end()};
}

/// The deltas of all sites of a stack with one input, all randomness of both sides from fixed seeds.
std::vector<std::vector<double>> encrypted_deltas(const adapter& stacked, const std::vector<float>& h) {
    using server_type = tiles<4>;
    const site_stack rows(references_to(stacked));
    const server_type server(rows.rows());
    sides<small> with(1, server.plan().subring_log_n());
    const auto query = with.client.encrypt(server.plan(), h);
    server_type::reply_type reply;
    server.apply(query.request, with.pool, with.work, reply);
    const auto product = with.client.decrypt(server.plan(), reply, query);
    std::vector<std::vector<double>> deltas;
    for (std::size_t i = 0; i < stacked.sites.size(); ++i) {
        deltas.push_back(apply_b(stacked.sites[i], rows.part(product, i)));
    }
    return deltas;
}

adapter_site named_site(const std::string& name, std::size_t rank, std::size_t inputs) {
    adapter_site site = random_site(5, rank, inputs, rank * 100 + inputs);
    site.name = name;
    return site;
}

}  // namespace

TEST_CASE("the rows of a stack are the rows of its sites, one after the other") {
    const adapter_site q = named_site("q_proj", 4, 6);
    const adapter_site k = named_site("k_proj", 1, 6);
    const adapter_site v = named_site("v_proj", 3, 6);
    const site_stack stack({q, k, v});
    CHECK(stack.sites() == 3);
    CHECK(stack.rows().rows == 8);
    CHECK(stack.rows().columns == 6);
    std::vector<float> expected = q.a.values;
    expected.insert(expected.end(), k.a.values.begin(), k.a.values.end());
    expected.insert(expected.end(), v.a.values.begin(), v.a.values.end());
    CHECK(stack.rows().values == expected);
}

TEST_CASE("each part of the stacked product is the product of that site alone") {
    const adapter_site q = named_site("q_proj", 4, 9);
    const adapter_site k = named_site("k_proj", 2, 9);
    const adapter_site v = named_site("v_proj", 4, 9);
    const site_stack stack(site_references{q, k, v});
    const std::vector<float> h = random_state(9, 3);
    const std::vector<double> stacked = product(stack.rows(), h);
    const std::vector<const adapter_site*> sites = {&q, &k, &v};
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const auto part = stack.part(stacked, i);
        CHECK(std::vector<double>(part.begin(), part.end()) == product(sites[i]->a, h));
    }
    CHECK(stack.part(stacked, 1).data() == stacked.data() + 4);
}

TEST_CASE("a stack keeps its rows when the sites change") {
    adapter_site q = named_site("q_proj", 2, 3);
    const std::vector<float> before = q.a.values;
    const site_stack stack(site_references{q});
    q.a.values.assign(6, 0.0F);
    CHECK(stack.rows().values == before);
}

TEST_CASE("one site may stand in a stack twice") {
    const adapter_site q = named_site("q_proj", 2, 3);
    const site_stack stack(site_references{q, q});
    CHECK(stack.rows().rows == 4);
    const std::vector<double> numbers = {1, 2, 3, 4};
    CHECK(stack.part(numbers, 1)[0] == 3);
}

TEST_CASE("no site, and sites with different inputs, are refused by name") {
    CHECK_THROWS_AS(site_stack(site_references{}), shape_error);
    const adapter_site q = named_site("q_proj", 4, 6);
    const adapter_site o = named_site("o_proj", 4, 7);
    const std::string message = refusal<shape_error>([&] { site_stack(site_references{q, o}); });
    CHECK(contains(message, "\"o_proj\" has 7 inputs, expected 6 as site \"q_proj\""));
}

TEST_CASE("part refuses a site that is not there and a product of another size") {
    const adapter_site q = named_site("q_proj", 4, 6);
    const site_stack stack(site_references{q});
    CHECK_THROWS_AS(stack.part(std::vector<double>(4), 1), shape_error);
    CHECK_THROWS_AS(stack.part(std::vector<double>(3), 0), shape_error);
    const std::string message = refusal<shape_error>([&] { stack.part(std::vector<double>(5), 0); });
    CHECK(contains(message, "5 entries, expected a site below 1 and 4 entries"));
}

TEST_CASE("a stack holds the sites of all adapters unchanged, under the adapter's name and in order") {
    const adapter attention = attention_adapter();
    const adapter expert = expert_adapter(5, 16);
    const adapter stacked = stack_adapters({{"attention", attention}, {"banking", expert}});
    REQUIRE(stacked.sites.size() == 3);
    CHECK(stacked.sites[0].name == "attention/model.layers.0.self_attn.q_proj");
    CHECK(stacked.sites[1].name == "attention/model.layers.0.self_attn.k_proj");
    CHECK(stacked.sites[2].name == "banking/model.layers.0.self_attn.q_proj");
    const std::vector<const adapter_site*> originals = {&attention.sites[0], &attention.sites[1],
                                                        &expert.sites[0]};
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(stacked.sites[i].a.values == originals[i]->a.values);
        CHECK(stacked.sites[i].b.values == originals[i]->b.values);
        CHECK(stacked.sites[i].scale == originals[i]->scale);
        CHECK(split_stacked_name(stacked.sites[i].name).site == originals[i]->name);
    }
    CHECK(&stacked.site("banking/model.layers.0.self_attn.q_proj") == &stacked.sites[2]);
    CHECK_THROWS_AS(stacked.site("q_proj"),
                    parameter_error);  // two adapters have one
}

TEST_CASE("names of a stack come apart at the first slash, and others have no adapter") {
    CHECK(split_stacked_name("legal/x.q_proj").adapter == "legal");
    CHECK(split_stacked_name("legal/x.q_proj").site == "x.q_proj");
    CHECK(split_stacked_name("x.q_proj").adapter.empty());
    CHECK(split_stacked_name("x.q_proj").site == "x.q_proj");
    CHECK(split_stacked_name("a/b/c").site == "b/c");
    CHECK(split_stacked_name("").site.empty());
}

TEST_CASE("adapters of a stack have names of their own, without slashes, and sites that come once") {
    const adapter a = expert_adapter(4, 8);
    CHECK_THROWS_AS(stack_adapters(std::vector<named_adapter>{}), parameter_error);
    CHECK_THROWS_AS(stack_adapters({{"", a}}), parameter_error);
    const auto message = refusal<parameter_error>([&] { stack_adapters({{"x", a}, {"y/z", a}}); });
    CHECK(contains(message, "\"y/z\""));
    CHECK_THROWS_WITH_AS(stack_adapters({{"x", a}, {"x", a}}), Contains("two adapters called \"x\""),
                         parameter_error);
    adapter slashed = a;
    slashed.sites[0].name = "x/q_proj";
    CHECK_THROWS_WITH_AS(stack_adapters({{"x", slashed}}), Contains("without '/'"), parameter_error);
    adapter twice = a;
    twice.sites.push_back(a.sites[0]);
    CHECK_THROWS_WITH_AS(stack_adapters({{"x", twice}}), Contains("twice"), parameter_error);
    CHECK(stack_adapters({{"x", a}, {"y", a}}).sites.size() == 2);
    const adapter empty;
    CHECK(stack_adapters({{"x", empty}}).sites.empty());
}

TEST_CASE("a temporary adapter cannot be stacked") {
    CHECK_FALSE(std::is_constructible_v<std::reference_wrapper<const adapter>, adapter>);
    CHECK(std::is_same_v<decltype(named_adapter::sites), std::reference_wrapper<const adapter>>);
}

TEST_CASE("attention and experts are answered from one encrypted input, each with its own scale") {
    const adapter attention = attention_adapter();
    const adapter banking = expert_adapter(5, 16);
    const adapter investment = expert_adapter(3, 6);
    const adapter stacked =
        stack_adapters({{"attention", attention}, {"banking", banking}, {"investment", investment}});
    for (const adapter_site& site : stacked.sites) {
        CHECK(shared_input(site.name) == "model.layers.0.self_attn.input");
    }
    const std::vector<float> h = random_state(d_in, 11);
    const auto deltas = encrypted_deltas(stacked, h);
    REQUIRE(deltas.size() == 4);
    for (std::size_t i = 0; i < deltas.size(); ++i) {
        const auto expected = plain_delta(stacked.sites[i], h);
        const double largest = norm(expected) / std::sqrt(static_cast<double>(expected.size()));
        CAPTURE(i);
        CHECK(largest_difference(deltas[i], expected) < 3e-3 * largest);
    }
}

TEST_CASE("twice the alpha is twice the delta bit for bit, and nothing else changes") {
    const adapter attention = attention_adapter();
    const std::vector<float> h = random_state(d_in, 12);
    // alpha 7 and rank 5: a scale that is rounded.
    const adapter once = expert_adapter(5, 7);
    const adapter doubled = expert_adapter(5, 14);
    REQUIRE(doubled.sites[0].scale == 2 * once.sites[0].scale);
    const auto before = encrypted_deltas(stack_adapters({{"attention", attention}, {"x", once}}), h);
    const auto after = encrypted_deltas(stack_adapters({{"attention", attention}, {"x", doubled}}), h);
    CHECK(after[0] == before[0]);
    CHECK(after[1] == before[1]);
    REQUIRE(after[2].size() == before[2].size());
    for (std::size_t k = 0; k < before[2].size(); ++k) {
        CHECK(before[2][k] != 0);
        CHECK(after[2][k] == 2 * before[2][k]);
    }
}

TEST_CASE("a sum of deltas is weight times delta, added in the order given") {
    const std::vector<double> a = {1, -2, 1e16};
    const std::vector<double> b = {0.5, 4, 1};
    const std::vector<double> c = {0, 0, -1e16};
    CHECK(sum_of_deltas({{1, a}}) == a);
    CHECK(sum_of_deltas({{0.5, a}, {-2, b}}) == std::vector<double>{-0.5, -9, 5e15 - 2});
    CHECK(sum_of_deltas({{1, a}, {1, b}, {1, c}})[2] == 0);  // 1e16 + 1 is 1e16
    CHECK(sum_of_deltas({{1, a}, {1, c}, {1, b}})[2] == 1);
    CHECK(sum_of_deltas({{0, a}, {3, b}}) == std::vector<double>{1.5, 12, 3});
    CHECK(sum_of_deltas({{1, std::vector<double>{}}}).empty());
}

TEST_CASE("deltas of different lengths, none at all and weights that are no numbers are refused") {
    const std::vector<double> a = {1, 2};
    const std::vector<double> b = {1, 2, 3};
    CHECK_THROWS_AS(sum_of_deltas(std::vector<weighted_delta>{}), shape_error);
    CHECK_THROWS_WITH_AS(sum_of_deltas({{1, a}, {1, b}}), Contains("delta 1 has 3 entries, expected 2"),
                         shape_error);
    CHECK_THROWS_AS(sum_of_deltas({{1, a}, {not_a_number, a}}), parameter_error);
    CHECK_THROWS_AS(sum_of_deltas({{infinity, a}}), parameter_error);
}
