// The client's half of split inference against a peer in memory that follows the protocol by itself, or
// breaks it; and TLS against a socket.
#include <tensafe/core/error.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/hex.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/memory/bits.hpp>
#include <tensafe/wire/header.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/rerandomization_key.hpp>
#include <tensafe/wire/set_id.hpp>

#include <doctest/doctest.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include "../../examples/split_inference/backoff.hpp"
#include "../../examples/split_inference/base64.hpp"
#include "../../examples/split_inference/control_message.hpp"
#include "../../examples/split_inference/net/http_server.hpp"
#include "../../examples/split_inference/net/websocket_client.hpp"
#include "../../examples/split_inference/params.hpp"
#include "../../examples/split_inference/remote_model.hpp"
#include "../../examples/split_inference/tls_certificate.hpp"
#include "../refusal.hpp"

namespace {

using namespace split;
namespace lora = tensafe::lora;
namespace memory = tensafe::memory;
namespace wire = tensafe::wire;
using std::chrono::milliseconds;
using octets = std::vector<std::uint8_t>;

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
remote_model::reply_type reply_of(std::uint8_t filling) {
    const auto layout = remote_model::layout_type::of(1, 8, 1);
    const auto budget = layout.budget();
    remote_model::reply_type reply;
    reply.rank = 1;
    reply.d = 8;
    for (std::size_t o = 0; o < layout.outputs(); ++o) {
        const int bits = layout.reply_bits(budget, o);
        octets c0(memory::packed_bytes(layout.wanted(o), bits));
        c0[0] = static_cast<std::uint8_t>(filling & 1);
        reply.outputs.push_back({c0, octets(memory::packed_bytes(params::degree, bits), filling)});
    }
    return reply;
}

/// A request of the right size; what is in it is the server's business.
remote_model::request_type request_of(std::uint8_t filling) {
    remote_model::request_type request;
    request.d = 8;
    request.block = remote_model::layout_type::entries_per_input();
    request.seed.bytes.fill(filling);
    request.inputs.emplace_back(lora::packed_residues_bytes<params>(params::degree));
    request.inputs[0][0] = filling;
    return request;
}

/// Follows docs/split-inference.md, but for what a test changes. Lives longer than its connections.
struct peer {
    // What a test changes.
    std::uint64_t version = 3;
    lora::model_layout layout = small_layout();
    lora::adapter held = small_held();
    bool has_session = true;            ///< whether a resume is good
    std::uint64_t next_number = 0;      ///< what resumed says; 0: as it is
    std::uint64_t number_of_reply = 0;  ///< added to the right one
    std::uint32_t group_of_reply = 0;
    std::uint64_t number_in_json = 0;   ///< added in the JSON around the reply alone
    bool cut_replies = false;           ///< in place of the next reply the connection breaks
    std::size_t answers_until_cut = 0;  ///< of a connection; 0: no limit
    std::size_t unreachable = 0;        ///< so many connections fail first
    std::deque<refusal> refusals;       ///< in place of answers to requests
    std::optional<refusal> at_hello;
    std::size_t draining_first = 0;  ///< so many times before the next reply
    milliseconds slow_draining{0};   ///< how long each takes

    // What a test looks at.
    std::size_t connections = 0;
    std::size_t open = 0;
    std::vector<hello> hellos;
    std::vector<octets> rerandomization_keys;
    std::vector<bool> signatures;
    std::vector<tensafe::random::seed> nonces;
    std::vector<resume> resumes;
    std::vector<octets> requests;
    std::vector<std::uint64_t> numbers;
    std::vector<std::string> others;  ///< forget, bye
    std::size_t binary_frames = 0;
    milliseconds last_limit{0};  ///< of a frame that was waited for
    std::uint8_t filling = 0;
    resume_token token{};

    remote_model::connector connector();
};

class peer_connection final : public client_connection {
  public:
    explicit peer_connection(peer& of) : of_(of) {
        ++of_.open;
        challenge greeting;
        greeting.nonce.bytes.fill(static_cast<std::uint8_t>(of_.connections));
        greeting.parameters = "some set";
        greeting.adapters = {{"kjv", of_.version}};
        of_.nonces.push_back(greeting.nonce);
        say(to_text(greeting));
    }
    ~peer_connection() override { --of_.open; }

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
    frame receive(milliseconds limit) override {
        of_.last_limit = limit;
        check_open();
        if (frames_.empty()) {
            cut_ = true;
            check_open();
        }
        last_ = std::move(frames_.front());
        frames_.pop_front();
        if (slow_ > 0) {
            --slow_;
            std::this_thread::sleep_for(of_.slow_draining);
        }
        traffic_.down += last_.second.size();
        return {last_.first, last_.second};
    }
    void close() noexcept override { cut_ = true; }
    traffic bytes() const noexcept override { return traffic_; }

