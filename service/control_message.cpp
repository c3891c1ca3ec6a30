#include "control_message.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/generator.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <concepts>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "base64.hpp"

namespace split {

namespace {

using json = nlohmann::ordered_json;
using tensafe::format_error;
using tensafe::in_quotes;
using tensafe::require;
using tensafe::io::json_value;

constexpr std::array<const char*, error_codes> code_names{
    {"malformed", "parameter_mismatch", "unsupported_version", "unknown_adapter", "not_authorised",
     "query_limit", "rate_limit", "replayed", "resume_failed", "unknown_block", "block_limit", "too_large",
     "draining", "loading", "unavailable", "internal"}};
constexpr std::array<const char*, 2> form_names = {"binary", "json"};
/// No control message has more, those of queries_left apart.
constexpr std::size_t most_values = 16 + most_limits;

/// The types of texts, each with an empty message of it.
const std::vector<std::pair<const char*, control_message>> types = {
    {"rerandomization_key", carried_message{carried_message::kind::rerandomization_key}},
    {"model_layout", carried_message{carried_message::kind::model_layout}},
    {"held_adapter", carried_message{carried_message::kind::held_adapter}},
    {"request", carried_message{carried_message::kind::request}},
    {"reply", carried_message{carried_message::kind::reply}},
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

bool has_number(carried_message::kind what) noexcept {
    return what == carried_message::kind::request || what == carried_message::kind::reply;
}

/// The members of one object, by name: taken from one that was read, where what is left in the end is
/// refused, or put into a new one.
class archive {
  public:
    explicit archive(const json_value& object, std::size_t largest_message)
        : object_(&object), largest_message_(largest_message) {}
    explicit archive(const char* type) { written_["type"] = type; }
    std::string written() const { return written_.dump(-1, ' ', false, json::error_handler_t::replace); }

    /// Of the type of what is read, whose name stands in errors from then on.
    control_message empty_message() {
        const std::string& name = text("type");
        const auto known = std::ranges::find(types, name, [](const auto& each) { return each.first; });
        if (known == types.end()) {
            throw format_error({"control message: got the type ", in_quotes(name), ", which no message has"});
        }
        type_ = known->first;
        return known->second;
    }
    void finish() const {
        const std::size_t left = object_->items.size() - taken_;
        require<format_error>(left == 0, {"control message ", type_, ": got ", left,
                                          " members that it does not have, expected none"});
    }

    void protocol() {
        std::uint64_t version = protocol_version;
        (*this)("protocol", version);
        require<tensafe::unsupported_error>(
            version == protocol_version,
            {"control message: got protocol ", version, ", expected ", protocol_version});
    }
    void operator()(const char* name, std::string& value) {
        is_read() ? void(value = text(name)) : put(name, value);
    }
    template <std::unsigned_integral Number>
    void operator()(const char* name, Number& value) {
        is_read() ? void(value = number<Number>(name, at(name))) : put(name, value);
    }
    void operator()(const char* name, bool& value) {
        if (!is_read()) {
            return put(name, value);
        }
        const json_value& read = at(name);
        value = read.checked(read.is_boolean(), where(name), "true or false").count == 1;
    }
    /// Nothing is there for nothing.
    void operator()(const char* name, std::optional<std::uint64_t>& value) {
        if (!is_read()) {
            return value ? put(name, *value) : void();
        }
        if (const json_value* const read = find(name)) {
            value = number<std::uint64_t>(name, *read);
        }
    }
    /// Null is there for none.
    void operator()(const char* name, std::vector<std::uint64_t>& values) {
        if (!is_read()) {
            return put(name, values.empty() ? json() : json(values));
        }
        if (const json_value& read = at(name); !read.is_null()) {
            for (const json_value& each : read.checked_array(where(name))) {
                values.push_back(number<std::uint64_t>(name, each));
            }
            require<format_error>(
                !values.empty() && values.size() <= most_limits,
                {where(name), ": got ", values.size(), " numbers, expected 1 to ", most_limits, ", or null"});
        }
    }
    void if_there(const char* name, std::string& value) {
        if (is_read() ? object_->find(name) != nullptr : !value.empty()) {
            (*this)(name, value);
        }
    }
    template <std::size_t Bytes>
    void operator()(const char* name, std::span<std::byte, Bytes> value) {
        if (!is_read()) {
            return put(name, tensafe::keystore::hex(value));
        }
        std::ranges::copy(tensafe::keystore::from_hex<Bytes>(text(name), where(name)), value.begin());
    }
    /// @param problem  with a text that is no name
    template <class Choice, std::size_t Count>
    void operator()(const char* name, Choice& value, const std::array<const char*, Count>& names,
                    const char* problem) {
        if (!is_read()) {
            return put(name, names[static_cast<std::size_t>(value)]);
        }
        const std::string& read = text(name);
        const auto found = std::ranges::find(names, read);
        if (found == names.end()) {
            throw format_error({where(name), " is ", in_quotes(read), problem});
        }
        value = static_cast<Choice>(found - names.begin());
    }
    void operator()(const char* name, std::vector<std::uint8_t>& message) {
        if (!is_read()) {
            return put(name, base64(message));
        }
        const std::string& read = text(name);
        if (read.size() > (largest_message_ + 2) / 3 * 4) {
            throw format_error({where(name), " has ", read.size(), " characters, expected base64 of at most ",
                                largest_message_, " bytes"});
        }
        message = from_base64(read, where(name));
    }

  private:
    bool is_read() const noexcept { return object_ != nullptr; }
    void put(const char* name, json value) { written_[name] = std::move(value); }
    const json_value* find(const char* name) {
        const json_value* const found = object_->find(name);
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
    std::string where(const char* name) const {
        return std::string("control message ") + type_ + ": \"" + name + "\"";
    }
    template <class Number>
    Number number(const char* name, const json_value& value) const {
        constexpr std::uint64_t largest = std::numeric_limits<Number>::max();
        return static_cast<Number>(value
                                       .checked(value.is_count() && value.count <= largest, where(name),
                                                "a whole number from 0 to " + std::to_string(largest))
                                       .count);
    }

    const json_value* object_ = nullptr;
    const char* type_ = "of any type";
    std::size_t largest_message_ = 0;
    std::size_t taken_ = 0;
    json written_;
};

/// The members of each message behind its type.
template <class Message>
void members_of(Message& m, archive& of) {
    if constexpr (std::is_same_v<Message, challenge>) {
        of.protocol();
        of("nonce", std::as_writable_bytes(std::span(m.nonce.bytes)));
        of("parameters", m.parameters);
    } else if constexpr (std::is_same_v<Message, hello>) {
        of.protocol();
        of("adapter", m.adapter);
        of("client", std::span(m.client));
        const auto set = std::as_writable_bytes(std::span<std::uint64_t, 1>(&m.set, 1));
        std::ranges::reverse(set);  // the highest digit first
        of("set", set);
        std::ranges::reverse(set);
        of("key_sha256", std::span(m.key_sha256));
        of("signature", std::span(m.signature));
        of("frames", m.frames, form_names, ", expected \"binary\" or \"json\"");
        of("held", m.held);
    } else if constexpr (std::is_same_v<Message, welcome>) {
        of("session", std::span(m.session));
        of("adapter", m.adapter);
        of("version", m.version);
        of("queries_left", m.queries_left);
        of.if_there("pin", m.pin);
    } else if constexpr (std::is_same_v<Message, resume>) {
        of.protocol();
        of("session", std::span(m.session));
        of("client", std::span(m.client));
        of("signature", std::span(m.signature));
    } else if constexpr (std::is_same_v<Message, resumed>) {
        of("session", std::span(m.session));
        of("next_number", m.next_number);
        of("version", m.version);
        of("queries_left", m.queries_left);
    } else if constexpr (std::is_same_v<Message, carried_message>) {
        if (has_number(m.what)) {
            of("number", m.number);
            of("group", m.group);
        }
        of("message", m.message);
    } else if constexpr (std::is_same_v<Message, refusal>) {
        of("code", m.code, code_names, ", which no error is called");
        of("message", m.message);
        of("number", m.number);
        of("retry_after_ms", m.retry_after_ms);
    }  // the others have none
}

/// @param rest  of what is signed, behind what all of it begins with
std::vector<std::byte> joined(std::string_view title, const exporter_value& exporter,
                              const tensafe::random::seed& nonce,
                              std::initializer_list<std::span<const std::byte>> rest) {
    const derived_nonces derived(nonce);
    std::vector<std::byte> text;
    const auto append = [&](std::span<const std::byte> bytes) {
        text.insert(text.end(), bytes.begin(), bytes.end());
    };
    append(std::as_bytes(std::span(title)));
    append(exporter);
    append(std::as_bytes(std::span(derived.signed_one.bytes)));
    std::ranges::for_each(rest, append);
    return text;
}

}  // namespace

const char* to_string(error_code code) noexcept {
    return code_names[static_cast<std::size_t>(code)];
}

const char* type_of(const control_message& m) {
    const auto* const carried = std::get_if<carried_message>(&m);
    const auto is_its = [&](const auto& each) {
        return each.second.index() == m.index() &&
               (carried == nullptr || std::get<carried_message>(each.second).what == carried->what);
    };
    return std::ranges::find_if(types, is_its)->first;
}

control_message parse_control(std::string_view text, std::size_t largest_message) {
    const std::size_t longest =
        std::max(longest_control_text, largest_message == 0 ? 0 : longest_carrying_text(largest_message));
    require<format_error>(text.size() <= longest,
                          {"control message: got ", text.size(), " bytes, expected at most ", longest});
    const json_value object = tensafe::io::parse_strict_json(text, "control message", most_values);
    object.checked(object.is_object(), "control message", "an object");
    archive from(object, largest_message);
    control_message result = from.empty_message();
    std::visit([&](auto& m) { members_of(m, from); }, result);
    from.finish();
    require<format_error>(
        std::holds_alternative<carried_message>(result) || text.size() <= longest_control_text,
        {"control message ", type_of(result), ": got ", text.size(), " bytes, expected at most ",
         longest_control_text});
    return result;
}

std::string to_text(control_message m) {
    archive to(type_of(m));
    std::visit([&](auto& each) { members_of(each, to); }, m);
    return to.written();
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
    return joined("tensafe split inference 3\n", exporter, nonce,
                  {std::as_bytes(std::span(&m.set, 1)), m.key_sha256, std::as_bytes(std::span(m.adapter))});
}

std::vector<std::byte> text_to_sign(const exporter_value& exporter, const tensafe::random::seed& nonce,
                                    const resume& m) {
    return joined("tensafe split inference 3 resume\n", exporter, nonce, {m.session});
}

}  // namespace split
