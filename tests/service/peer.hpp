#pragma once

// One peer of the service for its tests: a client's side of a connection without a network, which speaks
// frame by frame and can be made to lie, and a small server with an adapter.

#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>

#include <deque>
#include <variant>

#include "../../service/net/websocket_client.hpp"
#include "../../service/service.hpp"
#include "../io/file_builder.hpp"
#include "../random_values.hpp"
#include "client_half.hpp"

namespace tests {

/// `call` throws an E whose message has this part.
template <class E, class Call>
void check_refusal(std::string_view part, Call call) {
    const std::string message = refusal<E>(call);
    INFO("message := ", message, ", part := ", part);
    CHECK(contains(message, part));
}

/// A client's connection without a network: what the other side says waits until it is received.
class memory_connection : public split::client_connection {
  public:
    void begin(const char*, std::chrono::milliseconds) override {}
    frame receive() override {
        check_open();
        if (frames_.empty()) {
            cut();
            check_open();
        }
        last_ = std::move(frames_.front());
        frames_.pop_front();
        traffic_.down += last_.second.size();
        return {last_.first, last_.second};
    }
    void close() noexcept override { cut(); }
    traffic bytes() const noexcept override { return traffic_; }

    /// Without a word, as a network does it. Answers that wait are lost.
    void cut() noexcept { is_cut_ = true; }

  protected:
    void check_open() const {
        if (is_cut_) {
            throw split::connection_lost("cut");
        }
    }
    void say(bool is_text, tests::bytes message) { frames_.emplace_back(is_text, std::move(message)); }
    void say_text(std::string_view text) { say(true, {text.begin(), text.end()}); }
    traffic traffic_;