  private:
    void check_open() const {
        if (cut_) {
            throw connection_lost("cut");
        }
    }
    void say(const std::string& text) { frames_.push_back({true, octets(text.begin(), text.end())}); }
    void say_message(carried_message::kind what, const octets& message) {
        if (json_) {
            say(carried_text(what, message));
        } else {
            frames_.push_back({false, message});
        }
    }

    void take(const hello& m) {
        of_.hellos.push_back(m);
        json_ = m.frames == frame_form::json;
    }
    void take(const carried_message& m) { take_message(m.message); }
    void take(const json_request& m) { take_message(m.message); }
    void take(const resume& m) {
        of_.resumes.push_back(m);
        if (!of_.has_session) {
            say(to_text(refusal{error_code::resume_failed, "no such session", {}, {}}));
            return;
        }
        json_ = !of_.hellos.empty() && of_.hellos.back().frames == frame_form::json;
        of_.token[0] = static_cast<std::byte>(of_.connections);
        const std::uint64_t next = of_.next_number != 0 ? of_.next_number : of_.numbers.size() + 1;
        say(to_text(resumed{m.session, of_.token, next, of_.version, {}}));
    }
    void take(const forget&) {
        of_.others.push_back("forget");
        say(to_text(forgotten{}));
    }
    void take(const bye&) { of_.others.push_back("bye"); }
    template <class Other>
    void take(const Other&) {
        FAIL("a client does not send this");
    }

    void take_message(const octets& message) {
        if (wire::read_header(message).what == wire::kind::rerandomization_key) {
            open_session(message);
        } else {
            answer(message);
        }
    }

    void open_session(const octets& key) {
        REQUIRE(!of_.hellos.empty());
        const hello& m = of_.hellos.back();
        of_.rerandomization_keys.push_back(key);
        of_.signatures.push_back(
            tensafe::keystore::verifying_key(m.client).verifies(
                text_to_sign({}, of_.nonces.back(), m.set, key, m.adapter), m.signature) &&
            wire::read_rerandomization_key<params, lora::request_level<params>>(key).server_nonce ==
                of_.nonces.back());
        if (of_.at_hello) {
            say(to_text(*of_.at_hello));
            return;
        }
        of_.token[1] = static_cast<std::byte>(of_.connections);
        say(to_text(welcome{{}, of_.token, m.adapter, of_.version, 100}));
        say_message(carried_message::kind::model_layout,
                    wire::write_model_layout<params, packing, protection>(of_.layout));
        if (m.held) {
            say_message(carried_message::kind::held_adapter, wire::write_held_adapter(of_.held, of_.layout));
        }
        of_.has_session = true;
        of_.numbers.clear();
    }

    void answer(const octets& message) {
        const wire::header head = wire::read_header(message);
        REQUIRE(head.what == wire::kind::request);
        of_.requests.push_back(message);
        of_.numbers.push_back(head.number);
        if (std::exchange(of_.cut_replies, false)) {
            cut_ = true;
            return;
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
            cut_ = true;
            return;
        }
        slow_ = of_.draining_first;
        for (; of_.draining_first > 0; --of_.draining_first) {
            say(to_text(draining{}));
        }
        const wire::envelope envelope{head.number + of_.number_of_reply, head.group + of_.group_of_reply};
        const octets reply = wire::write_reply(reply_of(++of_.filling), envelope);
        if (json_) {
            say(json_reply_text(envelope.number + of_.number_in_json, envelope.group, reply));
        } else {
            frames_.push_back({false, reply});
        }
    }

