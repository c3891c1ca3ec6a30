// The server's half of the protocol without a socket: each message at each moment, and who may say it. What
// it keeps of a session is in session_table_test.cpp, what it limits in limits_test.cpp.
#include "../../service/session_protocol.hpp"

#include <tensafe/keystore/mark_key.hpp>
#include <tensafe/lora/tracing/marks.hpp>
#include <tensafe/wire/held_adapter.hpp>

#include "../../service/client_list.hpp"
#include "peer.hpp"

using namespace tests;

namespace {

using namespace std::chrono_literals;
using enum split::error_code;
using split::carried_message;
constexpr std::uint64_t compact_set = 0x17A203028A3D5FD1u;
namespace wire = tensafe::wire;

std::string json_request_text(std::uint64_t number, const bytes& message) {
    return split::carried_text(carried_message::kind::request, message, number);
}

/// A server for this key alone.
struct listed {
    std::shared_ptr<const signing_key> key = fresh_key();
    server s{{}, [this](auto& options) {
                 options.clients = split::client_list{{key->verifying().hex(), {}}};
             }};
};

}  // namespace

TEST_CASE("a server opens a session and answers requests with their number and group") {
    server s;
    peer p(s);
    CHECK(contains(p.told_as<split::challenge>(0).parameters, "private_n4096"));
    p.open();
    CHECK(p.welcome.adapter == "kjv");
    CHECK(p.welcome.queries_left == std::vector<std::uint64_t>{8, 8});
    CHECK(wire::read_header(p.frame(1).data()).what == wire::kind::model_layout);
    CHECK(wire::read_header(p.frame(2).data()).what == wire::kind::held_adapter);
    CHECK(p.asks(1, 1));
    CHECK(p.asks(5));
    CHECK(s.total().requests == 2);
    CHECK(p.used(0)[0] == p.used(1)[0]);
}

TEST_CASE("frames of JSON give the same answers, and binary ones are then refused") {
    server s;
    peer p(s);
    p.open(split::frame_form::json);
    CHECK(p.told_as<carried_message>(1).what == carried_message::kind::model_layout);
    p.say(json_request_text(3, request_message(3)));
    const auto reply = p.told_as<carried_message>(0);
    CHECK(reply.number == 3);
    CHECK(wire::read_header(reply.message).what == wire::kind::reply);
    CHECK(p.code_of(request_message(4)) == malformed);
    CHECK(p.code_of(json_request_text(4, request_message(5))) == malformed);
    CHECK(p.refused().number == 4);
    p.say(json_request_text(4, request_message(4)));
    CHECK(p.told_as<carried_message>(0).what == carried_message::kind::reply);
}

TEST_CASE_FIXTURE(opened, "a replayed number is refused, also after a larger one, and the session goes on") {
    REQUIRE(p.asks(7));
    for (const std::uint64_t number : {7u, 6u, 0u}) {
        CHECK(p.code_of(request_message(number)) == replayed);
        CHECK(p.refused().number == number);
        CHECK_FALSE(p.answer.closing());
    }
    CHECK(p.code_of(request_message(~std::uint64_t{0})) == replayed);
    CHECK(p.asks(8));
}

