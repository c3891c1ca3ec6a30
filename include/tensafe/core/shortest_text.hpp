#pragma once

#include <array>
#include <charconv>
#include <string>

namespace tensafe::detail {

/// The shortest decimal that stands for exactly this value; "nan" and "inf" too. For messages, where
/// std::to_string would show 1e-10 as 0.000000.
inline std::string shortest_text(double value) {
    std::array<char, 32> digits{};  // the longest, -2.2250738585072014e-308, has 24
    const std::to_chars_result end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    return std::string(digits.data(), end.ptr);
}

}  // namespace tensafe::detail