    peer& of_;
    std::deque<std::pair<bool, octets>> frames_;
    std::pair<bool, octets> last_;
    traffic traffic_;
    std::size_t answers_ = 0;
    std::size_t slow_ = 0;
    bool json_ = false;
    bool cut_ = false;
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
    std::vector<milliseconds::rep> waited;
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

void ask(remote_model& remote, remote_model::reply_type& reply, std::uint8_t filling = 7,
         std::size_t group = 0) {
    remote.carry(group, request_of(filling), reply);
}

refusal said(error_code code, std::optional<std::uint64_t> retry_after = {}) {
    return {code, "because", 0, retry_after};
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

TEST_CASE("a client that was given its part asks for none, and one that does not fit is refused") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options(), small_held(5));
    CHECK(!server.hellos.at(0).held);
    const std::array<double, 1> product{2};
    CHECK(remote.client()->deltas(0, product)[0] == std::vector<double>{0, 5, 0});

    auto wrong = small_held();
    wrong.sites.pop_back();
    const auto message = tests::refusal<tensafe::parameter_error>(
        [&] { remote_model(server.connector(), client_identity({}), keys(), calm.options(), wrong); });
    CHECK(message.find("second.site") != message.npos);
    CHECK(server.open == 1);
}

TEST_CASE("requests have rising numbers, their group, and get their own reply") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    remote_model::reply_type reply;
    for (const std::size_t group : {0U, 1U, 0U}) {
        ask(remote, reply, 9, group);
        CHECK(reply.outputs.at(0).c1 == reply_of(server.filling).outputs[0].c1);
        CHECK(wire::read_header(server.requests.back()).group == group);
    }
    CHECK(server.numbers == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(remote.counted().replies == 3);
    const auto message = tests::refusal<tensafe::parameter_error>([&] { ask(remote, reply, 9, 2); });
    CHECK(message.find("group 2") != message.npos);
    CHECK(server.requests.size() == 3);
}

TEST_CASE("JSON frames carry the bytes of binary frames, both ways, and no binary frame") {
    std::array<peer, 2> servers;
    patient calm;
    std::array<remote_model::reply_type, 2> replies;
    for (std::size_t i = 0; i < 2; ++i) {
        remote_model remote(servers[i].connector(), client_identity({}), keys(),
                            calm.options(i == 0 ? frame_form::binary : frame_form::json));
        ask(remote, replies[i], 4, 1);
        CHECK(servers[i].signatures == std::vector<bool>{true});
        CHECK(remote.counted().message_bytes_up == servers[i].requests.at(0).size());
    }
    CHECK(servers[0].requests == servers[1].requests);
    REQUIRE(replies[0].outputs.size() == replies[1].outputs.size());
    CHECK(replies[0].outputs[0].c0 == replies[1].outputs[0].c0);
    CHECK(replies[0].outputs[0].c1 == replies[1].outputs[0].c1);
    CHECK(servers[0].binary_frames == 2);
    CHECK(servers[1].binary_frames == 0);
}

TEST_CASE("a reply of another number or group is refused, and the connection closed") {
    for (const auto frames : {frame_form::binary, frame_form::json}) {
        for (const bool number : {true, false}) {
            peer server;
            patient calm;
            remote_model remote(server.connector(), client_identity({}), keys(), calm.options(frames));
            server.number_of_reply = number ? 1 : 0;
            server.group_of_reply = number ? 0 : 1;
            remote_model::reply_type reply;
            const auto message = tests::refusal<tensafe::format_error>([&] { ask(remote, reply); });
            CHECK(message.find(number ? "request 2 of group 0" : "request 1 of group 1") != message.npos);
            CHECK(message.find("expected one to request 1 of group 0") != message.npos);
            CHECK(server.open == 0);
            CHECK(tests::refusal<connection_lost>([&] { ask(remote, reply); }).find("no connection") !=
                  std::string::npos);
        }
    }
}

TEST_CASE("JSON around a reply that says another number than the reply is refused") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options(frame_form::json));
    server.number_in_json = 3;
    remote_model::reply_type reply;
    CHECK(tests::refusal<tensafe::format_error>([&] { ask(remote, reply); }).find("request 4 of group 0") !=
          std::string::npos);
    CHECK(server.open == 0);
}

TEST_CASE("a request whose reply was lost is made anew, in the same session, with a number of its own") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    remote_model::reply_type reply;
    ask(remote, reply);
    server.cut_replies = true;
    std::uint8_t made = 20;
    remote.with_retry([&] { ask(remote, reply, ++made); });
    CHECK(made == 22);
    CHECK(server.numbers == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(server.requests[1] != server.requests[2]);
    CHECK(server.hellos.size() == 1);
    REQUIRE(server.resumes.size() == 1);
    CHECK(calm.waited == std::vector<milliseconds::rep>{50});
    CHECK(remote.counted().resumed == 1);

    // The next time with the token that the resume brought.
    const auto token = server.token;
    server.cut_replies = true;
    remote.with_retry([&] { ask(remote, reply); });
    REQUIRE(server.resumes.size() == 2);
    CHECK(server.resumes[1].token == token);
    CHECK(server.resumes[0].token != token);
}

