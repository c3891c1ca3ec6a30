// A whole model: server, sessions and client together, which no smaller test has. A unit by itself: it counts
// allocations.

#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/server_zeros.hpp>
#include <tensafe/random/entropy.hpp>

#include "../../allocation_count.hpp"
#include "../../random_values.hpp"
#include "../../test.hpp"
#include "../../worst.hpp"

using namespace tests;

namespace {

using tensafe::exec::host;

using small = ckks::parameters<10, ckks::limb_bits<45, 44>, 30, ckks::insecure_for_tests>;
using model_server = lora::model_server<small>;
using model_client = lora::model_client<small>;
using server_zeros = lora::server_zeros<small>;
using average_case = lora::protects_adapter_rows<lora::average_case<6>>;

constexpr host here{};

static_assert(lora::offers_blocks<small, lora::protects_adapter_rows<>>);
static_assert(lora::offers_blocks<ckks::private_n4096, lora::protects_adapter_rows<>>);
static_assert(lora::offers_blocks<ckks::quantum_n4096, lora::protects_adapter_rows<>>);
static_assert(lora::offers_blocks<ckks::compact_n4096, average_case>);
static_assert(!lora::offers_blocks<small, lora::reveals_adapter_rows>);
static_assert(!std::is_copy_constructible_v<model_server> && !std::is_move_constructible_v<model_server>);
static_assert(!std::is_copy_constructible_v<server_zeros> && !std::is_move_constructible_v<server_zeros>);

/// Ranks of their own, so that a mix-up of sites shows; rows of B of different sizes.
lora::adapter random_adapter(std::size_t layers) {
    lora::adapter result;
    std::uint64_t seed = 1;
    for (std::size_t layer = 0; layer < layers; ++layer) {
        const auto add = [&](const char* name, std::size_t rank, std::size_t d_in, std::size_t d_out,
                             double scale) {
            auto site = random_site(d_out, rank, d_in, seed += 2);
            site.name = "model.layers." + std::to_string(layer) + "." + name;
            site.scale = scale;
            result.sites.push_back(std::move(site));
        };
        add("self_attn.q_proj", 5, 70, 33, 2.0);
        add("self_attn.k_proj", 3, 70, 9, 0.5);
        add("self_attn.v_proj", 4, 70, 9, 64.0);
        add("self_attn.o_proj", 5, 300, 70, 1.0);
        add("mlp.gate_proj", 2, 70, 11, 2.0);
        add("mlp.up_proj", 6, 70, 11, 2.0);
        add("mlp.down_proj", 5, 11, 70, 2.0);
    }
    return result;
}

/// The default has none.
lora::model_options with_blocks() {
    lora::model_options options;
    options.tokens_ahead = 128;
    return options;
}

/// Everything of both sides, as in two processes: the server has the adapter, the client its part.
template <class P, class Packing, class Protection>
struct served {
    using server_type = lora::model_server<P, Packing, Protection>;
    using client_type = lora::model_client<P, Packing, Protection>;
    using block_workspace = lora::block_workspace<P>;
    using server_block = lora::server_block<P>;

    explicit served(const lora::adapter& from, const lora::model_options& options = with_blocks())
        : server(from, options),
          client(server.layout(), lora::client_part(from, options)),
          nonce(tensafe::random::fresh_seed()),
          session(nonce, client.rerandomization_key(nonce)) {}

