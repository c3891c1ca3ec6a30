// The server's half of split inference without a socket, long for what may come: each message at each moment.
// Made by hand: a server cannot tell an encryption from residues that somebody made up.
#include "../../service/session_protocol.hpp"

#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/session/block_policy.hpp>
#include <tensafe/wire/checksum.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>

#include <bit>
#include <variant>

#include "../../service/client_list.hpp"
#include "../../service/params.hpp"
#include "../../service/service.hpp"
#include "../random_values.hpp"
#include "helpers.hpp"

using namespace tests;

namespace {

using namespace std::chrono_literals;
using split::error_code;

class control final : public split::net::connection_control {
  public:
    void end(std::uint16_t, const std::string&) override { ++ended; }
    split::exporter_value channel_binding() override {
        return exporter ? *exporter : throw tensafe::unsupported_error("no extended master secret");
    }
    std::atomic<int> ended = 0;
    /// Another one for each connection.
    std::optional<split::exporter_value> exporter =
        std::bit_cast<split::exporter_value>(tensafe::random::fresh_seed().bytes);
};

/// Two sites with an input of their own each, of 64 entries.
tensafe::lora::adapter small_adapter() {
    tensafe::lora::adapter result;
    result.sites = {random_site(8, 4, 64, 1), random_site(8, 4, 64, 3)};
    result.sites[0].name = "model.layers.0.self_attn.q_proj";
    result.sites[1].name = "model.layers.0.mlp.up_proj";
    return result;
}

/// A message around a body, checksums included.
bytes message_of(tensafe::wire::kind what, const bytes& body, std::uint64_t number = 0,
                 std::uint32_t group = 0, std::uint64_t set = tensafe::wire::set_id<split::params>,
                 std::uint64_t scheme = 0) {
    const auto head = tensafe::wire::write_header({what, set, scheme, number, group, body.size()});
    bytes message(head.begin(), head.end());
    message.insert(message.end(), body.begin(), body.end());
    const std::uint32_t sum = tensafe::wire::crc32c(body);
    for (int i = 0; i < 4; ++i) {
        message.push_back(static_cast<std::uint8_t>(sum >> (8 * i)));
    }
    return message;
}

void append_number(bytes& to, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) {
        to.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    }
}

/// It, from a client that has no answer yet to so many requests before it.
bytes behind(std::uint16_t unanswered, bytes message) {
    auto header = tensafe::wire::read_header(message);
    header.unanswered = unanswered;
    const auto head = tensafe::wire::write_header(header);
    std::copy(head.begin(), head.end(), message.begin());
    return message;
}

constexpr std::size_t first_limb = 4096 * 45 / 8;
constexpr std::size_t both_limbs = first_limb + 4096 * 44 / 8;

bytes rerandomization_key_message(const tensafe::random::seed& nonce,
                                  std::uint64_t set = tensafe::wire::set_id<split::params>) {
    bytes body;
    append_number(body, 1);
    body.resize(body.size() + 8);
    body.insert(body.end(), 32, 7);
    const auto& derived = split::derived_nonces(nonce).of_rerandomization_key.bytes;
    body.insert(body.end(), derived.begin(), derived.end());
    bytes b(both_limbs, 0);
    b[0] = 3;
    b[first_limb] = 5;
    body.insert(body.end(), b.begin(), b.end());
    return message_of(tensafe::wire::kind::rerandomization_key, body, 0, 0, set);
}

bytes request_message(std::uint64_t number, std::uint32_t group = 0,
                      std::uint64_t set = tensafe::wire::set_id<split::params>) {
    bytes body;
    append_number(body, 64);
    append_number(body, 1024);
    append_number(body, 1);
    body.insert(body.end(), 32, 9);
    body.insert(body.end(), both_limbs, 0);
    return message_of(tensafe::wire::kind::request, body, number, group, set,
                      tensafe::wire::scheme_id<split::packing, split::protection>);
}

constexpr std::uint64_t scheme_of_blocks =
    tensafe::wire::scheme_id<tensafe::lora::token_blocks, split::protection>;

bytes block_request_message(std::uint64_t number, std::uint32_t group = 0) {
    bytes body;
    append_number(body, 64);
    append_number(body, 32);
    append_number(body, 0);
    body.insert(body.end(), 32, 9);
    return message_of(tensafe::wire::kind::block_request, body, number, group,
                      tensafe::wire::set_id<split::params>, scheme_of_blocks);
}

bytes token_request_message(std::uint64_t number, std::uint32_t block, std::uint32_t position,
                            std::uint32_t group = 0) {
    bytes body;
    append_number(body, 64);
    append_number(body, position);
    append_number(body, block);
    append_number(body, 0);
    body.resize(body.size() + tensafe::lora::packed_residues_bytes<split::params>(64));
    return message_of(tensafe::wire::kind::token_request, body, number, group,
                      tensafe::wire::set_id<split::params>, scheme_of_blocks);
}

/// A server with one adapter and a clock that the test sets.
struct server {
    explicit server(split::limits allowed = {}, const std::filesystem::path& folder = {},
                    std::optional<split::client_list> clients = {}, bool has_pages = false) {
        split::service_options options;
        options.addresses_are_tenants = has_pages;
        options.allowed = allowed;
        options.now = [this] { return now; };
        options.state = folder.empty() ? scratch.path() : folder;
        options.clients = std::move(clients);
        of.emplace(std::move(options));
        of->adapters().load("kjv", small_adapter);
    }
    temporary_directory scratch;
    split::time_point now{std::chrono::hours(1)};
    std::optional<split::service> of;
};

std::shared_ptr<tensafe::keystore::signing_key> fresh_key() {
    return std::make_shared<tensafe::keystore::signing_key>(tensafe::keystore::signing_key::generate());
}

/// Of the 2048 bits of an A of the small adapter: room for three requests of 64.
constexpr double three_requests = 0.12;

/// A client's side of one connection.
struct peer {
    /// With a session.
    peer(server& s, std::shared_ptr<tensafe::keystore::signing_key> of_client) : peer(s) {
        key = std::move(of_client);
        open();
    }
    explicit peer(server& s, std::string address = "10.0.0.1")
        : of(s), side(s.of->connect(address, connection)) {
        side->start(answer);
        if (!answer.closing()) {
            nonce = std::get<split::challenge>(told(0)).nonce;
        }
    }

