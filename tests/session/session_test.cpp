// The promises of client_session and server_session one by one: on the model without ciphertexts, and in the
// end with them.

#include <tensafe/lora/adapter/plain.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "../random_values.hpp"
#include "rehearsal.hpp"

using namespace tests;
using namespace rehearsal;
using session::call;
using session::refused_error;

namespace {

/// Both halves, and a line that somebody else moves messages over.
struct pair {
    explicit pair(session::block_policy policy = {}) : client(model, policy) {
        book = &of;
        client.opened({});
    }
    ~pair() { book = nullptr; }

    /// Everything that goes up now.
    std::vector<bytes> up() {
        std::vector<bytes> sent;
        while (const auto* const m = client.next()) {
            m->write(sent.emplace_back());
        }
        return sent;
    }
    bytes serve(const bytes& message) {
        server_session::shared_message reply;
        server.on_message(message, wire::read_header(message), work, reply);
        return *reply;
    }
    /// These are answered, and the replies arrive.
    void deliver(const std::vector<bytes>& sent) {
        for (const bytes& m : sent) {
            client.take(serve(m));
        }
    }
    /// All that goes up is answered, and the connection is lost before a reply arrives.
    void lose_replies(std::uint64_t left) {
        for (const bytes& m : up()) {
            serve(m);
        }
        client.lost();
        server.on_resumed();
        client.resumed(server.next_number(), std::array{left});
    }
    session::refusal refused(const bytes& message) {
        try {
            serve(message);
        } catch (const refused_error& e) {
            return e.why();
        }
        return session::refusal::other;
    }

    ledger of;
    std::shared_ptr<client_model> model = std::make_shared<client_model>();
    counts store;
    server_session server{model, random::seed{}, 0, &store};
    protocol::workspace work;
    client_session client;
};

struct rows_call : call {
    explicit rows_call(std::size_t count, std::size_t group = 0, float first = 100)
        : call(group, count, [this](std::size_t r) { return std::span<const float>(rows).subspan(r, 1); }) {
        for (std::size_t r = 0; r < count; ++r) {
            rows.push_back(first + static_cast<float>(r));
        }
    }
    std::vector<float> rows;
};

std::uint64_t number_of(const bytes& message) {
    return wire::read_header(message).number;
}

bytes token(std::uint64_t number, std::uint64_t block, std::size_t position, state h,
            std::uint64_t block_number, std::uint16_t unanswered = 0) {
    lora::token_request r;
    r.position = position;
    r.block = block_number;
    put(r.c0, block);
    put(r.c0, h);
    bytes message;
    protocol::write(r, {number, 0, unanswered}, message);
    return message;
}
bytes block(std::uint64_t number, std::uint64_t id, std::size_t tokens = 3) {
    lora::block_request r;
    r.d = id;
    r.tokens = tokens;
    bytes message;
    protocol::write(r, {number, 0, 0}, message);
    return message;
}

}  // namespace

TEST_CASE("all messages of a call go up before a reply is read, a block before its tokens") {
    pair both;
    rows_call asked(8);
    both.client.begin(asked);
    const auto sent = both.up();
    std::vector<wire::kind> kinds;
    for (const bytes& m : sent) {
        kinds.push_back(wire::read_header(m).what);
        CHECK(number_of(m) == kinds.size());
        CHECK(wire::read_header(m).unanswered == kinds.size() - 1);
    }
    using enum wire::kind;
    CHECK(kinds == std::vector{block_request, token_request, token_request, token_request, block_request,
                               token_request, token_request, token_request, block_request, token_request,
                               token_request});
    both.deliver(sent);
    CHECK(asked.is_over());
    for (std::size_t r = 0; r < 8; ++r) {
        CHECK(asked.product(r)[0] == static_cast<double>(answer_to(100 + r)));
    }
    both.client.end(asked);
    rows_call next(1, 1);
    both.client.begin(next);
    CHECK(wire::read_header(both.up().at(0)).unanswered == 0);  // all of the first call have arrived
}