    server_type server;
    client_type client;
    tensafe::random::seed nonce;
    lora::server_zeros<P> session;
};
using served_small = served<small, lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>;

/// Standard deviation of the worst entry of a site's delta: errors of answers are independent.
template <class Layout>
double deviation(const lora::model_layout& model, lora::model_layout::place place, const Layout& l,
                 const lora::adapter_site& site, std::span<const float> h) {
    const double of_answer =
        l.budget().relative_error * l.row_norm * norm(h) / std::sqrt(static_cast<double>(l.d));
    if (model.mode == lora::mode::blind) {
        return of_answer * model.groups[place.group].sites[place.site].scale;
    }
    const lora::adapter_site balanced = lora::normalize_rows(site);
    double largest = 0;
    for (std::size_t k = 0; k < balanced.d_out(); ++k) {
        largest = std::fmax(largest, norm(balanced.b.row(k)));
    }
    return of_answer * largest * std::fabs(site.scale);
}

/// How many deviations the worst delta is off. Their tails are thinner than a Gaussian's (tiles_fixture.hpp).
constexpr double most_deviations = 7;

template <class Served, class Layout>
void check_deltas(const Served& s, const lora::adapter& from, std::size_t group, const Layout& l,
                  const std::vector<std::vector<double>>& deltas, const std::vector<float>& h) {
    const auto& sites = s.server.layout().groups[group].sites;
    REQUIRE(deltas.size() == sites.size());
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const lora::adapter_site& site = from.site(sites[i].name);
        const auto expected = lora::plain_delta(site, h);
        REQUIRE(deltas[i].size() == expected.size());
        const double allowed = most_deviations * deviation(s.server.layout(), {group, i}, l, site, h);
        double worst = 0;
        double size = 0;
        for (std::size_t k = 0; k < expected.size(); ++k) {
            worst = worse(worst, std::fabs(deltas[i][k] - expected[k]));
            size = std::fmax(size, std::fabs(expected[k]));
        }
        CAPTURE(sites[i].name);
        CHECK(worst < allowed);
        CHECK(allowed < 0.05 * size);  // so that a wrong delta would show
    }
}

/// A block of a group, prepared by both sides.
template <class Served>
struct prepared_block {
    prepared_block(Served& s, std::size_t group) : of_client(s.client.prepare(group)) {
        s.session.prepare(here, s.server, group, of_client.request(), work, of_server, ahead);
        s.client.accept(of_client, ahead);
    }
    /// A*h of the next position.
    void product(Served& s, std::size_t group, const std::vector<float>& h, std::vector<double>& to) {
        of_client.encrypt(h, query);
        s.server.blocks(group).answer(of_server, query.request, work, reply);
        to.resize(of_client.plan().rank());
        of_client.decrypt(reply, query, to);
    }

    typename Served::client_type::block_type of_client;
    typename Served::block_workspace work;
    typename Served::server_block of_server;
    lora::block_reply ahead;
    lora::token_query query;
    lora::token_reply reply;
};

template <class Served>
void check_tokens_and_blocks(Served& s, const lora::adapter& from) {
    for (std::size_t g = 0; g < s.server.layout().groups.size(); ++g) {
        const std::size_t d = s.server.layout().groups[g].d;
        const auto h = random_state(d, g);
        const auto query = s.client.encrypt(g, h);
        typename Served::client_type::reply_type reply;
        s.session.apply(s.server, g, query.request, reply);
        check_deltas(s, from, g, s.server.decode(g).layout(), s.client.deltas(g, reply, query), h);

        prepared_block block(s, g);
        for (std::size_t t = 0; t < 3; ++t) {
            const auto state = random_state(d, 100 * d + t);
            std::vector<double> product;
            block.product(s, g, state, product);
            check_deltas(s, from, g, s.server.blocks(g).layout(), s.client.deltas(g, product), state);
        }
    }
}

}  // namespace

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
            const auto& weights = lora::detail::server_internals::weights(server.decode(g));
            const auto& plan = server.decode(g).plan();
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
        entry +=
            static_cast<float>(norm(from.sites[0].a.row(0)) / server.decode(0).plan().budget().weight_norm);
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
    const std::string message = "got tokens_ahead of 2048, expected 0 or a power of two from 2 to 1024";
    CHECK(contains(refusal<parameter_error>([&] { model_server(from, options); }), message));
    CHECK(contains(refusal<parameter_error>([&] { model_server::bytes_for(from, options); }), message));
    options.tokens_ahead = 24;
    CHECK_THROWS_WITH_AS(model_server::bytes_for(from, options), Contains("got tokens_ahead of 24"),
                         parameter_error);
    // No more than a client that cheats may have under one zero.
    options.tokens_ahead = 64;
    CHECK_THROWS_WITH_AS(lora::model_server<ckks::private_n4096>::bytes_for(from, options),
                         Contains("from 2 to 32; more with trusts_clients"), parameter_error);
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

