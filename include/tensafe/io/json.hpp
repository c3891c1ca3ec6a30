#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::io {

/// A JSON value. The members of an object keep the order of the text. The checked accessors throw
/// format_error: "<where>: got ..., expected ...".
///
/// It is no nlohmann::ordered_json because that, built and shown for messages, takes 1.5 s to compile.
struct json_value {
    enum class kind : unsigned char { null, boolean, count, negative, real, string, array, object };

    kind is = kind::null;
    std::uint64_t count = 0;  ///< a whole number that is not negative; 1 for true
    double number = 0;        ///< any number
    std::string text;         ///< the text of a string; otherwise null, true, false or a number's digits
    std::vector<std::string> keys;  ///< an object's names, of `items`
    std::vector<json_value> items;  ///< members of an array or an object

    bool is_null() const noexcept { return is == kind::null; }
    bool is_boolean() const noexcept { return is == kind::boolean; }
    bool is_count() const noexcept { return is == kind::count; }
    bool is_number() const noexcept { return is >= kind::count && is <= kind::real; }
    bool is_string() const noexcept { return is == kind::string; }
    bool is_array() const noexcept { return is == kind::array; }
    bool is_object() const noexcept { return is == kind::object; }

    /// Finds the member of this name, or returns nullptr.
    const json_value* find(std::string_view name) const noexcept {
        const auto found = std::find(keys.begin(), keys.end(), name);
        return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
    }

    /// The member of this name. @throws format_error where there is none
    const json_value& at(std::string_view name, const std::string& where) const {
        if (const json_value* const found = find(name)) {
            return *found;
        }
        throw format_error(where + ": missing key " + quote(name));
    }

    /// The text of a string.
    const std::string& checked_string(const std::string& where) const {
        return checked(is_string(), where, "a string").text;
    }

    std::uint64_t checked_count(const std::string& where) const {
        return checked(is_count(), where, "a whole number from 0 to 2^64 - 1").count;
    }

    /// Checks that this is an object of `members` members.
    void check_members(std::size_t members, const std::string& where) const {
        checked(is_object() && items.size() == members, where,
                "an object of " + std::to_string(members) + " members");
    }

    /// Checks that this is an array.
    const std::vector<json_value>& checked_array(const std::string& where) const {
        return checked(is_array(), where, "an array").items;
    }

    /// Returns this value if `fits`.  @throws format_error otherwise
    const json_value& checked(bool fits, const std::string& where, std::string_view expected) const {
        if (!fits) {
            // A container could be as long as the file.
            const std::string got = is_object()  ? "an object of " + std::to_string(items.size()) + " members"
                                    : is_array() ? "an array"
                                                 : quote(is_string() ? quote(text) : text);
            throw format_error(where + ": got " + got + ", expected " + std::string(expected));
        }
        return *this;
    }

    friend bool operator==(const json_value&, const json_value&) = default;
};

namespace detail {

// One parser, that which the JSON library itself compiles for its literals, and one type of event handler:
// each more costs seconds to compile.
using json_events = nlohmann::json_sax<nlohmann::json>;

/// Parses like nlohmann::ordered_json::sax_parse, which would compile the readers of four binary formats too.
/// @throws format_error, which begins with `where`, for a byte 0
inline void parse_json(std::string_view text, const std::string& where, json_events& events) {
    // The parser takes a zero byte for the end of its input and would ignore what follows.
    if (const std::size_t zero = text.find('\0'); zero != text.npos) {
        throw format_error(where + ": zero byte at " + std::to_string(zero));
    }
    auto input = nlohmann::detail::input_adapter(text.data(), text.data() + text.size());
    nlohmann::detail::parser<nlohmann::json, decltype(input)>(std::move(input)).sax_parse(&events);
}

/// Builds a document from JSON events and stops at the first duplicate key (of which the library's own reader
/// would silently keep one), too deep nesting or too many values.
class strict_json_builder final : public json_events {
  public:
    static constexpr std::size_t max_depth = 16;