TEST_CASE_FIXTURE(opened,
                  "a malformed request is answered with its number, uses up no more, and ends no session") {
    CHECK(p.code_of(bytes{1, 2, 3}) == malformed);
    CHECK_FALSE(p.refused().number);
    bytes damaged = request_message(1);
    damaged[2000] ^= 1;
    CHECK(p.code_of(damaged) == malformed);
    CHECK(p.refused().number == 1);
    CHECK(p.code_of(request_message(2, 2)) == malformed);
    CHECK(contains(p.refused().message, "group 2"));
    CHECK(p.code_of(request_message(2, 0, 12345)) == parameter_mismatch);
    CHECK(contains(p.refused().message, "private_n4096"));
    CHECK(contains(p.refused().message, "unknown parameter set"));
    CHECK(contains(p.refusal_of(request_message(2, 0, compact_set)).message, "compact_n4096"));
    bytes other = request_message(2);
    other[4] = 2;  // the version
    CHECK(p.code_of(other) == unsupported_version);
    CHECK(p.code_of(rerandomization_key_message(p.nonce)) == malformed);
    CHECK(p.code_of(std::string("{")) == malformed);
    CHECK(p.code_of(p.hello()) == malformed);
    CHECK(p.code_of(bytes(std::size_t{3} << 20)) == too_large);
    CHECK_FALSE(p.answer.closing());
    CHECK(p.used() == std::array<std::uint64_t, 3>{});
    CHECK(p.asks(2));
    CHECK(p.used() == std::array<std::uint64_t, 3>{64, 64, 64});
}

TEST_CASE("64 errors in a row, malformed messages or of any kind, close the connection, 63 do not") {
    for (const bool of_any_kind : {false, true}) {
        server s({.requests_per_second = 1});
        peer p(s, fresh_key());
        for (int i = 0; i < 63; ++i) {
            p.send({0});
        }
        CHECK_FALSE(p.answer.closing());
        CHECK(p.asks(1));
        for (int i = 0; i < 64; ++i) {
            REQUIRE_FALSE(p.answer.closing());
            const bool too_soon = of_any_kind && i % 2 == 0;
            CHECK(p.code_of(too_soon ? request_message(2) : bytes{0}) == (too_soon ? rate_limit : malformed));
        }
        REQUIRE(p.answer.closing());
        CHECK(p.answer.closing()->first == split::net::close_policy);
    }
}

TEST_CASE("requests that were under way when one was refused count with it, and a liar's as well after 512") {
    // Of a rate: what a client has sent before it hears that it must wait.
    server s({.shares = {}, .requests_per_second = 1});
    peer p(s, fresh_key());
    REQUIRE(p.asks(1));
    std::uint64_t number = 1;
    const auto refuses = [&](std::size_t first, std::size_t end) {
        for (std::size_t i = first; i < end; ++i) {
            CHECK(p.code_of(behind(i, request_message(++number))) == rate_limit);
        }
    };
    refuses(0, 256);
    CHECK_FALSE(p.answer.closing());
    s.now += 1s;
    REQUIRE(p.asks(++number));
    // It says of each that it knows of no refusal, and is closed all the same.
    refuses(0, 1 + 512 + 62);
    CHECK_FALSE(p.answer.closing());
    refuses(575, 576);
    CHECK(p.answer.closing());

    // Of a block: its tokens behind it.
    server none({.shares = {}, .block_bytes = 0});
    peer q(none, fresh_key());
    CHECK(q.code_of(block_request_message(1)) == block_limit);
    for (std::uint32_t i = 0; i < 128; ++i) {
        CHECK(q.code_of(behind(1 + i, token_request_message(2 + i, 1, i % 32))) == unknown_block);
    }
    CHECK_FALSE(q.answer.closing());
    CHECK(q.asks(200));
}

