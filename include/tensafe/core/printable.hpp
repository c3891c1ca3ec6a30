#pragma once

#include <cstddef>
#include <string_view>

namespace tensafe {

/// Whether a name can be shown anywhere: UTF-8 (RFC 3629) without control characters.
constexpr bool is_printable_utf8(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) {
        return static_cast<unsigned char>(i < text.size() ? text[i] : 0);
    };
    for (std::size_t i = 0; i < text.size();) {
        const unsigned char first = byte(i);
        if (first < 0x80) {
            if (first < 0x20 || first == 0x7F) {
                return false;
            }
            ++i;
            continue;
        }
        const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
        // Neither longer than needed, nor a surrogate, nor beyond U+10FFFF; nor a C1 control.
        const unsigned char low = first == 0xE0 || first == 0xC2 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (first < 0xC2 || first > 0xF4 || byte(i + 1) < low || byte(i + 1) > high) {
            return false;
        }
        for (std::size_t k = 2; k < length; ++k) {
            if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) {
                return false;
            }
        }
        i += length;
    }
    return true;
}

}  // namespace tensafe
