// The client's half of split inference, long for its peer: one in memory that follows the protocol by itself,
// or breaks it at any message; and TLS against a socket.
#include "../../service/remote_model.hpp"

#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/set_id.hpp>

#include <openssl/evp.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <latch>
#include <map>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <variant>

#include "../../service/base64.hpp"
#include "../../service/control_message.hpp"
#include "../../service/params.hpp"
#include "../../service/tls_certificate.hpp"
#include "helpers.hpp"
#include "soak/check.hpp"

namespace {

using namespace split;
namespace asio = boost::asio;
namespace keystore = tensafe::keystore;
namespace lora = tensafe::lora;
namespace memory = tensafe::memory;
namespace wire = tensafe::wire;
using std::chrono::milliseconds;
using tests::check_refusal;
using tests::contains;
using octets = tests::bytes;
using numbers = std::vector<std::uint64_t>;
using times = std::vector<milliseconds::rep>;

/// Two groups of one site each; of one row, so that messages are short.
lora::model_layout small_layout() {
    lora::model_layout layout;
    layout.groups.push_back({"first", 8, 1, {{"first.site", 1, 3, 0.5}}});
    layout.groups.push_back({"second", 8, 1, {{"second.site", 1, 3, 0.5}}});
    return layout;
}

lora::adapter small_held(float entry = 2) {
    lora::adapter held;
    for (const char* name : {"first.site", "second.site"}) {
        lora::adapter_site site;
        site.name = name;
        site.b = lora::matrix(3, 1);
        site.b.values[1] = entry;
        site.scale = 0.5;
        held.sites.push_back(site);
    }
    return held;
}

/// A reply of the right size.
remote_model::client_type::reply_type reply_of(std::uint8_t filling) {
    const remote_model::client_type::decode_plan plan(1, 8, 1);
    remote_model::client_type::reply_type reply;
    reply.rank = 1;
    reply.d = 8;
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        const int bits = plan.reply_bits(o);
        octets c0(memory::packed_bytes(plan.targets(o), bits));
        c0[0] = static_cast<std::uint8_t>(filling & 1);
        reply.outputs.push_back({c0, octets(memory::packed_bytes(params::degree, bits), filling)});
    }
    return reply;
}

/// Follows docs/service.md, but for what a test changes. Lives longer than its connections.
struct peer {
    // What a test changes.
    std::uint64_t version = 3;
    lora::model_layout layout = small_layout();
    lora::adapter held = small_held();
    std::string pin;
    bool has_session = true;            ///< whether a resume is good
    bool cut_resumes = false;           ///< in place of the next answer to one the connection breaks
    std::uint64_t next_number = 0;      ///< what resumed says; 0: as it is
    std::uint64_t number_of_reply = 0;  ///< added to the right one
    std::uint32_t group_of_reply = 0;
    std::uint64_t number_in_json = 0;   ///< added in the JSON around the reply alone
    std::size_t cut_replies = 0;        ///< in place of so many replies the connection breaks
    std::size_t answers_until_cut = 0;  ///< of a connection; 0: no limit
    std::vector<std::uint64_t> left{100};
    std::size_t unreachable = 0;                  ///< so many connections fail first
    std::deque<refusal> refusals;                 ///< in place of answers to requests
    std::map<std::uint64_t, error_code> refused;  ///< requests, by number
    std::optional<refusal> at_hello;
    std::size_t draining_first = 0;  ///< so many times before the next reply or `forgotten`

    // What a test looks at.
    std::size_t connections = 0;
    std::size_t open = 0;
    std::vector<hello> hellos;
    std::vector<octets> rerandomization_keys;
    std::vector<bool> signatures;
    std::vector<tensafe::random::seed> nonces;
    std::vector<resume> resumes;
    std::vector<bool> resume_signatures;
    std::vector<octets> requests;
    std::vector<std::uint64_t> numbers;
    std::vector<std::size_t> heard;   ///< requests, each time that the client received
    std::vector<std::string> others;  ///< forget, bye
    std::size_t binary_frames = 0;
    std::vector<std::string> steps;  ///< that were begun
    std::uint8_t filling = 0;

    remote_model::connector connector();
    octets layout_message() const { return wire::write_model_layout<params, packing, protection>(layout); }
    octets held_message() const { return wire::write_held_adapter(held, layout); }
    /// What a publisher signs of this server.
    keystore::adapter_pin made_pin(const keystore::signing_key& by, std::byte weights = {},
                                   std::string_view name = "kjv") const {
        const auto layout_octets = layout_message();
        const auto held_octets = held_message();
        return keystore::adapter_pin::make(by, name, std::as_bytes(std::span(layout_octets)),
                                           std::as_bytes(std::span(held_octets)), {weights});
    }
};

class peer_connection final : public tests::memory_connection {
  public:
    explicit peer_connection(peer& of) : of_(of) {
        ++of_.open;
        challenge greeting;
        greeting.nonce.bytes.fill(static_cast<std::uint8_t>(of_.connections));
        greeting.parameters = "some set";
        exporter_[0] = static_cast<std::byte>(of_.connections);
        of_.nonces.push_back(greeting.nonce);
        say(to_text(greeting));
    }
    ~peer_connection() override { --of_.open; }
    std::array<std::byte, 32> tls_exporter() const override { return exporter_; }

    void send_text(std::string_view text) override {
        check_open();
        traffic_.up += text.size();
        std::visit([&](const auto& m) { take(m); }, parse_control(text, 1 << 20));
    }
    void send_binary(std::span<const std::uint8_t> message) override {
        check_open();
        ++of_.binary_frames;
        traffic_.up += message.size();
        take_message({message.begin(), message.end()});
    }
    void begin(const char* step, milliseconds) override { of_.steps.emplace_back(step); }
    frame receive() override {
        of_.heard.push_back(of_.requests.size());
        return memory_connection::receive();
    }

  private:
    using memory_connection::say;
    void say(const std::string& text) { say(true, octets(text.begin(), text.end())); }
    void say_message(carried_message::kind what, const octets& message) {
        json_ ? say(carried_text(what, message)) : say(false, message);
    }