TEST_CASE("messages that do not fit a group are refused by both sides, name its input, and use up no zero") {
    const lora::adapter from = random_adapter(1);
    served_small s(from);
    s.session.fill(here, s.server, 1);
    auto& pool = s.session.zeros(2);
    CHECK(pool.size() == s.server.zeros_per_token());
    model_client::reply_type reply;
    auto query = s.client.encrypt(0, random_state(70, 1));
    CHECK_THROWS_WITH_AS(s.session.apply(s.server, 1, query.request, reply),
                         Contains("server_zeros::apply: input \"model.layers.0.self_attn.o_proj\": server::"),
                         shape_error);
    CHECK_THROWS_AS(s.session.apply(s.server, 4, query.request, reply), parameter_error);
    query.request.inputs[0].assign(query.request.inputs[0].size(), 0xff);
    CHECK_THROWS_WITH_AS(s.session.apply(s.server, 0, query.request, reply),
                         Contains("input \"model.layers.0.self_attn.input\": "), format_error);
    CHECK(pool.size() == s.server.zeros_per_token());

    query = s.client.encrypt(0, random_state(70, 1));
    s.session.apply(s.server, 0, query.request, reply);
    CHECK(pool.size() == s.server.zeros_per_token() - 3);
    CHECK_THROWS_WITH_AS(s.client.decrypt(1, reply, query),
                         Contains("model_client::decrypt: input \"model.layers.0.self_attn.o_proj\": "),
                         shape_error);
    reply.outputs[0].c0.pop_back();
    CHECK_THROWS_AS(s.client.deltas(0, reply, query), shape_error);
    CHECK_THROWS_WITH_AS(
        s.client.encrypt(1, random_state(70, 1)),
        Contains("input \"model.layers.0.self_attn.o_proj\": encrypt: got a hidden state of 70"),
        shape_error);
    CHECK_THROWS_AS(s.client.encrypt(4, random_state(70, 1)), parameter_error);

    // Blocks.
    const auto block = s.client.prepare(0);
    auto& zeros = s.session.zeros(7);
    zeros.fill(12);
    lora::block_workspace<small> work;
    lora::server_block<small> of_server;
    lora::block_reply ahead;
    CHECK_THROWS_WITH_AS(
        s.session.prepare(here, s.server, 1, block.request(), work, of_server, ahead),
        Contains("server_zeros::prepare: input \"model.layers.0.self_attn.o_proj\": server::prepare"),
        shape_error);
    CHECK(zeros.size() == 12);
    s.session.prepare(here, s.server, 0, block.request(), work, of_server, ahead);
    CHECK(zeros.size() == 0);
    auto of_another = s.client.prepare(1);
    CHECK_THROWS_AS(s.client.accept(of_another, ahead), shape_error);
}

