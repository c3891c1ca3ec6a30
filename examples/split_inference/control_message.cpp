#include "control_message.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include "base64.hpp"

namespace split {

namespace {

using json = nlohmann::ordered_json;
using tensafe::format_error;
using tensafe::quote;

constexpr std::array<const char*, error_codes> code_names = {
    "malformed",       "parameter_mismatch", "unsupported_version",
    "unknown_adapter", "not_authorised",     "query_limit",
    "rate_limit",      "replayed",           "resume_failed",
    "too_large",       "draining",           "internal"};
constexpr std::array<const char*, 3> carried_names = {"zero_key", "model_layout", "held_adapter"};

/// No control message has more: a challenge with all the adapters that fit.
constexpr std::size_t most_values = 4'096;

/// The members of one object, taken one by one; what is left in the end is refused.
class members {
  public:
    members(const json& object, std::string type, std::size_t largest_message)
        : object_(object), what_(std::move(type)), largest_message_(largest_message) {}

    const json* find(const char* name) {
        const auto found = object_.find(name);
        if (found == object_.end()) {
            return nullptr;
        }
        ++taken_;
        return &*found;
    }
    const json& at(const char* name) {
        const json* const found = find(name);
        if (found == nullptr) {
            throw format_error(where(name) + " is missing");
        }
        return *found;
    }
    const std::string& text(const char* name) {
        const json& value = at(name);
        if (!value.is_string()) {
            wrong(name, value, "a string");
        }
        return value.get_ref<const std::string&>();
    }
    std::uint64_t number_of(const char* name, const json& value,
                            std::uint64_t largest = std::numeric_limits<std::uint64_t>::max()) const {
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() > largest) {
            wrong(name, value, "a whole number from 0 to " + std::to_string(largest));
        }
        return value.get<std::uint64_t>();
    }
    std::uint64_t number(const char* name,
                         std::uint64_t largest = std::numeric_limits<std::uint64_t>::max()) {
        return number_of(name, at(name), largest);
    }
    std::optional<std::uint64_t> number_if_there(const char* name) {
        const json* const value = find(name);
        return value == nullptr ? std::nullopt : std::optional(number_of(name, *value));
    }
    std::optional<std::uint64_t> number_or_null(const char* name) {
        const json& value = at(name);
        return value.is_null() ? std::nullopt : std::optional(number_of(name, value));
    }
    bool boolean(const char* name) {
        const json& value = at(name);
        if (!value.is_boolean()) {
            wrong(name, value, "true or false");
        }
        return value.get<bool>();
    }
    template <std::size_t Bytes>
    std::array<std::byte, Bytes> hex(const char* name) {
        return tensafe::keystore::from_hex<Bytes>(text(name), where(name));
    }
    std::vector<std::uint8_t> message() {
        const std::string& value = text("message");
        if (value.size() > (largest_message_ + 2) / 3 * 4) {
            throw format_error(where("message") + " has " + std::to_string(value.size()) +
                               " characters, expected base64 of at most " + std::to_string(largest_message_) +
                               " bytes");
        }
        return from_base64(value, where("message"));
    }
    void finish() const {
        if (taken_ != object_.size()) {
            throw format_error("control message " + what_ + ": got " +
                               std::to_string(object_.size() - taken_) +
                               " members that it does not have, expected none");
        }
    }
    std::string where(const char* name) const { return "control message " + what_ + ": \"" + name + "\""; }

  private:
    [[noreturn]] void wrong(const char* name, const json& value, const std::string& expected) const {
        throw format_error(
            where(name) + " is " +
            (value.is_number() ? "a number that does not fit" : std::string(value.type_name())) +
            ", expected " + expected);
    }

