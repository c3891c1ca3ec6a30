#include "control_message.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/generator.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include "base64.hpp"

namespace split {

namespace {

using json = nlohmann::ordered_json;
using tensafe::format_error;
using tensafe::quote;
using tensafe::io::json_value;

constexpr std::array<const char*, error_codes> code_names = {
    "malformed",       "parameter_mismatch", "unsupported_version",
    "unknown_adapter", "not_authorised",     "query_limit",
    "rate_limit",      "replayed",           "resume_failed",
    "too_large",       "draining",           "internal"};
/// No control message has more.
constexpr std::size_t most_values = 16;

/// The types of texts, each with an empty message of it.
const auto& types() {
    using kind = carried_message::kind;
    static const std::vector<std::pair<const char*, control_message>> all = {
        {"rerandomization_key", carried_message{kind::rerandomization_key}},
        {"model_layout", carried_message{kind::model_layout}},
        {"held_adapter", carried_message{kind::held_adapter}},
        {"request", carried_message{kind::request}},
        {"reply", carried_message{kind::reply}},
        {"challenge", challenge{}},
        {"hello", hello{}},
        {"welcome", welcome{}},
        {"resume", resume{}},
        {"resumed", resumed{}},
        {"error", refusal{}},
        {"forget", forget{}},
        {"forgotten", forgotten{}},
        {"bye", bye{}},
        {"draining", draining{}}};
    return all;
}

bool has_number(carried_message::kind what) noexcept {
    return what == carried_message::kind::request || what == carried_message::kind::reply;
}

/// Takes the members of one object by name; what is left in the end is refused.
class reader {
  public:
    reader(const json_value& object, std::string type, std::size_t largest_message)
        : object_(object), what_(std::move(type)), largest_message_(largest_message) {}

    const json_value* find(const char* name) {
        const json_value* const found = object_.find(name);
        taken_ += found == nullptr ? 0u : 1u;
        return found;
    }
    const json_value& at(const char* name) {
        const json_value* const found = find(name);
        if (found == nullptr) {
            throw format_error(where(name) + " is missing");
        }
        return *found;
    }
    const std::string& text(const char* name) { return at(name).checked_string(where(name)); }

    void protocol() {
        std::uint64_t version = 0;
        (*this)("protocol", version);
        if (version != protocol_version) {
            throw tensafe::unsupported_error("control message: got protocol " + std::to_string(version) +
                                             ", expected " + std::to_string(protocol_version));
        }
    }
    void operator()(const char* name, std::string& to) { to = text(name); }
    template <std::unsigned_integral Number>
    void operator()(const char* name, Number& to) {
        to = number<Number>(name, at(name));
    }
    void operator()(const char* name, bool& to) {
        const json_value& value = at(name);
        to = value.checked(value.is_boolean(), where(name), "true or false").count == 1;
    }
    void operator()(const char* name, std::optional<std::uint64_t>& to) {
        const json_value& value = at(name);
        to = value.is_null() ? std::nullopt : std::optional(number<std::uint64_t>(name, value));
    }
    void if_there(const char* name, std::optional<std::uint64_t>& to) {
        const json_value* const value = find(name);
        to = value == nullptr ? std::nullopt : std::optional(number<std::uint64_t>(name, *value));
    }
    void if_there(const char* name, std::string& to) {
        const json_value* const value = find(name);
        to = value == nullptr ? "" : value->checked_string(where(name));
    }
    template <std::size_t Bytes>
    void operator()(const char* name, std::array<std::byte, Bytes>& to) {
        to = tensafe::keystore::from_hex<Bytes>(text(name), where(name));
    }
    void operator()(const char* name, tensafe::random::seed& to) {
        to.bytes = std::bit_cast<std::array<std::uint8_t, tensafe::random::seed_bytes>>(
            tensafe::keystore::from_hex<tensafe::random::seed_bytes>(text(name), where(name)));
    }
    void set(const char* name, std::uint64_t& to) {
        to = 0;
        for (const std::byte b : tensafe::keystore::from_hex<8>(text(name), where(name))) {
            to = to << 8 | std::to_integer<std::uint64_t>(b);
        }
    }
    void operator()(const char* name, frame_form& to) {
        const std::string& form = text(name);
        if (form != "binary" && form != "json") {
            throw format_error(where(name) + " is " + quote(form) + ", expected \"binary\" or \"json\"");
        }
        to = form == "json" ? frame_form::json : frame_form::binary;
    }
    void operator()(const char* name, error_code& to) {
        const std::string& code = text(name);
        const auto found = std::find(code_names.begin(), code_names.end(), code);
        if (found == code_names.end()) {
            throw format_error(where(name) + " is " + quote(code) + ", which no error is called");
        }
        to = static_cast<error_code>(found - code_names.begin());
    }
    void operator()(const char* name, std::vector<std::uint8_t>& message) {
        const std::string& value = text(name);
        if (value.size() > (largest_message_ + 2) / 3 * 4) {
            throw format_error(where(name) + " has " + std::to_string(value.size()) +
                               " characters, expected base64 of at most " + std::to_string(largest_message_) +
                               " bytes");
        }
        message = from_base64(value, where(name));
    }
    void finish() const {
        if (taken_ != object_.items.size()) {
            throw format_error("control message " + what_ + ": got " +
                               std::to_string(object_.items.size() - taken_) +
                               " members that it does not have, expected none");
        }
    }

