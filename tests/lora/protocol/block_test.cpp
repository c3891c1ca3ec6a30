#include <tensafe/lora/protocol/block_server.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "../../backends.hpp"
#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

namespace {

template <class Protection = protects_adapter_rows<>>
using block_server = server<small, token_blocks, Protection>;

/// A client's block, and what the server prepared for it.
template <class Server>
struct prepared_block {
    prepared_block(const matrix& a, std::size_t tokens)
        : prepared_block(Server(a, tokens, trusts_clients())) {}
    explicit prepared_block(Server made)
        : s(std::move(made)),
          with(s.plan().subring_log_n()),
          of_client(with.key_holder.prepare(s.plan())) {
        s.prepare(of_client.request(), with.zeros, work, of_server, from_server);
        with.key_holder.accept(of_client, from_server);
    }
    template <class State>
    std::vector<double> answers(const State& h) {
        of_client.encrypt(h, query);
        s.answer(of_server, query.request, work, reply);
        return decrypted();
    }
    std::vector<double> decrypted() {
        std::vector<double> result(s.plan().rank());
        of_client.decrypt(reply, query, result);
        return result;
    }

    Server s;
    session with;
    decltype(with.key_holder.prepare(s.plan())) of_client;
    typename Server::workspace work;
    server_block<small> of_server;
    block_reply from_server;
    token_query query;
    token_reply reply;
};

template <class Protection = protects_adapter_rows<>>
void check_answers(std::size_t tokens, std::size_t rank, std::size_t d) {
    INFO("tokens := ", tokens, ", rank := ", rank, ", d := ", d);
    const matrix a = random_matrix(rank, d, rank + d);
    prepared_block<block_server<Protection>> block(a, tokens);
    CHECK(block.of_client.left() == tokens);
    double worst = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
        auto h = random_state(d, t);
        scale(std::span(h), std::pow(10.0F, static_cast<float>(t % 5) * 10 - 20));
        worst = worse(worst, error_in_deviations(block.answers(h), block.s, a, h));
    }
    CHECK(worst < most_deviations);
    CHECK(block.of_client.left() == 0);
    CHECK(block.of_server.left() == 0);
}

}  // namespace

TEST_CASE("every position of a block gives A*h, for any number of tokens and shape") {
    for_each_backend([](tensafe::exec::backend) {
        check_answers(2, 3, 700);
        check_answers(8, 1, 1);
        check_answers(8, 5, 128);
        check_answers(32, 33, 500);
        check_answers(32, 4, 33);
        check_answers(128, 2, 70);
        check_answers(1024, 2, 3);
    });
}

TEST_CASE("answers of an average-case range come with checksum rows, which show an overflow") {
    check_answers<protects_adapter_rows<average_case<6>>>(16, 33, 600);
    const matrix a = random_matrix(8, 800, 1);
    prepared_block<block_server<protects_adapter_rows<average_case<6>>>> block(a, 16);
    const auto h = row_of(a, 3);  // its own answer is far above the others
    CHECK_THROWS_AS(block.answers(h), range_exceeded_error);
    block.of_client.encrypt(h, block.query, 64);
    CHECK(block.query.request.position == 1);  // a retry takes a new position
    block.s.answer(block.of_server, block.query.request, block.work, block.reply);
    CHECK(largest_difference(block.decrypted(), product(a, h)) <
          64 * most_deviations * deviation(block.s.layout(), norm(h)));
}

TEST_CASE("positions are answered in any order, and a lost message is sent again as its bytes") {
    const matrix a = random_matrix(3, 200, 1);
    prepared_block<block_server<>> block(a, 8);
    std::vector<token_query> queries(8);
    for (std::size_t t = 0; t < 8; ++t) {
        block.of_client.encrypt(random_state(200, t), queries[t]);
    }
    for (const std::size_t t : {7UL, 2UL, 0UL, 3UL, 6UL, 1UL, 5UL, 4UL}) {
        block.query = queries[t];
        block.s.answer(block.of_server, queries[t].request, block.work, block.reply);
        const auto h = random_state(200, t);
        CHECK(error_in_deviations(block.decrypted(), block.s, a, h) < most_deviations);
    }
}

