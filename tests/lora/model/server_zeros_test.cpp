#include "../../allocation_count.hpp"
#include "model_fixture.hpp"

using namespace tests;
using namespace model_fixture;

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
    const tensafe::random::seed nonce = tensafe::random::fresh_nonce();
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
    const auto other = tensafe::random::fresh_nonce();
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
    const auto nonce = tensafe::random::fresh_nonce();
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
    check_deltas(s, first, 0, s.server.plan(0).layout(), s.client.deltas(0, replies[0], query), h);
    check_deltas(s, first, 0, s.server.plan(0).layout(), another.deltas(0, replies[1], query_of_another), g);
    tasks[1].of = nullptr;
    CHECK_THROWS_WITH_AS(server_zeros::apply(here, s.server, 0, std::span<const task>(tasks), work),
                         Contains("task 1 has no session"), parameter_error);
}