TEST_CASE("no number comes again, whatever the server says is next") {
    for (const std::uint64_t next : {1U, 50U}) {
        peer server;
        patient calm;
        remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
        remote_model::reply_type reply;
        ask(remote, reply);
        server.next_number = next;
        remote.reconnect();
        ask(remote, reply);
        CHECK(server.numbers.back() == std::max<std::uint64_t>(next, 2));
    }
}

TEST_CASE("where the numbers of a session are used up, the next one begins with 1") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    server.next_number = ~std::uint64_t{0};
    remote.reconnect();
    remote_model::reply_type reply;
    CHECK(tests::refusal<connection_lost>([&] { ask(remote, reply); }).find("used up") != std::string::npos);
    CHECK(server.open == 0);
    remote.with_retry([&] { ask(remote, reply); });
    CHECK(server.numbers == std::vector<std::uint64_t>{1});
    CHECK(remote.counted().sessions == 2);
}

TEST_CASE("where the session is gone, a fresh one is opened on the same connection") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    const auto* const client = remote.client().get();
    remote_model::reply_type reply;
    ask(remote, reply);
    server.has_session = false;
    server.cut_replies = true;
    remote.with_retry([&] { ask(remote, reply); });
    CHECK(server.connections == 2);
    CHECK(server.hellos.size() == 2);
    CHECK(server.signatures == std::vector<bool>{true, true});  // over the second nonce
    CHECK(server.rerandomization_keys[0] != server.rerandomization_keys[1]);
    CHECK(server.numbers == std::vector<std::uint64_t>{1});
    CHECK(remote.client().get() == client);
    CHECK(remote.counted().sessions == 2);
}

TEST_CASE("another layout or B after a reconnection is an error, and so is a session of another version") {
    for (int what = 0; what < 4; ++what) {
        peer server;
        patient calm;
        std::optional<lora::adapter> given;
        if (what == 0) {  // the server sends none to compare
            given = small_held();
        }
        remote_model remote(server.connector(), client_identity({}), keys(), calm.options(), given);
        server.has_session = what == 3;
        if (what == 0 || what == 3) {
            ++server.version;
        } else if (what == 1) {
            server.layout.groups[0].row_norm = 2;
        } else {
            server.held = small_held(3);
        }
        CHECK(tests::refusal<adapter_changed_error>([&] { remote.reconnect(); }).find("kjv") !=
              std::string::npos);
        CHECK(server.open == 0);
    }
}

TEST_CASE(
    "the same adapter in a fresh session goes on whatever its version, as after a restart of the server") {
    peer server;
    patient calm;
    server.version = 3;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    server.has_session = false;
    server.version = 1;
    remote.reconnect();
    CHECK(remote.version() == 1);
    server.has_session = true;
    remote.reconnect();  // a session's own version is the later one
    CHECK(remote.counted().resumed == 1);
}

TEST_CASE("waits between attempts double up to the cap, and half of each is random") {
    const auto sequence = [](double draw) {
        backoff waits({milliseconds(100), milliseconds(900), 0});
        std::vector<milliseconds::rep> result;
        for (int i = 0; i < 6; ++i) {
            result.push_back(waits.next(draw).count());
        }
        return result;
    };
    CHECK(sequence(0) == std::vector<milliseconds::rep>{50, 100, 200, 400, 450, 450});
    CHECK(sequence(0.5) == std::vector<milliseconds::rep>{75, 150, 300, 600, 675, 675});

    peer server;
    patient calm;
    calm.draw = 0.5;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    server.unreachable = 3;
    remote.reconnect();
    CHECK(calm.waited == std::vector<milliseconds::rep>{75, 150, 300, 600});
    CHECK(server.connections == 5);
    server.unreachable = 100;
    const auto message = tests::refusal<connection_lost>([&] { remote.reconnect(); });
    CHECK(message.find("gave up after 6 attempts: nobody there") != message.npos);
    CHECK(server.connections == 11);
}

