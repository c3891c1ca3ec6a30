#pragma once

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

// Text that comes from outside, or goes into error messages.
namespace tensafe {

namespace detail {

struct utf8_character {
    char32_t code = 0xFFFD;  ///< the replacement character, for what is malformed
    std::size_t bytes = 0;   ///< 0 for what is malformed
};

/// The first character of a text that is not empty (RFC 3629).
constexpr utf8_character first_character(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) {
        return static_cast<unsigned char>(i < text.size() ? text[i] : 0);
    };
    const unsigned char first = byte(0);
    if (first < 0x80) {
        return {first, 1};
    }
    const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    char32_t code = first & (0x7Fu >> bytes);
    for (std::size_t k = 1; k < bytes; ++k) {
        if ((byte(k) & 0xC0) != 0x80) {
            return {};
        }
        code = code << 6 | (byte(k) & 0x3Fu);
    }
    // Neither longer than needed, nor a surrogate, nor beyond U+10FFFF.
    constexpr std::array<char32_t, 3> least = {0x80, 0x800, 0x10000};
    if (first < 0xC2 || first > 0xF4 || code < least[bytes - 2] || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000)) {
        return {};
    }
    return {code, bytes};
}

}  // namespace detail

/// Whether a name can be shown anywhere: UTF-8 (RFC 3629) without control characters.
constexpr bool is_printable_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const auto [code, bytes] = detail::first_character(text);
        if (bytes == 0 || code < 0x20 || (code >= 0x7F && code < 0xA0)) {
            return false;
        }
        text.remove_prefix(bytes);
    }
    return true;
}

/// `text` in double quotes, fit for an error message whoever wrote it: plain ASCII, with all other characters
/// escaped as in JSON, bytes that are not UTF-8 replaced, and what is beyond about 200 characters cut.
inline std::string quote(std::string_view text) {
    constexpr std::size_t longest = 200;
    constexpr std::string_view digits = "0123456789abcdef";
    std::string shown = "\"";
    while (!text.empty() && shown.size() <= longest) {
        const auto [code, bytes] = detail::first_character(text);
        if (code == '\n') {
            shown += "\\n";
        } else if (code >= 0x20 && code < 0x7F) {
            shown.append(code == '"' || code == '\\' ? 1 : 0, '\\') += static_cast<char>(code);
        } else {
            // A character above U+FFFF has eight digits, as in C++.
            shown += code > 0xFFFF ? "\\U" : "\\u";
            for (int shift = code > 0xFFFF ? 28 : 12; shift >= 0; shift -= 4) {
                shown += digits[(code >> shift) & 15];
            }
        }
        text.remove_prefix(bytes == 0 ? 1 : bytes);
    }
    if (!text.empty() || shown.size() > longest + 1) {
        shown.resize(std::min(shown.size(), longest));
        shown += "...";
    }
    return shown + '"';
}

/// Makes a part of an error's message that shows quote(text).
constexpr text_part in_quotes(std::string_view text) noexcept {
    return {text, &quote};
}

/// The sizes as messages show them, for example "[2, 3]".
template <class Sizes = std::initializer_list<std::size_t>>
std::string shape_text(const Sizes& sizes) {
    std::string text = "[";
    for (const auto size : sizes) {
        text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
    }
    return text + "]";
}

/// The number that a whole text is, as std::from_chars reads it; nothing if it is none, or one out of range.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value);
    return problem == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// The text with its ASCII letters in lower case and all other bytes as they are.
inline std::string fold_case(std::string_view text) {
    std::string folded(text);
    std::transform(folded.begin(), folded.end(), folded.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return folded;
}

}  // namespace tensafe