    void take(const hello& m) {
        of_.hellos.push_back(m);
        json_ = m.frames == frame_form::json;
    }
    void take(const carried_message& m) { take_message(m.message); }
    void take(const resume& m) {
        of_.resumes.push_back(m);
        of_.resume_signatures.push_back(is_signed(m));
        if (std::exchange(of_.cut_resumes, false)) {
            cut();
            return;
        }
        if (!of_.has_session) {
            say(to_text(refusal{error_code::resume_failed, "no such session", {}, {}}));
            return;
        }
        json_ = !of_.hellos.empty() && of_.hellos.back().frames == frame_form::json;
        const auto last = std::ranges::max_element(of_.numbers);
        const std::uint64_t next = of_.next_number != 0        ? of_.next_number
                                   : last == of_.numbers.end() ? 1
                                                               : *last + 1;
        say(to_text(resumed{m.session, next, of_.version, of_.left}));
    }
    void take(const forget&) {
        of_.others.push_back("forget");
        for (; of_.draining_first > 0; --of_.draining_first) {
            say(to_text(draining{}));
        }
        say(to_text(forgotten{}));
    }
    void take(const bye&) { of_.others.push_back("bye"); }
    void take(const auto&) { FAIL("a client does not send this"); }

    bool is_signed(const auto& m) const {
        return keystore::verifying_key(m.client).verifies(text_to_sign(exporter_, of_.nonces.back(), m),
                                                          m.signature);
    }

    void take_message(const octets& message) {
        const bool is_key = wire::read_header(message).what == wire::kind::rerandomization_key;
        is_key ? open_session(message) : answer(message);
    }

    void open_session(const octets& key) {
        REQUIRE(!of_.hellos.empty());
        const hello& m = of_.hellos.back();
        of_.rerandomization_keys.push_back(key);
        of_.signatures.push_back(
            is_signed(m) && m.key_sha256 == keystore::sha256::of(std::as_bytes(std::span(key))) &&
            wire::read_rerandomization_key<params, lora::request_level<params>>(key).server_nonce ==
                split::derived_nonces(of_.nonces.back()).of_rerandomization_key);
        if (of_.at_hello) {
            say(to_text(*of_.at_hello));
            return;
        }
        say(to_text(welcome{{std::byte{8}}, m.adapter, of_.version, of_.left, of_.pin}));
        say_message(carried_message::kind::model_layout, of_.layout_message());
        if (m.held) {
            say_message(carried_message::kind::held_adapter, of_.held_message());
        }
        of_.has_session = true;
        of_.numbers.clear();
    }

    void answer(const octets& message) {
        const wire::header head = wire::read_header(message);
        REQUIRE(head.what == wire::kind::request);
        of_.requests.push_back(message);
        of_.numbers.push_back(head.number);
        if (of_.cut_replies > 0) {
            --of_.cut_replies;
            cut();
            return;
        }
        if (const auto found = of_.refused.find(head.number); found != of_.refused.end()) {
            return say(to_text(refusal{found->second, "because", head.number, {}}));
        }
        if (!of_.refusals.empty()) {
            refusal said = of_.refusals.front();
            of_.refusals.pop_front();
            if (said.number) {
                *said.number += head.number;
            }
            say(to_text(said));
            return;
        }
        if (of_.answers_until_cut != 0 && ++answers_ > of_.answers_until_cut) {
            return;  // it is cut when the client has received what there is
        }
        for (; of_.draining_first > 0; --of_.draining_first) {
            say(to_text(draining{}));
        }
        const wire::envelope envelope{head.number + of_.number_of_reply, head.group + of_.group_of_reply};
        const octets reply = wire::write_reply(reply_of(++of_.filling), envelope);
        json_ ? say(carried_text(carried_message::kind::reply, reply, envelope.number + of_.number_in_json,
                                 envelope.group))
              : say(false, reply);
    }

    peer& of_;
    exporter_value exporter_{};
    std::size_t answers_ = 0;
    bool json_ = false;
};

remote_model::connector peer::connector() {
    return [this]() -> std::unique_ptr<client_connection> {
        ++connections;
        if (unreachable > 0) {
            --unreachable;
            throw connection_lost("nobody there");
        }
        return std::make_unique<peer_connection>(*this);
    };
}

/// Options of clients that do not sleep.
struct patient {
    times waited;
    double draw = 0;

    remote_options options(frame_form frames = frame_form::binary) {
        remote_options result;
        result.adapter = "kjv";
        result.frames = frames;
        result.backoff = {milliseconds(100), milliseconds(1000), 6};
        result.wait = [this](milliseconds time) { waited.push_back(time.count()); };
        result.draw = [this] { return draw; };
        return result;
    }
};

/// One for all tests: making a key takes the longest here.
std::shared_ptr<lora::client<params>> keys() {
    static const auto same = std::make_shared<lora::client<params>>();
    return same;
}

remote_model remote_to(peer& server, const remote_options& options) {
    return remote_model(server.connector(), client_identity({}), keys(), options);
}

/// A client with a session.
struct connected {
    explicit connected(frame_form frames = frame_form::binary, std::size_t losses = 5,
                       std::size_t waits = 100)
        : remote(server.connector(), client_identity({}), keys(), [&] {
              remote_options options = calm.options(frames);
              options.most_losses = losses;
              options.most_waits = waits;
              return options;
          }()) {}
    void ask(std::size_t group = 0) { remote.ask(group, state, product); }
    tensafe::session::call call_of(std::size_t rows) {
        return tensafe::session::call(0, rows, [this](std::size_t) { return std::span<const float>(state); });
    }

    peer server;
    patient calm;
    std::vector<float> state = std::vector<float>(8, 1);
    std::vector<double> product;
    remote_model remote;
};

struct impatient : connected {
    impatient() : connected(frame_form::binary, 3, 2) {}
};

refusal said(error_code code, std::optional<std::uint64_t> retry_after = {}) {
    return {code, "because", 0, retry_after};
}

/// Of a message: its header also says what it acknowledges.
octets body_of(const octets& message) {
    return {message.begin() + wire::header_bytes, message.end()};
}