  private:
    std::deque<std::pair<bool, tests::bytes>> frames_;
    std::pair<bool, tests::bytes> last_;
    bool is_cut_ = false;
};

// Messages made up by hand: a server cannot tell an encryption from residues that somebody invented.

/// A message around a body, checksums included.
inline bytes message_of(tensafe::wire::kind what, const bytes& body, std::uint64_t number = 0,
                        std::uint32_t group = 0, std::uint64_t set = own_set, std::uint64_t scheme = 0) {
    bytes message;
    tensafe::wire::write_message({what, set, scheme, number, group, body.size()}, message,
                                 [&](tensafe::wire::byte_writer& w) { w.bytes(body); });
    return message;
}
/// It, from a client that has no answer yet to so many requests before it.
inline bytes behind(std::size_t unanswered, bytes message) {
    auto header = tensafe::wire::read_header(message);
    header.unanswered = static_cast<std::uint16_t>(unanswered);
    std::ranges::copy(tensafe::wire::write_header(header), message.begin());
    return message;
}

/// A body of numbers of 4 bytes, and then so many bytes.
inline bytes body_of(std::initializer_list<std::uint32_t> numbers, std::size_t rest,
                     std::uint8_t filling = 0) {
    bytes body;
    for (const std::uint32_t value : numbers) {
        for (int i = 0; i < 4; ++i) {
            body.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
        }
    }
    body.resize(body.size() + rest, filling);
    return body;
}

inline constexpr std::size_t first_limb = 4096 * 45 / 8;
inline constexpr std::size_t both_limbs = first_limb + 4096 * 44 / 8;

inline bytes rerandomization_key_message(const tensafe::random::seed& nonce, std::uint64_t set = own_set) {
    bytes body = body_of({1, 0, 0}, 32, 7);
    const auto& derived = split::derived_nonces(nonce).of_rerandomization_key.bytes;
    body.insert(body.end(), derived.begin(), derived.end());
    const std::size_t b = body.size();
    body.resize(b + both_limbs);
    body[b] = 3;
    body[b + first_limb] = 5;
    return message_of(tensafe::wire::kind::rerandomization_key, body, 0, 0, set);
}
inline bytes request_message(std::uint64_t number, std::uint32_t group = 0, std::uint64_t set = own_set) {
    bytes body = body_of({64, 1024, 1}, 32, 9);
    body.resize(body.size() + both_limbs);
    return message_of(tensafe::wire::kind::request, body, number, group, set,
                      tensafe::wire::scheme_id<split::packing, split::protection>);
}
inline constexpr auto scheme_of_blocks =
    tensafe::wire::scheme_id<tensafe::lora::token_blocks, split::protection>;
inline bytes block_request_message(std::uint64_t number, std::uint32_t group = 0) {
    const auto tokens = static_cast<std::uint32_t>(split::limits{}.tokens_ahead);
    return message_of(tensafe::wire::kind::block_request, body_of({64, tokens, 0}, 32, 9), number, group,
                      own_set, scheme_of_blocks);
}
inline bytes token_request_message(std::uint64_t number, std::uint32_t block, std::uint32_t position,
                                   std::uint32_t group = 0) {
    const std::size_t residues = tensafe::lora::packed_residues_bytes<split::params>(64);
    return message_of(tensafe::wire::kind::token_request, body_of({64, position, block, 0}, residues), number,
                      group, own_set, scheme_of_blocks);
}

/// Two sites with an input of their own each, of 64 entries; of the 2048 bits of A a request tells 64.
inline tensafe::lora::adapter small_adapter() {
    tensafe::lora::adapter result;
    result.sites = {random_site(8, 4, 64, 1), random_site(8, 4, 64, 3)};
    result.sites[0].name = "model.layers.0.self_attn.q_proj";
    result.sites[1].name = "model.layers.0.mlp.up_proj";
    return result;
}
/// Room for three requests.
inline constexpr double three_requests = 0.12;

/// What several servers count in, which may be away.
struct store_of_one final : tensafe::serving::shared_counts {
    std::span<const std::byte> key() const noexcept override { return bytes_of_key; }
    void begin(const std::string&, entries_after) override {}
    void end() noexcept override {}
    std::vector<grant> reserve(std::span<const claim> claims) override {
        if (is_away) {
            throw tensafe::serving::unavailable_error("the store is away", std::chrono::milliseconds(70));
        }
        std::vector<grant> result;
        for (const claim& each : claims) {
            result.push_back({each.wanted, 0, 0});
        }
        return result;
    }
    void lower(std::span<const entry>) override {}
    std::size_t servers() const noexcept override { return 1; }
    bool is_up() const noexcept override { return !is_away; }
    std::array<std::byte, 32> bytes_of_key{};
    bool is_away = true;
};

/// @return the version
inline std::uint64_t pack_and_serve(split::model_store& to, const std::string& name,
                                    const std::function<tensafe::lora::adapter()>& from) {
    const auto packed = to.pack(name, from);
    to.serve(packed);
    return packed->version;
}

/// A server with one adapter and a clock that the test sets.
struct server {
    explicit server(const split::limits& allowed = {},
                    const std::function<void(split::service_options&)>& change = {},
                    const std::function<tensafe::lora::adapter()>& adapter = small_adapter) {
        split::service_options options;
        options.allowed = allowed;
        if (allowed.work_per_second == split::limits().work_per_second) {
            options.allowed.work_per_second = 1e9;  // of a clock that stands still a second lasts long
        }
        options.now = [this] { return now; };
        options.state = scratch.path();
        if (change) {
            change(options);
        }
        of.emplace(std::move(options));
        pack_and_serve(of->adapters(), "kjv", adapter);
    }
    /// What one request of a group counts, in bits.
    std::uint64_t bits_of_request(std::size_t group = 0) {
        return of->adapters().find("kjv")->groups.at(group).request;
    }
    tensafe::serving::usage total() { return of->used().snapshot().total(); }
    /// Of all sessions together: blocks and kept replies.
    std::size_t held_bytes() const { return of->sessions().block_bytes(); }

    temporary_directory scratch;
    split::time_point now{std::chrono::hours(1)};
    std::optional<split::service> of;
};

/// What a server knows of a connection without a network: its exporter value, unless it has none.
struct connection_end final : split::net::connection_control {
    void end(std::uint16_t, const std::string& why) override { ++ended, reason = why; }
    split::exporter_value channel_binding() override {
        return exporter ? *exporter : throw tensafe::unsupported_error("no extended master secret");
    }
    std::atomic<int> ended = 0;
    std::string reason;
    std::optional<split::exporter_value> exporter =
        std::bit_cast<split::exporter_value>(tensafe::random::fresh_seed().bytes);
};

/// A client's side of one connection.
struct peer : login {
    explicit peer(server& s, const std::string& from = "10.0.0.1") : of(s), whose{from} { connect(); }
    /// With a session.
    peer(server& s, std::shared_ptr<const signing_key> of_client, const std::string& from = "10.0.0.1")
        : peer(s, from) {
        key = std::move(of_client);
        open();
    }

    /// Another connection instead of this one.
    void connect() {
        connection = std::make_shared<connection_end>();
        exporter = *connection->exporter;
        side = of.of->connect(whose, connection);
        answer.clear();
        side->start(answer);
        if (!answer.closing()) {
            nonce = told_as<split::challenge>(0).nonce;
        }
    }
    void say(const std::string& text) {
        answer.clear();
        side->on_text(text, answer);
    }
    void send(const bytes& message) {
        answer.clear();
        side->on_binary(message, answer);
    }