TEST_CASE("a server that cuts every request is not asked for ever") {
    peer server;
    patient calm;
    auto options = calm.options();
    options.most_losses = 3;
    remote_model remote(server.connector(), client_identity({}), keys(), options);
    remote_model::reply_type reply;
    std::size_t tries = 0;
    CHECK(tests::refusal<connection_lost>([&] {
              remote.with_retry([&] {
                  ++tries;
                  server.cut_replies = true;
                  ask(remote, reply);
              });
          }) == "cut");
    CHECK(tries == 4);

    // Losses with replies in between are another matter.
    for (int i = 0; i < 5; ++i) {
        remote.with_retry([&] { ask(remote, reply); });
        server.cut_replies = true;
    }
    CHECK(remote.counted().replies == 5);
}

TEST_CASE("a step of several requests ends, too, if its server never answers more than the first") {
    peer server;
    server.answers_until_cut = 1;
    patient calm;
    auto options = calm.options();
    options.most_losses = 3;
    options.most_waits = 2;
    remote_model remote(server.connector(), client_identity({}), keys(), options);
    remote_model::reply_type reply;
    std::size_t tries = 0;
    const auto step = [&] {
        if (++tries > 10) {
            throw tensafe::parameter_error("still trying");
        }
        ask(remote, reply, 1, 0);
        ask(remote, reply, 2, 1);
    };
    CHECK(tests::refusal<connection_lost>([&] { remote.with_retry(step); }) == "cut");
    CHECK(tries == 4);

    server.answers_until_cut = 0;
    remote.reconnect();
    tries = 0;
    const auto limited = [&] {
        server.refusals.clear();
        ask(remote, reply, 1, 0);
        server.refusals = {said(error_code::rate_limit, 5)};
        step();
    };
    CHECK(tests::refusal<rate_limit_error>([&] { remote.with_retry(limited); }).find("rate_limit") !=
          std::string::npos);
    CHECK(tries == 3);
}

TEST_CASE("each error of the server becomes an exception that carries its code, and the session goes on") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    remote_model::reply_type reply;
    for (std::size_t c = 0; c < error_codes; ++c) {
        const auto code = static_cast<error_code>(c);
        if (code == error_code::draining) {
            continue;
        }
        server.refusals.push_back(said(code, 70));
        try {
            ask(remote, reply);
            FAIL("nothing was thrown");
        } catch (const refused_error& e) {
            CHECK(e.code() == code);
            CHECK(e.retry_after() == milliseconds(70));
            CHECK(std::string(e.what()).find(std::string(to_string(code)) + "): \"because\"") !=
                  std::string::npos);
            CHECK((dynamic_cast<const rate_limit_error*>(&e) != nullptr) == (code == error_code::rate_limit));
            CHECK((dynamic_cast<const query_limit_error*>(&e) != nullptr) ==
                  (code == error_code::query_limit));
        }
        CHECK(server.connections == 1);
    }
    ask(remote, reply);
    server.refusals.push_back(said(error_code::draining));
    CHECK(tests::refusal<connection_lost>([&] { ask(remote, reply); }).find("draining") != std::string::npos);
    CHECK(server.open == 0);

    peer strict;
    strict.at_hello = refusal{error_code::unknown_adapter, "no", {}, {}};
    CHECK(tests::refusal<refused_error>([&] { remote_to(strict, calm.options()); }).find("unknown_adapter") !=
          std::string::npos);
    CHECK(strict.open == 0);
}

TEST_CASE("an error for another request is refused") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    remote_model::reply_type reply;
    auto late = said(error_code::malformed);
    late.number = 5;
    server.refusals.push_back(late);
    CHECK(tests::refusal<tensafe::format_error>([&] { ask(remote, reply); }).find("request 6") !=
          std::string::npos);
    CHECK(server.open == 0);
}