    /// The text frame i of the last answer.
    split::control_message told(std::size_t i) const {
        REQUIRE(answer.frames().size() > i);
        REQUIRE(answer.frames()[i].is_text);
        const auto data = answer.frames()[i].data();
        return split::parse_control({reinterpret_cast<const char*>(data.data()), data.size()}, 1 << 20);
    }
    split::refusal refused() const {
        REQUIRE(answer.frames().size() == 1);
        const split::control_message m = told(0);
        REQUIRE(std::holds_alternative<split::refusal>(m));
        return std::get<split::refusal>(m);
    }
    void say(const std::string& text) {
        answer.clear();
        side->on_text(text, answer);
    }
    void send(const bytes& message) {
        answer.clear();
        side->on_binary(message, answer);
    }
    split::hello hello_for(const bytes& rerandomization_key, const std::string& adapter = "kjv") const {
        split::hello h;
        h.adapter = adapter;
        h.client = key->verifying().bytes();
        h.set = tensafe::wire::set_id<split::params>;
        h.key_sha256 = tensafe::keystore::sha256::of(std::as_bytes(std::span(rerandomization_key)));
        sign(h);
        return h;
    }
    void sign(auto& m) const {
        m.signature = key->sign(split::text_to_sign(connection->exporter.value(), nonce, m));
    }
    split::resume resume_of(const split::session_id& session) const {
        split::resume r{session, key->verifying().bytes(), {}};
        sign(r);
        return r;
    }
    /// Another connection of the same client, with the session.
    std::unique_ptr<peer> resumed() const {
        auto on = std::make_unique<peer>(of);
        on->key = key;
        on->welcome = welcome;
        on->say(to_text(on->resume_of(welcome.session)));
        on->next_number = std::get<split::resumed>(on->told(0)).next_number;
        return on;
    }
    /// Its text.
    std::string hello() const { return to_text(hello_for(rerandomization_key_message(nonce))); }
    void open(split::frame_form frames = split::frame_form::binary) {
        const bytes rerandomization_key = rerandomization_key_message(nonce);
        split::hello h = hello_for(rerandomization_key);
        h.frames = frames;
        say(to_text(h));
        REQUIRE(answer.frames().empty());
        if (frames == split::frame_form::json) {
            say(split::carried_text(split::carried_message::kind::rerandomization_key, rerandomization_key));
        } else {
            send(rerandomization_key);
        }
        REQUIRE(answer.frames().size() == 3);
        welcome = std::get<split::welcome>(told(0));
    }
    /// What is said to a text or a message that is refused.
    split::refusal refusal_of(const std::string& text) {
        say(text);
        return refused();
    }
    split::refusal refusal_of(const bytes& message) {
        send(message);
        return refused();
    }
    /// Whether a request of this number, sent now, is answered.
    bool asks(std::uint64_t number, std::uint32_t group = 0) {
        send(request_message(number, group));
        return has_reply(number, group);
    }
    bool prepares(std::uint64_t number, std::uint32_t group = 0) {
        send(block_request_message(number, group));
        return has_reply(number, group, tensafe::wire::kind::block_reply);
    }
    bool asks_at(std::uint64_t number, std::uint32_t block, std::uint32_t position, std::uint32_t group = 0) {
        send(token_request_message(number, block, position, group));
        return has_reply(number, group, tensafe::wire::kind::token_reply);
    }
    /// The bytes of the one frame of the last answer.
    bytes said() const {
        REQUIRE(answer.frames().size() == 1);
        const auto data = answer.frames()[0].data();
        return {data.begin(), data.end()};
    }
    /// Bits that are counted of a group, by scope.
    std::array<std::uint64_t, 3> used(std::size_t group = 0) const {
        const auto& counts = of.of->counts();
        return counts.used(counts.account_of(key->verifying().hex(), {}, "kjv"), group);
    }
    /// Whether the last answer is a reply to this number.
    bool has_reply(std::uint64_t number, std::uint32_t group = 0,
                   tensafe::wire::kind what = tensafe::wire::kind::reply) const {
        if (answer.frames().size() != 1 || answer.frames()[0].is_text) {
            return false;
        }
        const auto header = tensafe::wire::read_header(answer.frames()[0].data());
        return header.what == what && header.number == number && header.group == group;
    }

    server& of;
    std::shared_ptr<control> connection = std::make_shared<control>();
    std::shared_ptr<tensafe::keystore::signing_key> key = fresh_key();
    std::unique_ptr<split::net::websocket_handler> side;
    split::net::answer answer;
    tensafe::random::seed nonce;
    split::welcome welcome;
    std::uint64_t next_number = 1;  ///< as resumed said
};

std::string json_request_text(std::uint64_t number, const bytes& message) {
    return split::carried_text(split::carried_message::kind::request, message, number);
}

/// A server and a client with a session.
struct opened {
    opened() { p.open(); }
    server s;
    peer p{s};
};

}  // namespace

TEST_CASE("a server opens a session and answers requests with their number and group") {
    server s;
    peer p(s);
    const auto challenge = std::get<split::challenge>(p.told(0));
    CHECK(contains(challenge.parameters, "private_n4096"));
    p.open();
    CHECK(p.welcome.adapter == "kjv");
    CHECK(p.welcome.queries_left == std::vector<std::uint64_t>{8, 8});
    CHECK(tensafe::wire::read_header(p.answer.frames()[1].data()).what == tensafe::wire::kind::model_layout);
    CHECK(tensafe::wire::read_header(p.answer.frames()[2].data()).what == tensafe::wire::kind::held_adapter);
    CHECK(p.asks(1, 1));
    CHECK(p.asks(5));
    CHECK(s.of->used().snapshot().total().requests == 2);
    CHECK(p.used(0)[0] == p.used(1)[0]);
}

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

TEST_CASE_FIXTURE(
    opened,
    "a position of a block is answered once, and a reply that was not acknowledged comes again as "
    "the same bytes once for a connection, whatever the repeated message says") {
    REQUIRE(p.prepares(1));
    const bytes block = p.said();
    CHECK(p.refusal_of(block_request_message(1)).code == error_code::replayed);
    CHECK(p.used() == std::array<std::uint64_t, 3>{});
    const auto sent_down = [&] { return s.of->used().snapshot().total().bytes_down; };
    {
        const auto q = p.resumed();
        const auto before = s.of->used().snapshot().total();
        REQUIRE(q->prepares(1));
        CHECK(q->said() == block);
        CHECK(sent_down() == before.bytes_down + block.size());
        CHECK(s.of->used().snapshot().total().requests == before.requests);
        CHECK(q->refusal_of(block_request_message(1)).code == error_code::replayed);
        REQUIRE(q->asks_at(2, 1, 5));
        CHECK(q->refusal_of(token_request_message(2, 1, 5)).code == error_code::replayed);
    }
    const auto counted = p.used();
    CHECK(counted[0] == s.of->adapters().find("kjv")->groups[0].request);

    const auto q = p.resumed();
    CHECK(q->next_number == 3);
    REQUIRE(q->asks_at(2, 1, 6));  // another position
    const bytes token = q->said();
    CHECK(q->refusal_of(token_request_message(2, 1, 6)).code == error_code::replayed);
    for (bytes other : {request_message(2), block_request_message(2, 1), token_request_message(2, 7, 5)}) {
        other.back() ^= 1;  // damaged too
        const auto r = p.resumed();
        r->send(other);
        CHECK(r->said() == token);
        CHECK(r->used() == counted);
    }
    const auto r = p.resumed();
    CHECK(r->refusal_of(token_request_message(3, 1, 5)).code == error_code::replayed);
    CHECK(contains(r->refused().message, "position 5 of block 1 of group 0 was answered"));
    CHECK(r->refusal_of(block_request_message(1)).code == error_code::replayed);  // acknowledged by 2
    CHECK(r->used() == counted);
    CHECK(r->asks_at(4, 1, 4));
    CHECK(r->asks(5));
    CHECK(r->refusal_of(request_message(5)).code == error_code::replayed);
    CHECK(r->refusal_of(token_request_message(4, 1, 4)).code == error_code::replayed);
}

