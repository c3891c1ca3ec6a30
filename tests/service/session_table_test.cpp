// What a server keeps of a session: blocks, replies, encryptions of zero, and for how long; each over frames.
// The rules of session/server_session.hpp one by one are in session/session_test.cpp.
#include "../../service/session_table.hpp"

#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/session/block_policy.hpp>

#include "peer.hpp"

using namespace tests;

namespace {

using namespace std::chrono_literals;
using enum split::error_code;
using tensafe::session::reply_window;

constexpr std::array<std::uint64_t, 3> nothing{};

}  // namespace

TEST_CASE("encryptions of zero are made ahead while nothing waits, as many as a reply needs") {
    server s;
    peer p(s);
    CHECK_FALSE(p.side->idle());
    p.open();
    const auto fill = [&] {
        while (p.side->idle()) {
        }
        return s.of->sessions().pool_size();
    };
    const std::size_t rows = 4;
    CHECK(fill() == rows);  // for a block
    REQUIRE(p.prepares(1));
    CHECK(s.of->sessions().pool_size() == 0);
    REQUIRE(p.asks_at(2, 1, 0));
    CHECK(fill() == rows);
    REQUIRE(p.prepares(3));
    CHECK(s.of->sessions().pool_size() == 0);
    REQUIRE(p.asks(4));
    CHECK(fill() == 1);  // four rows are one product
    p.send(request_message(5));
    CHECK(s.of->sessions().pool_size() == 0);
    CHECK(p.side->idle());
    p.send(request_message(6, 1));
    CHECK(s.of->sessions().pool_size() == 0);
    s.of->drain();
    CHECK_FALSE(p.side->idle());
}

TEST_CASE("encryptions of zero that were taken are made again before the next look at all sessions") {
    opened both({.shares = {}, .pooled = 2});
    for (std::uint64_t number = 1; number <= 5; ++number) {
        CHECK(both.p.side->idle());
        REQUIRE(both.p.asks(number));
    }
}

TEST_CASE_FIXTURE(opened,
                  "a position is counted once, and a reply that comes again costs bytes and nothing else") {
    REQUIRE(p.prepares(1));
    const bytes block = p.said();
    CHECK(p.used() == nothing);
    const auto before = s.total();
    const auto q = p.resumed();
    REQUIRE(q->prepares(1));
    CHECK(q->said() == block);
    CHECK(s.total().bytes_down == before.bytes_down + block.size());
    CHECK(s.total().requests == before.requests);
    REQUIRE(q->asks_at(2, 1, 5));
    const bytes token = q->said();
    const auto counted = p.used();
    CHECK(counted[0] == s.bits_of_request());
    for (bytes other : {request_message(2), block_request_message(2, 1), token_request_message(2, 7, 5)}) {
        other.back() ^= 1;  // damaged too
        const auto r = p.resumed();
        r->send(other);
        CHECK(r->said() == token);
        CHECK(r->code_of(token_request_message(2, 1, 5)) == replayed);
        CHECK(r->used() == counted);
    }
    const auto r = p.resumed();
    CHECK(r->code_of(token_request_message(3, 1, 5)) == replayed);
    CHECK(contains(r->refused().message, "position 5 of block 1 of group 0 was answered"));
    CHECK(r->used() == counted);
    CHECK(r->asks_at(4, 1, 4));
}

