#pragma once

// The server's half by a script, for tests of the client: it follows docs/service.md, but for what a test
// changes.

#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/wire/held_adapter.hpp>

#include "../../service/remote_model.hpp"
#include "peer.hpp"

namespace tests {

using std::chrono::milliseconds;

/// Two groups of one site each; of one row, so that messages are short.
inline lora::model_layout small_layout() {
    lora::model_layout layout;
    layout.groups.push_back({"first", 8, 1, {{"first.site", 1, 3, 0.5}}});
    layout.groups.push_back({"second", 8, 1, {{"second.site", 1, 3, 0.5}}});
    return layout;
}
inline lora::adapter small_held(float entry = 2) {
    lora::adapter held;
    for (const char* name : {"first.site", "second.site"}) {
        held.sites.push_back({name, {}, lora::matrix(3, 1), 0.5});
        held.sites.back().b.values[1] = entry;
    }
    return held;
}
/// A reply of the right size.
inline split::remote_model::client_type::reply_type reply_of(std::uint8_t filling) {
    const split::remote_model::client_type::decode_plan plan(1, 8, 1);
    split::remote_model::client_type::reply_type reply;
    reply.rank = 1;
    reply.d = 8;
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        const int bits = plan.reply_bits(o);
        bytes c0(memory::packed_bytes(plan.targets(o), bits));
        c0[0] = static_cast<std::uint8_t>(filling & 1);
        reply.outputs.push_back({c0, bytes(memory::packed_bytes(split::params::degree, bits), filling)});
    }
    return reply;
}
/// Of a message: its header also says what it acknowledges.
inline bytes body_without_header(const bytes& message) {
    return {message.begin() + wire::header_bytes, message.end()};
}

inline const std::vector<float> ones(8, 1);
inline session::call call_of(std::size_t rows, std::size_t group = 0) {
    return {group, rows, [](std::size_t) { return std::span<const float>(ones); }};
}

/// Lives longer than its connections.
struct scripted_server {
    // What a test changes.
    std::uint64_t version = 3;
    lora::model_layout layout = small_layout();
    lora::adapter held = small_held();
    std::string pin;
    std::uint64_t revision = 3;         ///< of pins that are made
    bool has_session = true;            ///< whether a resume is good
    bool cut_resumes = false;           ///< in place of the next answer to one the connection breaks
    std::uint64_t next_number = 0;      ///< what resumed says; 0: as it is
    std::uint64_t number_of_reply = 0;  ///< added to the right one
    std::uint32_t group_of_reply = 0;
    std::uint64_t number_in_json = 0;   ///< added in the JSON around the reply alone
    std::size_t cut_replies = 0;        ///< in place of so many replies the connection breaks
    std::size_t answers_until_cut = 0;  ///< of a connection; 0: no limit
    std::vector<std::uint64_t> left{100};
    std::size_t unreachable = 0;                         ///< so many connections fail first
    bool is_wrong = false;                               ///< at the address is another server
    std::deque<split::refusal> refusals;                 ///< in place of answers to requests
    std::map<std::uint64_t, split::error_code> refused;  ///< requests, by number
    std::optional<split::refusal> at_hello;
    std::size_t refused_hellos = ~std::size_t{0};  ///< that `at_hello` answers
    std::size_t draining_first = 0;                ///< so many times before the next reply or `forgotten`
    double draw = 0;                               ///< what its clients draw

    // What a test looks at.
    std::size_t connections = 0;
    std::size_t open = 0;
    std::vector<split::hello> hellos;
    std::vector<bytes> rerandomization_keys;
    std::vector<bool> signatures;
    std::vector<tensafe::random::seed> nonces;
    std::vector<split::resume> resumes;
    std::vector<bool> resume_signatures;
    std::vector<bytes> requests;
    std::vector<std::uint64_t> numbers;  ///< of them, in this session
    std::vector<std::string> others;     ///< forget, bye
    std::size_t binary_frames = 0;
    std::vector<std::string> steps;         ///< that were begun
    std::vector<milliseconds::rep> waited;  ///< by clients, which do not sleep
    std::chrono::steady_clock::time_point now{};
    std::vector<milliseconds> limits;  ///< of the connections
    std::uint8_t filling = 0;