TEST_CASE("no call of either side takes a group that the model has not, with blocks or without") {
    for (const std::size_t tokens_ahead : {std::size_t{0}, std::size_t{8}}) {
        lora::model_options options;
        options.tokens_ahead = tokens_ahead;
        served_small s(random_adapter(1), options);
        const auto query = s.client.encrypt(0, random_state(70, 1));
        model_client::reply_type reply;
        server_zeros::workspace work;
        lora::block_workspace<small> block_work;
        lora::server_block<small> block;
        const lora::block_request ahead{70, tokens_ahead, {}};
        lora::block_reply of_block;
        model_client::workspace reading;
        std::vector<double> product;
        using task = server_zeros::task<lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>;
        const std::vector<task> tasks{{&s.session, &query.request, &reply}};
        const std::span<const task> one(tasks);
        for (const std::size_t group : {std::size_t{4}, ~std::size_t{0}}) {
            const std::string expected = "got group " + std::to_string(group);
            const auto refused = [&](auto call) {
                return contains(refusal<parameter_error>(call), expected);
            };
            CHECK(refused([&] { s.session.apply(s.server, group, query.request, reply); }));
            CHECK(refused([&] { s.session.apply(s.server, group, query.request, work, reply); }));
            CHECK(refused([&] { server_zeros::apply(here, s.server, group, one, work); }));
            CHECK(refused(
                [&] { s.session.prepare(here, s.server, group, ahead, block_work, block, of_block); }));
            CHECK(refused([&] { static_cast<void>(s.server.decode(group)); }));
            CHECK(refused([&] { static_cast<void>(s.server.blocks(group)); }));
            CHECK(refused([&] { static_cast<void>(s.client.encrypt(group, random_state(70, 1))); }));
            CHECK(refused([&] { static_cast<void>(s.client.prepare(group)); }));
            CHECK(refused([&] { static_cast<void>(s.client.plan(group)); }));
            CHECK(refused([&] { static_cast<void>(s.client.plan_of_blocks(group)); }));
            CHECK(refused([&] { static_cast<void>(s.client.decrypt(group, reply, query)); }));
            CHECK(refused([&] { s.client.decrypt(group, reply, query, reading, product); }));
            CHECK(refused([&] { static_cast<void>(s.client.deltas(group, product)); }));
            CHECK(refused([&] { static_cast<void>(s.client.deltas(group, reply, query)); }));
        }
    }
}

TEST_CASE("a model without blocks says so on both sides") {
    served_small s(random_adapter(1), {});
    lora::block_workspace<small> work;
    lora::server_block<small> block;
    lora::block_reply reply;
    CHECK_THROWS_WITH_AS(s.session.prepare(here, s.server, 0, {70, 8, {}}, work, block, reply),
                         Contains("this model was packed without blocks (model_options::tokens_ahead)"),
                         parameter_error);
    CHECK_THROWS_WITH_AS(s.client.prepare(0), Contains("this model has no blocks"), parameter_error);
    CHECK_THROWS_AS(s.client.plan_of_blocks(0), parameter_error);
    CHECK_THROWS_AS(s.session.fill(here, s.server, 0, 1), parameter_error);
    CHECK(s.server.zeros_per_block() == 0);
}

TEST_CASE("a session makes a pool when it is asked for, not before") {
    const tensafe::random::seed nonce = tensafe::random::fresh_seed();
    lora::client<small> keys;
    server_zeros session(nonce, keys.rerandomization_key(nonce));
    for (const int subring_log_n : {0, 2, 10}) {
        const std::size_t before = allocations;
        session.zeros(subring_log_n);
        const std::size_t after = allocations;
        CHECK(after > before);
        session.zeros(subring_log_n);
        CHECK(allocations == after);
    }
}

TEST_CASE(
    "a session takes its own client's re-randomization key only, and makes pools as replies need them") {
    const lora::adapter from = random_adapter(1);
    served_small s(from);
    const auto other = tensafe::random::fresh_seed();
    CHECK_THROWS_AS(server_zeros(other, s.client.rerandomization_key(s.nonce)), parameter_error);
    auto malformed = s.client.rerandomization_key(s.nonce);
    malformed.b.limb<1>()[5] = ~tensafe::arith::word{0};
    CHECK_THROWS_WITH_AS(server_zeros(s.nonce, std::move(malformed)),
                         Contains("server_zeros: a residue of limb 1 of the re-randomization key"),
                         format_error);
    CHECK_THROWS_AS(s.session.zeros(-1), parameter_error);
    CHECK_THROWS_AS(s.session.zeros(11), parameter_error);
    CHECK(&s.session.zeros(2) == &s.session.zeros(2));
    s.session.fill(here, s.server, 2, 1);
    CHECK(s.session.zeros(2).size() == 2 * s.server.zeros_per_token());
    CHECK(s.session.zeros(7).size() == s.server.zeros_per_block());  // blocks of 2^7 tokens
    CHECK(s.session.zeros(3).size() == 0);
    CHECK_THROWS_AS(s.session.fill(here, s.server, ~std::size_t{0}), parameter_error);

    lora::model_options four = with_blocks();  // tokens of a block as rows of a tile: one pool
    four.tokens_ahead = 4;
    const model_server short_blocks(from, four);
    s.session.fill(here, short_blocks, 2, 1);
    CHECK(s.session.zeros(2).size() == 2 * short_blocks.zeros_per_token() + short_blocks.zeros_per_block());
}