/// Answers the upgrade of a client that connects.
void upgrade(auto& to) {
    std::string request;
    asio::read_until(to, asio::dynamic_buffer(request), "\r\n\r\n");
    const std::string name = "Sec-WebSocket-Key: ";
    const std::string key =
        request.substr(request.find(name) + name.size(), 24) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    octets digest(20);
    ::EVP_Digest(key.data(), key.size(), digest.data(), nullptr, ::EVP_sha1(), nullptr);
    asio::write(to, asio::buffer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                                 "Upgrade\r\nSec-WebSocket-Accept: " +
                                 base64(digest) + "\r\n\r\n"));
}

}  // namespace

TEST_CASE(
    "a client says who it is, signs the nonce and the re-randomization key, and takes what it may hold") {
    peer server;
    patient calm;
    auto identity = client_identity({});
    const auto public_key = identity.verifying().bytes();
    {
        remote_model remote(server.connector(), std::move(identity), keys(), calm.options());
        CHECK(server.hellos.at(0).client == public_key);
        CHECK(server.hellos[0].adapter == "kjv");
        CHECK(server.hellos[0].set == wire::set_id<params>);
        CHECK(server.hellos[0].held);
        CHECK(server.signatures == std::vector<bool>{true});
        CHECK(remote.layout() == server.layout);
        CHECK(remote.version() == 3);
        CHECK(remote.queries_left() == 100);
        const std::array<double, 1> product{3};
        CHECK(remote.client()->deltas(1, product)[0] == std::vector<double>{0, 3, 0});  // B arrived
        CHECK(remote.counted().wire.up > server.rerandomization_keys[0].size());
    }
    CHECK(server.others == std::vector<std::string>{"bye"});
    CHECK(server.open == 0);
}

TEST_CASE("blocks of more than 128 tokens, which are memory here, are not taken unless the client says so") {
    peer server;
    patient calm;
    std::string reports;
    auto options = calm.options();
    options.report = [&](const std::string& text) { reports += text; };
    const auto bytes = [&](std::size_t tokens_ahead) {
        server.layout.tokens_ahead = tokens_ahead;
        const auto forecast = remote_to(server, options).forecast(0, 1024);
        return forecast.up + forecast.down;
    };
    const std::size_t alone = bytes(0);
    CHECK(bytes(128) < alone);
    CHECK(reports.empty());
    CHECK(bytes(256) == alone);
    CHECK(contains(reports, "the server has blocks of 256 tokens, --tokens-ahead is 128"));
    options.tokens_ahead = 256;
    CHECK(bytes(256) < alone);
}

TEST_CASE("a client that was given its part asks for none, and one that does not fit is refused") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options(), small_held(5));
    CHECK(!server.hellos.at(0).held);
    const std::array<double, 1> product{2};
    CHECK(remote.client()->deltas(0, product)[0] == std::vector<double>{0, 5, 0});

    auto wrong = small_held();
    wrong.sites.pop_back();
    check_refusal<tensafe::parameter_error>("second.site", [&] {
        remote_model(server.connector(), client_identity({}), keys(), calm.options(), wrong);
    });
    CHECK(server.open == 1);
}

TEST_CASE_FIXTURE(connected, "requests have rising numbers, their group, and get their own reply") {
    for (const std::size_t group : {0U, 1U, 0U}) {
        ask(group);
        lora::query<params> query;
        remote.client()->encrypt(group, state, query);
        CHECK(product == remote.client()->decrypt(group, reply_of(server.filling), query));
        CHECK(wire::read_header(server.requests.back()).group == group);
    }
    CHECK(server.numbers == numbers{1, 2, 3});
    CHECK(remote.counted().replies == 3);
    check_refusal<tensafe::parameter_error>("group 2", [&] { ask(2); });
    CHECK(server.requests.size() == 3);
}

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

TEST_CASE_FIXTURE(connected, "all hidden states of a call go up before the first reply is received") {
    server.heard.clear();
    auto call = call_of(20);
    remote.ask(call);
    CHECK(call.answered() == 20);
    CHECK(server.heard == std::vector<std::size_t>(20, 20));

    // Of more, each reply made room for another one, and makes it for two as long as the window lasts.
    server.left = {};
    remote.reconnect();
    auto longer = call_of(200);
    server.heard.clear();
    remote.ask(longer);
    CHECK(longer.answered() == 200);
    CHECK(server.heard.at(0) == 20 + 32 + 20);
    CHECK(server.heard.at(1) == 20 + 32 + 20 + 2);
    CHECK(server.heard.at(100) > 200);
    CHECK(server.numbers.size() == 220);
    CHECK(remote.counted().replies == 220);
}

TEST_CASE("a call that the limit of queries cannot pay is refused whole, with both numbers") {
    peer server;
    patient calm;
    server.left = {2, 7};
    auto remote = remote_to(server, calm.options());
    CHECK(remote.queries_left() == 2);
    CHECK(remote.queries_left(1) == 7);
    const std::vector<float> state(8, 1);
    const auto ask = [&](std::size_t group, std::size_t rows) {
        tensafe::session::call call(group, rows, [&](std::size_t) { return std::span<const float>(state); });
        remote.ask(call);
    };
    check_refusal<query_limit_error>("\"first\": got a call of 3 hidden states, expected at most 2",
                                     [&] { ask(0, 3); });
    CHECK(server.requests.empty());
    ask(1, 3);
    ask(0, 2);
    CHECK(remote.queries_left() == 0);
    CHECK(remote.queries_left(1) == 4);
    check_refusal<query_limit_error>("expected at most 0", [&] { ask(0, 1); });
    CHECK(server.requests.size() == 5);
    server.left = {};
    remote.reconnect();
    CHECK(!remote.queries_left());
    ask(0, 1);

    // What is left is asked for anew where the connection was lost.
    server.left = {10};
    remote.reconnect();
    server.cut_replies = 1;
    server.unreachable = 100;
    CHECK_THROWS_AS(ask(0, 5), connection_lost);
    server.cut_replies = server.unreachable = 0;
    server.left = {5};
    const std::size_t before = server.requests.size();
    check_refusal<query_limit_error>("got a call of 6 hidden states, expected at most 5", [&] { ask(0, 6); });
    CHECK(server.requests.size() == before);
}