    split::remote_model::connector connector();
    bytes layout_message() const {
        return wire::write_model_layout<split::params, split::packing, split::protection>(layout);
    }
    bytes held_message() const { return wire::write_held_adapter(held, layout); }
    /// What a publisher signs of this server.
    keystore::adapter_pin made_pin(const signing_key& by, std::byte weights = {},
                                   std::string_view name = "kjv") const {
        const auto layout_bytes = layout_message();
        const auto held_bytes = held_message();
        return keystore::adapter_pin::make(by, name,
                                           {keystore::sha256::of(std::as_bytes(std::span(layout_bytes))),
                                            keystore::sha256::of(std::as_bytes(std::span(held_bytes))),
                                            {weights}},
                                           revision);
    }

    split::remote_options options(split::frame_form frames = split::frame_form::binary) {
        split::remote_options result;
        result.adapter = "kjv";
        result.frames = frames;
        result.backoff = {milliseconds(100), milliseconds(1000)};
        result.wait = [this](milliseconds time) {
            waited.push_back(time.count());
            now += time;
        };
        result.now = [this] { return now; };
        result.draw = [this] { return draw; };
        return result;
    }
    /// One key for all tests: making it takes the longest here.
    split::remote_model client(const split::remote_options& how, std::optional<lora::adapter> part = {},
                               signing_key identity = split::client_identity({})) {
        static const auto keys = std::make_shared<lora::client<split::params>>();
        return split::remote_model(connector(), std::move(identity), keys, how, std::move(part));
    }
    split::remote_model client() { return client(options()); }
};

class scripted_connection final : public memory_connection {
  public:
    explicit scripted_connection(scripted_server& of) : of_(of) {
        ++of_.open;
        split::challenge greeting;
        greeting.nonce.bytes.fill(static_cast<std::uint8_t>(of_.connections));
        greeting.parameters = "some set";
        exporter_[0] = static_cast<std::byte>(of_.connections);
        of_.nonces.push_back(greeting.nonce);
        say(greeting);
    }
    ~scripted_connection() override { --of_.open; }
    std::array<std::byte, 32> tls_exporter() const override { return exporter_; }

    void send_text(std::string_view text) override {
        check_open();
        traffic_.up += text.size();
        std::visit([&](const auto& m) { take(m); }, split::parse_control(text, 1 << 20));
    }
    void send_binary(std::span<const std::uint8_t> message) override {
        check_open();
        ++of_.binary_frames;
        traffic_.up += message.size();
        take_message({message.begin(), message.end()});
    }
    void begin(const char* step, milliseconds) override { of_.steps.emplace_back(step); }

  private:
    using carried = split::carried_message;
    void say(const split::control_message& m) { say_text(to_text(m)); }
    void say_message(carried::kind what, const tests::bytes& message) {
        json_ ? say_text(carried_text(what, message)) : memory_connection::say(false, message);
    }

    void take(const split::hello& m) {
        of_.hellos.push_back(m);
        json_ = m.frames == split::frame_form::json;
    }
    void take(const carried& m) { take_message(m.message); }
    void take(const split::resume& m) {
        of_.resumes.push_back(m);
        of_.resume_signatures.push_back(is_signed(m));
        if (std::exchange(of_.cut_resumes, false)) {
            return cut();
        }
        if (!of_.has_session) {
            return say(split::refusal{split::error_code::resume_failed, "no such session", {}, {}});
        }
        json_ = !of_.hellos.empty() && of_.hellos.back().frames == split::frame_form::json;
        const auto last = std::ranges::max_element(of_.numbers);
        const std::uint64_t next = last == of_.numbers.end() ? 1 : *last + 1;
        say(split::resumed{m.session, of_.next_number != 0 ? of_.next_number : next, of_.version, of_.left});
    }
    void take(const split::forget&) {
        of_.others.push_back("forget");
        say_draining();
        say(split::forgotten{});
    }
    void take(const split::bye&) { of_.others.push_back("bye"); }
    void take(const auto&) { FAIL("a client does not send this"); }
    void say_draining() {
        for (; of_.draining_first > 0; --of_.draining_first) {
            say(split::draining{});
        }
    }