TEST_CASE_FIXTURE(opened,
                  "replies of every kind are kept until they are acknowledged, and come again in order") {
    std::map<std::uint64_t, bytes> replies;
    const auto send = [&](std::uint16_t unanswered, const bytes& message) {
        p.send(behind(unanswered, message));
        REQUIRE_FALSE(p.answer.frames()[0].is_text);
        replies[tensafe::wire::read_header(message).number] = p.said();
    };
    send(0, request_message(1));
    send(1, block_request_message(2));
    send(2, token_request_message(3, 2, 0));
    send(3, request_message(4, 1));
    std::size_t bytes_kept = 0;
    for (const auto& [number, reply] : replies) {
        bytes_kept += reply.size();
    }
    const std::size_t with_all = s.of->sessions().block_bytes();
    const auto counted = p.used();
    {
        const auto q = p.resumed();
        CHECK(q->next_number == 5);
        for (const auto& [number, reply] : replies) {
            q->send(behind(static_cast<std::uint16_t>(number - 1), request_message(number)));
            CHECK(q->said() == reply);
        }
        CHECK(q->refusal_of(behind(2, request_message(3))).code == error_code::replayed);
        CHECK(q->used() == counted);
    }
    const auto q = p.resumed();
    q->send(behind(2, request_message(5)));  // 1 and 2 have arrived
    CHECK(q->has_reply(5));
    CHECK(s.of->sessions().block_bytes() ==
          with_all - replies[1].size() - replies[2].size() + q->said().size());
    const auto r = p.resumed();
    for (const std::uint64_t number : {1u, 2u, 3u, 4u}) {
        r->send(behind(static_cast<std::uint16_t>(number - 1), request_message(number)));
        CHECK((number < 3 ? r->refused().code == error_code::replayed : r->said() == replies[number]));
    }
    CHECK(with_all > bytes_kept);
}