TEST_CASE_FIXTURE(connected, "what a call was answered before and beside an error is kept") {
    server.refused = {{3, error_code::query_limit}, {5, error_code::malformed}};
    auto call = call_of(6);
    check_refusal<query_limit_error>("query_limit", [&] { remote.ask(call); });
    CHECK(call.answered() == 4);
    for (std::size_t row = 0; row < 6; ++row) {
        CHECK(call.is_answered(row) == (row != 2 && row != 4));
    }
    CHECK(remote.counted().replies == 4);
    CHECK(server.connections == 1);

    // What cannot be encrypted stops the rows behind it.
    const std::vector<float> infinite(8, std::numeric_limits<float>::infinity());
    tensafe::session::call bad(
        0, 9, [&](std::size_t row) { return std::span<const float>(row == 3 ? infinite : state); });
    CHECK(!tests::refusal<tensafe::encoding_error>([&] { remote.ask(bad); }).empty());
    CHECK(bad.answered() == 3);
    CHECK(server.numbers.size() == 9);
}

TEST_CASE_FIXTURE(connected,
                  "a call goes on over lost connections as long as some of it is answered, and what was sent "
                  "goes again as it was") {
    server.answers_until_cut = 1;  // of 9 connections, which is more than most_losses
    auto call = call_of(9);
    remote.ask(call);
    CHECK(call.answered() == 9);
    CHECK(remote.counted().resumed == 8);
    CHECK(server.requests.size() == 9 + 8 + 7 + 6 + 5 + 4 + 3 + 2 + 1);
    std::map<std::uint64_t, octets> by_number;
    for (const octets& each : server.requests) {
        const auto first = by_number.try_emplace(wire::read_header(each).number, body_of(each)).first;
        CHECK(first->second == body_of(each));
    }
    CHECK(by_number.size() == 9);
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
            CHECK(body_of(server.requests[earlier]) != body_of(server.requests[later]));
        }
    }
}

TEST_CASE("what is thrown between replies stops a call: no more goes up, and what is under way is read") {
    peer server;
    patient calm;
    auto options = calm.options();
    std::size_t replies = 0;
    options.between = [&] {
        if (++replies == 3) {
            throw tensafe::cancelled_error("enough");
        }
    };
    auto remote = remote_to(server, options);
    const std::vector<float> state(8, 1);
    tensafe::session::call call(0, 100, [&](std::size_t) { return std::span<const float>(state); });
    check_refusal<tensafe::cancelled_error>("enough", [&] { remote.ask(call); });
    CHECK(replies == 3);
    CHECK(call.answered() == server.requests.size());
    CHECK(call.answered() == 32 + 2 * 2);
    CHECK(server.open == 1);

    // What nobody paid for does not go up again.
    replies = 0;
    server.requests.clear();
    for (std::size_t row = 0; row < 50; ++row) {
        server.refused[37 + row] = error_code::rate_limit;
    }
    tensafe::session::call slow(0, 20, [&](std::size_t) { return std::span<const float>(state); });
    check_refusal<tensafe::cancelled_error>("enough", [&] { remote.ask(slow); });
    CHECK(slow.answered() == 0);
    CHECK(server.requests.size() == 20);
    CHECK(calm.waited.empty());
}

TEST_CASE("a reply of another number or group, or JSON that says another number, closes the connection") {
    struct wrong {
        std::uint64_t number;
        std::uint32_t group;
        std::uint64_t number_in_json;
        const char* got;
    };
    for (const auto frames : {frame_form::binary, frame_form::json}) {
        for (const wrong& each :
             {wrong{1, 0, 0, "request 2 of group 0"}, wrong{0, 1, 0, "request 1 of group 1"},
              wrong{0, 0, 3, "request 4 of group 0"}}) {
            if (each.number_in_json != 0 && frames == frame_form::binary) {
                continue;
            }
            connected c(frames);
            c.server.number_of_reply = each.number;
            c.server.group_of_reply = each.group;
            c.server.number_in_json = each.number_in_json;
            check_refusal<tensafe::format_error>(std::string("got a reply to ") + each.got, [&] { c.ask(); });
            CHECK(c.server.open == 0);
            c.server.number_of_reply = c.server.number_in_json = 0;
            c.server.group_of_reply = 0;
            c.ask();
            CHECK(c.server.numbers == numbers{1, 2});  // and the first is not made up for
        }
    }
}

TEST_CASE_FIXTURE(
    connected,
    "a request whose reply was lost goes again as its bytes, in the same session, with its number") {
    ask();
    server.cut_replies = 1;
    ask();
    CHECK(server.numbers == numbers{1, 2, 2});
    CHECK(server.requests[1] == server.requests[2]);
    CHECK(server.hellos.size() == 1);
    REQUIRE(server.resumes.size() == 1);
    CHECK(calm.waited == times{50});
    CHECK(remote.counted().resumed == 1);

    // The answer to a resume may be lost, too.
    server.cut_replies = 1;
    server.cut_resumes = true;
    ask();
    CHECK(server.hellos.size() == 1);
    REQUIRE(server.resumes.size() == 3);
    CHECK(server.resumes[2].session == session_id{std::byte{8}});
    CHECK(server.resume_signatures == std::vector<bool>(3, true));  // over three nonces and connections
}

TEST_CASE("no number comes again, whatever the server says is next") {
    for (const std::uint64_t next : {1U, 50U}) {
        connected c;
        c.ask();
        c.server.next_number = next;
        c.remote.reconnect();
        c.ask();
        CHECK(c.server.numbers.back() == std::max<std::uint64_t>(next, 2));
    }
}