  private:
    std::string where(const char* name) const { return "control message " + what_ + ": \"" + name + "\""; }
    template <class Number>
    Number number(const char* name, const json_value& value) const {
        constexpr std::uint64_t largest = std::numeric_limits<Number>::max();
        return static_cast<Number>(value
                                       .checked(value.is_count() && value.count <= largest, where(name),
                                                "a whole number from 0 to " + std::to_string(largest))
                                       .count);
    }

    const json_value& object_;
    std::string what_;
    std::size_t largest_message_;
    std::size_t taken_ = 0;
};

/// Writes what a reader reads.
class writer {
  public:
    explicit writer(const char* type) { object_["type"] = type; }
    std::string text() const { return object_.dump(-1, ' ', false, json::error_handler_t::replace); }

    void protocol() { object_["protocol"] = protocol_version; }
    template <class Plain>
    void operator()(const char* name, const Plain& value) {
        object_[name] = value;
    }
    void operator()(const char* name, const std::optional<std::uint64_t>& value) {
        object_[name] = value ? json(*value) : json(nullptr);
    }
    void if_there(const char* name, const std::optional<std::uint64_t>& value) {
        if (value) {
            object_[name] = *value;
        }
    }
    void if_there(const char* name, const std::string& value) {
        if (!value.empty()) {
            object_[name] = value;
        }
    }
    template <std::size_t Bytes>
    void operator()(const char* name, const std::array<std::byte, Bytes>& bytes) {
        object_[name] = tensafe::keystore::hex(bytes);
    }
    void operator()(const char* name, const tensafe::random::seed& seed) {
        object_[name] = tensafe::keystore::hex(std::as_bytes(std::span(seed.bytes)));
    }
    void set(const char* name, std::uint64_t set) {
        std::array<std::byte, 8> bytes{};
        for (std::size_t i = 0; i < 8; ++i) {
            bytes[7 - i] = static_cast<std::byte>(set >> (8 * i) & 0xff);
        }
        object_[name] = tensafe::keystore::hex(bytes);
    }
    void operator()(const char* name, frame_form form) {
        object_[name] = form == frame_form::json ? "json" : "binary";
    }
    void operator()(const char* name, error_code code) { object_[name] = to_string(code); }
    void operator()(const char* name, const std::vector<std::uint8_t>& message) {
        object_[name] = base64(message);
    }