    const json& object_;
    std::string what_;
    std::size_t largest_message_;
    std::size_t taken_ = 0;
};

tensafe::random::seed seed_from(const std::array<std::byte, 32>& bytes) {
    tensafe::random::seed seed;
    std::transform(bytes.begin(), bytes.end(), seed.bytes.begin(),
                   [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    return seed;
}

std::string seed_hex(const tensafe::random::seed& seed) {
    return tensafe::keystore::hex(std::as_bytes(std::span(seed.bytes)));
}

std::string set_hex(std::uint64_t set) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text(16, '0');
    for (std::size_t i = 0; i < 16; ++i) {
        text[15 - i] = digits[set >> (4 * i) & 15];
    }
    return text;
}

std::uint64_t set_from(const std::array<std::byte, 8>& bytes) {
    std::uint64_t set = 0;
    for (const std::byte b : bytes) {
        set = set << 8 | std::to_integer<std::uint64_t>(b);
    }
    return set;
}

void check_protocol(members& from) {
    const std::uint64_t version = from.number("protocol");
    if (version != protocol_version) {
        throw tensafe::unsupported_error("control message: got protocol " + std::to_string(version) +
                                         ", expected " + std::to_string(protocol_version));
    }
}

challenge challenge_from(members& from) {
    check_protocol(from);
    challenge m;
    m.nonce = seed_from(from.hex<32>("nonce"));
    m.parameters = from.text("parameters");
    const json& adapters = from.at("adapters");
    if (!adapters.is_array()) {
        throw format_error(from.where("adapters") + " is " + adapters.type_name() + ", expected an array");
    }
    for (const json& each : adapters) {
        if (!each.is_object()) {
            throw format_error(from.where("adapters") + " holds " + each.type_name() + ", expected objects");
        }
        members one(each, "challenge, of an adapter", 0);
        m.adapters.push_back({one.text("name"), one.number("version")});
        one.finish();
    }
    return m;
}

hello hello_from(members& from) {
    check_protocol(from);
    hello m;
    m.adapter = from.text("adapter");
    m.client = from.hex<32>("client");
    m.set = set_from(from.hex<8>("set"));
    m.signature = from.hex<64>("signature");
    const std::string& frames = from.text("frames");
    if (frames != "binary" && frames != "json") {
        throw format_error(from.where("frames") + " is " + quote(frames) +
                           ", expected \"binary\" or \"json\"");
    }
    m.frames = frames == "json" ? frame_form::json : frame_form::binary;
    m.held = from.boolean("held");
    return m;
}

refusal refusal_from(members& from) {
    refusal m;
    const std::string& code = from.text("code");
    const auto found = std::find(code_names.begin(), code_names.end(), code);
    if (found == code_names.end()) {
        throw format_error(from.where("code") + " is " + quote(code) + ", which no error is called");
    }
    m.code = static_cast<error_code>(found - code_names.begin());
    m.message = from.text("message");
    m.number = from.number_if_there("number");
    m.retry_after_ms = from.number_if_there("retry_after_ms");
    return m;
}

control_message message_from(const std::string& type, members& from) {
    constexpr std::uint64_t largest_group = std::numeric_limits<std::uint32_t>::max();
    // Designated members are read in the order in which they stand.
    if (type == "request") {
        return json_request{.number = from.number("number"),
                            .group = static_cast<std::uint32_t>(from.number("group", largest_group)),
                            .message = from.message()};
    }
    if (type == "reply") {
        return json_reply{.number = from.number("number"),
                          .group = static_cast<std::uint32_t>(from.number("group", largest_group)),
                          .message = from.message()};
    }
    if (const auto found = std::find(carried_names.begin(), carried_names.end(), type);
        found != carried_names.end()) {
        return carried_message{static_cast<carried_message::kind>(found - carried_names.begin()),
                               from.message()};
    }
    if (type == "challenge") {
        return challenge_from(from);
    }
    if (type == "hello") {
        return hello_from(from);
    }
    if (type == "welcome") {
        return welcome{from.hex<16>("session"), from.hex<32>("resume"), from.text("adapter"),
                       from.number("version"), from.number_or_null("queries_left")};
    }
    if (type == "resume") {
        check_protocol(from);
        return resume{from.hex<16>("session"), from.hex<32>("resume")};
    }
    if (type == "resumed") {
        return resumed{from.hex<16>("session"), from.hex<32>("resume"), from.number("next_number"),
                       from.number("version"), from.number_or_null("queries_left")};
    }
    if (type == "error") {
        return refusal_from(from);
    }
    if (type == "forget") {
        return forget{};
    }
    if (type == "forgotten") {
        return forgotten{};
    }
    if (type == "bye") {
        return bye{};
    }
    if (type == "draining") {
        return draining{};
    }
    throw format_error("control message: got the type " + quote(type) + ", which no message has");
}

std::string dump(const json& object) {
    return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

json left_json(const std::optional<std::uint64_t>& left) {
    return left ? json(*left) : json(nullptr);
}

std::string numbered(const char* type, std::uint64_t number, std::uint32_t group,
                     std::span<const std::uint8_t> message) {
    return std::string("{\"type\":\"") + type + "\",\"number\":" + std::to_string(number) +
           ",\"group\":" + std::to_string(group) + ",\"message\":\"" + base64(message) + "\"}";
}

std::string text_of(const challenge& m) {
    json adapters = json::array();
    for (const offered_adapter& each : m.adapters) {
        adapters.push_back({{"name", each.name}, {"version", each.version}});
    }
    return dump({{"type", "challenge"},
                 {"protocol", protocol_version},
                 {"nonce", seed_hex(m.nonce)},
                 {"parameters", m.parameters},
                 {"adapters", std::move(adapters)}});
}

std::string text_of(const hello& m) {
    return dump({{"type", "hello"},
                 {"protocol", protocol_version},
                 {"adapter", m.adapter},
                 {"client", tensafe::keystore::hex(m.client)},
                 {"set", set_hex(m.set)},
                 {"signature", tensafe::keystore::hex(m.signature)},
                 {"frames", m.frames == frame_form::json ? "json" : "binary"},
                 {"held", m.held}});
}

std::string text_of(const welcome& m) {
    return dump({{"type", "welcome"},
                 {"session", tensafe::keystore::hex(m.session)},
                 {"resume", tensafe::keystore::hex(m.resume)},
                 {"adapter", m.adapter},
                 {"version", m.version},
                 {"queries_left", left_json(m.queries_left)}});
}

std::string text_of(const resume& m) {
    return dump({{"type", "resume"},
                 {"protocol", protocol_version},
                 {"session", tensafe::keystore::hex(m.session)},
                 {"resume", tensafe::keystore::hex(m.token)}});
}

std::string text_of(const resumed& m) {
    return dump({{"type", "resumed"},
                 {"session", tensafe::keystore::hex(m.session)},
                 {"resume", tensafe::keystore::hex(m.token)},
                 {"next_number", m.next_number},
                 {"version", m.version},
                 {"queries_left", left_json(m.queries_left)}});
}

std::string text_of(const carried_message& m) {
    return carried_text(m.what, m.message);
}
std::string text_of(const json_request& m) {
    return json_request_text(m.number, m.group, m.message);
}
std::string text_of(const json_reply& m) {
    return json_reply_text(m.number, m.group, m.message);
}

std::string text_of(const refusal& m) {
    json object = {{"type", "error"}, {"code", to_string(m.code)}, {"message", m.message}};
    if (m.number) {
        object["number"] = *m.number;
    }
    if (m.retry_after_ms) {
        object["retry_after_ms"] = *m.retry_after_ms;
    }
    return dump(object);
}

std::string text_of(const forget&) {
    return R"({"type":"forget"})";
}
std::string text_of(const forgotten&) {
    return R"({"type":"forgotten"})";
}
std::string text_of(const bye&) {
    return R"({"type":"bye"})";
}
std::string text_of(const draining&) {
    return R"({"type":"draining"})";
}

}  // namespace

const char* to_string(error_code code) noexcept {
    return code_names[static_cast<std::size_t>(code)];
}

control_message parse_control(std::string_view text, std::size_t largest_message) {
    const std::size_t longest =
        std::max(longest_control_text, largest_message == 0 ? 0 : longest_carrying_text(largest_message));
    if (text.size() > longest) {
        throw format_error("control message: got " + std::to_string(text.size()) +
                           " bytes, expected at most " + std::to_string(longest));
    }
    const json object = tensafe::io::parse_strict_json(text, "control message", most_values);
    if (!object.is_object()) {
        throw format_error(std::string("control message: got ") + object.type_name() +
                           ", expected an object");
    }
    members type_only(object, "of any type", 0);
    const std::string& type = type_only.text("type");
    members from(object, type.size() <= 16 ? type : std::string("of unknown type"), largest_message);
    static_cast<void>(from.at("type"));
    control_message result = message_from(type, from);
    from.finish();
    const bool carries = std::holds_alternative<carried_message>(result) ||
                         std::holds_alternative<json_request>(result) ||
                         std::holds_alternative<json_reply>(result);
    if (!carries && text.size() > longest_control_text) {
        throw format_error("control message " + type + ": got " + std::to_string(text.size()) +
                           " bytes, expected at most " + std::to_string(longest_control_text));
    }
    return result;
}

std::string to_text(const control_message& m) {
    return std::visit([](const auto& each) { return text_of(each); }, m);
}

std::string json_request_text(std::uint64_t number, std::uint32_t group,
                              std::span<const std::uint8_t> message) {
    return numbered("request", number, group, message);
}
std::string json_reply_text(std::uint64_t number, std::uint32_t group,
                            std::span<const std::uint8_t> message) {
    return numbered("reply", number, group, message);
}
std::string carried_text(carried_message::kind what, std::span<const std::uint8_t> message) {
    return std::string("{\"type\":\"") + carried_names[static_cast<std::size_t>(what)] + "\",\"message\":\"" +
           base64(message) + "\"}";
}

std::vector<std::byte> text_to_sign(const certificate_digest& certificate, const tensafe::random::seed& nonce,
                                    std::uint64_t set,
                                    std::span<const std::uint8_t> rerandomization_key_message,
                                    std::string_view adapter) {
    std::vector<std::byte> text;
    const auto append = [&](std::span<const std::byte> bytes) {
        text.insert(text.end(), bytes.begin(), bytes.end());
    };
    append(std::as_bytes(std::span(std::string_view("tensafe split inference 1\n"))));
    append(certificate);
    append(std::as_bytes(std::span(nonce.bytes)));
    for (int i = 0; i < 8; ++i) {
        text.push_back(static_cast<std::byte>(set >> (8 * i) & 0xff));
    }
    append(tensafe::keystore::sha256::of(std::as_bytes(rerandomization_key_message)));
    append(std::as_bytes(std::span(adapter)));
    return text;
}

}  // namespace split
