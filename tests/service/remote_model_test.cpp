// The client's half of the service against a server by a script, which breaks the protocol at any message:
// calls, lost connections, refusals, waits. Long for each is another script; rules of the session are in
// session_test.cpp.
#include "../../service/remote_model.hpp"

#include "scripted_server.hpp"

using namespace tests;

namespace {

using enum split::error_code;
using split::connection_lost;
using split::frame_form;
using numbers = std::vector<std::uint64_t>;
using times = std::vector<milliseconds::rep>;

/// A client with a session.
struct connected {
    explicit connected(frame_form frames = frame_form::binary)
        : remote(server.client(server.options(frames))) {}
    void ask(std::size_t group = 0) { remote.ask(group, ones, product); }

    scripted_server server;
    std::vector<double> product;
    split::remote_model remote;
};

split::refusal said(split::error_code code, std::optional<std::uint64_t> retry_after = {}) {
    return {code, "because", 0, retry_after};
}

}  // namespace

TEST_CASE("JSON frames carry the messages of binary frames, both ways, and no binary frame") {
    connected binary;
    connected json(frame_form::json);
    for (connected* each : {&binary, &json}) {
        each->ask(1);
        CHECK(each->server.signatures == std::vector<bool>{true});
        CHECK(each->remote.counted().message_bytes_up == each->server.requests.at(0).size());
    }
    CHECK(binary.server.requests[0].size() == json.server.requests[0].size());
    CHECK(binary.product == json.product);
    CHECK(binary.remote.counted().message_bytes_down == json.remote.counted().message_bytes_down);
    CHECK(binary.server.binary_frames == 2);
    CHECK(json.server.binary_frames == 0);
}

TEST_CASE("what the server says is left is the limit of a call, and is asked for anew with each connection") {
    scripted_server server;
    server.left = {2, 7};
    auto remote = server.client();
    const auto ask = [&](std::size_t group, std::size_t rows) {
        auto call = call_of(rows, group);
        remote.ask(call);
    };
    const auto check_refused = [&](const char* part, std::size_t rows) {
        const std::size_t before = server.requests.size();
        check_refusal<split::query_limit_error>(part, [&] { ask(0, rows); });
        CHECK(server.requests.size() == before);
    };
    check_refused("\"first\": got a call of 3 hidden states, expected at most 2", 3);
    ask(1, 3);
    ask(0, 2);
    CHECK(remote.queries_left() == 0);
    CHECK(remote.queries_left(1) == 4);
    check_refused("expected at most 0", 1);
    server.left = {};
    remote.reconnect();
    CHECK(!remote.queries_left());
    ask(0, 1);
    // Also where the connection was lost.
    server.left = {10};
    remote.reconnect();
    server.cut_replies = 1;
    server.unreachable = 1'000'000;
    CHECK_THROWS_AS(ask(0, 5), connection_lost);
    server.cut_replies = server.unreachable = 0;
    server.left = {5};
    check_refused("got a call of 6 hidden states, expected at most 5", 6);
}

TEST_CASE_FIXTURE(connected, "what a call was answered before and beside an error is kept") {
    server.refused = {{3, query_limit}, {5, malformed}};
    auto call = call_of(6);
    check_refusal<split::query_limit_error>("query_limit", [&] { remote.ask(call); });
    CHECK(call.answered() == 4);
    for (std::size_t row = 0; row < 6; ++row) {
        CHECK(call.is_answered(row) == (row != 2 && row != 4));
    }
    CHECK(remote.counted().replies == 4);
    CHECK(server.connections == 1);
}

TEST_CASE_FIXTURE(connected,
                  "in a fresh session what has no answer is encrypted anew, and no more than that") {
    server.answers_until_cut = 4;
    server.has_session = false;
    auto call = call_of(7);
    remote.ask(call);
    CHECK(call.answered() == 7);
    CHECK(remote.counted().sessions == 2);
    CHECK(server.numbers == numbers{1, 2, 3});
    REQUIRE(server.requests.size() == 7 + 3);
    for (std::size_t earlier = 0; earlier < 7; ++earlier) {
        for (std::size_t later = 7; later < 10; ++later) {
            CHECK(body_without_header(server.requests[earlier]) !=
                  body_without_header(server.requests[later]));
        }
    }
}