TEST_CASE_FIXTURE(opened, "who acknowledges what is to come gives up what is kept, and nothing else") {
    REQUIRE(p.asks(1));
    CHECK(p.refusal_of(request_message(~std::uint64_t{0})).code == error_code::replayed);
    CHECK(s.of->sessions().block_bytes() == 0);
    p.send(behind(65'535, request_message(2)));
    REQUIRE(p.has_reply(2));
    REQUIRE(p.asks(1'000));
    const bytes last = p.said();
    const auto q = p.resumed();
    CHECK(q->next_number == 1'001);
    CHECK(q->refusal_of(request_message(2)).code == error_code::replayed);
    REQUIRE(q->asks(1'000));
    CHECK(q->said() == last);
    CHECK(q->asks(1'001));
}

TEST_CASE("who never acknowledges has a window of replies kept, or the last one where there is no room") {
    for (const bool has_room : {true, false}) {
        constexpr std::size_t share = 300'000;
        server s({.shares = {}, .block_bytes = 16 * (has_room ? std::size_t{10'000'000} : share)});
        peer p(s);
        p.open();
        std::size_t reply = 0;
        std::uint64_t number = 0;
        std::size_t most = 0;
        while (number * reply < tensafe::session::reply_window * 5 / 4) {
            ++number;
            p.send(behind(static_cast<std::uint16_t>(number - 1), request_message(number)));
            REQUIRE(p.has_reply(number));
            reply = p.said().size();
            most = std::max(most, s.of->sessions().block_bytes());
            CHECK(s.of->sessions().block_bytes() <=
                  (has_room ? tensafe::session::reply_window : share + (16 << 10)));
        }
        CHECK(most > (has_room ? tensafe::session::reply_window / 2 : share / 2));
        const auto q = p.resumed();
        q->send(behind(0, request_message(1)));
        CHECK(q->refused().code == error_code::replayed);
        REQUIRE(q->asks(number));
        peer other(s, "10.0.0.2");
        other.open();
        for (const std::uint64_t n : {1u, 2u}) {  // of its own share
            other.send(behind(static_cast<std::uint16_t>(n - 1), request_message(n)));
        }
        CHECK(other.resumed()->asks(1));
    }
}

TEST_CASE("a reply that is computed while another connection takes the session over is not lost") {
    server s({.shares = {}, .handshakes_per_second = 1'000, .handshakes_at_once = 1'000});
    auto p = std::make_unique<peer>(s);
    p->open();
    const std::uint64_t bits = s.of->adapters().find("kjv")->groups[0].request;
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
        CHECK((is_answered ? p->said() == reply : p->refused().code == error_code::resume_failed));
        raced += is_answered ? 1 : 0;
        CHECK(q->used()[0] == ++answered * bits);
        p = p->resumed();
    }
    MESSAGE(raced, " of 20 were answered before");
}

TEST_CASE_FIXTURE(
    opened,
    "a session has two blocks of an input, one more is refused before anything is computed, and "
    "who goes on to a later one gives the earlier one up") {
    REQUIRE(p.prepares(1));
    const std::size_t one = s.of->sessions().block_bytes() - p.said().size();
    REQUIRE(p.prepares(2));
    const auto answered = s.of->used().snapshot().total().requests;
    CHECK(p.refusal_of(block_request_message(3)).code == error_code::block_limit);
    CHECK(s.of->used().snapshot().total().requests == answered);
    CHECK(p.prepares(4, 1));  // another input
    CHECK(p.asks_at(5, 1, 0));
    CHECK(p.refusal_of(block_request_message(6)).code == error_code::block_limit);
    CHECK(p.asks_at(7, 2, 31));
    CHECK(p.refusal_of(token_request_message(8, 1, 1)).code == error_code::unknown_block);
    CHECK(contains(p.refused().message, "block 1 of group 0"));
    CHECK(p.refusal_of(token_request_message(9, 2, 0, 1)).code == error_code::unknown_block);
    CHECK(p.prepares(10));
    CHECK(p.asks_at(11, 4, 0, 1));
    CHECK(s.of->sessions().block_bytes() == 3 * one + p.said().size());
    p.say(R"({"type":"bye"})");
    CHECK(s.of->sessions().block_bytes() == 0);
}

TEST_CASE("a block that is used up makes room") {
    server s({.shares = {}});
    peer p(s);
    p.open();
    REQUIRE(p.prepares(1));
    REQUIRE(p.prepares(2));
    for (std::uint32_t position = 0; position < 32; ++position) {
        REQUIRE(p.asks_at(3 + position, 1, 31 - position));  // in any order
    }
    CHECK(p.refusal_of(token_request_message(40, 1, 0)).code == error_code::unknown_block);
    CHECK(p.prepares(41));
    CHECK(p.asks_at(42, 2, 0));
}

TEST_CASE(
    "where all sessions have as much of blocks as they may, no more are prepared, and tokens go alone") {
    server s({.block_bytes = 16});
    peer p(s);
    p.open();
    REQUIRE(p.prepares(1));
    peer q(s, "10.0.0.2");
    q.open();
    CHECK(q.refusal_of(block_request_message(1)).code == error_code::block_limit);
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
        REQUIRE(s.of->sessions().block_bytes() < 2 * share);
        strangers.push_back(std::make_unique<peer>(s, "10.0.0.2"));
        strangers.back()->open();
    } while (strangers.back()->prepares(1));
    CHECK(strangers.back()->refused().code == error_code::block_limit);
    CHECK(s.of->sessions().block_bytes() >= share);
    REQUIRE(strangers.size() > 3);
    peer p(s);
    p.open();
    CHECK(p.prepares(1));
    CHECK(p.prepares(2));

    // Of sessions without a connection the one that lost it first makes room.
    for (const std::size_t lost : {1u, 0u}) {
        s.now += 1s;
        strangers[lost]->side.reset();
    }
    CHECK(strangers.back()->prepares(2));
    const auto resumed = [&](peer& old) {
        auto q = std::make_unique<peer>(s, "10.0.0.3");
        q->key = old.key;
        q->say(to_text(q->resume_of(old.welcome.session)));
        return q;
    };
    CHECK(resumed(*strangers[0])->asks_at(2, 1, 0));
    CHECK(resumed(*strangers[1])->refusal_of(token_request_message(2, 1, 0)).code ==
          error_code::unknown_block);
    CHECK(p.asks_at(3, 1, 0));
}

TEST_CASE(
    "malformed messages of blocks use up no position and count nothing, and a server without blocks has "
    "none") {
    opened both;
    peer& p = both.p;
    REQUIRE(p.prepares(1));
    const bytes good = token_request_message(9, 1, 0);
    const std::size_t body = tensafe::wire::header_bytes;
    std::uint64_t number = 1;
    for (const auto& [at, value] :
         {std::pair(body, 65), std::pair(body + 4, 32), std::pair(body + 40, 255)}) {
        bytes changed = token_request_message(++number, 1, 0);
        std::fill_n(changed.begin() + static_cast<std::ptrdiff_t>(at), value == 255 ? 30 : 1,
                    static_cast<std::uint8_t>(value));
        const std::uint32_t sum =
            tensafe::wire::crc32c(std::span(changed).subspan(body, changed.size() - body - 4));
        std::memcpy(&changed[changed.size() - 4], &sum, 4);
        CHECK(p.refusal_of(changed).code == error_code::malformed);
    }
    CHECK(p.refusal_of(bytes(good.begin(), good.end() - 5)).code == error_code::malformed);
    CHECK(p.refusal_of(block_request_message(10, 2)).code == error_code::malformed);
    CHECK(p.used() == std::array<std::uint64_t, 3>{});
    CHECK(p.asks_at(11, 1, 0));

    server none({.tokens_ahead = 1});
    peer q(none);
    q.open();
    CHECK(q.refusal_of(block_request_message(1)).code == error_code::parameter_mismatch);
    CHECK(q.asks(2));
}

TEST_CASE("a token of a block tells as many bits of A as a request, whatever the shape") {
    namespace lora = tensafe::lora;
    const auto bits = [](const auto& plan) {
        const auto cost = lora::cost_of(plan);
        return static_cast<double>(cost.targets / cost.hidden_states) * cost.budget.channel_bits();
    };
    using of_blocks = lora::packing_plan<split::params, lora::token_blocks, split::protection>;
    for (const std::size_t rows : {1u, 4u, 5u, 33u, 96u, 1000u}) {
        for (const std::size_t d : {8u, 1025u, 4096u, 70'000u}) {
            for (const std::size_t tokens : {2u, 32u}) {
                CHECK(bits(lora::packing_plan<split::params, split::packing, split::protection>(
                          rows, d, 1)) == bits(of_blocks(of_blocks::layout_type::of(rows, d, 1, tokens))));
            }
        }
    }
}

TEST_CASE("a block answers for the version that it was prepared with, after another one was loaded too") {
    opened both;
    REQUIRE(both.p.prepares(1));
    both.s.of->adapters().load("kjv", small_adapter);
    CHECK(both.s.of->adapters().unload("kjv"));
    CHECK(both.p.asks_at(2, 1, 0));
    CHECK(both.p.prepares(3));
    CHECK(both.p.asks_at(4, 3, 0));
}

TEST_CASE("the work of preparing blocks counts, and the limit of queries holds for positions") {
    server s({.shares = {}, .work_per_second = 0.001});
    peer p(s);
    p.open();
    CHECK(p.prepares(1));
    CHECK(p.refusal_of(block_request_message(2)).code == error_code::rate_limit);

    server few({.shares = {three_requests, {}, {}}});
    peer q(few);
    q.open();
    REQUIRE(q.prepares(1));
    std::uint32_t position = 0;
    while (q.asks_at(2 + position, 1, position)) {
        ++position;
    }
    CHECK(q.refused().code == error_code::query_limit);
    CHECK(position == static_cast<std::uint32_t>(2048 * three_requests) /
                          few.of->adapters().find("kjv")->groups[0].request);
    CHECK(q.refusal_of(token_request_message(60, 1, position)).code ==
          error_code::query_limit);  // still open
    // No block is made where no token would be answered.
    CHECK(q.refusal_of(block_request_message(61)).code == error_code::query_limit);
    CHECK(contains(q.refused().message, "this client would have got"));
    CHECK(q.prepares(62, 1));
}

TEST_CASE("frames of JSON give the same answers, and binary ones are then refused") {
    server s;
    peer p(s);
    p.open(split::frame_form::json);
    CHECK(std::get<split::carried_message>(p.told(1)).what == split::carried_message::kind::model_layout);
    p.say(json_request_text(3, request_message(3)));
    const auto reply = std::get<split::carried_message>(p.told(0));
    CHECK(reply.number == 3);
    CHECK(tensafe::wire::read_header(reply.message).what == tensafe::wire::kind::reply);
    CHECK(p.refusal_of(request_message(4)).code == error_code::malformed);
    CHECK(p.refusal_of(json_request_text(4, request_message(5))).code == error_code::malformed);
    CHECK(p.refused().number == 4);
    p.say(json_request_text(4, request_message(4)));
    CHECK(std::get<split::carried_message>(p.told(0)).what == split::carried_message::kind::reply);
}

TEST_CASE_FIXTURE(opened, "a replayed number is refused, also after a larger one, and the session goes on") {
    REQUIRE(p.asks(7));
    for (const std::uint64_t number : {7u, 6u, 0u}) {
        CHECK(p.refusal_of(request_message(number)).code == error_code::replayed);
        CHECK(p.refused().number == number);
        CHECK_FALSE(p.answer.closing());
    }
    CHECK(p.refusal_of(request_message(~std::uint64_t{0})).code == error_code::replayed);
    CHECK(p.asks(8));
}

TEST_CASE_FIXTURE(
    opened,
    "a malformed request is answered with its number, uses up nothing but that, and does not end the "
    "session") {
    CHECK(p.refusal_of(bytes{1, 2, 3}).code == error_code::malformed);
    CHECK_FALSE(p.refused().number);
    bytes damaged = request_message(1);
    damaged[2000] ^= 1;
    CHECK(p.refusal_of(damaged).code == error_code::malformed);
    CHECK(p.refused().number == 1);
    CHECK(p.refusal_of(request_message(2, 2)).code == error_code::malformed);
    CHECK(contains(p.refused().message, "group 2"));
    CHECK(p.refusal_of(request_message(2, 0, 12345)).code == error_code::parameter_mismatch);
    CHECK(contains(p.refused().message, "private_n4096"));
    CHECK(contains(p.refused().message, "unknown parameter set"));
    bytes other = request_message(2);
    other[4] = 2;  // the version
    CHECK(p.refusal_of(other).code == error_code::unsupported_version);
    CHECK(p.refusal_of(rerandomization_key_message(p.nonce)).code == error_code::malformed);
    CHECK(p.refusal_of("{").code == error_code::malformed);
    CHECK(p.refusal_of(p.hello()).code == error_code::malformed);
    CHECK(p.refusal_of(bytes(std::size_t{3} << 20)).code == error_code::too_large);
    CHECK_FALSE(p.answer.closing());
    CHECK(p.used() == std::array<std::uint64_t, 3>{});
    CHECK(p.asks(2));
    CHECK(p.used() == std::array<std::uint64_t, 3>{64, 64, 64});
}

TEST_CASE("64 errors in a row, malformed messages or of any kind, close the connection, 63 do not") {
    for (const bool of_any_kind : {false, true}) {
        server s({.requests_per_second = 1});
        peer p(s);
        p.open();
        for (int i = 0; i < 63; ++i) {
            p.send({0});
        }
        CHECK_FALSE(p.answer.closing());
        CHECK(p.asks(1));
        for (int i = 0; i < 64; ++i) {
            REQUIRE_FALSE(p.answer.closing());
            const bool too_soon = of_any_kind && i % 2 == 0;
            CHECK(p.refusal_of(too_soon ? request_message(2) : bytes{0}).code ==
                  (too_soon ? error_code::rate_limit : error_code::malformed));
        }
        REQUIRE(p.answer.closing());
        CHECK(p.answer.closing()->first == split::net::close_policy);
    }
}

TEST_CASE("requests that were under way when one was refused count with it, and a liar's as well after 512") {
    // Of a rate: what a client has sent before it hears that it must wait.
    server s({.shares = {}, .requests_per_second = 1});
    peer p(s);
    p.open();
    REQUIRE(p.asks(1));
    std::uint64_t number = 1;
    const auto refused = [&](std::uint64_t unanswered, error_code code) {
        ++number;
        CHECK(p.refusal_of(behind(static_cast<std::uint16_t>(unanswered), request_message(number))).code ==
              code);
    };
    for (std::uint64_t i = 0; i < 256; ++i) {
        refused(i, error_code::rate_limit);
    }
    CHECK_FALSE(p.answer.closing());
    s.now += 1s;
    ++number;
    REQUIRE(p.asks(number));
    // It says of each that it knows of no refusal, and is closed all the same.
    for (std::uint64_t i = 0; i < 1 + 512 + 62; ++i) {
        refused(i, error_code::rate_limit);
    }
    CHECK_FALSE(p.answer.closing());
    refused(575, error_code::rate_limit);
    CHECK(p.answer.closing());

    // Of a block: its tokens behind it.
    server none({.shares = {}, .block_bytes = 0});
    peer q(none);
    q.open();
    CHECK(q.refusal_of(block_request_message(1)).code == error_code::block_limit);
    for (std::uint32_t i = 0; i < 128; ++i) {
        const bytes token = token_request_message(2 + i, 1, i % 32);
        CHECK(q.refusal_of(behind(static_cast<std::uint16_t>(1 + i), token)).code ==
              error_code::unknown_block);
    }
    CHECK_FALSE(q.answer.closing());
    CHECK(q.asks(200));
}

TEST_CASE("a reply that is asked for again is not refused for a rate, and is paid for") {
    server s({.shares = {}, .requests_per_second = 1});
    peer p(s);
    p.open();
    REQUIRE(p.asks(1));
    const bytes reply = p.said();
    const auto q = p.resumed();
    REQUIRE(q->asks(1));
    CHECK(q->said() == reply);
    s.now += 1s;
    CHECK(q->refusal_of(request_message(2)).code == error_code::rate_limit);
    s.now += 1s;
    CHECK(q->asks(2));
}

TEST_CASE("of more inputs than a text has numbers for, one says what is left of all") {
    server s({.tokens_ahead = 1});
    const auto with_inputs = [](std::size_t count) {
        tensafe::lora::adapter result;
        for (std::size_t i = 0; i < count; ++i) {
            result.sites.push_back(random_site(8, 4, 64, 1));
            result.sites.back().name = "model.layers." + std::to_string(i) + ".self_attn.q_proj";
        }
        return result;
    };
    for (const std::size_t more : {0u, 1u}) {
        s.of->adapters().load("kjv", [&] { return with_inputs(split::most_limits + more); });
        peer p(s);
        p.open();
        CHECK(p.welcome.queries_left == std::vector<std::uint64_t>(more == 0 ? split::most_limits : 1, 8));
        CHECK(p.asks(1, 7));
        peer q(s);
        q.key = p.key;
        q.say(to_text(q.resume_of(p.welcome.session)));
        const auto left = std::get<split::resumed>(q.told(0)).queries_left;
        CHECK(left.size() == p.welcome.queries_left.size());
        CHECK(left[more == 0 ? 7 : 0] == 7);
    }
}

TEST_CASE(
    "a hello that is signed by another key, for another nonce, or for another re-randomization key is "
    "refused") {
    server s;
    using split::hello;
    const auto attempt = [&](error_code expected, auto change) {
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
    constexpr auto not_authorised = error_code::not_authorised;
    attempt(not_authorised, [](peer&, hello& h, bytes&) {
        h.client = tensafe::keystore::signing_key::generate().verifying().bytes();
    });
    attempt(not_authorised, [](peer&, hello& h, bytes&) { h.client = {}; });
    attempt(not_authorised, [](peer& p, hello& h, bytes& key) {
        key = rerandomization_key_message({});
        h = p.hello_for(key);
    });
    attempt(not_authorised, [&](peer& p, hello& h, bytes&) {
        const auto here = std::exchange(p.connection->exporter, split::exporter_value{});
        p.sign(h);  // for another connection, which passes this one's nonce on
        p.connection->exporter = here;
    });
    attempt(not_authorised, [&](peer& p, hello& h, bytes&) {
        const auto here = std::exchange(p.nonce, {});
        p.sign(h);
        p.nonce = here;
    });
    attempt(not_authorised, [](peer&, hello& h, bytes&) { h.adapter = "other"; });
    attempt(not_authorised, [](peer& p, hello&, bytes& key) {
        key = rerandomization_key_message(p.nonce);
        key[100] ^= 1;
    });
    attempt(not_authorised, [](peer& p, hello& h, bytes& key) {
        key[100] ^= 1;
        h.key_sha256 = p.hello_for(key).key_sha256;
    });
    attempt(error_code::malformed, [](peer& p, hello& h, bytes& key) {
        key.back() ^= 1;  // signed, but damaged
        h = p.hello_for(key);
    });
    attempt(error_code::unknown_adapter,
            [](peer& p, hello& h, bytes& key) { h = p.hello_for(key, "other"); });
    const std::string mismatch =
        attempt(error_code::parameter_mismatch, [](peer&, hello& h, bytes&) { h.set = 0x17A203028A3D5FD1u; });
    CHECK(contains(mismatch, "compact_n4096"));
    CHECK(contains(mismatch, "private_n4096"));
    attempt(error_code::parameter_mismatch, [](peer& p, hello& h, bytes& key) {
        key = rerandomization_key_message(p.nonce, 5);
        h = p.hello_for(key);
    });
    CHECK(s.of->sessions().size() == 0);
}

TEST_CASE("another protocol, and a binary frame before hello, end the connection") {
    server s;
    peer p(s);
    std::string text = p.hello();
    text.replace(text.find("\"protocol\":3"), 12, "\"protocol\":2");
    CHECK(p.refusal_of(text).code == error_code::unsupported_version);
    CHECK(contains(p.refused().message, "got protocol 2, expected 3"));
    CHECK(p.answer.closing());
    peer q(s);
    CHECK(q.refusal_of(request_message(1)).code == error_code::malformed);
    CHECK(q.answer.closing());
}

TEST_CASE("a connection over TLS 1.2 without extended master secret is refused before a challenge") {
    server s;
    const auto old = std::make_shared<control>();
    old->exporter.reset();
    split::net::answer answer;
    s.of->connect("10.0.0.1", old)->start(answer);
    REQUIRE(answer.frames().size() == 1);
    const auto data = answer.frames()[0].data();
    CHECK(contains(std::string(data.begin(), data.end()), "unsupported_version\",\"message\":\"no extended"));
    CHECK(answer.closing());
}

TEST_CASE("with a list of clients those on it come in, and all others get one answer to their hello") {
    const auto key = fresh_key();
    server s({}, {}, split::client_list{{key->verifying().hex(), ""}});
    /// What is said to a hello of `named`, by somebody who has `p.key`, but for the name.
    const auto answer_to = [&](const auto& named, const std::string& adapter, bool is_signed) {
        peer p(s);
        auto h = p.hello_for(rerandomization_key_message(p.nonce), adapter);
        h.client = named ? named->verifying().bytes() : h.client;
        const std::string name = tensafe::keystore::hex(h.client);
        h.signature[3] ^= is_signed ? std::byte{0} : std::byte{1};
        auto said = p.refusal_of(to_text(h));
        CHECK(p.answer.closing());
        CHECK(said.code == error_code::not_authorised);
        const auto at = said.message.find(name);  // it is there, so that it can be listed
        REQUIRE(at != std::string::npos);
        return said.message.erase(at, name.size());
    };
    const std::string one = answer_to(std::shared_ptr<tensafe::keystore::signing_key>(), "kjv", true);
    for (const std::string adapter : {"kjv", "other"}) {
        for (const bool is_signed : {true, false}) {
            CHECK(answer_to(key, adapter, is_signed) == one);
            CHECK(answer_to(fresh_key(), adapter, is_signed) == one);
        }
    }
    peer q(s);
    q.key = key;
    q.open();
    CHECK(q.asks(1));
}

TEST_CASE(
    "names of adapters are told to clients that may come, as many as fit into a text, and nobody else") {
    const auto key = fresh_key();
    server s({}, {}, split::client_list{{key->verifying().hex(), ""}});
    const auto answer_to = [&](const auto& of) {
        peer p(s);
        const auto data = p.answer.frames()[0].data();
        CHECK_FALSE(contains(std::string(data.begin(), data.end()), "kjv"));
        p.key = of;
        const auto said = p.refusal_of(to_text(p.hello_for(rerandomization_key_message(p.nonce), "none")));
        CHECK(p.answer.frames()[0].data().size() < split::longest_control_text);
        CHECK(p.answer.closing());
        return said;
    };
    CHECK_FALSE(contains(answer_to(fresh_key()).message, "kjv"));
    CHECK(answer_to(key).code == error_code::unknown_adapter);
    CHECK(contains(answer_to(key).message, "got the adapter \"none\", expected one that is served: \"kjv\""));
    for (char last = 'A'; last <= 'Z'; ++last) {
        s.of->adapters().load(std::string(127, '\\') + last, small_adapter);
    }
    CHECK(contains(answer_to(key).message, "\", ..."));
}

TEST_CASE("a lost session is resumed as often as its client likes, and its old connection is ended") {
    server s;
    auto p = std::make_unique<peer>(s);
    p->open();
    p->send(request_message(4));
    const auto session = p->welcome.session;
    peer q(s);
    q.key = p->key;
    q.say(to_text(q.resume_of(session)));
    const auto resumed = std::get<split::resumed>(q.told(0));
    CHECK(resumed.session == session);
    CHECK(resumed.next_number == 5);
    CHECK(resumed.queries_left == std::vector<std::uint64_t>{7, 8});
    CHECK(p->connection->ended == 1);
    CHECK(q.asks(4));  // again
    CHECK(q.refusal_of(request_message(4)).code == error_code::replayed);
    CHECK(q.asks(5));
    // The old connection has nothing to say any more, and its end does not end the session.
    CHECK(p->refusal_of(R"({"type":"forget"})").code == error_code::resume_failed);
    CHECK(p->answer.closing());
    p.reset();
    CHECK(q.asks(6));

    peer r(s);  // as if the answer to q had been lost
    r.key = q.key;
    r.say(to_text(r.resume_of(session)));
    CHECK(std::get<split::resumed>(r.told(0)).next_number == 7);
    CHECK(q.connection->ended == 1);
    CHECK(q.refusal_of(request_message(7)).code == error_code::resume_failed);
    CHECK(r.asks(7));
}

TEST_CASE_FIXTURE(opened, "nobody but its client resumes a session, or learns whether there is one") {
    std::optional<split::refusal> one;
    const auto refused = [&](const split::session_id& session, auto change) {
        peer stranger(s);
        split::resume r = stranger.resume_of(session);
        change(stranger, r);
        const split::refusal said = stranger.refusal_of(to_text(r));
        CHECK(said.code == error_code::resume_failed);
        CHECK(said == one.value_or(said));
        one = said;
        CHECK_FALSE(stranger.answer.closing());
        stranger.open();  // hello on the same connection
    };
    const auto owner = p.key->verifying().bytes();
    const split::resume of_owner = p.resume_of(p.welcome.session);
    for (const auto& session : {split::session_id{}, p.welcome.session}) {
        refused(session, [](peer&, split::resume&) {});
        refused(session, [&](peer&, split::resume& r) { r.client = owner; });
        refused(session, [&](peer&, split::resume& r) { r.client = {}; });
        refused(session, [&](peer&, split::resume& r) { r = of_owner; });  // signed on another connection
        refused(session, [&](peer& stranger, split::resume& r) {           // for another connection
            stranger.key.swap(p.key);
            const auto here = std::exchange(stranger.connection->exporter, p.connection->exporter);
            r = stranger.resume_of(session);
            stranger.connection->exporter = here;
            stranger.key.swap(p.key);
        });
        refused(session, [&](peer& stranger, split::resume& r) {  // for another session
            stranger.key.swap(p.key);
            r = stranger.resume_of({std::byte{1}});
            stranger.key.swap(p.key);
            r.session = session;
        });
    }
    CHECK(p.connection->ended == 0);
    CHECK(p.asks(1));
}

TEST_CASE("a session waits for its client until its time is over") {
    server s({.session_life = 10s});
    const auto key = fresh_key();
    const auto lose = [&] { return peer(s, key).welcome.session; };
    const auto one = lose();
    s.now += 9999ms;
    s.of->expire_sessions();
    CHECK(s.of->sessions().size() == 1);
    {
        peer p(s);
        p.key = key;
        p.say(to_text(p.resume_of(one)));
        CHECK(std::holds_alternative<split::resumed>(p.told(0)));
        s.now += 1h;
        s.of->expire_sessions();
        CHECK(s.of->sessions().size() == 1);  // held
    }
    const auto two = lose();
    s.now += 10s;
    peer p(s);
    p.key = key;
    CHECK(p.refusal_of(to_text(p.resume_of(two))).code == error_code::resume_failed);
    s.of->expire_sessions();
    CHECK(s.of->sessions().size() == 0);
}

TEST_CASE("a client's sessions are limited: one that is lost makes room, held ones do not") {
    server s({.sessions_of_client = 2});
    peer a(s);
    auto b = std::make_unique<peer>(s);
    b->key = a.key;
    peer c(s);
    c.key = a.key;
    a.open();
    b->open();
    const bytes rerandomization_key = rerandomization_key_message(c.nonce);
    c.say(to_text(c.hello_for(rerandomization_key)));
    CHECK(c.refusal_of(rerandomization_key).code == error_code::rate_limit);
    CHECK(c.refused().retry_after_ms);
    b.reset();
    peer d(s);
    d.key = a.key;
    d.open();
    CHECK(s.of->sessions().size() == 2);
    CHECK(a.asks(1));
}

TEST_CASE("the query limit holds for a group over sessions, after forgetting, and after a restart") {
    const split::limits allowed{.shares = {three_requests, {}, {}}};
    const temporary_directory folder;
    std::shared_ptr<tensafe::keystore::signing_key> key;
    {
        server s(allowed, folder.path());
        peer p(s);
        p.open();
        key = p.key;
        for (const std::uint64_t n : {1u, 2u, 3u}) {
            REQUIRE(p.asks(n));
        }
        CHECK(p.refusal_of(request_message(4)).code == error_code::query_limit);
        CHECK(p.used() == std::array<std::uint64_t, 3>{192, 192, 192});  // no row has more of it
        CHECK(p.asks(4, 1));                                             // another input
        const std::string name = key->verifying().hex();
        CHECK(s.of->used().snapshot().of_client(name).requests == 4);
        p.say(R"({"type":"forget"})");
        CHECK(std::holds_alternative<split::forgotten>(p.told(0)));
        CHECK(p.answer.closing());
        CHECK(s.of->sessions().size() == 0);
        CHECK(s.of->used().snapshot().of_client(name).requests == 0);
        CHECK_FALSE(contains(s.of->metrics_text(), name));
    }
    server s(allowed, folder.path());
    peer p(s);
    p.key = key;
    p.open();
    REQUIRE(p.welcome.queries_left.size() == 2);
    CHECK(p.welcome.queries_left[0] == 0);
    CHECK(p.welcome.queries_left[1] > 0);  // what was reserved for it counts, too
    CHECK(p.welcome.queries_left[1] <= 2);
    CHECK(p.refusal_of(request_message(1)).code == error_code::query_limit);
}

TEST_CASE("limits are shares of the entropy of the A of all sites of a group, and requests count in bits") {
    // 16 values, equally frequent: 4 bits an entry, 1024 of an A. Two sites share the input.
    tensafe::lora::adapter few = small_adapter();
    few.sites.push_back(few.sites[0]);
    few.sites[2].name = "model.layers.0.self_attn.k_proj";
    for (auto& site : few.sites) {
        for (std::size_t i = 0; i < site.a.values.size(); ++i) {
            site.a.values[i] = static_cast<float>(i % 16) - 7.5F;
        }
    }
    server s;
    s.of->adapters().load("few", [&] { return few; });
    const auto groups = s.of->adapters().find("few")->groups;
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].limits == split::of_each_scope<std::uint64_t>{512, 1024, 2048});
    CHECK(groups[1].limits == split::of_each_scope<std::uint64_t>{256, 512, 1024});
    const tensafe::lora::packing_plan<split::params, split::packing, split::protection> rows_of_four(4, 64,
                                                                                                     1);
    const double bits = rows_of_four.budget().channel_bits();
    CHECK(groups[1].request == static_cast<std::uint64_t>(std::ceil(4 * bits)));
    CHECK(groups[0].request == static_cast<std::uint64_t>(std::ceil(8 * bits)));

    server none({.shares = {}});
    none.of->adapters().load("few", [&] { return few; });
    CHECK(none.of->adapters().find("few")->groups[1].limits == split::of_each_scope<std::uint64_t>{});
    server tight({.shares = {0.25, 0.05, {}}});
    check_refusal<tensafe::parameter_error>(
        "got --tenant-share 0.05, which is 102 bits of its A, expected at least those of one request, 127",
        [&] { tight.of->adapters().load("kjv", [&] { return few; }); });
    CHECK(tight.of->adapters().find("kjv")->version == 1);  // the old one serves on
}

TEST_CASE("clients of one tenant share its limit, and a client without one is a tenant of its own") {
    const auto first = fresh_key();
    const auto second = fresh_key();
    const auto alone = fresh_key();
    server s({.shares = {std::nullopt, three_requests, {}}}, {},
             split::client_list{{first->verifying().hex(), "acme"},
                                {second->verifying().hex(), "acme"},
                                {alone->verifying().hex(), ""}});
    peer p(s, first);
    CHECK(p.asks(1));
    CHECK(p.asks(2));
    peer q(s, second);
    CHECK(q.welcome.queries_left.empty());  // it would tell what the other client did
    CHECK(q.asks(1));
    for (peer* each : {&p, &q}) {
        CHECK(each->refusal_of(request_message(3)).code == error_code::query_limit);
        CHECK(contains(
            each->refused().message,
            "this client's tenant would have got 256 bits of this input's A, expected at most 245: only a "
            "larger --tenant-share"));
    }
    peer r(s, alone);
    CHECK(r.welcome.queries_left == std::vector<std::uint64_t>{3, 3});
    for (const std::uint64_t n : {1u, 2u, 3u}) {
        CHECK(r.asks(n));
    }
    CHECK(contains(r.refusal_of(request_message(4)).message, "this client's tenant would have got 256"));
}

TEST_CASE("where pages come, the clients of an address share its limit, wherever they resume") {
    server s({.shares = {std::nullopt, three_requests, {}}}, {}, {}, true);
    const auto at = [&](const char* address) {
        auto p = std::make_unique<peer>(s, address);
        p->key = fresh_key();
        p->open();
        return p;
    };
    const auto first = at("10.0.0.1");
    CHECK(first->welcome.queries_left.empty());
    CHECK(first->asks(1));
    CHECK(first->asks(2));
    const auto second = at("10.0.0.1");
    CHECK(second->asks(1));
    CHECK(contains(second->refusal_of(request_message(2)).message, "this address would have got 256 bits"));
    const auto elsewhere = at("10.0.0.2");
    CHECK(elsewhere->asks(1));
    peer moved(s, "10.0.0.3");
    moved.key = first->key;
    moved.say(to_text(moved.resume_of(first->welcome.session)));
    CHECK(moved.refusal_of(request_message(3)).code == error_code::query_limit);
}

TEST_CASE("all clients share the limit of the adapter, and refused requests use up nothing of theirs") {
    server s({.shares = {std::nullopt, {}, three_requests}});
    for (int client = 0; client < 3; ++client) {
        peer p(s, fresh_key());
        CHECK(p.asks(1));
    }
    peer p(s, fresh_key());
    CHECK(p.welcome.queries_left.empty());
    CHECK(p.refusal_of(request_message(1)).code == error_code::query_limit);
    CHECK(contains(p.refused().message, "all clients together would have got 256 bits"));
    CHECK(p.used() == std::array<std::uint64_t, 3>{0, 0, 192});
    CHECK(s.of->used_share("kjv").value() == doctest::Approx(192 / (2048 * three_requests)).epsilon(0.01));
    CHECK_FALSE(s.of->used_share("none"));
    CHECK_FALSE(server({.shares = {}}).of->used_share("kjv"));
    CHECK(p.asks(2, 1));
}

TEST_CASE("work beyond the rate is refused, whatever the number of requests") {
    server s({.shares = {}, .work_per_second = 0.001});
    peer p(s);
    p.open();
    CHECK(p.asks(1));
    CHECK(p.refusal_of(request_message(2)).code == error_code::rate_limit);
    CHECK(contains(p.refused().message, "milliseconds of work for this client"));
    peer q(s, fresh_key());
    CHECK(q.asks(1));
}

TEST_CASE("requests beyond the rate are refused with the time to wait, and use up nothing") {
    server s({.shares = {}, .requests_per_second = 2});
    peer p(s);
    p.open();
    CHECK(p.welcome.queries_left.empty());
    p.send(request_message(1));
    CHECK(p.asks(2));
    CHECK(p.refusal_of(request_message(3)).code == error_code::rate_limit);
    CHECK(p.refused().retry_after_ms == 500);
    s.now += 500ms;
    CHECK(p.asks(3));
    p.say(R"({"type":"forget"})");
    peer q(s);
    q.key = p.key;
    q.open();
    // To be forgotten gives no new requests.
    CHECK(q.refusal_of(request_message(1)).code == error_code::rate_limit);
    s.now += 1s;
    s.of->expire_sessions();
    CHECK(q.asks(1));
}

TEST_CASE("handshakes of one address, of IPv6 of one /64, are limited, those of another are not") {
    using split::limited_address;
    CHECK(limited_address("10.0.0.1") == "10.0.0.1");
    CHECK(limited_address("2001:db8:1:2::1") == limited_address("2001:db8:1:2:ffff::2"));
    CHECK(limited_address("2001:db8:1:2::1") != limited_address("2001:db8:1:3::1"));
    CHECK(limited_address("fe80::1%eth0") == limited_address("fe80::2"));
    CHECK(limited_address("::ffff:10.0.0.1") == "10.0.0.1");
    server s({.handshakes_per_second = 1, .handshakes_at_once = 1});
    for (const auto& [first, second] :
         {std::pair("10.0.0.1", "10.0.0.1"), std::pair("2001:db8::1", "2001:db8::2")}) {
        peer p(s, first);
        p.open();
        peer q(s, second);
        CHECK(q.refusal_of(q.hello()).code == error_code::rate_limit);
        CHECK(q.refused().retry_after_ms == 1000);
    }
    peer r(s, "10.0.0.2");
    r.open();
    // Of connections, twice as many.
    for (const char* address : {"::ffff:10.0.0.1", "10.0.0.1"}) {
        CHECK(s.of->take_connection(address));
    }
    CHECK_FALSE(s.of->take_connection("10.0.0.1"));
    CHECK(s.of->take_connection("10.0.0.2"));
}

TEST_CASE("a draining server answers what runs, says so, and opens nothing") {
    server s;
    peer p(s);
    peer late(s);
    p.open();
    s.of->drain();
    CHECK(p.asks(1));
    p.answer.clear();
    p.side->on_drain(p.answer);
    CHECK(std::holds_alternative<split::draining>(p.told(0)));
    REQUIRE(p.answer.closing());
    CHECK(p.answer.closing()->first == split::net::close_going_away);
    CHECK(late.refusal_of(late.hello()).code == error_code::draining);
    peer later(s);
    CHECK(later.refused().code == error_code::draining);
    CHECK(later.answer.closing());
}

TEST_CASE_FIXTURE(opened,
                  "sessions keep the version that they opened with, and a removed adapter serves them on") {
    const std::uint64_t second = s.of->adapters().load("kjv", small_adapter);
    peer q(s);
    q.open();
    CHECK(q.welcome.version == second);
    CHECK(q.welcome.version > p.welcome.version);
    CHECK(s.of->adapters().unload("kjv"));
    CHECK_FALSE(s.of->adapters().unload("kjv"));
    CHECK(s.of->sessions().count_by_version() == std::map<std::pair<std::string, std::uint64_t>, std::size_t>{
                                                     {{"kjv", p.welcome.version}, 1}, {{"kjv", second}, 1}});
    CHECK(p.asks(1));
    CHECK(q.asks(1));
    peer r(s);
    CHECK(r.refusal_of(r.hello()).code == error_code::unknown_adapter);
    CHECK(contains(r.refused().message, "expected one that is served: none is"));
}

TEST_CASE("bye ends the session, and the metrics count what happened without names of clients") {
    server s;
    {
        peer p(s);
        p.open();
        p.send(request_message(1));
        p.send(request_message(1));
        p.say(R"({"type":"bye"})");
        CHECK(p.answer.closing());
        CHECK(s.of->sessions().size() == 0);
        CHECK(p.refusal_of(request_message(2)).code == error_code::malformed);
        CHECK(contains(s.of->metrics_text(), "tensafe_split_connections 1\n"));
        CHECK_FALSE(contains(s.of->metrics_text(), p.key->verifying().hex()));
    }
    const std::string text = s.of->metrics_text();
    CHECK(contains(text, "tensafe_requests_total{adapter=\"kjv\"} 1\n"));
    CHECK(contains(text, "tensafe_split_refusals_total{code=\"replayed\"} 1\n"));
    CHECK(contains(text, "tensafe_split_connections 0\n"));
    CHECK(contains(text, "tensafe_split_compute_seconds_count 1\n"));
}

TEST_CASE_FIXTURE(opened, "a forgotten client's name does not come back by a frame under way") {
    p.send(request_message(1));
    const std::string name = p.key->verifying().hex();
    REQUIRE(s.of->used().snapshot().of_client(name).requests == 1);
    CHECK(s.of->forget(name) == 1);
    for (const bytes& late : {request_message(2), rerandomization_key_message(p.nonce), bytes{1}}) {
        p.send(late);
        CHECK(s.of->used().snapshot().of_client(name) == tensafe::serving::usage{});
    }
}

TEST_CASE("encryptions of zero that were taken are made again before the next look at all sessions") {
    server s({.shares = {}, .pooled = 2});
    peer p(s);
    p.open();
    for (std::uint64_t number = 1; number <= 5; ++number) {
        CHECK(p.side->idle());
        REQUIRE(p.asks(number));
    }
}

TEST_CASE("a frame that may come is as long as this adapter needs, and in base64 only for JSON") {
    server s;
    peer p(s);
    CHECK(p.side->largest_frame() == split::longest_control_text);
    const bytes rerandomization_key = rerandomization_key_message(p.nonce);
    p.say(to_text(p.hello_for(rerandomization_key)));
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
    peer r(t);
    r.open();
    CHECK(r.side->largest_frame() == 20'000);
}

TEST_CASE("clients of one adapter are sent one text of its messages in JSON") {
    server s;
    peer p(s);
    peer q(s);
    p.open(split::frame_form::json);
    q.open(split::frame_form::json);
    for (const std::size_t i : {1u, 2u}) {
        REQUIRE(p.answer.frames()[i].shared);
        CHECK(p.answer.frames()[i].shared == q.answer.frames()[i].shared);
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

// For ThreadSanitizer, and for what must hold whoever is first.
TEST_CASE("two connections that take a session from each other, swaps and forgetting go on side by side") {
    server s({.shares = {}, .requests_per_second = 1e6, .handshakes_at_once = 10'000});
    auto p = std::make_unique<peer>(s);
    p->open();
    std::atomic<bool> done{false};
    std::thread swaps([&] {
        while (!done) {
            s.of->adapters().load("kjv", small_adapter);
            static_cast<void>(s.of->adapters().find("kjv"));
            s.of->expire_sessions();
            static_cast<void>(s.of->metrics_text());
        }
    });
    for (int round = 0; round < 10; ++round) {
        std::thread computes([&] {
            for (std::uint64_t n = 1; n <= 4; ++n) {
                const std::uint64_t number = 100u * static_cast<unsigned>(round) + n;
                p->send(n == 2 ? block_request_message(number) : request_message(number));
                p->side->idle();
            }
        });
        auto q = std::make_unique<peer>(s);
        q->key = p->key;
        q->say(to_text(q->resume_of(p->welcome.session)));
        q->welcome.session = std::get<split::resumed>(q->told(0)).session;
        const std::uint32_t number = 100u * static_cast<unsigned>(round) + 50;
        CHECK(q->asks(number));
        if (q->prepares(number + 1)) {  // or those of the other connection are two
            CHECK(q->asks_at(number + 2, number + 1, 0));
        }
        computes.join();
        p = std::move(q);
    }
    const std::string name = p->key->verifying().hex();
    for (int round = 0; round < 10; ++round) {
        peer q(s);
        q.key = p->key;
        q.open();
        std::thread forgets([&] { s.of->forget(name); });
        for (std::uint64_t n = 1; n <= 3; ++n) {
            q.send(request_message(n));
        }
        forgets.join();
        CHECK(s.of->used().snapshot().of_client(name) == tensafe::serving::usage{});
    }
    done = true;
    swaps.join();
    s.of->adapters().unload("kjv");
    CHECK_FALSE(s.of->adapters().find("kjv"));
}