TEST_CASE(
    "a hello that is signed by another key, or for another nonce, connection, adapter or key, is refused") {
    server s;
    using split::hello;
    const auto attempt = [&](split::error_code expected, auto change) {
        peer p(s);
        bytes key = rerandomization_key_message(p.nonce);
        hello h = p.hello_for(key);
        change(p, h, key);
        p.say(to_text(h));
        if (p.answer.frames().empty()) {
            p.send(key);
        }
        REQUIRE(p.answer.closing());
        CHECK(p.refused().code == expected);
        return p.refused().message;
    };
    attempt(not_authorised, [](login, hello& h, bytes&) { h.client = fresh_key()->verifying().bytes(); });
    attempt(not_authorised, [](login, hello& h, bytes&) { h.client = {}; });
    attempt(not_authorised,
            [](login p, hello& h, bytes& key) { h = p.hello_for(key = rerandomization_key_message({})); });
    attempt(not_authorised, [](login p, hello& h, bytes&) {
        p.exporter = {};
        p.sign(h);  // for another connection, which passes this one's nonce on
    });
    attempt(not_authorised, [](login p, hello& h, bytes&) {
        p.nonce = {};
        p.sign(h);
    });
    attempt(not_authorised, [](login, hello& h, bytes&) { h.adapter = "other"; });
    attempt(not_authorised, [](login, hello&, bytes& key) { key[100] ^= 1; });
    attempt(not_authorised, [](login p, hello& h, bytes& key) {
        key[100] ^= 1;
        h.key_sha256 = p.hello_for(key).key_sha256;
    });
    attempt(malformed, [](login p, hello& h, bytes& key) {
        key.back() ^= 1;  // signed, but damaged
        h = p.hello_for(key);
    });
    attempt(unknown_adapter, [](login p, hello& h, bytes& key) { h = p.hello_for(key, "other"); });
    for (const std::string& mismatch :
         {attempt(parameter_mismatch, [](login, hello&h, bytes&) { h.set = compact_set; }),
          attempt(parameter_mismatch, [](login p, hello&h, bytes&key) {
              h = p.hello_for(key = rerandomization_key_message(p.nonce, compact_set));
          })}) {
        CHECK(contains(mismatch, "compact_n4096"));
        CHECK(contains(mismatch, "private_n4096"));
    }
    CHECK(s.of->sessions().size() == 0);
}

TEST_CASE("another protocol, and a binary frame before hello, end the connection") {
    server s;
    peer p(s);
    CHECK(p.code_of(replaced(p.hello(), "\"protocol\":3", "\"protocol\":2")) == unsupported_version);
    CHECK(contains(p.refused().message, "got protocol 2, expected 3"));
    CHECK(p.answer.closing());
    peer q(s);
    CHECK(q.code_of(request_message(1)) == malformed);
    CHECK(q.answer.closing());
}

TEST_CASE("a connection over TLS 1.2 without extended master secret is refused before a challenge") {
    server s;
    const auto old = std::make_shared<connection_end>();
    old->exporter.reset();
    split::net::answer answer;
    s.of->connect({"10.0.0.1"}, old)->start(answer);
    REQUIRE(answer.frames().size() == 1);
    const auto data = answer.frames()[0].data();
    CHECK(contains(std::string(data.begin(), data.end()), "unsupported_version\",\"message\":\"no extended"));
    CHECK(answer.closing());
}

TEST_CASE_FIXTURE(listed, "clients on the list come in, and all others get one answer to their hello") {
    /// What is said to a hello of `named`, by somebody who has `p.key`, but for the name.
    const auto answer_to = [&](const std::shared_ptr<const signing_key>& named, const std::string& adapter,
                               bool is_signed) {
        peer p(s);
        auto h = p.hello_for(rerandomization_key_message(p.nonce), adapter);
        h.client = named ? named->verifying().bytes() : h.client;
        const std::string name = tensafe::keystore::hex(h.client);
        h.signature[3] ^= is_signed ? std::byte{0} : std::byte{1};
        auto said = p.refusal_of(to_text(h));
        CHECK(p.answer.closing());
        CHECK(said.code == not_authorised);
        return replaced(said.message, name, "");  // it is there, so that it can be listed
    };
    const std::string one = answer_to(nullptr, "kjv", true);
    for (const std::string adapter : {"kjv", "other"}) {
        for (const bool is_signed : {true, false}) {
            CHECK(answer_to(key, adapter, is_signed) == one);
            CHECK(answer_to(fresh_key(), adapter, is_signed) == one);
        }
    }
    CHECK(peer(s, key).asks(1));
}

