#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <string>

namespace studies {

/// Three digits, or all those before the point: "0.25", "7.69", "81.9", "1321".
inline std::string short_number(double value) {
    std::array<char, 400> digits{};  // the largest double has 309 before the point
    const double size = std::fabs(value);
    const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    const auto end = size > 0 && size < 0.01 ? std::to_chars(digits.data(), digits.data() + digits.size(),
                                                             value, std::chars_format::scientific, 1)
                                             : std::to_chars(digits.data(), digits.data() + digits.size(),
                                                             value, std::chars_format::fixed, decimals);
    return std::string(digits.data(), end.ptr);
}

}  // namespace studies