TEST_CASE("who never acknowledges has a window of replies kept, or the last one where there is no room") {
    for (const bool has_room : {true, false}) {
        constexpr std::size_t share = 300'000;
        opened both({.shares = {}, .block_bytes = 16 * (has_room ? std::size_t{10'000'000} : share)});
        auto& [s, p] = both;
        std::size_t reply = 0;
        std::size_t number = 0;
        std::size_t most = 0;
        while (number * reply < reply_window * 5 / 4) {
            ++number;
            p.send(behind(number - 1, request_message(number)));
            REQUIRE(p.has_reply(number));
            reply = p.said().size();
            most = std::max(most, s.held_bytes());
            CHECK(s.held_bytes() <= (has_room ? reply_window : share + (16 << 10)));
        }
        CHECK(most > (has_room ? reply_window / 2 : share / 2));
        const auto q = p.resumed();
        CHECK(q->code_of(behind(0, request_message(1))) == replayed);
        REQUIRE(q->asks(number));
        peer other(s, fresh_key(), "10.0.0.2");
        for (const std::uint64_t n : {1u, 2u}) {  // of its own share
            other.send(behind(n - 1, request_message(n)));
        }
        CHECK(other.resumed("10.0.0.1")->asks(1));
    }
}

TEST_CASE("a reply that is computed while another connection takes the session over is not lost") {
    server s({.shares = {}, .handshakes_per_second = 1'000, .handshakes_at_once = 1'000});
    auto p = std::make_unique<peer>(s, fresh_key());
    std::uint64_t answered = 0;
    int raced = 0;
    for (std::uint64_t number = 1; number <= 20; ++number) {
        std::thread computes([&] { p->send(request_message(number)); });
        const auto q = p->resumed();
        const bool is_answered = q->next_number == number + 1;
        REQUIRE(q->asks(number));  // again, or for the first time
        const bytes reply = q->said();
        computes.join();
        CHECK(p->has_reply(number) == is_answered);
        CHECK((is_answered ? p->said() == reply : p->refused().code == resume_failed));
        raced += is_answered ? 1 : 0;
        CHECK(q->used()[0] == ++answered * s.bits_of_request());
        p = p->resumed();
    }
    MESSAGE(raced, " of 20 were answered before");
}

TEST_CASE_FIXTURE(
    opened, "a third block of an input is refused before anything is computed, and bye gives all back") {
    REQUIRE(p.prepares(1));
    const std::size_t one = s.held_bytes() - p.said().size();
    REQUIRE(p.prepares(2));
    const auto answered = s.total().requests;
    CHECK(p.code_of(block_request_message(3)) == block_limit);
    CHECK(s.total().requests == answered);
    CHECK(p.prepares(4, 1));  // another input
    CHECK(p.asks_at(5, 1, 0));
    CHECK(p.code_of(block_request_message(6)) == block_limit);
    CHECK(p.asks_at(7, 2, 31));
    CHECK(p.code_of(token_request_message(8, 1, 1)) == unknown_block);  // a later one is in use
    CHECK(contains(p.refused().message, "block 1 of group 0"));
    CHECK(p.code_of(token_request_message(9, 2, 0, 1)) == unknown_block);
    CHECK(p.prepares(10));
    CHECK(p.asks_at(11, 4, 0, 1));
    CHECK(s.held_bytes() == 3 * one + p.said().size());
    p.say(R"({"type":"bye"})");
    CHECK(s.held_bytes() == 0);
}

TEST_CASE(
    "where all sessions have as much of blocks as they may, no more are prepared, and tokens go alone") {
    opened both({.block_bytes = 16});
    auto& [s, p] = both;
    REQUIRE(p.prepares(1));
    peer q(s, fresh_key(), "10.0.0.2");
    CHECK(q.code_of(block_request_message(1)) == block_limit);
    CHECK(contains(q.refused().message, "no room for more blocks"));
    CHECK(q.asks(1));
    CHECK(p.asks_at(2, 1, 0));
    p.side.reset();
    CHECK(q.prepares(2));
}

