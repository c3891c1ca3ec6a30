#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/wire/checksum.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/set_id.hpp>

#include "check.hpp"
#include "clients.hpp"
#include "fixture.hpp"
#include "frame_scenarios.hpp"

// Peers that keep to the rules of frames and break those of messages.

namespace split::soak {

inline constexpr std::uint64_t other_set = tensafe::wire::set_id<tensafe::ckks::compact_n4096>;

/// `message` with its header changed.
template <class Change>
std::string with_header(const std::string& message, Change change) {
    tensafe::wire::header head = tensafe::wire::read_header(bytes_of(message));
    change(head);
    const auto bytes = tensafe::wire::write_header(head);
    return std::string(bytes.begin(), bytes.end()) + message.substr(bytes.size());
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
    constexpr bool used = true;  // the number
    const auto malformed = "malformed";
    using tensafe::wire::checksum_bytes;
    using tensafe::wire::header_bytes;
    const auto changed = [&](const char* name, const char* code, bool uses, auto change) {
        std::string m = good;
        change(m);
        all.push_back({name, op_binary, m, code, uses});
    };
    const auto one_bit = [&] { return static_cast<char>(1u << (generator() % 8)); };
    changed("a request cut short", malformed, used,
            [&](auto& m) { m.resize(m.size() - 1 - generator() % 1000); });
    changed("half a header", malformed, !used, [](auto& m) { m.resize(20); });
    changed("a flipped bit in the header", malformed, !used,
            [&](auto& m) { m[6 + generator() % 38] ^= one_bit(); });
    changed("a flipped bit in the body", malformed, used,
            [&](auto& m) { m[header_bytes + generator() % (m.size() - header_bytes)] ^= one_bit(); });
    // What is at this place, with checksums that are right; docs/wire-format.md.
    const auto put = [&](const char* name, const char* code, bool uses, std::size_t at,
                         const std::string& what) {
        std::string m = good;
        m.replace(at, what.size(), what);
        for (const auto& [from, until] : {std::pair(std::size_t{0}, header_bytes - checksum_bytes),
                                          std::pair(header_bytes, m.size() - checksum_bytes)}) {
            const std::uint32_t sum = tensafe::wire::crc32c(bytes_of(m).subspan(from, until - from));
            std::memcpy(m.data() + until, &sum, sizeof(sum));  // x86-64 and AArch64 are little endian
        }
        all.push_back({name, op_binary, m, code, uses});
    };
    put("residues that are none", malformed, used, good.size() - 1004, std::string(1000, '\xff'));
    put("a shape of 2^32 - 1", malformed, used, header_bytes, std::string(4, '\xff'));
    put("version 2", "unsupported_version", !used, 4, "\2");
    put("no kind", malformed, !used, 5, "\x63");
    put("a reply that acknowledges", malformed, !used, 5, "\x11\1");
    const auto header = [&](const char* name, const char* code, bool uses, auto change) {
        all.push_back({name, op_binary, with_header(good, change), code, uses});
    };
    header("a reply", malformed, !used, [](auto& h) { h.what = tensafe::wire::kind::reply; });
    header("another set", "parameter_mismatch", !used, [](auto& h) { h.set = other_set; });
    header("an unknown set", "parameter_mismatch", !used, [&](auto& h) { h.set = generator(); });
    header("another scheme", "parameter_mismatch", used, [&](auto& h) { h.scheme = generator(); });
    header("a group that is not there", malformed, !used, [](auto& h) { h.group = ~std::uint32_t{0}; });
    header("a body of 2^63 bytes", malformed, used, [](auto& h) { h.body_bytes = std::uint64_t{1} << 63; });
    header("an old number", "replayed", !used, [](auto& h) { h.number = 0; });
    header("the last number of all", "replayed", !used, [](auto& h) { h.number = ~std::uint64_t{0}; });
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
         carried_text(carried_message::kind::request, bytes_of(good).first(header_bytes), number));
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
    std::map<std::string, std::size_t> sent;  // what must come, by the name in /metrics
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
            const bool alone = k % 2 == 0;
            const std::string good = text_of(alone ? session.make().message : session.make_token().message);
            const auto all = bad_frames(good, session.next_number, generator);
            const bad_frame& next = all[(k + i * 7) % all.size()];
            session.require_refusal(next.code, next.name, next.operation, next.data);
            {
                const std::lock_guard lock(mutex);
                ++sent[std::string("tensafe_split_refusals_total{code=\"") + next.code + "\"}"];
            }
            session.next_number += next.uses_number ? 1 : 0;
            alone ? session.ask(k % 3) : session.ask_at_position();
        }
    });
    const auto [after, answers_after] = counts();
    sent["tensafe_tokens_total{adapter=\"kjv\"}"] = answers_after - answers_before;
    for (const auto& [name, count] : sent) {
        require_equal("growth of " + name, sample(after, name) - sample(before, name),
                      static_cast<double>(count));
    }
}

}  // namespace split::soak