TEST_CASE("a position is answered once, and hides one state") {
    prepared_block<block_server<>> block(random_matrix(3, 200, 1), 4);
    const auto h = random_state(200, 1);
    static_cast<void>(block.answers(h));
    const auto answered = block.query.request;
    const auto again = [&] { block.s.answer(block.of_server, answered, block.work, block.reply); };
    CHECK(contains(refusal<parameter_error>(again), "position 0 of this block was answered already"));
    CHECK(block.of_server.left() == 3);
    for (std::size_t t = 1; t < 4; ++t) {
        block.of_client.encrypt(h, block.query);
        CHECK(block.query.request.position == t);
        CHECK(block.query.request.c0 != answered.c0);
    }
    CHECK(contains(refusal<parameter_error>([&] { block.of_client.encrypt(h, block.query); }),
                   "no position is left of 4"));
    static_assert(!std::is_copy_constructible_v<server_block<small>>);
    static_assert(!std::is_copy_constructible_v<client_block<small, protects_adapter_rows<>>>);
}

TEST_CASE("what is refused uses up no position") {
    prepared_block<block_server<>> block(random_matrix(3, 200, 1), 4);
    auto bad = random_state(200, 1);
    bad[17] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_AS(block.of_client.encrypt(random_state(199, 1), block.query), shape_error);
    CHECK_THROWS_AS(block.of_client.encrypt(random_state(200, 1), block.query, 0.5), parameter_error);
    CHECK(block.of_client.left() == 4);
    block.of_client.encrypt(random_state(200, 1), block.query);
    const auto refused = [&](auto change) {
        token_request r = block.query.request;
        change(r);
        CHECK_THROWS_AS(block.s.answer(block.of_server, r, block.work, block.reply), tensafe::error);
        CHECK(block.of_server.is_open(0));
    };
    refused([](auto& r) { r.position = 4; });
    refused([](auto& r) { r.d = 201; });
    refused([](auto& r) { r.c0.pop_back(); });
    refused([](auto& r) { std::fill(r.c0.begin(), r.c0.end(), 255); });
    block.s.answer(block.of_server, block.query.request, block.work, block.reply);
}

TEST_CASE("a block belongs to the server that prepared it, and to its process") {
    const matrix a = random_matrix(3, 200, 1);
    prepared_block<block_server<>> block(a, 4);
    const block_server<> later(a, 4);
    block.of_client.encrypt(random_state(200, 1), block.query);
    const auto by_later = [&] { later.answer(block.of_server, block.query.request, block.work, block.reply); };
    CHECK(contains(refusal<parameter_error>(by_later), "another process or version of A"));
    const pid_t child = ::fork();
    if (child == 0) {
        bool refuses = block.of_client.left() == 0;
        try {
            block.s.answer(block.of_server, block.query.request, block.work, block.reply);
            refuses = false;
        } catch (const parameter_error&) {
        }
        try {
            block.of_client.encrypt(random_state(200, 1), block.query);
            refuses = false;
        } catch (const parameter_error&) {
        }
        ::_exit(refuses ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    block.s.answer(block.of_server, block.query.request, block.work, block.reply);
}

TEST_CASE("replies that do not fit are refused, and a block without its server's part reads none") {
    const matrix a = random_matrix(3, 200, 1);
    prepared_block<block_server<>> block(a, 4);
    static_cast<void>(block.answers(random_state(200, 1)));
    const auto refused = [&](auto change) {
        token_reply r = block.reply;
        change(r);
        std::vector<double> answers(3);
        CHECK_THROWS_AS(block.of_client.decrypt(r, block.query, answers), tensafe::error);
    };
    refused([](auto& r) { r.position = 1; });
    refused([](auto& r) { r.rank = 4; });
    refused([](auto& r) { r.c0.push_back(0); });
    auto fresh = block.with.key_holder.prepare(block.s.plan());
    std::vector<double> answers(3);
    CHECK(contains(refusal<parameter_error>([&] { fresh.decrypt(block.reply, block.query, answers); }),
                   "has not come"));
    const auto refused_block = [&](auto change) {
        block_reply r = block.from_server;
        change(r);
        CHECK_THROWS_AS(block.with.key_holder.accept(fresh, r), tensafe::error);
    };
    refused_block([](auto& r) { r.tokens = 8; });
    refused_block([](auto& r) { r.c1.pop_back(); });
    refused_block([](auto& r) { r.c1[1].pop_back(); });
    refused_block([](auto& r) { std::fill(r.c1[1].begin(), r.c1[1].end(), 0); });
}

TEST_CASE("more targets under a zero than a client that cheats may have need a tag") {
    using set = ckks::private_n4096;
    const matrix a = random_matrix(1, 64, 1);
    static_assert(most_targets<set, protects_adapter_rows<>> == 38);
    const server<set, token_blocks> s(a, 32);
    const auto too_many = [&] {
        const server<set, token_blocks> t(a, 64);
    };
    CHECK(contains(refusal<parameter_error>(too_many), "got 64 target coefficients"));
}