TEST_CASE("what is thrown between replies stops a call: no more goes up, and what is under way is read") {
    scripted_server server;
    auto options = server.options();
    std::size_t replies = 0;
    options.between = [&] {
        if (++replies == 3) {
            throw tensafe::cancelled_error("enough");
        }
    };
    auto remote = server.client(options);
    auto call = call_of(100);
    check_refusal<tensafe::cancelled_error>("enough", [&] { remote.ask(call); });
    CHECK(replies == 3);
    CHECK(call.answered() == server.requests.size());
    CHECK(call.answered() == 32 + 2 * 2);
    CHECK(server.open == 1);

    // What nobody paid for does not go up again.
    replies = 0;
    server.requests.clear();
    for (std::size_t row = 0; row < 50; ++row) {
        server.refused[37 + row] = rate_limit;
    }
    auto slow = call_of(20);
    check_refusal<tensafe::cancelled_error>("enough", [&] { remote.ask(slow); });
    CHECK(slow.answered() == 0);
    CHECK(server.requests.size() == 20);
    CHECK(server.waited.empty());
}

TEST_CASE("a reply of another number or group, or JSON that says another number, closes the connection") {
    struct {
        frame_form frames;
        std::uint64_t number;
        std::uint32_t group;
        std::uint64_t number_in_json;
        const char* got;
    } const all[] = {{frame_form::binary, 1, 0, 0, "request 2 of group 0"},
                     {frame_form::binary, 0, 1, 0, "request 1 of group 1"},
                     {frame_form::json, 1, 0, 0, "request 2 of group 0"},
                     {frame_form::json, 0, 1, 0, "request 1 of group 1"},
                     {frame_form::json, 0, 0, 3, "request 4 of group 0"}};
    for (const auto& each : all) {
        connected c(each.frames);
        c.server.number_of_reply = each.number;
        c.server.group_of_reply = each.group;
        c.server.number_in_json = each.number_in_json;
        check_refusal<tensafe::format_error>(std::string("got a reply to ") + each.got, [&] { c.ask(); });
        CHECK(c.server.open == 0);
        c.server.number_of_reply = c.server.number_in_json = c.server.group_of_reply = 0;
        c.ask();
        CHECK(c.server.numbers == numbers{1, 2});  // and the first is not made up for
    }
}

TEST_CASE_FIXTURE(connected, "a request whose reply was lost goes again as its bytes, in the same session") {
    ask();
    server.cut_replies = 1;
    ask();
    CHECK(server.numbers == numbers{1, 2, 2});
    CHECK(server.requests[1] == server.requests[2]);
    CHECK(server.hellos.size() == 1);
    REQUIRE(server.resumes.size() == 1);
    CHECK(server.waited == times{50});
    CHECK(remote.counted().resumed == 1);

    // The answer to a resume may be lost, too.
    server.cut_replies = 1;
    server.cut_resumes = true;
    ask();
    CHECK(server.hellos.size() == 1);
    REQUIRE(server.resumes.size() == 3);
    CHECK(server.resumes[2].session == split::session_id{std::byte{8}});
    CHECK(server.resume_signatures == std::vector<bool>(3, true));  // over three nonces and connections
}

TEST_CASE(
    "no number comes again, whatever the server says is next, and where all are used there is a fresh "
    "session") {
    for (const std::uint64_t next : {1U, 50U}) {
        connected c;
        c.ask();
        c.server.next_number = next;
        c.remote.reconnect();
        c.ask();
        CHECK(c.server.numbers.back() == std::max<std::uint64_t>(next, 2));
    }
    connected c;
    c.server.next_number = ~std::uint64_t{0};
    c.remote.reconnect();
    c.ask();
    CHECK(c.server.numbers == numbers{1});
    CHECK(c.remote.counted().sessions == 2);
}

TEST_CASE_FIXTURE(connected, "where the session is gone, a fresh one is opened on the same connection") {
    const auto* const client = remote.client().get();
    ask();
    server.has_session = false;
    server.cut_replies = 1;
    ask();
    CHECK(server.connections == 2);
    CHECK(server.hellos.size() == 2);
    CHECK(server.signatures == std::vector<bool>{true, true});  // over the second nonce
    CHECK(server.rerandomization_keys[0] != server.rerandomization_keys[1]);
    CHECK(server.numbers == numbers{1});
    CHECK(remote.client().get() == client);
    CHECK(remote.counted().sessions == 2);
}

