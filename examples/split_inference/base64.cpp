#include "base64.hpp"

#include <tensafe/core/error.hpp>

#include <array>
#include <cstddef>

namespace split {

namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t no_digit = 0xff;

constexpr std::array<std::uint8_t, 256> digits_of_characters() {
    std::array<std::uint8_t, 256> table{};
    for (std::uint8_t& entry : table) {
        entry = no_digit;
    }
    for (std::size_t digit = 0; digit < alphabet.size(); ++digit) {
        table[static_cast<unsigned char>(alphabet[digit])] = static_cast<std::uint8_t>(digit);
    }
    return table;
}
constexpr std::array<std::uint8_t, 256> digit_of = digits_of_characters();

[[noreturn]] void refuse(std::string_view what, const std::string& problem) {
    throw tensafe::format_error(std::string(what) + ": " + problem);
}

}  // namespace

std::string base64(std::span<const std::uint8_t> bytes) {
    std::string text((bytes.size() + 2) / 3 * 4, '=');
    std::size_t to = 0;
    for (std::size_t from = 0; from < bytes.size(); from += 3, to += 4) {
        const std::size_t count = bytes.size() - from < 3 ? bytes.size() - from : 3;
        std::uint32_t three = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            three = three << 8 | (i < count ? bytes[from + i] : 0u);
        }
        for (std::size_t i = 0; i <= count; ++i) {
            text[to + i] = alphabet[three >> (18 - 6 * i) & 63];
        }
    }
    return text;
}

std::vector<std::uint8_t> from_base64(std::string_view text, std::string_view what) {
    if (text.size() % 4 != 0) {
        refuse(what, "got " + std::to_string(text.size()) + " characters, expected a multiple of 4");
    }
    std::size_t padding = 0;
    while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') {
        ++padding;
    }
    std::vector<std::uint8_t> bytes(text.size() / 4 * 3 - padding);
    const std::size_t characters = text.size() - padding;
    std::size_t to = 0;
    for (std::size_t from = 0; from < characters; from += 4) {
        std::uint32_t three = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            std::uint8_t digit = 0;
            if (from + i < characters) {
                digit = digit_of[static_cast<unsigned char>(text[from + i])];
                if (digit == no_digit) {
                    refuse(what, "character " + std::to_string(from + i) + " is not of base64");
                }
            }
            three = three << 6 | digit;
        }
        for (std::size_t i = 0; i < 3; ++i) {
            const auto byte = static_cast<std::uint8_t>(three >> (16 - 8 * i));
            if (to < bytes.size()) {
                bytes[to++] = byte;
            } else if (byte != 0) {
                refuse(what, "its last character has bits that stand for nothing");
            }
        }
    }
    return bytes;
}

}  // namespace split