TEST_CASE_FIXTURE(connected, "where the numbers of a session are used up, the next one begins with 1") {
    server.next_number = ~std::uint64_t{0};
    remote.reconnect();
    ask();
    CHECK(server.numbers == numbers{1});
    CHECK(remote.counted().sessions == 2);
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

TEST_CASE("a client that knows the pin of its adapter refuses any other before it sends a request") {
    const auto publisher = keystore::signing_key::generate();
    const auto anybody = keystore::signing_key::generate();
    const auto swap_b = [](peer& s) { s.held = small_held(3); };
    const auto swap_layout = [](peer& s) { s.layout.groups[0].row_norm = 2; };
    const struct {
        const char* said;
        std::function<std::string(peer&)> shown;  ///< by a server that does this first
        bool publisher_is_enough = true;          ///< to tell
    } all[] = {{"got no pin", [](peer&) { return ""; }},
               {"does not fit",
                [&](peer& s) {
                    auto forged = s.made_pin(publisher);
                    forged.commitment[0] ^= std::byte{1};
                    return forged.text();
                }},
               {"got a pin of \"other\"", [&](peer& s) { return s.made_pin(publisher, {}, "other").text(); }},
               {"publisher of the pin: got ", [&](peer& s) { return s.made_pin(anybody).text(); }},
               {"layout that was sent: got ",
                [&](peer& s) {
                    const auto old = s.made_pin(publisher).text();
                    swap_layout(s);
                    return old;
                }},
               {"B that was sent: got ",
                [&](peer& s) {
                    const auto old = s.made_pin(publisher).text();
                    swap_b(s);
                    return old;
                }},
               {"layout of the pin: got ",
                [&](peer& s) {
                    swap_layout(s);
                    return s.made_pin(publisher).text();
                },
                false},
               {"B of the pin: got ",
                [&](peer& s) {
                    swap_b(s);
                    return s.made_pin(publisher).text();
                },
                false},
               {"commitment to A: got ", [&](peer& s) { return s.made_pin(publisher, std::byte{1}).text(); },
                false}};
    for (const auto& each : all) {
        CAPTURE(each.said);
        for (const bool exact : {true, false}) {
            peer server;
            patient calm;
            auto options = calm.options();
            exact ? void(options.pin = server.made_pin(publisher))
                  : void(options.publisher = publisher.verifying());
            server.pin = each.shown(server);
            if (exact || each.publisher_is_enough) {
                check_refusal<tensafe::signature_error>(each.said, [&] { remote_to(server, options); });
            } else {
                CHECK(remote_to(server, options).pin()->text() == server.pin);
            }
            CHECK(server.open == 0);
            CHECK(server.requests.empty());
        }
    }
    // The right one; to whoever was given B itself, whatever B the server has, if it is the one of the pin.
    peer server;
    patient calm;
    auto options = calm.options();
    options.pin = server.made_pin(publisher);
    options.publisher = publisher.verifying();
    server.pin = options.pin->text();
    CHECK(remote_to(server, options).pin() == options.pin);
    options.pin->name = "qwen";
    check_refusal<tensafe::signature_error>("got --pin of \"qwen\", expected",
                                            [&] { remote_to(server, options); });
    options.pin = server.made_pin(publisher);
    swap_b(server);
    peer other;
    other.held = small_held(5);
    const std::string both = "B that was given: got " + keystore::hex(other.made_pin(publisher).held) +
                             ", expected " + keystore::hex(options.pin->held);
    const auto with_given = [&](float entry) {
        return remote_model(server.connector(), client_identity({}), keys(), options, small_held(entry));
    };
    for (const bool exact : {true, false}) {
        exact ? void() : options.pin.reset();
        check_refusal<tensafe::signature_error>(both, [&] { with_given(5); });
        CHECK(server.open == 0);
    }
    auto given = with_given(2);
    server.has_session = false;
    ++server.version;  // a restart: the pin is the same
    given.reconnect();
    swap_layout(server);
    check_refusal<tensafe::signature_error>("layout that was sent", [&] { with_given(2); });
}

TEST_CASE("a pin that was shown must be shown again in a fresh session, asked for or not") {
    const auto publisher = keystore::signing_key::generate();
    for (const bool drops : {true, false}) {
        peer server;
        patient calm;
        server.pin = server.made_pin(publisher).text();
        auto remote = remote_to(server, calm.options());
        server.has_session = false;
        remote.reconnect();
        server.has_session = false;
        server.pin = drops ? "" : server.made_pin(publisher, std::byte{1}).text();
        check_refusal<adapter_changed_error>("pin", [&] { remote.reconnect(); });
        CHECK(server.open == 0);
        server.pin = "{}";
        check_refusal<tensafe::format_error>("the server's pin: missing key \"format\"",
                                             [&] { remote_to(server, calm.options()); });
    }
}

TEST_CASE("another layout or B after a reconnection is an error, and so is a session of another version") {
    for (int what = 0; what < 4; ++what) {
        peer server;
        patient calm;
        remote_model remote(
            server.connector(), client_identity({}), keys(), calm.options(),
            what == 0 ? std::optional(small_held()) : std::nullopt);  // or the server sends it
        server.has_session = what == 3;
        if (what == 0 || what == 3) {
            ++server.version;
        } else if (what == 1) {
            server.layout.groups[0].row_norm = 2;
        } else {
            server.held = small_held(3);
        }
        check_refusal<adapter_changed_error>("kjv", [&] { remote.reconnect(); });
        CHECK(server.open == 0);
    }
}

TEST_CASE_FIXTURE(
    connected,
    "the same adapter in a fresh session goes on whatever its version, as after a restart of the server") {
    server.has_session = false;
    server.version = 1;  // not 3 any more
    remote.reconnect();
    CHECK(remote.version() == 1);
    server.has_session = true;
    remote.reconnect();  // a session's own version is the later one
    CHECK(remote.counted().resumed == 1);
}

TEST_CASE_FIXTURE(connected, "waits between attempts double up to the cap, and half of each is random") {
    const auto sequence = [](double draw) {
        times result;
        for (std::size_t i = 0; i < 6; ++i) {
            result.push_back(backoff({milliseconds(100), milliseconds(900), 0}, i, draw).count());
        }
        return result;
    };
    CHECK(sequence(0) == times{50, 100, 200, 400, 450, 450});
    CHECK(sequence(0.5) == times{75, 150, 300, 600, 675, 675});

    calm.draw = 0.5;
    server.unreachable = 3;
    remote.reconnect();
    CHECK(calm.waited == times{75, 150, 300, 600});
    CHECK(server.connections == 5);
    server.unreachable = 100;
    check_refusal<connection_lost>("gave up after 6 attempts: nobody there", [&] { remote.reconnect(); });
    CHECK(server.connections == 11);
}

TEST_CASE_FIXTURE(impatient, "a server that cuts every request is not asked for ever") {
    server.cut_replies = 100;
    CHECK(tests::refusal<connection_lost>([&] { ask(); }) == "cut");
    CHECK(server.requests.size() == 4);

    // Losses with replies in between are another matter.
    for (int i = 0; i < 5; ++i) {
        server.cut_replies = 1;
        ask();
    }
    CHECK(remote.counted().replies == 5);
}

TEST_CASE_FIXTURE(impatient, "a server that limits every request is not asked for ever") {
    server.refusals.assign(3, said(error_code::rate_limit, 5));
    auto call = call_of(1);
    check_refusal<rate_limit_error>("rate_limit", [&] { remote.ask(call); });
    CHECK(server.requests.size() == 3);
    CHECK(calm.waited == times{5, 5});
    ask();  // nothing of the call is left
    CHECK(server.requests.size() == 4);
    CHECK(calm.waited == times{5, 5});
}

TEST_CASE_FIXTURE(
    connected,
    "each error of the server becomes an exception that carries its code, and the session goes on") {
    for (std::size_t c = 0; c < error_codes; ++c) {
        const auto code = static_cast<error_code>(c);
        if (code == error_code::draining) {
            continue;
        }
        server.refusals.push_back(said(code, 70));
        if (code == error_code::rate_limit || code == error_code::replayed) {
            ask();  // it goes again by itself
            continue;
        }
        try {
            ask();
            FAIL("nothing was thrown");
        } catch (const refused_error& e) {
            CHECK(e.code() == code);
            CHECK(e.retry_after() == milliseconds(70));
            CHECK(contains(std::string(e.what()), std::string(to_string(code)) + "): \"because\""));
            CHECK((dynamic_cast<const query_limit_error*>(&e) != nullptr) ==
                  (code == error_code::query_limit));
        }
        CHECK(server.connections == 1);
    }
    ask();
    server.refusals.push_back(said(error_code::draining));
    ask();
    CHECK(remote.counted().resumed == 1);

    peer strict;
    strict.at_hello = refusal{error_code::unknown_adapter, "no", {}, {}};
    check_refusal<refused_error>("unknown_adapter", [&] { remote_to(strict, calm.options()); });
    CHECK(strict.open == 0);
}

TEST_CASE_FIXTURE(connected, "an error for another request is refused") {
    auto late = said(error_code::malformed);
    late.number = 5;
    server.refusals.push_back(late);
    check_refusal<tensafe::format_error>("request 6", [&] { ask(); });
    CHECK(server.open == 0);
    late.number.reset();
    server.refusals.push_back(late);
    check_refusal<refused_error>("malformed", [&] { ask(); });
    CHECK(server.open == 0);
}

TEST_CASE_FIXTURE(
    connected, "after a rate limit the client waits as long as the server says, and takes another number") {
    server.refusals = {said(error_code::rate_limit, 250), said(error_code::rate_limit),
                       said(error_code::rate_limit, 60'000)};
    ask();
    CHECK(calm.waited == times{250, 100, 60'000});
    CHECK(server.numbers == numbers{1, 2, 3, 4});
    CHECK(server.connections == 1);
    CHECK(remote.counted().rate_waits == 3);

    server.refusals = {said(error_code::query_limit)};
    check_refusal<query_limit_error>("query_limit", [&] { ask(); });
    server.refusals = {said(error_code::rate_limit, std::uint64_t{1} << 63)};
    check_refusal<rate_limit_error>("rate_limit", [&] { ask(); });
    CHECK(calm.waited.size() == 3);
}

TEST_CASE("nothing is tried again, nor waited for, after twice the time of a step") {
    constexpr milliseconds step{100};
    peer server;
    patient calm;
    auto options = calm.options();
    options.step_limit = step;
    options.most_losses = options.most_waits = 60;
    options.backoff.attempts = 10;
    options.wait = [](milliseconds time) { std::this_thread::sleep_for(time); };
    auto remote = remote_to(server, options);
    const std::vector<float> state(8, 1);
    std::vector<double> product;
    const auto most = static_cast<std::size_t>(2 * step / milliseconds(50) + 1);
    server.cut_replies = 100;
    check_refusal<connection_lost>("", [&] { remote.ask(0, state, product); });  // with waits of 50 ms
    CHECK(server.requests.size() <= most);

    auto other = remote_to(server, options);
    server.requests.clear();
    server.cut_replies = 0;
    server.refusals.assign(100, said(error_code::rate_limit, 50));
    check_refusal<rate_limit_error>("rate_limit", [&] { other.ask(0, state, product); });
    CHECK(server.requests.size() <= most);

    server.unreachable = 10;
    check_refusal<connection_lost>(" attempts: ", [&] { remote.reconnect(); });
    CHECK(server.unreachable >= 7);  // after 50, 100 and 200 ms
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
    server.refusals = {said(error_code::draining)};  // it answers what runs, and refuses what comes
    auto refused = call_of(4);
    remote.ask(refused);
    CHECK(refused.answered() == 4);
    CHECK(server.connections == 4);
}

TEST_CASE("a client that asked to be forgotten, or closed, has no session until it connects again") {
    for (const bool forgets : {true, false}) {
        connected c;
        peer& server = c.server;
        remote_model& remote = c.remote;
        forgets ? remote.forget() : remote.close();
        CHECK(server.others == std::vector<std::string>{forgets ? "forget" : "bye"});
        CHECK(server.open == 0);
        check_refusal<closed_error>("expected reconnect", [&] { c.ask(); });
        CHECK(server.connections == 1);
        remote.reconnect();
        c.ask();
        CHECK(server.resumes.empty());
        CHECK(server.hellos.size() == 2);
    }
    connected late;
    late.server.draining_first = 1;
    CHECK_THROWS_AS(late.remote.forget(), connection_lost);
    late.ask();  // which does not take the answer to that for its own
    CHECK(late.server.connections == 2);
}

TEST_CASE("an adapter whose deltas could overflow floats is refused before a state is encrypted") {
    for (int what = 0; what < 3; ++what) {
        peer server;
        patient calm;
        double& scale = server.layout.groups[1].sites[0].scale;
        if (what == 0) {
            server.held.sites[1].b.values[2] = 3e38F;
        } else if (what == 1) {
            scale = server.held.sites[1].scale = -1e30;
        } else {
            server.layout.groups[1].row_norm = 0x1p70;
        }
        const auto refused = [&] { remote_to(server, calm.options()); };
        check_refusal<tensafe::parameter_error>("\"second.site\": got a gain of ", refused);
        check_refusal<tensafe::parameter_error>("expected at most 1048576", refused);
        CHECK(server.open == 0);
    }
}

TEST_CASE("an identity is made once for a file, and is the same afterwards") {
    const tests::temporary_directory scratch;
    const auto& folder = scratch.path();
    const auto first = client_identity(folder / "identity.pem");
    CHECK(client_identity(folder / "identity.pem").verifying() == first.verifying());
    CHECK(!(client_identity({}).verifying() == first.verifying()));
    check_refusal<tensafe::io_error>("cannot look for the key of this client: ",
                                     [&] { client_identity(folder / std::string(300, 'x')); });

    // Of several starts at once the first makes it, and the others find it there.
    constexpr std::size_t starts = 8;
    std::array<std::string, starts> got;
    std::latch all(starts);
    soak::at_once(starts, [&](std::size_t i) {
        all.arrive_and_wait();
        got[i] = client_identity(folder / "shared.pem").verifying().hex();
    });
    const auto made = client_identity(folder / "shared.pem").verifying().hex();
    CHECK(std::count(got.begin(), got.end(), made) == starts);
}

TEST_CASE("server addresses are taken apart, and others refused") {
    const auto parts = [](std::string_view url) {
        const auto a = server_address::of(url);
        return (a.tls ? "tls " : "clear ") + a.host + " " + a.port + " " + a.text();
    };
    CHECK(parts("wss://localhost:8443") == "tls localhost 8443 wss://localhost:8443");
    CHECK(parts("ws://127.0.0.1:80/") == "clear 127.0.0.1 80 ws://127.0.0.1:80");
    CHECK(parts("wss://[::1]:9") == "tls ::1 9 wss://[::1]:9");
    CHECK(parts("wss://a.example") == "tls a.example 443 wss://a.example:443");
    for (const char* bad :
         {"", "localhost:1", "https://a:1", "wss://", "wss://:1", "wss://a:0", "wss://a:65536", "wss://a:1x",
          "wss://a:", "wss://[::1", "wss://a b:1", "wss://a/b:1", "wss://[::1]9"}) {
        CAPTURE(bad);
        check_refusal<tensafe::parameter_error>("expected wss://host:port", [&] { server_address::of(bad); });
    }
    check_refusal<tensafe::parameter_error>("the port from 1 to 65535",
                                            [] { server_address::of("ws://a:99999"); });
    check_refusal<tensafe::parameter_error>("write wss://", [] { server_address::of("https://a:1"); });
}

TEST_CASE("only the certificate that was given is trusted, and only for its host") {
    const tests::temporary_directory folder;
    const tests::temporary_directory folder_of_others;
    const tls_files ours = prepare_certificate(folder.path());
    const tls_files others = prepare_certificate(folder_of_others.path());
    const auto connect = [&](const std::string& host, const std::filesystem::path& trusted) {
        net::http_server_options options{.address = host, .websocket_path = "/elsewhere"};
        options.secure = {ours.certificate, ours.key};
        const tests::echo_server echo(options);
        connect_websocket(server_address::of("wss://" + host + ":" + echo.port()),
                          {.trusted_certificates = trusted});
    };
    // The right one gets as far as the WebSocket, which this server has elsewhere.
    check_refusal<connection_lost>("open a WebSocket", [&] { connect("127.0.0.1", ours.certificate); });
    check_refusal<tensafe::signature_error>("is not trusted: self",
                                            [&] { connect("127.0.0.1", others.certificate); });
    // This machine too, but the certificate does not say so.
    check_refusal<tensafe::signature_error>("its certificate is not for \"127.0.0.2\"",
                                            [&] { connect("127.0.0.2", ours.certificate); });
    for (const char* part : {"none.pem", "--trust", "No such file"}) {
        check_refusal<tensafe::io_error>(part, [&] { connect("127.0.0.1", folder.path() / "none.pem"); });
    }
}

TEST_CASE("a frame beyond the limit is an error that no other connection would mend") {
    const tests::echo_server echo({}, std::string(1001, 'x'));
    const auto client =
        connect_websocket(server_address::of("ws://127.0.0.1:" + echo.port()), {.largest_frame = 1000});
    check_refusal<tensafe::format_error>("got a frame of more than 1000 bytes", [&] { client->receive(); });
}

TEST_CASE(
    "frames of any length come back whole, over TLS and in the clear, and each TLS connection is known") {
    const tests::temporary_directory folder;
    const tls_files files = prepare_certificate(folder.path());
    for (const bool tls : {false, true}) {
        net::http_server_options options;
        if (tls) {
            options.secure = {files.certificate, files.key};
        }
        tests::echo_server echo(options, "", std::size_t{4} << 20);
        websocket_options trust;
        trust.trusted_certificates = files.certificate;
        trust.busy_wait = std::chrono::seconds(tls ? 0 : 3'600);  // limits hold all the same
        const auto connect = [&] {
            return connect_websocket(
                server_address::of((tls ? "wss://127.0.0.1:" : "ws://127.0.0.1:") + echo.port()), trust);
        };
        const auto connection = connect();
        CHECK((connection->tls_exporter() != exporter_value{}) == tls);
        CHECK((connection->tls_exporter() != connect()->tls_exporter()) == tls);
        for (const std::size_t length : {0U, 1U, 125U, 126U, 16'383U, 65'536U, 98'765U, 3'000'000U}) {
            CAPTURE(length);
            octets sent(length);
            for (std::size_t i = 0; i < length; ++i) {
                sent[i] = static_cast<std::uint8_t>(i * i >> 8);
            }
            const auto before = connection->bytes();
            connection->send_binary(sent);
            const auto got = connection->receive();
            CHECK_FALSE(got.is_text);
            CHECK(std::ranges::equal(got.bytes, sent));
            CHECK(connection->bytes().up >= before.up + length);
            CHECK(connection->bytes().down >= before.down + length);
        }
        connection->send_text("text");
        CHECK(connection->receive().text() == "text");
        connection->begin("a test", milliseconds(10));
        check_refusal<connection_lost>("cannot receive: a test took longer than 0.01 s (--step-seconds)",
                                       [&] { return connection->receive(); });
        check_refusal<connection_lost>("the connection is closed", [&] { connection->send_text("more"); });
    }
}

TEST_CASE(
    "a server that sends a byte at a time, or pongs without end, holds a step no longer than its limit") {
    std::string pongs;
    while (pongs.size() < 2000) {
        pongs.append("\x8a\0", 2);
    }
    for (const bool floods : {false, true}) {
        asio::io_context context;
        asio::ip::tcp::acceptor listening(context, {asio::ip::address_v4::loopback(), 0});
        const std::jthread server([&] {
            auto to = listening.accept();
            upgrade(to);
            boost::system::error_code gone;
            const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
            for (std::size_t i = 0; !gone && std::chrono::steady_clock::now() < end; ++i) {
                asio::write(to, asio::buffer(floods ? pongs : std::string(1, "\x81\1x"[i % 3])), gone);
                std::this_thread::sleep_for(milliseconds(floods ? 0 : 5));
            }
        });
        const auto client = connect_websocket(
            server_address::of("ws://127.0.0.1:" + std::to_string(listening.local_endpoint().port())), {});
        client->begin("a test", milliseconds(300));
        check_refusal<connection_lost>("a test took longer than 0.3 s", [&] {
            for (;;) {
                client->receive();
            }
        });
    }
}

TEST_CASE("a client that sends much while its peer reads nothing before it has sent as much does not stop") {
    const tests::temporary_directory folder;
    const tls_files files = prepare_certificate(folder.path());
    constexpr std::size_t down = std::size_t{5} << 20;
    constexpr std::size_t up = std::size_t{12} << 20;  // more than the buffers of a system
    for (const bool tls : {false, true}) {
        asio::io_context context;
        asio::ip::tcp::acceptor listening(context, {asio::ip::address_v4::loopback(), 0});
        std::size_t heard = 0;
        std::jthread server([&] {
            const auto talk = [&](auto& to) {
                upgrade(to);
                octets frame(10 + down, 7);
                frame[0] = 0x82;
                frame[1] = 127;
                for (std::size_t i = 0; i < 8; ++i) {
                    frame[2 + i] = static_cast<std::uint8_t>(down >> (56 - 8 * i));
                }
                boost::system::error_code gone;
                asio::write(to, asio::buffer(frame), gone);
                while (!gone) {
                    heard += to.read_some(asio::buffer(frame), gone);
                }
            };
            asio::ssl::context secure(asio::ssl::context::tls_server);
            secure.use_certificate_chain_file(files.certificate.string());
            secure.use_private_key_file(files.key.string(), asio::ssl::context::pem);
            asio::ssl::stream<asio::ip::tcp::socket> to(listening.accept(), secure);
            if (tls) {
                to.handshake(asio::ssl::stream_base::server);
                talk(to);
            } else {
                talk(to.next_layer());
            }
        });
        {
            const auto client = connect_websocket(
                server_address::of((tls ? "wss://127.0.0.1:" : "ws://127.0.0.1:") +
                                   std::to_string(listening.local_endpoint().port())),
                {.trusted_certificates = files.certificate, .step_limit = milliseconds(20'000)});
            const octets message(std::size_t{1} << 20);
            for (std::size_t sent = 0; sent < up; sent += message.size()) {
                client->send_binary(message);
            }
            const auto got = client->receive();
            CHECK(got.bytes.size() == down);
            CHECK(std::ranges::count(got.bytes, 7) == static_cast<std::ptrdiff_t>(down));
            CHECK(client->bytes().down > down);
        }
        server.join();
        CHECK(heard >= up);
    }
}

TEST_CASE("connections that cannot be made are lost ones, within the limit, and say where") {
    const auto connect = [](const std::string& address) {
        connect_websocket(server_address::of(address), {.step_limit = milliseconds(1000)});
    };
    check_refusal<tensafe::parameter_error>("--trust", [&] { connect("wss://127.0.0.1:1"); });
    check_refusal<connection_lost>("ws://127.0.0.1:1: cannot connect", [&] { connect("ws://127.0.0.1:1"); });
    const tests::temporary_directory folder;
    const tls_files files = prepare_certificate(folder.path());
    net::http_server_options with_tls;
    with_tls.secure = {files.certificate, files.key};
    const tests::echo_server other(with_tls);
    check_refusal<connection_lost>("a port with TLS?", [&] { connect("ws://127.0.0.1:" + other.port()); });
    const tests::echo_server elsewhere({.websocket_path = "/elsewhere"});
    check_refusal<connection_lost>("got \"HTTP/1.1 404 Not Found\", expected an upgrade",
                                   [&] { connect("ws://127.0.0.1:" + elsewhere.port()); });
    // It listens, and takes nobody.
    const net::http_server silent({}, {});
    check_refusal<connection_lost>("connecting and logging in took longer than 1 s",
                                   [&] { connect("ws://127.0.0.1:" + std::to_string(silent.port())); });
}

TEST_CASE("an answer to the upgrade that does not end is not read for ever") {
    for (const std::string& begin : {std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x="),
                                     std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
                                     std::string("HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n")}) {
        const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
        ::socklen_t size = sizeof(where);
        REQUIRE(::bind(listening, reinterpret_cast<sockaddr*>(&where), size) == 0);
        REQUIRE(::getsockname(listening, reinterpret_cast<sockaddr*>(&where), &size) == 0);
        REQUIRE(::listen(listening, 1) == 0);
        const std::jthread talks([&] {
            const int to = ::accept(listening, nullptr, nullptr);
            std::string data = begin;
            for (int i = 0; i < 500 && ::send(to, data.data(), data.size(), MSG_NOSIGNAL) > 0; ++i) {
                data.assign(16'384, '1');
            }
            ::close(to);
        });
        check_refusal<connection_lost>("got \"HTTP/1.1 200 OK\" and more than 65536 bytes, expected", [&] {
            connect_websocket(server_address::of("ws://127.0.0.1:" + std::to_string(::ntohs(where.sin_port))),
                              {});
        });
        ::close(listening);
    }
}