TEST_CASE("what has no answer stays within the windows, whatever a call asks for") {
    session::block_policy no_blocks;
    no_blocks.most_tokens = 1;
    pair both(no_blocks);
    rows_call asked(200);
    both.client.begin(asked);
    std::size_t most = 0;
    std::deque<bytes> line;
    while (!asked.is_over()) {
        for (bytes& m : both.up()) {
            line.push_back(std::move(m));
        }
        most = std::max(most, line.size());
        REQUIRE(!line.empty());
        both.client.take(both.serve(line.front()));
        line.pop_front();
    }
    // Replies of 90 kB, requests of 100 kB: the reply window binds.
    CHECK(most == session::reply_window / 90'000);
    CHECK(asked.answered() == 200);
}

TEST_CASE("a call that the limit cannot pay is refused whole, with both numbers, and nothing goes up") {
    pair both;
    both.client.opened(std::array<std::uint64_t, 2>{5, 7});
    rows_call too_many(6);
    CHECK(contains(refusal<refused_error>([&] { both.client.begin(too_many); }),
                   "got a call of 6 hidden states, expected at most 5"));
    CHECK(both.up().empty());
    CHECK(both.client.queries_left() == 5);
    rows_call first(3);
    rows_call second(3);
    both.client.begin(first);
    CHECK_THROWS_AS(both.client.begin(second), refused_error);  // the first has three of the five
    rows_call other(7, 1);
    both.client.begin(other);  // its group has a limit of its own
    both.deliver(both.up());
    CHECK(both.client.queries_left(0) == 2);
    CHECK(both.client.queries_left(1) == 0);
    CHECK(both.of.counted == 10);
}

TEST_CASE("a limit that is met on the way keeps the rows that were paid for") {
    pair both;
    both.store.limit = 4;
    rows_call asked(6);
    both.client.begin(asked);
    for (const bytes& m : both.up()) {
        try {
            both.client.take(both.serve(m));
        } catch (const refused_error& e) {
            both.client.refused(number_of(m), e.why(), std::current_exception());
        }
    }
    CHECK(asked.is_over());
    CHECK(asked.answered() == 4);
    CHECK(asked.product(3)[0] == static_cast<double>(answer_to(103)));
    CHECK_FALSE(asked.is_answered(4));
    CHECK_THROWS_AS(asked.rethrow(), refused_error);
    CHECK(both.of.counted == 4);
}

TEST_CASE("what was paid for but not read counts as left until it is read") {
    pair both;
    both.client.opened(std::array<std::uint64_t, 1>{10});
    rows_call asked(2);
    both.client.begin(asked);
    both.lose_replies(8);
    CHECK(both.client.queries_left(0).value() == 10);
    both.deliver(both.up());
    CHECK(asked.answered() == 2);
    CHECK(both.client.queries_left(0) == 8);
    CHECK(both.of.counted == 2);
}

TEST_CASE("rows of a call that was ended are paid for like others") {
    pair both;
    both.client.opened(std::array<std::uint64_t, 1>{10});
    rows_call ended(8);
    both.client.begin(ended);
    const auto sent = both.up();
    both.client.end(ended);
    rows_call next(8);
    CHECK(contains(refusal<refused_error>([&] { both.client.begin(next); }), "expected at most 2"));
    both.deliver(sent);
    CHECK(both.client.queries_left(0) == 2);

    // Those that the server answered over a connection that was lost, too, whether they go up again or not.
    rows_call asked(2);
    both.client.begin(asked);
    both.lose_replies(0);
    CHECK(both.client.queries_left(0) == 2);
    both.client.end(asked);
    CHECK(both.client.queries_left(0) == 0);
    CHECK(both.of.counted == 10);
}

TEST_CASE("an answer that waits for that to its block is not counted twice against a limit") {
    pair both;
    both.model->layout().tokens_ahead = 8;
    both.client.opened(std::array<std::uint64_t, 1>{8});
    rows_call first(4);
    both.client.begin(first);
    const auto sent = both.up();
    const bytes of_block = both.serve(sent.at(0));
    both.client.take(both.serve(sent.at(1)));
    CHECK(both.client.queries_left(0) == 7);
    rows_call second(4);
    both.client.begin(second);  // three of the first and these are the seven
    both.client.take(of_block);
    CHECK(first.answered() == 1);
}

TEST_CASE("a row that cannot be encrypted ends the call, and the rows before it are answered") {
    pair both;
    rows_call asked(4);
    asked.rows[2] = -1;
    both.client.begin(asked);
    both.deliver(both.up());
    CHECK(asked.is_over());
    CHECK(asked.answered() == 2);
    CHECK_THROWS_AS(asked.rethrow(), encoding_error);
}

TEST_CASE("a call of a group that does not exist is refused before anything is sent") {
    pair both;
    rows_call asked(1, both.model->layout().groups.size());
    CHECK_THROWS_AS(both.client.begin(asked), parameter_error);
    CHECK(both.up().empty());
}

TEST_CASE("the next block is asked for when one is nearly used up, and not before") {
    pair both;
    both.model->layout().tokens_ahead = 3;
    rows_call first(1);
    both.client.begin(first);
    CHECK(both.up().size() == 2);  // its block, and itself: two positions are left
    rows_call second(2);
    both.client.begin(second);
    CHECK(both.up().size() == 3);  // both, and the next block
    rows_call third(1);
    both.client.begin(third);
    CHECK(both.up().size() == 1);

    pair stopped;
    stopped.model->layout().tokens_ahead = 3;
    rows_call all(3);
    stopped.client.begin(all);
    for (int sent = 0; sent < 4; ++sent) {  // the block and its tokens
        CHECK(stopped.client.next() != nullptr);
    }
    all.stop();
    CHECK(stopped.client.next() == nullptr);
}

TEST_CASE("a block that is asked for ahead comes in parts, one after a call at most") {
    pair both;
    both.model->layout().tokens_ahead = 8;
    client_session client(both.model);  // has blocks of eight tokens
    client.opened({});
    // The parts that a call brings about: first outputs and their number.
    std::vector<std::pair<std::size_t, std::size_t>> parts;
    const auto ask = [&](std::size_t rows, std::size_t answered) {
        rows_call one(rows);
        client.begin(one);
        std::vector<bytes> sent;
        while (const auto* const m = client.next()) {
            m->write(sent.emplace_back());
            if (m->what() == wire::kind::block_request) {
                parts.emplace_back(m->block().first, m->block().outputs);
            }
        }
        for (const bytes& m : sent) {
            client.take(both.serve(m));
        }
        CHECK(one.answered() == answered);
        client.end(one);
        return std::exchange(parts, {});
    };
    using expected = std::vector<std::pair<std::size_t, std::size_t>>;
    CHECK(ask(5, 5) == expected{{0, 0}});   // who waits asks for all of them at once
    CHECK(ask(1, 1) == expected{{0, 16}});  // two positions are left for two parts
    CHECK(ask(1, 1) == expected{{16, 8}});
    CHECK(ask(1, 1).empty());
    CHECK(ask(6, 6) == expected{{0, 16}});  // of the third block
    CHECK(ask(3, 3) == expected{{16, 8}});  // now there is no time: the rest before the first token in it
    CHECK(both.of.answers == 17);
}

TEST_CASE("a part that is lost ends its block, and nothing that was paid for") {
    pair both;
    both.model->layout().tokens_ahead = 8;
    client_session client(both.model);
    client.opened({});
    const auto up = [&](std::size_t rows, rows_call& one) {
        client.begin(one);
        std::vector<bytes> sent;
        while (const auto* const m = client.next()) {
            m->write(sent.emplace_back());
        }
        CHECK(sent.size() >= rows);
        return sent;
    };
    const auto deliver = [&](const std::vector<bytes>& sent) {
        for (const bytes& m : sent) {
            try {
                client.take(both.serve(m));
            } catch (const refused_error& e) {
                client.refused(number_of(m), e.why(), std::current_exception());
            }
        }
    };
    rows_call first(6);
    deliver(up(6, first));  // and the first part of the next block
    client.end(first);
    both.server.drop_blocks();  // for want of memory
    rows_call second(3);
    auto sent = up(3, second);
    for (int tries = 0; !sent.empty(); ++tries) {
        REQUIRE(tries < 10);
        deliver(sent);
        sent.clear();
        while (const auto* const m = client.next()) {
            m->write(sent.emplace_back());
        }
    }
    CHECK(second.answered() == 3);
    CHECK(both.of.answers == 9);
    client.end(second);

    // A server takes parts in their order, each once, and no token before the last.
    lora::block_request part;
    part.d = 70;
    part.tokens = 8;
    const auto ask = [&](std::uint64_t number, std::size_t from, std::size_t outputs) {
        part.first = from;
        part.outputs = outputs;
        bytes message;
        protocol::write(part, {number, 1, 0}, message);
        return both.refused(message);
    };
    constexpr auto answered = session::refusal::other;  // as `refused` says where there is no refusal
    CHECK(ask(100, 8, 8) == session::refusal::unknown_block);
    CHECK(ask(101, 0, 8) == answered);
    CHECK(ask(102, 16, 8) == session::refusal::unknown_block);
    CHECK(ask(103, 8, 8) == answered);
    CHECK(ask(104, 8, 8) == session::refusal::unknown_block);
}

TEST_CASE("an answer that came before the parts of its block is asked for again if they never come") {
    pair both;
    both.model->layout().tokens_ahead = 8;
    client_session client(both.model);
    client.opened({});
    const auto up = [&] {
        std::vector<bytes> sent;
        while (const auto* const m = client.next()) {
            m->write(sent.emplace_back());
        }
        return sent;
    };
    const auto refuse = [&](const bytes& message, session::refusal why) {
        client.refused(number_of(message), why,
                       std::make_exception_ptr(refused_error("as the test says", why)));
    };
    rows_call first(6);
    client.begin(first);
    for (const bytes& m : up()) {
        client.take(both.serve(m));  // the block, its tokens, the first part of the next
    }
    client.end(first);
    rows_call asked(5);
    client.begin(asked);
    const auto sent = up();
    using enum wire::kind;
    std::vector<wire::kind> kinds;
    for (const bytes& m : sent) {
        kinds.push_back(wire::read_header(m).what);
    }
    REQUIRE(kinds == std::vector{token_request, token_request, block_request, token_request, token_request,
                                 token_request});
    std::vector<bytes> replies;
    for (const bytes& m : sent) {
        replies.push_back(both.serve(m));
    }
    client.take(replies[0]);
    client.take(replies[1]);
    client.take(replies[3]);  // early
    refuse(sent[4], session::refusal::unknown_block);
    refuse(sent[2], session::refusal::rate_limit);
    refuse(sent[5], session::refusal::unknown_block);
    for (int step = 0; !asked.is_over(); ++step) {
        REQUIRE(step < 20);
        client.go_on();
        for (const bytes& m : up()) {
            const session::refusal why = both.refused(m);
            if (why != session::refusal::other) {
                refuse(m, why);
                continue;
            }
            protocol::workspace work;
            server_session::shared_message reply;
            both.server.on_resumed();  // what was just answered is kept
            both.server.on_message(m, wire::read_header(m), work, reply);
            client.take(*reply);
        }
    }
    CHECK(asked.answered() == 5);
}

TEST_CASE("a block that lacks parts makes room for another, once for each answer") {
    pair both;
    lora::block_request part;
    part.tokens = 8;
    part.outputs = 8;
    std::uint64_t number = 0;
    const auto begin = [&] {
        part.d = ++number;
        bytes message;
        protocol::write(part, {number, 0, 0}, message);
        return both.refused(message);
    };
    constexpr auto answered = session::refusal::other;  // as `refused` says where there is no refusal
    CHECK(begin() == answered);
    CHECK(begin() == answered);
    CHECK(begin() == answered);  // in the place of the first
    CHECK(begin() == session::refusal::block_limit);
    bytes alone;
    protocol::write(numbers{{7}}, {++number, 0, 0}, alone);
    both.serve(alone);
    CHECK(begin() == answered);
    CHECK(begin() == session::refusal::block_limit);
    CHECK(both.server.held_bytes() == 2 * protocol::bytes_of_block(*both.model, 0));
}

TEST_CASE("replies that nobody waits for are refused, and the session goes on over another connection") {
    pair both;
    rows_call asked(1);
    both.client.begin(asked);
    const auto sent = both.up();
    bytes other;
    protocol::write(lora::block_reply{}, {99, 0, 0}, other);
    CHECK_THROWS_AS(both.client.take(other), format_error);
    protocol::write(lora::block_reply{}, {1, 1, 0}, other);  // another group
    CHECK_THROWS_AS(both.client.take(other), format_error);
    CHECK_THROWS_AS(both.client.refused(77, session::refusal::replayed, nullptr), format_error);
    both.client.lost();
    both.client.resumed(1, {});
    CHECK(both.up() == sent);
}

TEST_CASE("in the child of a fork nothing is encrypted") {
    pair both;
    rows_call asked(1);
    both.client.begin(asked);
    const ::pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        int refused = 0;
        rows_call own(1);
        const auto refuses = [&](auto f) {
            try {
                f();
            } catch (const unsupported_error&) {
                ++refused;
            }
        };
        refuses([&] { both.client.next(); });
        refuses([&] { both.client.begin(own); });
        refuses([&] { both.client.take(bytes(64)); });
        ::_exit(refused);
    }
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 3));
}