TEST_CASE("after a rate limit the client waits as long as the server says, and encrypts anew") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    remote_model::reply_type reply;
    server.refusals = {said(error_code::rate_limit, 250), said(error_code::rate_limit),
                       said(error_code::rate_limit, std::uint64_t{1} << 63)};
    std::uint8_t made = 0;
    remote.with_retry([&] { ask(remote, reply, ++made); });
    CHECK(calm.waited == std::vector<milliseconds::rep>{250, 100, 60'000});
    CHECK(made == 4);
    CHECK(server.connections == 1);
    CHECK(remote.counted().rate_waits == 3);

    server.refusals = {said(error_code::query_limit)};
    CHECK(tests::refusal<query_limit_error>([&] {
              remote.with_retry([&] { ask(remote, reply); });
          }).find("query_limit") != std::string::npos);
    CHECK(calm.waited.size() == 3);
}

TEST_CASE("a server that goes away still gives its last reply") {
    peer server;
    patient calm;
    remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
    remote_model::reply_type reply;
    server.draining_first = 1;
    server.slow_draining = milliseconds(30);
    ask(remote, reply);
    CHECK(reply.outputs.size() == reply_of(0).outputs.size());
    CHECK(remote.counted().replies == 1);
    CHECK(server.last_limit <= milliseconds(60'000 - 29));  // of one time for the whole answer

    server.draining_first = 2;
    CHECK(tests::refusal<tensafe::format_error>([&] { ask(remote, reply); }).find("got draining") !=
          std::string::npos);
    CHECK(server.open == 0);
}

TEST_CASE("a client that asked to be forgotten, or closed, has no session until it connects again") {
    for (const bool forgets : {true, false}) {
        peer server;
        patient calm;
        remote_model remote(server.connector(), client_identity({}), keys(), calm.options());
        if (forgets) {
            remote.forget();
        } else {
            remote.close();
        }
        CHECK(server.others == std::vector<std::string>{forgets ? "forget" : "bye"});
        CHECK(server.open == 0);
        remote_model::reply_type reply;
        CHECK(tests::refusal<closed_error>([&] {
                  remote.with_retry([&] { ask(remote, reply); });
              }).find("expected reconnect") != std::string::npos);
        CHECK(server.connections == 1);
        remote.reconnect();
        ask(remote, reply);
        CHECK(server.resumes.empty());
        CHECK(server.hellos.size() == 2);
    }
}

TEST_CASE("an adapter whose deltas no float could hold is refused before a state is encrypted") {
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
        const auto message =
            tests::refusal<tensafe::parameter_error>([&] { remote_to(server, calm.options()); });
        CHECK(message.find("\"second.site\": got ") != message.npos);
        CHECK(message.find("expected at most 2^64") != message.npos);
        CHECK(server.open == 0);
    }
}

TEST_CASE("an identity is made once for a file, and is the same afterwards") {
    const auto folder =
        std::filesystem::temp_directory_path() / ("split_client_" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    const auto first = client_identity(folder / "identity.pem");
    CHECK(client_identity(folder / "identity.pem").verifying() == first.verifying());
    CHECK(!(client_identity({}).verifying() == first.verifying()));
    CHECK(tests::refusal<tensafe::io_error>([&] {
              client_identity(folder / std::string(300, 'x'));
          }).find("cannot look for the key of this client: ") != std::string::npos);

    // Of several starts at once the first makes it, and the others find it there.
    constexpr std::size_t starts = 8;
    std::array<std::string, starts> got;
    {
        std::latch all(starts);
        std::vector<std::jthread> threads;
        for (std::string& mine : got) {
            threads.emplace_back([&] {
                all.arrive_and_wait();
                try {
                    mine = client_identity(folder / "shared.pem").verifying().hex();
                } catch (const std::exception& e) {
                    mine = e.what();
                }
            });
        }
    }
    const auto made = client_identity(folder / "shared.pem").verifying().hex();
    CHECK(std::count(got.begin(), got.end(), made) == starts);
    std::filesystem::remove_all(folder);
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
        CHECK(tests::refusal<tensafe::parameter_error>([&] {
                  server_address::of(bad);
              }).find("expected wss://host:port") != std::string::npos);
    }
    CHECK(tests::refusal<tensafe::parameter_error>([] {
              server_address::of("https://a:1");
          }).find("write wss://") != std::string::npos);
}

namespace {

/// Listens on a free port of this machine; takes one connection, gives it to `talk`, and closes it.
class listener {
  public:
    explicit listener(std::function<void(int)> talk, const std::string& host = "127.0.0.1")
        : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        ::sockaddr_in address{};
        address.sin_family = AF_INET;
        REQUIRE(::inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1);
        ::socklen_t size = sizeof(address);
        auto* const any = reinterpret_cast<::sockaddr*>(&address);
        REQUIRE(::bind(socket_, any, size) == 0);
        REQUIRE(::listen(socket_, 4) == 0);
        REQUIRE(::getsockname(socket_, any, &size) == 0);
        port_ = ::ntohs(address.sin_port);
        thread_ = std::jthread([socket = socket_, talk = std::move(talk)] {
            const int taken = ::accept(socket, nullptr, nullptr);
            if (taken >= 0) {
                talk(taken);
                ::close(taken);
            }
        });
    }
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;
    ~listener() {
        ::shutdown(socket_, SHUT_RDWR);  // an accept that waits returns
        thread_.join();
        ::close(socket_);
    }
    std::string port() const { return std::to_string(port_); }

  private:
    int socket_;
    std::uint16_t port_ = 0;
    std::jthread thread_;
};

/// A TLS handshake by OpenSSL itself, and then whatever comes is read and nothing said.
void shake_hands(int socket, const tls_files& files) {
    const std::unique_ptr<::SSL_CTX, decltype(&::SSL_CTX_free)> context(::SSL_CTX_new(::TLS_server_method()),
                                                                        ::SSL_CTX_free);
    ::SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str());
    ::SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM);
    const std::unique_ptr<::SSL, decltype(&::SSL_free)> tls(::SSL_new(context.get()), ::SSL_free);
    ::SSL_set_fd(tls.get(), socket);
    if (::SSL_accept(tls.get()) == 1) {
        std::array<char, 4096> text{};
        ::SSL_read(tls.get(), text.data(), static_cast<int>(text.size()));
        constexpr std::string_view answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        ::SSL_write(tls.get(), answer.data(), static_cast<int>(answer.size()));
    }
}

}  // namespace