TEST_CASE_FIXTURE(listed,
                  "who is taken off the list, or gets another tenant, loses its sessions and nobody else") {
    const auto stays = fresh_key();
    const auto moves = fresh_key();
    const auto list = [&](bool has_key, const std::string& tenant) {
        split::client_list result{{stays->verifying().hex(), {}}, {moves->verifying().hex(), {tenant}}};
        if (has_key) {
            result.emplace(key->verifying().hex(), split::client_tenant());
        }
        s.of->relist(std::move(result));
    };
    list(true, "acme");
    peer goes(s, key);
    peer moved(s, moves);
    peer other(s, stays);
    peer late(s);
    late.key = key;
    late.say(late.hello());
    list(false, "emca");
    s.of->expire_sessions();
    CHECK(s.of->sessions().size() == 1);
    CHECK(goes.connection->ended == 1);
    CHECK(moved.connection->ended == 1);
    CHECK(other.connection->ended == 0);
    CHECK(other.asks(1));
    CHECK_FALSE(goes.asks(1));
    CHECK(late.code_of(rerandomization_key_message(late.nonce)) == not_authorised);
    peer again(s);
    again.key = key;
    CHECK(again.code_of(again.hello()) == not_authorised);
    peer back(s);
    back.key = key;
    CHECK(back.code_of(to_text(back.resume_of(goes.welcome.session))) == resume_failed);
    CHECK(peer(s, moves).asks(1));
    const auto account = s.of->counts().account_of(moved.name(), "emca", "kjv");
    CHECK(s.of->counts().used(account, 0)[1] == s.bits_of_request());
    s.of->expire_sessions();
    CHECK(other.asks(2));
}

TEST_CASE_FIXTURE(listed,
                  "names of adapters are told to clients that may come, as many as fit, and nobody else") {
    const auto answer_to = [&](const auto& of) {
        peer p(s);
        CHECK_FALSE(contains(p.text_of_frame(0), "kjv"));
        p.key = of;
        const auto said = p.refusal_of(to_text(p.hello_for(rerandomization_key_message(p.nonce), "none")));
        CHECK(p.frame(0).data().size() < split::longest_control_text);
        CHECK(p.answer.closing());
        return said;
    };
    CHECK_FALSE(contains(answer_to(fresh_key()).message, "kjv"));
    CHECK(answer_to(key).code == unknown_adapter);
    CHECK(contains(answer_to(key).message, "got the adapter \"none\", expected one that is served: \"kjv\""));
    for (char last = 'A'; last <= 'Z'; ++last) {
        pack_and_serve(s.of->adapters(), std::string(127, '\\') + last, small_adapter);
    }
    CHECK(contains(answer_to(key).message, "\", ..."));
}

TEST_CASE("a tenant is sent a B of its own, alike for its keys, frames and versions, and no other tenant's") {
    const auto marks = std::make_shared<const tensafe::keystore::mark_key>(std::array<std::byte, 32>{});
    const std::array keys{fresh_key(), fresh_key(), fresh_key(), fresh_key(), fresh_key()};
    const std::array<std::string, 5> tenants{"acme", "acme", "emca", "", ""};
    server s{{}, [&](auto& options) {
                 options.clients.emplace();
                 for (std::size_t i = 0; i < keys.size(); ++i) {
                     options.clients->emplace(keys[i]->verifying().hex(), split::client_tenant{tenants[i]});
                 }
                 options.marks = marks;
             }};
    const auto held_by = [&](std::size_t client) {
        const peer p(s, keys[client]);
        const auto data = p.frame(2).data();
        return bytes(data.begin(), data.end());
    };
    for (const unsigned version : {1u, 2u}) {
        auto from = small_adapter();
        from.sites[1].b = random_matrix(8, 4, version);
        pack_and_serve(s.of->adapters(), "kjv", [&] { return from; });
        const auto part = tensafe::lora::client_part(from);
        std::set<bytes> all;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            // As the owner computes it, who has the key.
            const tensafe::lora::marks of(
                marks->seed_of("kjv", tenants[i].empty() ? "key " + keys[i]->verifying().hex() : tenants[i]));
            const bytes sent = held_by(i);
            CHECK(sent == wire::write_whole_adapter(of.added_to(tensafe::lora::marked_matrix::b, part)));
            all.insert(sent);
        }
        CHECK(all.size() == 4);
        CHECK_FALSE(all.contains(wire::write_whole_adapter(part)));
    }
    peer one(s);
    peer two(s);
    one.key = keys[0];
    two.key = keys[1];
    one.open(split::frame_form::json);
    two.open(split::frame_form::json);
    CHECK(one.frame(2).shared == two.frame(2).shared);  // while it is sent
    CHECK(one.text_of_frame(2) == carried_text(carried_message::kind::held_adapter, held_by(0)));
    auto coarse = small_adapter();
    coarse.sites[1].b = tensafe::lora::matrix(64, 4);
    coarse.sites[1].b.values[0] = 1;
    check_refusal<tensafe::parameter_error>("marks: B of site \"model.layers.0.mlp.up_proj\" has ", [&] {
        pack_and_serve(s.of->adapters(), "kjv", [&] { return coarse; });
    });
}

