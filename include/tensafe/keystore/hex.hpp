#pragma once

#include <tensafe/core/error.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tensafe::keystore {

/// Two lower-case hexadecimal digits for each byte, the first byte first.
inline std::string hex(std::span<const std::byte> bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    text.reserve(2 * bytes.size());
    for (const std::byte byte : bytes) {
        text += digits[std::to_integer<std::size_t>(byte >> 4)];
        text += digits[std::to_integer<std::size_t>(byte & std::byte{0x0f})];
    }
    return text;
}

/// The bytes that `hex` would write as `text`, and nothing else: no upper case, no prefix, no spaces. A value
/// then has one text, so that texts may be compared.
/// @param what how messages call the text
/// @throws format_error if it has not exactly 2 * Bytes digits, or another character (the message gives its
///         position, never the text: it may have been meant to be secret)
template <std::size_t Bytes>
std::array<std::byte, Bytes> from_hex(std::string_view text, std::string_view what = "hexadecimal text") {
    if (text.size() != 2 * Bytes) {
        throw format_error(std::string(what) + ": got " + std::to_string(text.size()) +
                           " characters, expected " + std::to_string(2 * Bytes) +
                           " lower-case hexadecimal digits");
    }
    std::array<std::byte, Bytes> bytes{};
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char digit = text[i];
        unsigned value = 0;
        if (digit >= '0' && digit <= '9') {
            value = static_cast<unsigned>(digit - '0');
        } else if (digit >= 'a' && digit <= 'f') {
            value = static_cast<unsigned>(digit - 'a') + 10;
        } else {
            throw format_error(std::string(what) + ": character " + std::to_string(i) +
                               " is not a lower-case hexadecimal digit");
        }
        bytes[i / 2] |= static_cast<std::byte>(i % 2 == 0 ? value << 4 : value);
    }
    return bytes;
}

}  // namespace tensafe::keystore