TEST_CASE("only the certificate that was given is trusted, and only for its host") {
    const auto folder = std::filesystem::temp_directory_path() / ("split_tls_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder / "a");
    std::filesystem::create_directories(folder / "b");
    const tls_files ours = prepare_certificate(folder / "a");
    const tls_files others = prepare_certificate(folder / "b");
    const auto connect = [&](const std::string& host, const std::filesystem::path& trusted) {
        const listener server([&](int socket) { shake_hands(socket, ours); }, host);
        websocket_options options;
        options.trusted_certificates = trusted;
        connect_websocket(server_address::of("wss://" + host + ":" + server.port()), options);
    };
    // The right one gets as far as the WebSocket, of which this server knows nothing.
    CHECK(tests::refusal<connection_lost>([&] {
              connect("127.0.0.1", ours.certificate);
          }).find("open a WebSocket") != std::string::npos);
    CHECK(tests::refusal<tensafe::signature_error>([&] {
              connect("127.0.0.1", others.certificate);
          }).find("is not trusted: self") != std::string::npos);
    // This machine too, but the certificate does not say so.
    CHECK(tests::refusal<tensafe::signature_error>([&] {
              connect("127.0.0.2", ours.certificate);
          }).find("its certificate is not for \"127.0.0.2\"") != std::string::npos);
    const auto missing =
        tests::refusal<tensafe::io_error>([&] { connect("127.0.0.1", folder / "none.pem"); });
    CHECK(missing.find("none.pem") != std::string::npos);
    CHECK(missing.find("--trust") != std::string::npos);
    CHECK(missing.find("No such file") != std::string::npos);
    std::filesystem::remove_all(folder);
}

TEST_CASE("a frame beyond the limit is an error that no other connection would mend") {
    const listener server([](int socket) {
        std::string request;
        for (char c = 0; !request.ends_with("\r\n\r\n") && ::read(socket, &c, 1) == 1;) {
            request += c;
        }
        constexpr std::string_view name = "Sec-WebSocket-Key: ";
        const std::size_t key = request.find(name) + name.size();
        const std::string text = request.substr(key, request.find("\r\n", key) - key) +
                                 "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";  // RFC 6455
        std::array<std::uint8_t, 20> digest{};
        ::SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
        const std::string answer =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: " +
            base64(digest) + "\r\n\r\n" + "\x82\x7e\x04" + std::string(1025, '\0');
        static_cast<void>(::write(socket, answer.data(), answer.size()));
        std::array<char, 4096> rest{};
        while (::read(socket, rest.data(), rest.size()) > 0) {
        }
    });
    websocket_options options;
    options.largest_frame = 1000;
    const auto client = connect_websocket(server_address::of("ws://127.0.0.1:" + server.port()), options);
    CHECK(tests::refusal<tensafe::format_error>([&] {
              client->receive(milliseconds(10'000));
          }).find("got a frame of more than 1000 bytes") != std::string::npos);
}

namespace {

/// Says back what it hears.
class echo final : public net::websocket_handler {
  public:
    void start(net::answer&) override {}
    void on_text(std::string_view text, net::answer& to) override { to.add_text(text); }
    void on_binary(std::span<const std::uint8_t> bytes, net::answer& to) override {
        to.add(false).bytes.assign(bytes.begin(), bytes.end());
    }
    void on_drain(net::answer&) override {}
    bool established() const override { return true; }
    std::size_t largest_frame() const override { return std::size_t{4} << 20; }
};

}  // namespace

TEST_CASE("frames of any length come back whole, over TLS and in the clear, and the certificate is known") {
    const auto folder = std::filesystem::temp_directory_path() / ("split_echo_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const tls_files files = prepare_certificate(folder);
    for (const bool tls : {false, true}) {
        net::http_server_options options;
        options.websocket_path = websocket_path;
        if (tls) {
            options.secure = {files.certificate, files.key};
        }
        net::http_server server(options, {[](const net::http_request&) { return net::http_response(); },
                                          [](const std::string&, std::shared_ptr<net::connection_control>) {
                                              return std::make_unique<echo>();
                                          }});
        server.run();
        websocket_options trust;
        trust.trusted_certificates = files.certificate;
        trust.busy_wait = std::chrono::seconds(tls ? 0 : 3'600);  // limits hold all the same
        const auto connection =
            connect_websocket(server_address::of((tls ? "wss://127.0.0.1:" : "ws://127.0.0.1:") +
                                                 std::to_string(server.port())),
                              trust);
        CHECK(tensafe::keystore::hex(connection->certificate_sha256()) ==
              (tls ? files.fingerprint : std::string(64, '0')));
        for (const std::size_t length : {0U, 1U, 125U, 126U, 16'383U, 65'536U, 98'765U, 3'000'000U}) {
            CAPTURE(length);
            octets sent(length);
            for (std::size_t i = 0; i < length; ++i) {
                sent[i] = static_cast<std::uint8_t>(i * i >> 8);
            }
            const auto before = connection->bytes();
            connection->send_binary(sent);
            const auto got = connection->receive(milliseconds(20'000));
            CHECK_FALSE(got.is_text);
            CHECK(std::ranges::equal(got.bytes, sent));
            CHECK(connection->bytes().up >= before.up + length);
            CHECK(connection->bytes().down >= before.down + length);
        }
        connection->send_text("text");
        CHECK(connection->receive(milliseconds(20'000)).text() == "text");
        CHECK(tests::refusal<connection_lost>([&] {
                  static_cast<void>(connection->receive(milliseconds(10)));
              }).find("cannot receive: not done in time") != std::string::npos);
        CHECK(tests::refusal<connection_lost>([&] {
                  connection->send_text("more");
              }).find("the connection is closed") != std::string::npos);
    }
    std::filesystem::remove_all(folder);
}

TEST_CASE("connections that cannot be made are lost ones, within the limit, and say where") {
    websocket_options options;
    options.connect_limit = milliseconds(1000);
    CHECK(tests::refusal<tensafe::parameter_error>([&] {
              connect_websocket(server_address::of("wss://127.0.0.1:1"), options);
          }).find("--trust") != std::string::npos);
    CHECK(tests::refusal<connection_lost>([&] {
              connect_websocket(server_address::of("ws://127.0.0.1:1"), options);
          }).find("ws://127.0.0.1:1: cannot connect") != std::string::npos);
    // As a port of TLS does.
    const listener other([](int socket) {
        std::array<char, 4096> text{};
        static_cast<void>(::read(socket, text.data(), text.size()));
    });
    CHECK(tests::refusal<connection_lost>([&] {
              connect_websocket(server_address::of("ws://127.0.0.1:" + other.port()), options);
          }).find("a port with TLS?") != std::string::npos);

    // Takes the connection and says nothing until the client has gone.
    const listener silent([](int socket) {
        std::array<char, 4096> text{};
        while (::read(socket, text.data(), text.size()) > 0) {
        }
    });
    CHECK(tests::refusal<connection_lost>([&] {
              connect_websocket(server_address::of("ws://127.0.0.1:" + silent.port()), options);
          }).find("not done in time") != std::string::npos);
}