TEST_CASE("fresh keys at one address fill a sixteenth of the memory of blocks, and others prepare theirs") {
    constexpr std::size_t share = 400'000;
    server s({.handshakes_per_second = 1000, .handshakes_at_once = 1000, .block_bytes = 16 * share});
    std::vector<std::unique_ptr<peer>> strangers;
    do {
        REQUIRE(s.held_bytes() < 2 * share);
        strangers.push_back(std::make_unique<peer>(s, fresh_key(), "10.0.0.2"));
    } while (strangers.back()->prepares(1));
    CHECK(strangers.back()->refused().code == block_limit);
    CHECK(s.held_bytes() >= share);
    REQUIRE(strangers.size() > 3);
    peer p(s, fresh_key());
    CHECK(p.prepares(1));
    CHECK(p.prepares(2));

    // Of sessions without a connection the one that lost it first makes room.
    for (const std::size_t lost : {1u, 0u}) {
        s.now += 1s;
        strangers[lost]->side.reset();
    }
    CHECK(strangers.back()->prepares(2));
    CHECK(strangers[0]->resumed("10.0.0.3")->asks_at(2, 1, 0));
    CHECK(strangers[1]->resumed("10.0.0.3")->code_of(token_request_message(2, 1, 0)) == unknown_block);
    CHECK(p.asks_at(3, 1, 0));
}