    bool is_signed(const auto& m) const {
        return keystore::verifying_key(m.client).verifies(
            split::text_to_sign(exporter_, of_.nonces.back(), m), m.signature);
    }

    void take_message(const tests::bytes& message) {
        const bool is_key = wire::read_header(message).what == wire::kind::rerandomization_key;
        is_key ? open_session(message) : answer(message);
    }
    void open_session(const tests::bytes& key) {
        REQUIRE(!of_.hellos.empty());
        const split::hello& m = of_.hellos.back();
        of_.rerandomization_keys.push_back(key);
        const auto nonce =
            wire::read_rerandomization_key<split::params, lora::request_level<split::params>>(key)
                .server_nonce;
        of_.signatures.push_back(is_signed(m) &&
                                 m.key_sha256 == keystore::sha256::of(std::as_bytes(std::span(key))) &&
                                 nonce == split::derived_nonces(of_.nonces.back()).of_rerandomization_key);
        if (of_.at_hello && of_.refused_hellos > 0) {
            --of_.refused_hellos;
            return say(*of_.at_hello);
        }
        say(split::welcome{{std::byte{8}}, m.adapter, of_.version, of_.left, of_.pin});
        say_message(carried::kind::model_layout, of_.layout_message());
        if (m.held) {
            say_message(carried::kind::held_adapter, of_.held_message());
        }
        of_.has_session = true;
        of_.numbers.clear();
    }
    void answer(const tests::bytes& message) {
        const wire::header head = wire::read_header(message);
        REQUIRE(head.what == wire::kind::request);
        of_.requests.push_back(message);
        of_.numbers.push_back(head.number);
        if (of_.cut_replies > 0) {
            --of_.cut_replies;
            return cut();
        }
        if (const auto found = of_.refused.find(head.number); found != of_.refused.end()) {
            return say(split::refusal{found->second, "because", head.number, {}});
        }
        if (!of_.refusals.empty()) {
            split::refusal said = of_.refusals.front();
            of_.refusals.pop_front();
            if (said.number) {
                *said.number += head.number;
            }
            return say(said);
        }
        if (of_.answers_until_cut != 0 && ++answers_ > of_.answers_until_cut) {
            return;  // it is cut when the client has received what there is
        }
        say_draining();
        const wire::envelope envelope{head.number + of_.number_of_reply, head.group + of_.group_of_reply};
        const tests::bytes reply = wire::write_reply(reply_of(++of_.filling), envelope);
        json_ ? say_text(carried_text(carried::kind::reply, reply, envelope.number + of_.number_in_json,
                                      envelope.group))
              : memory_connection::say(false, reply);
    }

    scripted_server& of_;
    split::exporter_value exporter_{};
    std::size_t answers_ = 0;
    bool json_ = false;
};

inline split::remote_model::connector scripted_server::connector() {
    return [this](const split::wait_options& how) -> std::unique_ptr<split::client_connection> {
        ++connections;
        limits.push_back(how.limit);
        if (unreachable > 0) {
            --unreachable;
            throw split::connection_lost("nobody there");
        }
        if (is_wrong) {
            split::connection_lost lost("another server");
            lost.is_wrong_server = true;
            throw lost;
        }
        return std::make_unique<scripted_connection>(*this);
    };
}

}  // namespace tests
