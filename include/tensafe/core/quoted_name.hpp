#pragma once

#include <tensafe/core/printable.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace tensafe {

/// A name from outside as error messages show it: short, and without what a terminal or a log would obey.
inline std::string quoted_name(std::string_view name) {
    constexpr std::size_t longest = 80;
    std::size_t kept = name.size();
    if (kept > longest) {
        // Not in the middle of a character.
        for (kept = longest; kept > 0 && (static_cast<unsigned char>(name[kept]) & 0xC0) == 0x80;) {
            --kept;
        }
    }
    std::string shown(name.substr(0, kept));
    if (!is_printable_utf8(shown)) {
        for (char& c : shown) {
            c = c < ' ' || c > '~' ? '?' : c;  // beyond ASCII too: where one byte is wrong, none is sure
        }
    }
    return '"' + shown + (kept < name.size() ? "...\"" : "\"");
}

}  // namespace tensafe