TEST_CASE("a token of a block tells as many bits of A as a request, whatever the shape") {
    namespace lora = tensafe::lora;
    const auto bits = [](const auto& plan) {
        const auto cost = lora::cost_of(plan);
        return static_cast<double>(cost.targets / cost.hidden_states) * cost.budget.channel_bits();
    };
    using alone = lora::packing_plan<split::params, split::packing, split::protection>;
    using of_blocks = lora::packing_plan<split::params, lora::token_blocks, split::protection>;
    for (const std::size_t rows : {1u, 4u, 5u, 33u, 96u, 1000u}) {
        for (const std::size_t d : {8u, 1025u, 4096u, 70'000u}) {
            for (const std::size_t tokens : {2u, 32u}) {
                CHECK(bits(alone(rows, d, 1)) ==
                      bits(of_blocks(of_blocks::layout_type::of(rows, d, 1, tokens))));
            }
        }
    }
}

TEST_CASE_FIXTURE(opened,
                  "a block answers for the version that it was prepared with, after another was loaded too") {
    REQUIRE(p.prepares(1));
    pack_and_serve(s.of->adapters(), "kjv", small_adapter);
    CHECK(s.of->adapters().unload("kjv"));
    CHECK(p.asks_at(2, 1, 0));
    CHECK(p.prepares(3));
    CHECK(p.asks_at(4, 3, 0));
}

TEST_CASE("a lost session is resumed as often as its client likes, and its old connection is ended") {
    server s;
    auto p = std::make_unique<peer>(s, fresh_key());
    p->send(request_message(4));
    const auto session = p->welcome.session;
    peer q(s);
    q.key = p->key;
    const auto resumed = q.resume(session);
    CHECK(resumed.session == session);
    CHECK(resumed.next_number == 5);
    CHECK(resumed.queries_left == std::vector<std::uint64_t>{7, 8});
    CHECK(p->connection->ended == 1);
    CHECK(q.asks(4));  // again
    CHECK(q.code_of(request_message(4)) == replayed);
    CHECK(q.asks(5));
    // The old connection has nothing to say any more, and its end does not end the session.
    CHECK(p->code_of(std::string(R"({"type":"forget"})")) == resume_failed);
    CHECK(p->answer.closing());
    p.reset();
    CHECK(q.asks(6));

    const auto r = q.resumed();  // as if the answer to q had been lost
    CHECK(r->next_number == 7);
    CHECK(q.connection->ended == 1);
    CHECK(q.code_of(request_message(7)) == resume_failed);
    CHECK(r->asks(7));
}

TEST_CASE_FIXTURE(opened, "nobody but its client resumes a session, or learns whether there is one") {
    std::optional<split::refusal> one;
    const auto refused = [&](const split::session_id& session, auto change) {
        peer stranger(s);
        split::resume r = stranger.resume_of(session);
        change(stranger, r);
        const split::refusal said = stranger.refusal_of(to_text(r));
        CHECK(said.code == resume_failed);
        CHECK(said == one.value_or(said));
        one = said;
        CHECK_FALSE(stranger.answer.closing());
        stranger.open();  // hello on the same connection
    };
    const split::resume of_owner = p.resume_of(p.welcome.session);
    for (const auto& session : {split::session_id{}, p.welcome.session}) {
        refused(session, [](login, split::resume&) {});
        refused(session, [&](login, split::resume& r) { r.client = of_owner.client; });
        refused(session, [&](login, split::resume& r) { r.client = {}; });
        refused(session, [&](login, split::resume& r) { r = of_owner; });  // signed on another connection
        refused(session, [&](login thief, split::resume& r) {              // for another connection
            thief.key = p.key;
            thief.exporter = p.exporter;
            r = thief.resume_of(session);
        });
        refused(session, [&](login thief, split::resume& r) {  // for another session
            thief.key = p.key;
            r = thief.resume_of({std::byte{1}});
            r.session = session;
        });
    }
    CHECK(p.connection->ended == 0);
    CHECK(p.asks(1));
}

TEST_CASE("a session waits for its client until its time is over") {
    server s({.session_life = 10s, .session_idle = 2h});
    const auto key = fresh_key();
    const auto lose = [&] { return peer(s, key).welcome.session; };
    const auto one = lose();
    s.now += 9999ms;
    s.of->expire_sessions();
    CHECK(s.of->sessions().size() == 1);
    {
        peer p(s);
        p.key = key;
        CHECK_NOTHROW(p.resume(one));
        s.now += 1h;
        s.of->expire_sessions();
        CHECK(s.of->sessions().size() == 1);  // held
    }
    const auto two = lose();
    s.now += 10s;
    peer p(s);
    p.key = key;
    CHECK(p.code_of(to_text(p.resume_of(two))) == resume_failed);
    s.of->expire_sessions();
    CHECK(s.of->sessions().size() == 0);
}

TEST_CASE("a session without requests ends, and its client opens another without an answer that is lost") {
    server s({.session_idle = 10s});
    peer p(s, fresh_key());
    peer busy(s, fresh_key());
    for (int i = 1; i <= 3; ++i) {
        s.now += 4s;
        s.of->expire_sessions();
        CHECK(busy.asks(static_cast<std::uint64_t>(i)));
    }
    CHECK(s.of->sessions().size() == 1);
    CHECK(p.connection->ended == 1);
    CHECK(contains(p.connection->reason, "no request"));
    // A request that was on its way is not refused: its client would give it up.
    p.send(request_message(1));
    CHECK(p.answer.frames().empty());
    CHECK(p.answer.closing());
    CHECK(p.used()[0] == 0);
    peer q(s);
    q.key = p.key;
    CHECK(q.code_of(to_text(q.resume_of(p.welcome.session))) == resume_failed);
    q.open();  // on the same connection
    CHECK(q.asks(1));
    // Who comes back has as much time again.
    s.now += 9s;
    const auto r = q.resumed();
    s.now += 9s;
    s.of->expire_sessions();
    CHECK(r->asks(2));
}

TEST_CASE("sessions of an adapter that was replaced or removed end after a time, busy or not") {
    server s({.retired_life = 10s});
    peer p(s, fresh_key());
    pack_and_serve(s.of->adapters(), "kjv", small_adapter);
    peer current(s, fresh_key());
    s.of->expire_sessions();
    s.now += 9s;
    s.of->expire_sessions();
    CHECK(p.asks(1));
    s.now += 1s;
    s.of->expire_sessions();
    CHECK(p.connection->ended == 1);
    CHECK(contains(p.connection->reason, "replaced or removed"));
    CHECK(current.asks(1));
    CHECK(s.of->sessions().count_by_version().size() == 1);
    p.connect();
    p.open();
    CHECK(p.welcome.version == current.welcome.version);
    s.of->adapters().unload("kjv");
    s.of->expire_sessions();
    s.now += 10s;
    CHECK(s.of->sessions().size() == 2);
    s.of->expire_sessions();
    CHECK(s.of->sessions().size() == 0);
}

TEST_CASE(
    "in a full table the address with the most sessions makes room, of which those that are lost first") {
    server s({.sessions = 6});
    std::vector<std::unique_ptr<peer>> many;
    for (int i = 0; i < 5; ++i) {
        s.now += 1s;
        many.push_back(std::make_unique<peer>(s, fresh_key(), "10.0.0.1"));
    }
    auto lost = std::make_unique<peer>(s, fresh_key(), "10.0.0.2");
    lost->side.reset();
    s.now += 1s;
    REQUIRE(many[0]->asks(1));
    many[4]->side.reset();
    const auto is_full_for = [&](const char* address) {
        peer p(s, address);
        p.say(p.hello());
        return p.code_of(rerandomization_key_message(p.nonce)) == rate_limit;
    };
    peer one(s, fresh_key(), "10.0.0.3");
    CHECK(s.of->sessions().size() == 6);
    CHECK(is_full_for("10.0.0.1"));  // it has the most, and none without a connection any more
    peer two(s, fresh_key(), "10.0.0.3");
    CHECK(many[1]->connection->ended == 1);
    CHECK(contains(many[1]->connection->reason, "others need the place"));
    CHECK(many[0]->connection->ended == 0);
    CHECK(is_full_for("10.0.0.3"));  // it would have as many as the other then
    CHECK(lost->resumed("10.0.0.2")->asks(1));
    CHECK(one.asks(1));
}

TEST_CASE("a client's sessions are limited: one that is lost makes room, held ones do not") {
    server s({.sessions_of_client = 2});
    peer a(s, fresh_key());
    auto b = std::make_unique<peer>(s, a.key);
    peer c(s);
    c.key = a.key;
    c.say(c.hello());
    CHECK(c.code_of(rerandomization_key_message(c.nonce)) == rate_limit);
    CHECK(c.refused().retry_after_ms);
    b.reset();
    peer d(s, a.key);
    CHECK(s.of->sessions().size() == 2);
    CHECK(a.asks(1));
}

// For ThreadSanitizer, and for what must hold whoever is first.
TEST_CASE("two connections that take a session from each other, swaps and forgetting go on side by side") {
    server s({.shares = {}, .requests_per_second = 1e6, .handshakes_at_once = 10'000});
    auto p = std::make_unique<peer>(s, fresh_key());
    std::atomic<bool> done{false};
    std::thread swaps([&] {
        while (!done) {
            pack_and_serve(s.of->adapters(), "kjv", small_adapter);
            static_cast<void>(s.of->adapters().find("kjv"));
            s.of->expire_sessions();
            static_cast<void>(s.of->metrics_text());
        }
    });
    for (std::uint32_t round = 0; round < 10; ++round) {
        std::thread computes([&] {
            for (std::uint64_t n = 1; n <= 4; ++n) {
                const std::uint64_t number = 100 * round + n;
                p->send(n == 2 ? block_request_message(number) : request_message(number));
                p->side->idle();
            }
        });
        auto q = p->resumed();
        const std::uint32_t number = 100 * round + 50;
        CHECK(q->asks(number));
        if (q->prepares(number + 1)) {  // or those of the other connection are two
            CHECK(q->asks_at(number + 2, number + 1, 0));
        }
        computes.join();
        p = std::move(q);
    }
    for (int round = 0; round < 10; ++round) {
        peer q(s, p->key);
        std::thread forgets([&] { s.of->forget(q.name()); });
        for (std::uint64_t n = 1; n <= 3; ++n) {
            q.send(request_message(n));
        }
        forgets.join();
        CHECK(s.of->used().snapshot().of_client(q.name()) == tensafe::serving::usage{});
    }
    done = true;
    swaps.join();
    s.of->adapters().unload("kjv");
    CHECK_FALSE(s.of->adapters().find("kjv"));
}