TEST_CASE_FIXTURE(connected, "waits between attempts double up to the cap, and half of each is random") {
    const auto sequence = [](double draw) {
        times result;
        for (std::size_t i = 0; i < 6; ++i) {
            result.push_back(split::backoff({milliseconds(100), milliseconds(900)}, i, draw).count());
        }
        return result;
    };
    CHECK(sequence(0) == times{50, 100, 200, 400, 450, 450});
    CHECK(sequence(0.5) == times{75, 150, 300, 600, 675, 675});

    server.draw = 0.5;
    server.unreachable = 3;
    remote.reconnect();
    CHECK(server.waited == times{75, 150, 300, 600});
    CHECK(server.connections == 5);
}

TEST_CASE("whatever is waited for, there is one time for it, from one answer to the next") {
    scripted_server server;
    auto options = server.options();
    options.total_limit = milliseconds(3'000);
    options.step_limit = milliseconds(2'000);
    auto remote = server.client(options);
    std::vector<double> product;
    const auto ask = [&] { remote.ask(0, ones, product); };
    const times longer{50, 100, 200, 400, 500, 500, 500, 500};  // 2750 ms
    const auto check_ended = [&](const times& waited) {
        CHECK(server.waited == waited);
        server.unreachable = server.cut_replies = 0;
        server.refusals.clear();
        ask();
        server.waited.clear();
    };
    server.unreachable = 100;
    check_refusal<connection_lost>("no connection within 3 s (--total-seconds): nobody there",
                                   [&] { remote.reconnect(); });
    CHECK(server.limits.front() == milliseconds(2'000));
    CHECK(server.limits.back() == milliseconds(250));  // what is left of it
    check_ended(longer);

    // Connections that are lost again and again are not others', and neither are limits of rates.
    server.cut_replies = 100;
    check_refusal<connection_lost>("(--total-seconds): cut", ask);
    check_ended(longer);
    server.refusals.assign(100, said(rate_limit, 1));
    check_refusal<split::rate_limit_error>("rate_limit", ask);
    check_ended(longer);
    server.refusals.assign(3, said(rate_limit, 1'400));
    check_refusal<split::rate_limit_error>("rate_limit", ask);
    check_ended({1'400, 1'400});

    for (int i = 0; i < 8; ++i) {
        server.cut_replies = 3;
        ask();  // an answer begins it anew
        check_ended({50, 100, 200});
    }
}

TEST_CASE("the first connection waits for a server that starts, and not for one that will never be right") {
    for (const split::error_code code : {loading, draining, rate_limit, unavailable}) {
        scripted_server server;
        server.unreachable = 2;
        server.at_hello = split::refusal{code, "soon", {}, 700};
        server.refused_hellos = 2;
        auto remote = server.client();
        CHECK(server.waited == times{50, 100, 700, 700});
        std::vector<double> product;
        remote.ask(0, ones, product);
        CHECK(server.connections == 5);

        server.at_hello->retry_after_ms = 200'000;  // longer than it has time
        server.refused_hellos = 1;
        check_refusal<connection_lost>("(--total-seconds): the server refuses (", [&] { server.client(); });
        CHECK(server.waited.size() == 4);
    }
    scripted_server server;
    for (const split::error_code code : {unknown_adapter, not_authorised, parameter_mismatch}) {
        server.at_hello = split::refusal{code, "no", {}, {}};
        check_refusal<split::refused_error>(to_string(code), [&] { server.client(); });
    }
    server.at_hello.reset();
    auto remote = server.client();
    server.is_wrong = true;
    CHECK(refusal<connection_lost>([&] { server.client(); }) == "another server");
    CHECK(server.waited.empty());
    // What was right before will be so again.
    CHECK(
        refusal<connection_lost>([&] { remote.reconnect(); }).ends_with("(--total-seconds): another server"));
}

TEST_CASE("a client that may not come names the line for the server's list of clients") {
    scripted_server server;
    server.at_hello = split::refusal{not_authorised, "no", {}, {}};
    auto identity = split::client_identity({});
    const std::string line = identity.verifying().hex();
    check_refusal<split::refused_error>("has another key):\n" + line,
                                        [&] { server.client(server.options(), {}, std::move(identity)); });
}

TEST_CASE("what poll throws ends a wait for the next attempt") {
    scripted_server server;
    auto options = server.options();
    options.wait = {};
    options.now = std::chrono::steady_clock::now;
    server.unreachable = 1'000'000;
    options.poll = [&] {
        if (server.connections == 3) {
            throw tensafe::cancelled_error("enough");
        }
    };
    check_refusal<tensafe::cancelled_error>("enough", [&] { server.client(options); });
}

TEST_CASE_FIXTURE(connected,
                  "each error of the server becomes an exception with its code, and the session goes on") {
    for (std::size_t c = 0; c < split::error_codes; ++c) {
        const auto code = static_cast<split::error_code>(c);
        if (code == draining || code == loading) {
            continue;
        }
        server.refusals.push_back(said(code, 70));
        if (code == rate_limit || code == unavailable || code == replayed) {
            ask();  // it goes again by itself
            continue;
        }
        try {
            ask();
            FAIL("nothing was thrown");
        } catch (const split::refused_error& e) {
            CHECK(e.code() == code);
            CHECK(e.retry_after() == milliseconds(70));
            CHECK(contains(std::string(e.what()), std::string(to_string(code)) + "): \"because\""));
            CHECK((dynamic_cast<const split::query_limit_error*>(&e) != nullptr) == (code == query_limit));
        }
        CHECK(server.connections == 1);
    }
    ask();
    server.refusals.push_back(said(draining));
    ask();
    CHECK(remote.counted().resumed == 1);

    scripted_server strict;
    strict.at_hello = split::refusal{unknown_adapter, "no", {}, {}};
    check_refusal<split::refused_error>("unknown_adapter", [&] { strict.client(); });
    CHECK(strict.open == 0);
}

TEST_CASE_FIXTURE(connected, "an error for another request is refused") {
    auto late = said(malformed);
    late.number = 5;
    server.refusals.push_back(late);
    check_refusal<tensafe::format_error>("request 6", [&] { ask(); });
    CHECK(server.open == 0);
    late.number.reset();
    server.refusals.push_back(late);
    check_refusal<split::refused_error>("malformed", [&] { ask(); });
    CHECK(server.open == 0);
}

TEST_CASE_FIXTURE(connected,
                  "for a rate limit or a store the client waits as the server says, with another number") {
    server.refusals = {said(rate_limit, 250), said(rate_limit), said(unavailable, 60'000)};
    ask();
    CHECK(server.waited == times{250, 100, 60'000});
    CHECK(server.numbers == numbers{1, 2, 3, 4});
    CHECK(server.connections == 1);
    CHECK(remote.counted().rate_waits == 3);

    server.refusals = {said(query_limit)};
    check_refusal<split::query_limit_error>("query_limit", [&] { ask(); });
    server.refusals = {said(rate_limit, std::uint64_t{1} << 63)};
    check_refusal<split::rate_limit_error>("rate_limit", [&] { ask(); });
    CHECK(server.waited.size() == 3);
}

TEST_CASE_FIXTURE(connected, "a server that goes away still gives its last reply") {
    server.draining_first = 1;
    CHECK(server.steps.empty());  // the login belongs to the making of the connection
    ask();
    CHECK(remote.counted().replies == 1);
    CHECK(!server.steps.empty());
    CHECK(std::ranges::count(server.steps, "a request with its reply") == std::ssize(server.steps));

    server.draining_first = 2;
    check_refusal<tensafe::format_error>("got draining", [&] { ask(); });
    CHECK(server.open == 0);
}

TEST_CASE_FIXTURE(connected, "a server that goes away in the middle of a call is left for the next one") {
    server.draining_first = 1;
    server.answers_until_cut = 3;
    auto call = call_of(8);
    remote.ask(call);
    CHECK(call.answered() == 8);
    CHECK(remote.counted().replies == 8);
    CHECK(server.connections == 3);
    CHECK(server.requests.size() == 8 + 5 + 2);  // what was not answered goes again

    server.answers_until_cut = 0;
    server.refusals = {said(draining)};  // it answers what runs, and refuses what comes
    auto refused = call_of(4);
    remote.ask(refused);
    CHECK(refused.answered() == 4);
    CHECK(server.connections == 4);
}

TEST_CASE("a client that asked to be forgotten, or closed, has no session until it connects again") {
    for (const bool forgets : {true, false}) {
        connected c;
        forgets ? c.remote.forget() : c.remote.close();
        CHECK(c.server.others == std::vector<std::string>{forgets ? "forget" : "bye"});
        CHECK(c.server.open == 0);
        check_refusal<tensafe::closed_error>("expected reconnect", [&] { c.ask(); });
        CHECK(c.server.connections == 1);
        c.remote.reconnect();
        c.ask();
        CHECK(c.server.resumes.empty());
        CHECK(c.server.hellos.size() == 2);
    }
    connected late;
    late.server.draining_first = 1;
    CHECK_THROWS_AS(late.remote.forget(), connection_lost);
    late.ask();  // which does not take the answer to that for its own
    CHECK(late.server.connections == 2);
}