TEST_CASE("one key serves two models, and one batch the sessions of two clients") {
    const lora::adapter first = random_adapter(1);
    lora::adapter second = first;
    for (float& a : second.sites[0].a.values) {
        a = -a;
    }
    served_small s(first);
    const model_server other_model(second);
    model_client of_other(s.client.keys(), other_model.layout(), lora::client_part(second));
    const auto h = random_state(70, 9);
    auto query = of_other.encrypt(0, h);
    model_client::reply_type reply;
    s.session.apply(other_model, 0, query.request, reply);  // the session of the first model's key
    const auto theirs = of_other.deltas(0, reply, query);
    const auto expected = lora::plain_delta(second.sites[0], h);
    for (std::size_t k = 0; k < expected.size(); ++k) {
        CHECK(theirs[0][k] == doctest::Approx(expected[k]).epsilon(0.01).scale(1));
    }

    model_client another(s.server.layout(), lora::client_part(first));
    const auto nonce = tensafe::random::fresh_seed();
    server_zeros of_another(nonce, another.rerandomization_key(nonce));
    const auto g = random_state(70, 10);
    const auto query_of_another = another.encrypt(0, g);
    query = s.client.encrypt(0, h);
    std::vector<model_client::reply_type> replies(2);
    using task = server_zeros::task<lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>;
    std::vector<task> tasks{{&s.session, &query.request, &replies[0]},
                            {&of_another, &query_of_another.request, &replies[1]}};
    server_zeros::workspace work;
    server_zeros::apply(here, s.server, 0, std::span<const task>(tasks), work);
    check_deltas(s, first, 0, s.server.decode(0).layout(), s.client.deltas(0, replies[0], query), h);
    check_deltas(s, first, 0, s.server.decode(0).layout(), another.deltas(0, replies[1], query_of_another),
                 g);
    tasks[1].of = nullptr;
    CHECK_THROWS_WITH_AS(server_zeros::apply(here, s.server, 0, std::span<const task>(tasks), work),
                         Contains("task 1 has no session"), parameter_error);
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
    check_deltas(s, from, 0, s.server.decode(0).layout(), deltas[0], states[0]);
}

TEST_CASE("threads with a workspace each can serve one session at once") {
    const lora::adapter from = random_adapter(1);
    served_small s(from);
    constexpr std::size_t threads = 3;
    std::vector<lora::query<small>> queries;
    std::vector<std::vector<float>> states;
    for (std::size_t t = 0; t < threads; ++t) {
        states.push_back(random_state(70, 50 + t));
        queries.push_back(s.client.encrypt(0, states[t]));
    }
    std::vector<model_client::reply_type> replies(threads);
    on_threads(threads + 1, [&](std::size_t t) {
        if (t == threads) {
            s.session.fill(here, s.server, 1);
            return;
        }
        server_zeros::workspace work;
        s.session.apply(s.server, 0, queries[t].request, work, replies[t]);
    });
    for (std::size_t t = 0; t < threads; ++t) {
        check_deltas(s, from, 0, s.server.decode(0).layout(), s.client.deltas(0, replies[t], queries[t]),
                     states[t]);
    }
}
