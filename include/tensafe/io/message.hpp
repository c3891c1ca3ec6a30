#pragma once

#include <tensafe/core/macros.hpp>

#if TENSAFE_COMPILED_BODIES
#include <nlohmann/json.hpp>
#endif

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

namespace tensafe::io {

// Pieces of error messages that carry something from outside.

/// `text` in double quotes, fit for an error message whoever wrote it: plain ASCII, control characters and
/// everything else escaped, bytes that are not UTF-8 replaced, cut after about 200 characters.
TENSAFE_COMPILED_API std::string quote(std::string_view text);

#if TENSAFE_COMPILED_BODIES
inline std::string quote(std::string_view text) {
    constexpr std::size_t longest = 200;
    const nlohmann::ordered_json head(std::string(text.substr(0, longest)));
    std::string escaped = head.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
    if (text.size() > longest || escaped.size() > longest + 2) {
        escaped.resize(std::min(escaped.size() - 1, longest));
        escaped += "...\"";
    }
    return escaped;
}
#endif

/// The shortest decimal that stands for exactly this value; "nan" and "inf" too.
inline std::string number_text(double value) {
    std::array<char, 32> digits{};
    const std::to_chars_result end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    return std::string(digits.data(), end.ptr);
}

}  // namespace tensafe::io