  private:
    json object_;
};

/// The members of each message behind its type, for a reader or a writer.
template <class Message, class Archive>
void members_of(Message& m, Archive& of) {
    using type = std::remove_const_t<Message>;
    if constexpr (std::is_same_v<type, challenge>) {
        of.protocol();
        of("nonce", m.nonce);
        of("parameters", m.parameters);
    } else if constexpr (std::is_same_v<type, hello>) {
        of.protocol();
        of("adapter", m.adapter);
        of("client", m.client);
        of.set("set", m.set);
        of("key_sha256", m.key_sha256);
        of("signature", m.signature);
        of("frames", m.frames);
        of("held", m.held);
    } else if constexpr (std::is_same_v<type, welcome>) {
        of("session", m.session);
        of("adapter", m.adapter);
        of("version", m.version);
        of("queries_left", m.queries_left);
        of.if_there("pin", m.pin);
    } else if constexpr (std::is_same_v<type, resume>) {
        of.protocol();
        of("session", m.session);
        of("client", m.client);
        of("signature", m.signature);
    } else if constexpr (std::is_same_v<type, resumed>) {
        of("session", m.session);
        of("next_number", m.next_number);
        of("version", m.version);
        of("queries_left", m.queries_left);
    } else if constexpr (std::is_same_v<type, carried_message>) {
        if (has_number(m.what)) {
            of("number", m.number);
            of("group", m.group);
        }
        of("message", m.message);
    } else if constexpr (std::is_same_v<type, refusal>) {
        of("code", m.code);
        of("message", m.message);
        of.if_there("number", m.number);
        of.if_there("retry_after_ms", m.retry_after_ms);
    }  // the others have none
}

control_message message_from(const std::string& type, reader& from) {
    for (const auto& [name, empty] : types()) {
        if (name == type) {
            control_message result = empty;
            std::visit([&](auto& m) { members_of(m, from); }, result);
            return result;
        }
    }
    throw format_error("control message: got the type " + quote(type) + ", which no message has");
}

void append(std::vector<std::byte>& text, std::span<const std::byte> bytes) {
    text.insert(text.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> text_of_connection(std::string_view what, const exporter_value& exporter,
                                          const tensafe::random::seed& nonce) {
    std::vector<std::byte> text;
    append(text, std::as_bytes(std::span(what)));
    append(text, exporter);
    const derived_nonces derived(nonce);
    append(text, std::as_bytes(std::span(derived.signed_one.bytes)));
    return text;
}

}  // namespace

const char* to_string(error_code code) noexcept {
    return code_names[static_cast<std::size_t>(code)];
}

const char* type_of(const control_message& m) {
    const auto* const carried = std::get_if<carried_message>(&m);
    return std::ranges::find_if(types(),
                                [&](const auto& each) {
                                    const auto* const other = std::get_if<carried_message>(&each.second);
                                    return each.second.index() == m.index() &&
                                           (other == nullptr || other->what == carried->what);
                                })
        ->first;
}

control_message parse_control(std::string_view text, std::size_t largest_message) {
    const std::size_t longest =
        std::max(longest_control_text, largest_message == 0 ? 0 : longest_carrying_text(largest_message));
    if (text.size() > longest) {
        throw format_error("control message: got " + std::to_string(text.size()) +
                           " bytes, expected at most " + std::to_string(longest));
    }
    const json_value object = tensafe::io::parse_strict_json(text, "control message", most_values);
    object.checked(object.is_object(), "control message", "an object");
    reader type_only(object, "of any type", 0);
    const std::string& type = type_only.text("type");
    reader from(object, type.size() <= 16 ? type : std::string("of unknown type"), largest_message);
    static_cast<void>(from.at("type"));
    control_message result = message_from(type, from);
    from.finish();
    if (!std::holds_alternative<carried_message>(result) && text.size() > longest_control_text) {
        throw format_error("control message " + type + ": got " + std::to_string(text.size()) +
                           " bytes, expected at most " + std::to_string(longest_control_text));
    }
    return result;
}

std::string to_text(const control_message& m) {
    writer to(type_of(m));
    std::visit([&](const auto& each) { members_of(each, to); }, m);
    return to.text();
}

std::string carried_text(carried_message::kind what, std::span<const std::uint8_t> message,
                         std::uint64_t number, std::uint32_t group) {
    std::string text = std::string("{\"type\":\"") + type_of(carried_message{what}) + "\",";
    if (has_number(what)) {
        text += "\"number\":" + std::to_string(number) + ",\"group\":" + std::to_string(group) + ",";
    }
    return text + "\"message\":\"" + base64(message) + "\"}";
}

derived_nonces::derived_nonces(const tensafe::random::seed& nonce) {
    tensafe::random::generator derive(nonce);
    signed_one = derive.next_seed();
    of_rerandomization_key = derive.next_seed();
}

std::vector<std::byte> text_to_sign(const exporter_value& exporter, const tensafe::random::seed& nonce,
                                    const hello& m) {
    std::vector<std::byte> text = text_of_connection("tensafe split inference 3\n", exporter, nonce);
    for (int i = 0; i < 8; ++i) {
        text.push_back(static_cast<std::byte>(m.set >> (8 * i) & 0xff));
    }
    append(text, m.key_sha256);
    append(text, std::as_bytes(std::span(m.adapter)));
    return text;
}

std::vector<std::byte> text_to_sign(const exporter_value& exporter, const tensafe::random::seed& nonce,
                                    const resume& m) {
    std::vector<std::byte> text = text_of_connection("tensafe split inference 3 resume\n", exporter, nonce);
    append(text, m.session);
    return text;
}

}  // namespace split