TEST_CASE("a B that is made for a client is work of this client") {
    const auto key = fresh_key();
    server s({.work_per_second = 1}, [&](auto& options) {
        options.clients = split::client_list{{key->verifying().hex(), {}}};
        options.marks = std::make_shared<const tensafe::keystore::mark_key>(std::array<std::byte, 32>{});
    });
    peer(s, key).say(R"({"type":"bye"})");
    peer next(s);
    next.key = key;
    next.say(next.hello());
    CHECK(next.code_of(rerandomization_key_message(next.nonce)) == rate_limit);
    s.now += 10s;
    peer(s, key);
}

TEST_CASE("an A that is packed for a request is work of its client, also where the request is refused") {
    const auto key = fresh_key();
    constexpr double work = 50;
    server s(
        {.shares = {}, .work_per_second = work, .mark_bytes = 1},
        [&](auto& options) {
            options.clients = split::client_list{{key->verifying().hex(), {"acme"}}};
            options.marks = std::make_shared<const tensafe::keystore::mark_key>(std::array<std::byte, 32>{});
        },
        [] {
            tensafe::lora::adapter one;
            one.sites = {random_site(8, 256, 2048, 1)};
            return one;
        });
    peer p(s, key);
    s.now += 10s;
    // Residues that are none, which is seen when A is there.
    const auto malformed_message = [](std::uint64_t number) {
        return message_of(tensafe::wire::kind::request, body_of({2048, 1024, 1}, 32 + 2 * both_limbs, 0xff),
                          number, 0, own_set, tensafe::wire::scheme_id<split::packing, split::protection>);
    };
    std::uint64_t refused = 0;
    while (p.code_of(malformed_message(refused + 1)) == malformed) {
        ++refused;
    }
    CHECK(p.refused().code == rate_limit);
    CHECK(s.of->adapters().marked().second == refused);
    CHECK(refused > 0);
    CHECK(static_cast<double>(refused) < work / 2);  // in less than 2 ms no machine packs it
}

TEST_CASE("a draining server answers what runs, says so, and opens nothing") {
    opened both;
    auto& [s, p] = both;
    peer late(s);
    s.of->leave();  // until a balancer knows, it serves whoever comes
    CHECK(peer(s, fresh_key()).asks(1));
    CHECK(p.asks(1));
    s.of->drain();
    CHECK(p.asks(2));
    p.answer.clear();
    p.side->on_drain(p.answer);
    CHECK_NOTHROW(p.told_as<split::draining>(0));
    REQUIRE(p.answer.closing());
    CHECK(p.answer.closing()->first == split::net::close_going_away);
    CHECK(late.code_of(late.hello()) == draining);
    peer later(s);
    CHECK(later.refused().code == draining);
    CHECK(later.answer.closing());
}

