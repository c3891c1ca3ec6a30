#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::io {

namespace detail {

// One parser, that which the JSON library itself compiles for its literals, and one type of event handler:
// each more costs seconds to compile.
using json_events = nlohmann::json_sax<nlohmann::json>;

/// As nlohmann::ordered_json::sax_parse, which would compile the readers of four binary formats too.
inline void parse_json(std::string_view text, json_events& events) {
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

    nlohmann::ordered_json take() { return std::move(root_); }

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override { return add(value); }
    bool number_float(number_float_t value, const string_t&) override { return add(value); }
    bool string(string_t& value) override { return add(std::move(value)); }
    bool binary(binary_t& value) override { return add(std::move(value)); }
    bool start_object(std::size_t) override { return open(nlohmann::detail::value_t::object); }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override { return open(nlohmann::detail::value_t::array); }
    bool end_array() override { return close(); }

    bool key(string_t& name) override {
        if (!open_.back().keys.insert(name).second) {
            throw format_error(std::string(file_) + ": duplicate key " + quote(name));
        }
        key_ = std::move(name);
        return true;
    }

    bool parse_error(std::size_t position, const std::string& last_token,
                     const nlohmann::detail::exception&) override {
        throw format_error(std::string(file_) + ": not valid JSON at byte " + std::to_string(position) +
                           ", near " + quote(last_token));
    }

  private:
    struct container {
        nlohmann::ordered_json* value;
        std::set<std::string> keys;
    };

    nlohmann::ordered_json& place(nlohmann::ordered_json value) {
        if (values_ == most_values_) {
            throw format_error(std::string(file_) + ": more than " + std::to_string(most_values_) +
                               " JSON values");
        }
        ++values_;
        if (open_.empty()) {
            return root_ = std::move(value);
        }
        nlohmann::ordered_json& parent = *open_.back().value;
        if (parent.is_array()) {
            parent.push_back(std::move(value));
            return parent.back();
        }
        // The map's own insertion looks through all keys again, which makes a large object cost quadratic
        // time.
        auto& members = parent.get_ref<nlohmann::ordered_json::object_t&>();
        return members.emplace_back(std::move(key_), std::move(value)).second;
    }

    bool add(nlohmann::ordered_json value) {
        place(std::move(value));
        return true;
    }

    bool open(nlohmann::detail::value_t kind) {
        if (open_.size() == max_depth) {
            throw format_error(std::string(file_) + ": JSON nested deeper than " + std::to_string(max_depth) +
                               " levels");
        }
        // A parent grows only while its children are closed, so the pointers on the stack stay valid.
        open_.push_back({&place(nlohmann::ordered_json(kind)), {}});
        return true;
    }

    bool close() {
        open_.pop_back();
        return true;
    }

    std::string_view file_;
    std::size_t most_values_;
    std::size_t values_ = 0;
    nlohmann::ordered_json root_;
    std::vector<container> open_;
    std::string key_;
};

}  // namespace detail

/// Parses JSON text from outside, keeping the order of keys. Stricter than the JSON library alone: duplicate
/// keys, zero bytes and more than 16 levels of nesting are errors. Cost: n log n in the text's length.
/// @param file         how messages call the text, already quoted
/// @param most_values  objects, arrays, texts, numbers and so on that are taken, the members of all together:
///                     each takes some 100 bytes of memory, the text of "[],[],[]" for one only 3
/// @throws format_error naming the file and the byte
inline nlohmann::ordered_json parse_strict_json(std::string_view text, std::string_view file,
                                                std::size_t most_values = 100'000) {
    // The parser takes a zero byte for the end of its input and would ignore what follows.
    if (const std::size_t zero = text.find('\0'); zero != text.npos) {
        throw format_error(std::string(file) + ": zero byte at " + std::to_string(zero));
    }
    detail::strict_json_builder builder(file, most_values);
    detail::parse_json(text, builder);
    return builder.take();
}

}  // namespace tensafe::io