    /// The frame i of the last answer.
    const split::net::frame& frame(std::size_t i) const {
        REQUIRE(i < answer.frames().size());
        return answer.frames()[i];
    }
    /// The text frame i of it.
    split::control_message told(std::size_t i) const {
        REQUIRE(frame(i).is_text);
        return split::parse_control(text_of_frame(i), 1 << 20);
    }
    template <class Message>
    Message told_as(std::size_t i) const {
        return std::get<Message>(told(i));
    }
    std::string text_of_frame(std::size_t i) const {
        return {frame(i).data().begin(), frame(i).data().end()};
    }
    /// The one frame of it.
    bytes said() const {
        REQUIRE(answer.frames().size() == 1);
        return {frame(0).data().begin(), frame(0).data().end()};
    }
    split::refusal refused() const {
        REQUIRE(answer.frames().size() == 1);
        return told_as<split::refusal>(0);
    }
    /// What is said to a text or a message that is refused.
    split::refusal refusal_of(const std::string& text) { return say(text), refused(); }
    split::refusal refusal_of(const bytes& message) { return send(message), refused(); }
    split::error_code code_of(const auto& sent) { return refusal_of(sent).code; }
    /// Whether the last answer is a reply to this number.
    bool has_reply(std::uint64_t number, std::uint32_t group = 0,
                   tensafe::wire::kind what = tensafe::wire::kind::reply) const {
        if (answer.frames().size() != 1 || frame(0).is_text) {
            return false;
        }
        const auto header = tensafe::wire::read_header(frame(0).data());
        return header.what == what && header.number == number && header.group == group;
    }

    /// The text of a hello with the key that `open` would send.
    std::string hello() const { return to_text(hello_for(rerandomization_key_message(nonce))); }
    void open(split::frame_form frames = split::frame_form::binary) {
        open(frames, rerandomization_key_message(nonce));
    }
    void open(split::frame_form frames, const bytes& rerandomization_key) {
        split::hello h = hello_for(rerandomization_key, adapter);
        h.frames = frames;
        say(to_text(h));
        REQUIRE(answer.frames().empty());
        const bool in_json = frames == split::frame_form::json;
        in_json ? say(carried_text(split::carried_message::kind::rerandomization_key, rerandomization_key))
                : send(rerandomization_key);
        REQUIRE(answer.frames().size() == 3);
        welcome = told_as<split::welcome>(0);
    }
    /// Goes on with a session of this key.
    split::resumed resume(const split::session_id& session) {
        say(to_text(resume_of(session)));
        welcome.session = session;
        return told_as<split::resumed>(0);
    }
    /// Another connection of the same client, with the session.
    std::unique_ptr<peer> resumed(const std::string& from = "10.0.0.1") const {
        auto on = std::make_unique<peer>(of, from);
        on->key = key;
        on->next_number = on->resume(welcome.session).next_number;
        return on;
    }

    /// Whether a request of this number, sent now, is answered.
    bool asks(std::uint64_t number, std::uint32_t group = 0) {
        return send(request_message(number, group)), has_reply(number, group);
    }
    bool prepares(std::uint64_t number, std::uint32_t group = 0) {
        send(block_request_message(number, group));
        return has_reply(number, group, tensafe::wire::kind::block_reply);
    }
    bool asks_at(std::uint64_t number, std::uint32_t block, std::uint32_t position, std::uint32_t group = 0) {
        send(token_request_message(number, block, position, group));
        return has_reply(number, group, tensafe::wire::kind::token_reply);
    }
    /// Bits that are counted of a group, by scope.
    std::array<std::uint64_t, 3> used(std::size_t group = 0) const {
        const auto& counts = of.of->counts();
        return counts.used(counts.account_of(name(), {}, "kjv"), group);
    }

    server& of;
    split::net::caller whose;
    std::string adapter = "kjv";  ///< that `open` asks for
    std::shared_ptr<connection_end> connection;
    std::unique_ptr<split::net::websocket_handler> side;
    split::net::answer answer;
    split::welcome welcome;
    std::uint64_t next_number = 1;  ///< as resumed said
};

/// A server and a client with a session.
struct opened {
    explicit opened(const split::limits& allowed = {}) : s(allowed) {}
    server s;
    peer p{s, fresh_key()};
};

}  // namespace tests