TEST_CASE("a kept reply is repeated once for a connection, as its bytes, whatever the request says") {
    pair both;
    both.serve(block(1, 7));
    const bytes first = both.serve(token(2, 7, 0, 41, 1, 1));
    both.server.on_resumed();
    CHECK(both.serve(token(2, 7, 1, 99, 1, 1)) == first);  // other content, which nobody looks at
    CHECK(both.refused(token(2, 7, 0, 41, 1, 1)) == session::refusal::replayed);
    both.server.on_resumed();
    CHECK(both.serve(token(2, 7, 0, 41, 1, 1)) == first);
    CHECK(both.of.answers == 1);
    both.serve(token(3, 7, 1, 42, 1, 0));  // all before have arrived
    both.server.on_resumed();
    CHECK(both.refused(token(2, 7, 0, 41, 1, 0)) == session::refusal::replayed);
    CHECK(both.of.answers == 2);
}

TEST_CASE("who acknowledges the future, or nothing, does not fill the server's memory") {
    pair both;
    bytes large;
    std::size_t most = 0;
    for (std::uint64_t n = 1; n < 20'000; ++n) {
        bytes message;
        protocol::write(numbers{{n}}, {n, 0, 65'535}, message);
        both.serve(message);
        most = std::max(most, both.server.held_bytes());
    }
    CHECK(most <= session::reply_window);
    CHECK(most > session::reply_window - 100);  // all that is promised is there
    both.server.drop_replies();
    CHECK(both.server.held_bytes() < 100);
}

TEST_CASE("a third block is refused, and the first token of a later one gives up the earlier") {
    pair both;
    both.serve(block(1, 5));
    both.serve(block(2, 6));
    bool made_room = false;
    both.store.has_no_room = [&] {
        made_room = true;
        return false;
    };
    CHECK(both.refused(block(3, 7)) == session::refusal::block_limit);
    CHECK_FALSE(made_room);
    CHECK(both.server.held_bytes() == 2 * protocol::bytes_of_block(*both.model, 0));  // and no reply
    both.serve(token(4, 6, 0, 1, 2));
    CHECK(both.refused(token(5, 5, 0, 2, 1)) == session::refusal::unknown_block);
    both.serve(block(6, 7));
    CHECK(both.of.counted == 1);
    both.server.drop_blocks();
    CHECK(both.refused(token(7, 7, 0, 3, 6)) == session::refusal::unknown_block);
    CHECK(both.server.held_bytes() == 0);
}

TEST_CASE("what is not answered is not counted, and uses up its number at most") {
    pair both;
    both.serve(block(1, 5));
    CHECK_THROWS_AS(both.serve(token(2, 5, 9, 1, 1)), error);  // no such position
    bytes cut = token(3, 5, 0, 1, 1);
    cut.resize(cut.size() - 20);
    CHECK_THROWS_AS(both.serve(cut), error);
    bytes no_request;
    protocol::write(lora::block_reply{}, {4, 0, 0}, no_request);
    CHECK_THROWS_AS(both.serve(no_request), format_error);
    CHECK(both.refused(token(std::numeric_limits<std::uint64_t>::max(), 5, 0, 1, 1)) ==
          session::refusal::replayed);
    both.store.fails = [] { return true; };
    CHECK_THROWS_AS(both.serve(token(5, 5, 0, 1, 1)), io_error);
    both.store.fails = [] { return false; };
    CHECK(both.of.counted == 0);
    CHECK(both.server.next_number() <= 5);
    both.serve(token(5, 5, 0, 1, 1));
    CHECK(both.of.counted == 1);
}

TEST_CASE("with ciphertexts: by messages and in process, every row is A times its hidden state") {
    using P = ckks::private_n4096;
    lora::adapter adapter;
    adapter.sites = {random_site(24, 8, 96, 1), random_site(24, 8, 96, 2)};
    adapter.sites[0].name = "layers.0.self_attn.o_proj";
    adapter.sites[1].name = "layers.0.mlp.down_proj";
    lora::model_options options;
    options.tokens_ahead = 8;
    const auto model = std::make_shared<const lora::model_server<P>>(adapter, options);
    const auto keys =
        std::make_shared<lora::model_client<P>>(model->layout(), lora::client_part(adapter, options));
    const auto nonce = random::fresh_nonce();
    session::server_session<P> server(model, nonce, keys->rerandomization_key(nonce));
    session::client_session<P> client(keys);
    session::server_session<P>::workspace work;
    const lora::matrix rows = random_matrix(21, 96, 3);
    const auto check = [&](const call& asked) {
        CHECK(asked.answered() == 21);
        for (std::size_t r = 0; r < rows.rows; ++r) {
            const auto deltas = keys->deltas(asked.group(), asked.product(r));
            const auto expected = lora::plain_delta(adapter.sites[asked.group()], rows.row(r));
            for (std::size_t k = 0; k < expected.size(); ++k) {
                REQUIRE(std::fabs(deltas[0][k] - expected[k]) < 1e-4);
            }
        }
    };
    for (std::size_t group : {0U, 1U, 0U}) {
        call asked(group, rows.rows, [&](std::size_t r) { return rows.row(r); });
        session::answer_in_process(client, server, work, asked, [] {});
        check(asked);
    }
    session::server_session<P> remote(model, nonce, keys->rerandomization_key(nonce));
    session::client_session<P> other(keys);
    call asked(1, rows.rows, [&](std::size_t r) { return rows.row(r); });
    other.begin(asked);
    std::deque<bytes> line;
    while (!asked.is_over()) {
        while (const auto* const m = other.next()) {
            m->write(line.emplace_back());
        }
        REQUIRE(!line.empty());
        session::server_session<P>::shared_message reply;
        CHECK(remote.on_message(line.front(), wire::read_header(line.front()), work, reply));
        other.take(*reply);
        line.pop_front();
    }
    check(asked);
    other.end(asked);
}