    strict_json_builder(std::string_view file, std::size_t most_values)
        : file_(file), most_values_(most_values) {}

    json_value take() { return std::move(root_); }

    bool null() override { return add(json_value::kind::null, "null"); }
    bool boolean(bool value) override {
        return add(json_value::kind::boolean, value ? "true" : "false", value ? 1 : 0);
    }
    bool number_integer(number_integer_t value) override {
        return add(json_value::kind::negative, std::to_string(value), 0, static_cast<double>(value));
    }
    bool number_unsigned(number_unsigned_t value) override {
        return add(json_value::kind::count, std::to_string(value), value, static_cast<double>(value));
    }
    bool number_float(number_float_t value, const string_t& digits) override {
        return add(json_value::kind::real, digits, 0, value);
    }
    bool string(string_t& value) override { return add(json_value::kind::string, std::move(value)); }
    bool binary(binary_t&) override { return false; }  // JSON text has none
    bool start_object(std::size_t) override { return open(json_value::kind::object); }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override { return open(json_value::kind::array); }
    bool end_array() override { return close(); }

    bool key(string_t& name) override {
        if (!open_.back().keys.insert(name).second) {
            refuse("duplicate key " + quote(name));
        }
        open_.back().value->keys.push_back(std::move(name));
        return true;
    }

    bool parse_error(std::size_t position, const std::string& last_token,
                     const nlohmann::detail::exception&) override {
        refuse("not valid JSON at byte " + std::to_string(position) + ", near " + quote(last_token));
    }

  private:
    struct container {
        json_value* value;
        std::set<std::string> keys;
    };

    [[noreturn]] void refuse(const std::string& why) const {
        throw format_error(std::string(file_) + ": " + why);
    }

    json_value& place(json_value value) {
        if (values_ == most_values_) {
            refuse("more than " + std::to_string(most_values_) + " JSON values");
        }
        ++values_;
        if (open_.empty()) {
            return root_ = std::move(value);
        }
        return open_.back().value->items.emplace_back(std::move(value));
    }

    bool add(json_value::kind kind, std::string text, std::uint64_t count = 0, double number = 0) {
        place({kind, count, number, std::move(text), {}, {}});
        return true;
    }

    bool open(json_value::kind kind) {
        if (open_.size() == max_depth) {
            refuse("JSON nested deeper than " + std::to_string(max_depth) + " levels");
        }
        // A parent grows only while its children are closed, so the pointers on the stack stay valid.
        open_.push_back({&place({kind, 0, 0, {}, {}, {}}), {}});
        return true;
    }

    bool close() {
        open_.pop_back();
        return true;
    }

    std::string_view file_;
    std::size_t most_values_;
    std::size_t values_ = 0;
    json_value root_;
    std::vector<container> open_;
};

}  // namespace detail

/// Parses JSON text from outside, keeping the order of keys. Stricter than the JSON library alone: duplicate
/// keys, bytes 0, a byte order mark and more than 16 levels of nesting are errors. Cost: n log n.
/// @param file         how messages call the text, already quoted
/// @param most_values  objects, arrays, texts, numbers and so on that are taken, the members of all together:
///                     each takes some 100 bytes of memory, the text of "[],[],[]" for one only 3
/// @throws format_error naming the file and the byte
inline json_value parse_strict_json(std::string_view text, std::string_view file,
                                    std::size_t most_values = 100'000) {
    // The parser would skip it.
    if (text.starts_with("\xef\xbb\xbf")) {
        throw format_error(std::string(file) + ": got a byte order mark, expected JSON");
    }
    if (text.starts_with("version https://git-lfs")) {
        throw format_error(std::string(file) + ": is a pointer of Git LFS, not the file: run git lfs pull");
    }
    detail::strict_json_builder builder(file, most_values);
    detail::parse_json(text, std::string(file), builder);
    return builder.take();
}

}  // namespace tensafe::io
