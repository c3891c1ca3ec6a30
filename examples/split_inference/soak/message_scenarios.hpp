#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/wire/checksum.hpp>
#include <tensafe/wire/set_id.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "check.hpp"
#include "clients.hpp"
#include "fixture.hpp"
#include "frame_scenarios.hpp"

// Peers that keep to the rules of frames and break those of messages.

namespace split::soak {

// Where things stand in a message: docs/wire-format.md.
inline constexpr std::size_t at_version = 4;
inline constexpr std::size_t at_kind = 5;
inline constexpr std::size_t at_reserved = 6;
inline constexpr std::size_t at_set = 8;
inline constexpr std::size_t at_scheme = 16;
inline constexpr std::size_t at_number = 24;
inline constexpr std::size_t at_body_bytes = 32;
inline constexpr std::size_t at_group = 40;
inline constexpr std::size_t at_checksum = 44;
inline constexpr std::size_t at_body = 48;

template <class Number>
void put(std::string& message, std::size_t at, Number value) {
    std::memcpy(message.data() + at, &value, sizeof(value));  // x86-64 and AArch64 are little endian
}

/// Makes both checksums right, so that what is wrong behind them is looked at.
inline void correct_checksums(std::string& message) {
    const auto sum = [&](std::size_t from, std::size_t count) {
        return tensafe::wire::crc32c(
            std::span(reinterpret_cast<const std::uint8_t*>(message.data()) + from, count));
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
    using other_set = tensafe::ckks::compact_n4096;
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
    number_at("another set", "parameter_mismatch", !used, at_set, tensafe::wire::set_id<other_set>);
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
         carried_text(carried_message::kind::request,
                      std::span(reinterpret_cast<const std::uint8_t*>(good.data()), at_body), number));
    text("base64 that is none", R"({"type":"request","number":1,"group":0,"message":"===="})");
    return all;
}

inline std::string malformed_among_good(fixture& w) {
    constexpr std::size_t connections = 4;
    const std::size_t of_each = w.amount.requests / connections;
    const auto before = w.server->metrics();
    const std::size_t answers_before = w.answers;
    std::atomic<std::size_t> of_real_clients{0};
    std::mutex mutex;
    std::map<std::string, std::size_t> sent;  // errors that must come, by code
    at_once(connections + 2, [&](std::size_t i) {
        if (i >= connections) {  // beside them, clients that know nothing of it
            good_client fine(w, "kjv", i % 2 == 0 ? frame_form::binary : frame_form::json);
            for (std::size_t k = 0; k < of_each / 4 + 1; ++k) {
                fine.ask();
                ++of_real_clients;
            }
            return;
        }
        std::mt19937 generator(static_cast<unsigned>(i));
        raw_session session(w);
        for (std::size_t k = 0; k < of_each; ++k) {
            const auto all =
                bad_frames(session.make(session.next_number).message, session.next_number, generator);
            const bad_frame& next = all[(k + i * 7) % all.size()];
            session.wire().send(whole_frame(next.operation, next.data));
            session.require_refusal(next.code, next.name);
            {
                const std::lock_guard lock(mutex);
                ++sent[next.code];
            }
            session.next_number += next.uses_number ? 1 : 0;
            session.ask(k % 3);
        }
    });
    const auto after = w.server->metrics();
    const double answered = sample(after, "tensafe_split_compute_seconds_count") -
                            sample(before, "tensafe_split_compute_seconds_count");
    require_equal("requests answered, by /metrics", answered,
                  static_cast<double>(w.answers - answers_before));
    std::size_t errors = 0;
    for (const auto& [code, count] : sent) {
        const std::string name = "tensafe_split_refusals_total{code=\"" + code + "\"}";
        require_equal(name, sample(after, name) - sample(before, name), static_cast<double>(count));
        errors += count;
    }
    require_equal("malformed frames", errors, connections * of_each);
    return text_of(errors) + " malformed frames among " + text_of(w.answers - answers_before) +
           " good ones, all answered right; /metrics has the same numbers";
}

inline std::string replayed_frames(fixture& w) {
    std::size_t refused = 0;
    for (std::size_t r = 0; r < w.amount.repetitions; ++r) {
        raw_session one(w);
        const auto first = one.make(1);
        const auto second = one.make(2);
        for (const auto* each : {&first, &second}) {
            one.wire().send(whole_frame(op_binary, each->message));
            one.require_answer(*each, one.next_number++);
        }
        for (const auto* each : {&second, &first, &second}) {
            one.wire().send(whole_frame(op_binary, each->message));
            require_contains("the refusal", one.require_refusal("replayed", "a request again"),
                             "encrypt anew");
            ++refused;
        }
        // On a resumed session they are old still.
        const split::resume old = one.resume_here();
        require(one.resume(), "resume", "no", "yes");
        one.wire().send(whole_frame(op_binary, second.message));
        one.require_refusal("replayed", "a request again, after a resume");
        one.ask();
        one.connect();
        one.wire().send(whole_frame(op_text, to_text(old)));
        one.require_refusal("resume_failed", "a resume of another connection");
        require(one.resume(), "resume of a session that nobody else got", "no", "yes");
        refused += 2;

        // In another session the bytes are a request like any other, for the server cannot tell whose they
        // are. What comes back is the reply to nobody's question: it opens with neither key.
        raw_session other(w);
        other.ask();
        other.wire().send(whole_frame(op_binary, second.message));
        const auto reply = other.wire().receive_frame();
        require(reply && reply->operation == op_binary, "answer to another session's request", "none",
                "a reply");
        require(!one.right(second, 2, reply->data), "another session's reply", "one that the first key opens",
                "nonsense");
        require(!other.right(second, 2, reply->data), "another session's reply", "one that its key opens",
                "nonsense");
        other.next_number = 3;
        other.ask();

        // A handshake again: its signature is over another connection's nonce.
        raw_session third(w, false);
        const auto [greeting, key] = third.handshake();
        third.connect();
        third.wire().send(greeting + key);
        third.require_refusal("not_authorised", "a hello of another connection");
        require_equal("close code after it", third.wire().receive_end(), 1008u);
        ++refused;
    }
    return text_of(refused) + " replayed frames, tokens and handshakes refused";
}

inline std::string wrong_parameter_set(fixture& w) {
    using other_set = tensafe::ckks::compact_n4096;
    const auto require_both = [](const std::string& text) {
        require_contains("the refusal", text, "private_n4096");
        require_contains("the refusal", text, "compact_n4096");
    };
    for (std::size_t r = 0; r < w.amount.repetitions; ++r) {
        raw_session of_hello(w, false);
        of_hello.wire().send(of_hello.handshake(tensafe::wire::set_id<other_set>).first);
        require_both(of_hello.require_refusal("parameter_mismatch", "a hello of another set"));
        require_equal("close code after it", of_hello.wire().receive_end(), 1008u);

        raw_session of_key(w, false);
        const auto [greeting, key] = of_key.handshake();
        const std::size_t header = frame_header(op_binary, key.size() - 14).size();
        std::string message = key.substr(header);
        put(message, at_set, tensafe::wire::set_id<other_set>);
        correct_checksums(message);
        of_key.wire().send(greeting + whole_frame(op_binary, message));
        require_both(of_key.require_refusal("parameter_mismatch", "a re-randomization key of another set"));

        raw_session of_request(w);
        auto asked = of_request.make(1);
        put(asked.message, at_set, tensafe::wire::set_id<other_set>);
        correct_checksums(asked.message);
        of_request.wire().send(whole_frame(op_binary, asked.message));
        require_both(of_request.require_refusal("parameter_mismatch", "a request of another set"));
        of_request.ask();
    }
    return "hello, re-randomization key and request of another set refused, both sets named; the session "
           "goes on";
}

}  // namespace split::soak