TEST_CASE_FIXTURE(opened,
                  "sessions keep the version that they opened with, and a removed adapter serves them on") {
    const std::uint64_t second = pack_and_serve(s.of->adapters(), "kjv", small_adapter);
    peer q(s, fresh_key());
    CHECK(q.welcome.version == second);
    CHECK(q.welcome.version > p.welcome.version);
    CHECK(s.of->adapters().unload("kjv"));
    CHECK_FALSE(s.of->adapters().unload("kjv"));
    CHECK(s.of->sessions().count_by_version() == std::map<std::pair<std::string, std::uint64_t>, std::size_t>{
                                                     {{"kjv", p.welcome.version}, 1}, {{"kjv", second}, 1}});
    CHECK(p.asks(1));
    CHECK(q.asks(1));
    peer r(s);
    CHECK(r.code_of(r.hello()) == unknown_adapter);
    CHECK(contains(r.refused().message, "expected one that is served: none is"));
}

TEST_CASE("bye ends the session, and the metrics count what happened without names of clients") {
    server s;
    {
        peer p(s, fresh_key());
        p.send(request_message(1));
        p.send(request_message(1));
        p.say(R"({"type":"bye"})");
        CHECK(p.answer.closing());
        CHECK(s.of->sessions().size() == 0);
        CHECK(p.code_of(request_message(2)) == malformed);
        CHECK(contains(s.of->metrics_text(), "tensafe_split_connections 1\n"));
        CHECK_FALSE(contains(s.of->metrics_text(), p.name()));
    }
    CHECK_FALSE(contains(s.of->metrics_text(), "certificate"));
    s.of->set_certificate_until(1'800'000'000);
    for (const char* line :
         {"tensafe_split_draining 0\n", "tensafe_split_loading 0\n",
          "tensafe_adapter_info{adapter=\"kjv\",version=\"1\"} 1\n",
          "tensafe_certificate_not_after_seconds 1800000000\n", "tensafe_split_log_lines_lost_total 0\n",
          "tensafe_requests_total{adapter=\"kjv\"} 1\n",
          "tensafe_split_refusals_total{code=\"replayed\"} 1\n", "tensafe_split_connections 0\n",
          "tensafe_split_compute_seconds_count 1\n"}) {
        CAPTURE(line);
        CHECK(contains(s.of->metrics_text(), line));
    }
    const auto number_after = [page = s.of->metrics_text()](const std::string& name) {
        REQUIRE(contains(page, "\n" + name + " "));
        return std::stod(page.substr(page.find("\n" + name + " ") + name.size() + 2));
    };
    CHECK(number_after("tensafe_adapter_used_ratio{adapter=\"kjv\"}") == s.of->used_share("kjv"));
    CHECK(number_after("process_cpu_seconds_total") > 0);
    CHECK(number_after("process_resident_memory_bytes") > 1e6);
    s.of->drain();
    CHECK(contains(s.of->metrics_text(), "tensafe_split_draining 1\n"));
}

TEST_CASE("lines of a connection have the proxy's id of it, those of its session the traceparent") {
    std::string log;
    server s({},
             [&](auto& options) { options.to = split::log([&](std::string_view line) { log += line; }); });
    const auto fields_of = [&](const std::string& event) {
        const std::size_t place = log.rfind("\"event\":\"" + event + "\"");
        REQUIRE(place != log.npos);
        const std::string line = log.substr(place, log.find('\n', place) - place);
        return std::pair(contains(line, R"("unique_id":"an id")"),
                         contains(line, R"("traceparent":"a trace")"));
    };
    peer p(s);
    CHECK(fields_of("connected") == std::pair(false, false));
    CHECK_FALSE(contains(log, "unique_id"));
    s.now += std::chrono::hours(1);
    p.whose = {"10.0.0.2", "an id", "a trace"};
    p.connect();
    p.open();
    CHECK(fields_of("connected") == std::pair(true, true));
    CHECK(fields_of("session_opened") == std::pair(true, true));
    p.connect();
    static_cast<void>(p.resume(p.welcome.session));
    CHECK(fields_of("session_resumed") == std::pair(true, true));
    CHECK(p.code_of(request_message(1, 9)) == malformed);
    CHECK(fields_of("refused") == std::pair(true, false));
}

TEST_CASE("an adapter's name in UTF-8 is itself in JSON and metrics, and ASCII in the log and in errors") {
    const std::string name = "\u6cd5\u5f8b \u202e\"\\\U0001f600";
    std::string log;
    server s({.shares = {three_requests, {}, {}}},
             [&](auto& options) { options.to = split::log([&](std::string_view line) { log += line; }); });
    pack_and_serve(s.of->adapters(), name, small_adapter);
    peer p(s);
    p.adapter = name;
    p.open();
    CHECK(p.welcome.adapter == name);
    while (p.asks(++p.next_number)) {
    }
    CHECK(p.refused().code == query_limit);
    CHECK(contains(s.of->metrics_text(), "{adapter=\"\u6cd5\u5f8b \u202e\\\"\\\\\U0001f600\"}"));
    CHECK(contains(log, R"("adapter":"\u6cd5\u5f8b \u202e\"\\\ud83d\ude00")"));
    peer q(s);
    q.adapter = "none";
    const std::string told =
        q.refusal_of(to_text(q.hello_for(rerandomization_key_message(q.nonce), q.adapter))).message;
    CHECK(contains(told, R"("\u6cd5\u5f8b \u202e\"\\\U0001f600")"));
}

TEST_CASE_FIXTURE(opened, "a forgotten client's name does not come back by a frame under way") {
    p.send(request_message(1));
    REQUIRE(s.of->used().snapshot().of_client(p.name()).requests == 1);
    CHECK(s.of->forget(p.name()) == 1);
    for (const bytes& late : {request_message(2), rerandomization_key_message(p.nonce), bytes{1}}) {
        p.send(late);
        CHECK(s.of->used().snapshot().of_client(p.name()) == tensafe::serving::usage{});
    }
}

TEST_CASE("a frame that may come is as long as this adapter needs, and in base64 only for JSON") {
    server s;
    peer p(s);
    CHECK(p.side->largest_frame() == split::longest_control_text);
    p.say(p.hello());
    const bytes rerandomization_key = rerandomization_key_message(p.nonce);
    CHECK(p.side->largest_frame() == rerandomization_key.size());
    p.send(rerandomization_key);
    REQUIRE(p.answer.frames().size() == 3);
    CHECK(p.side->largest_frame() == request_message(1).size());
    peer q(s);
    q.open(split::frame_form::json);
    CHECK(q.side->largest_frame() == split::longest_carrying_text(request_message(1).size()));
    split::limits small;
    small.largest_message = 20'000;
    server t(small);
    CHECK(peer(t, fresh_key()).side->largest_frame() == 20'000);
}

TEST_CASE("clients of one adapter are sent one text of its messages in JSON") {
    server s;
    peer p(s);
    peer q(s);
    p.open(split::frame_form::json);
    q.open(split::frame_form::json);
    for (const std::size_t i : {1u, 2u}) {
        REQUIRE(p.frame(i).shared);
        CHECK(p.frame(i).shared == q.frame(i).shared);
    }
}

TEST_CASE("an answer keeps the memory of short frames and gives back that of long ones") {
    split::net::answer a;
    a.add(false).bytes.resize(100'000);  // of a token that goes alone
    a.clear();
    CHECK(a.add(false).bytes.capacity() >= 100'000);
    a.clear();
    a.add(false).bytes.resize(393'000);  // of a block
    a.clear();
    CHECK(a.add(false).bytes.capacity() == 0);
}
