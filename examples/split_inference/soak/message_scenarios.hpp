#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/wire/checksum.hpp>
#include <tensafe/wire/set_id.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "clients.hpp"
#include "fixture.hpp"
#include "frame_scenarios.hpp"

// Peers that keep to the rules of frames and break those of messages.

namespace split::soak {

inline constexpr std::uint64_t other_set = tensafe::wire::set_id<tensafe::ckks::compact_n4096>;

// Where things stand in a message: docs/wire-format.md.
enum place : std::size_t {
    at_version = 4,
    at_kind = 5,
    at_reserved = 6,
    at_set = 8,
    at_scheme = 16,
    at_number = 24,
    at_body_bytes = 32,
    at_group = 40,
    at_checksum = 44,
    at_body = 48
};

template <class Number>
void put(std::string& message, std::size_t at, Number value) {
    std::memcpy(message.data() + at, &value, sizeof(value));  // x86-64 and AArch64 are little endian
}

/// Makes both checksums right, so that what is wrong behind them is looked at.
inline void correct_checksums(std::string& message) {
    const auto sum = [&](std::size_t from, std::size_t count) {
        return tensafe::wire::crc32c(bytes_of(message).subspan(from, count));
    };
    put(message, at_checksum, sum(0, at_checksum));
    put(message, message.size() - 4, sum(at_body, message.size() - at_body - 4));
}

struct bad_frame {
    std::string name;
    unsigned operation = op_binary;
    std::string data;
    const char* code = "malformed";
    bool uses_number = false;  ///< it comes as far as the computing, so its number is seen
};

/// Every way to get a request wrong, from a good one of this number.
inline std::vector<bad_frame> bad_frames(const std::string& good, std::uint64_t number,
                                         std::mt19937& generator) {
    std::vector<bad_frame> all;
    // Whether checksums are corrected, and whether the number is used up.
    constexpr bool correct = true;
    constexpr bool used = true;
    const auto malformed = "malformed";
    const auto changed = [&](const char* name, const char* code, bool corrected, bool uses, auto change) {
        std::string m = good;
        change(m);
        if (corrected) {
            correct_checksums(m);
        }
        all.push_back({name, op_binary, m, code, uses});
    };
    const auto one_bit = [&] { return static_cast<char>(1u << (generator() % 8)); };
    changed("a request cut short", malformed, !correct, used,
            [&](auto& m) { m.resize(m.size() - 1 - generator() % 1000); });
    changed("half a header", malformed, !correct, !used, [](auto& m) { m.resize(20); });
    changed("a flipped bit in the header", malformed, !correct, !used,
            [&](auto& m) { m[6 + generator() % 38] ^= one_bit(); });
    changed("a flipped bit in the body", malformed, !correct, used,
            [&](auto& m) { m[at_body + generator() % (m.size() - at_body)] ^= one_bit(); });
    changed("residues that are none", malformed, correct, used,
            [](auto& m) { m.replace(m.size() - 1004, 1000, 1000, '\xff'); });
    const auto number_at = [&](const char* name, const char* code, bool uses, std::size_t at, auto value) {
        changed(name, code, correct, uses, [&](auto& m) { put(m, at, value); });
    };
    number_at("a reply", malformed, !used, at_kind, std::uint8_t{17});
    number_at("no kind", malformed, !used, at_kind, std::uint8_t{99});
    number_at("a reserved byte", malformed, !used, at_reserved, std::uint8_t{1});
    number_at("version 2", "unsupported_version", !used, at_version, std::uint8_t{2});
    number_at("another set", "parameter_mismatch", !used, at_set, other_set);
    number_at("an unknown set", "parameter_mismatch", !used, at_set, std::uint64_t{generator()});
    number_at("another scheme", "parameter_mismatch", used, at_scheme, std::uint64_t{generator()});
    number_at("a group that is not there", malformed, !used, at_group, ~std::uint32_t{0});
    number_at("a body of 2^63 bytes", malformed, used, at_body_bytes, std::uint64_t{1} << 63);
    number_at("a shape of 2^32 - 1", malformed, used, at_body, ~std::uint32_t{0});
    number_at("an old number", "replayed", !used, at_number, std::uint64_t{0});
    number_at("the last number of all", "replayed", !used, at_number, ~std::uint64_t{0});
    all.push_back({"an empty frame", op_binary, ""});
    all.push_back({"random bytes", op_binary, random_text(generator, 5000)});
    const auto text = [&](const char* name, std::string data, const char* code = "malformed") {
        all.push_back({name, op_text, std::move(data), code});
    };
    text("text that is no JSON", "hello");
    text("an empty text", "");
    text("a type that no message has", R"({"type":"nothing"})");
    text("a member twice", R"({"type":"bye","type":"bye"})");
    text("a member too many", R"({"type":"forget","all":true})");
    text("deep JSON", std::string(8000, '['));
    text("a text of 20,000 bytes", R"({"type":"bye"})" + std::string(20'000, ' '));
    text("a hello within a session", to_text(hello{"kjv"}));
    text("another protocol", R"({"type":"resume","protocol":2,"session":"","resume":""})",
         "unsupported_version");
    text("a JSON request in a binary session",
         carried_text(carried_message::kind::request, bytes_of(good).first(at_body), number));
    text("base64 that is none", R"({"type":"request","number":1,"group":0,"message":"===="})");
    return all;
}

/// As many bad requests as good ones, all answered right. /metrics has the same numbers.
inline void malformed_among_good(fixture& w) {
    constexpr std::size_t connections = 4;
    const std::size_t of_each = w.amount.requests / connections;
    const auto counts = [&] {
        const std::lock_guard lock(w.counting);
        return std::pair(w.server->metrics(), w.answers.load());
    };
    const auto [before, answers_before] = counts();
    std::mutex mutex;
    std::map<std::string, std::size_t> sent;  // errors that must come, by code
    at_once(connections + 2, [&](std::size_t i) {
        if (i >= connections) {  // beside them, clients that know nothing of it
            good_client fine(w, "kjv", i % 2 == 0 ? frame_form::binary : frame_form::json);
            for (std::size_t k = 0; k < of_each / 4 + 1; ++k) {
                fine.ask();
            }
            return;
        }
        std::mt19937 generator(static_cast<unsigned>(i));
        raw_session session(w);
        for (std::size_t k = 0; k < of_each; ++k) {
            const auto all = bad_frames(session.make().message, session.next_number, generator);
            const bad_frame& next = all[(k + i * 7) % all.size()];
            session.require_refusal(next.code, next.name, next.operation, next.data);
            {
                const std::lock_guard lock(mutex);
                ++sent[next.code];
            }
            session.next_number += next.uses_number ? 1 : 0;
            session.ask(k % 3);
        }
    });
    const auto [after, answers_after] = counts();
    const auto require_growth = [&, &now = after, &then = before](const std::string& name,
                                                                  std::size_t expected) {
        require_equal("growth of " + name, sample(now, name) - sample(then, name),
                      static_cast<double>(expected));
    };
    require_growth("tensafe_split_compute_seconds_count", answers_after - answers_before);
    for (const auto& [code, count] : sent) {
        require_growth("tensafe_split_refusals_total{code=\"" + code + "\"}", count);
    }
}

inline void replayed_frames(fixture& w) {
    raw_session one(w);
    const auto first = one.make(1);
    const auto second = one.make(2);
    for (const auto* each : {&first, &second}) {
        one.wire().send(whole_frame(op_binary, each->message));
        one.require_answer(*each, one.next_number++);
    }
    for (const auto* each : {&second, &first, &second}) {
        require_contains("the refusal",
                         one.require_refusal("replayed", "a request again", op_binary, each->message),
                         "encrypt anew");
    }
    // On a resumed session they are old still.
    const split::resume old = one.resume_here();
    one.resume();
    one.require_refusal("replayed", "a request again, after a resume", op_binary, second.message);
    one.ask();
    one.connect();
    one.require_refusal("resume_failed", "a resume of another connection", op_text, to_text(old));
    one.resume();

    // In another session the bytes are a request like any other, for the server cannot tell whose they
    // are. What comes back is the reply to nobody's question: it opens with neither key.
    raw_session other(w);
    other.ask();
    other.wire().send(whole_frame(op_binary, second.message));
    const std::string reply = other.wire().receive_frame(op_binary);
    for (raw_session* each : {&one, &other}) {
        require(!each->right(second, 2, reply), "another session's reply", "one that opens", "nonsense");
    }
    other.next_number = 3;
    other.ask();

    // A handshake again: its signature is over another connection's nonce.
    raw_session third(w, false);
    const auto [greeting, key] = third.handshake();
    third.connect();
    third.wire().send(greeting + key);
    third.require_refusal("not_authorised", "a hello of another connection");
    third.require_end(1008, "it");
}

/// A hello, a re-randomization key and a request of another set: all refused, and both sets named.
inline void wrong_parameter_set(fixture& w) {
    const auto require_refusal = [](raw_session& s, const char* what) {
        const std::string text = s.require_refusal("parameter_mismatch", what);
        require_contains("the refusal", text, "private_n4096");
        require_contains("the refusal", text, "compact_n4096");
    };
    const auto of_other_set = [](std::string message) {
        put(message, at_set, other_set);
        correct_checksums(message);
        return whole_frame(op_binary, message);
    };
    raw_session of_hello(w, false);
    of_hello.wire().send(of_hello.handshake(other_set).first);
    require_refusal(of_hello, "a hello of another set");
    of_hello.require_end(1008, "it");

    raw_session of_key(w, false);
    const auto [greeting, key] = of_key.handshake();
    const std::size_t header = frame_header(op_binary, key.size() - 14).size();
    of_key.wire().send(greeting + of_other_set(key.substr(header)));
    require_refusal(of_key, "a re-randomization key of another set");

    raw_session of_request(w);
    of_request.wire().send(of_other_set(of_request.make().message));
    require_refusal(of_request, "a request of another set");
    of_request.ask();
}

}  // namespace split::soak
