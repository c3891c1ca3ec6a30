#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <version>

// What C++20 promises and a standard library may still lack: that of Emscripten 3.1 has no std::bit_cast, no
// algorithms of std::ranges and no std::to_chars of a double.
namespace tensafe {

#if defined(__cpp_lib_bit_cast)
using std::bit_cast;
#else
/// The bytes of `from`, as a value of another type of as many bytes.
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
    return __builtin_bit_cast(To, from);
}
#endif

namespace detail {
template <class Real>
std::string shortest_text_of(Real value) {
    std::array<char, 32> digits{};  // the longest, -2.2250738585072014e-308, has 24
#if defined(__cpp_lib_to_chars)
    const std::to_chars_result end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    return std::string(digits.data(), end.ptr);
#else
    for (int precision = 1; precision <= 17; ++precision) {
        std::snprintf(digits.data(), digits.size(), "%.*g", precision, value);
        if (static_cast<Real>(std::strtod(digits.data(), nullptr)) == value) {
            break;
        }
    }
    return digits.data();
#endif
}
}  // namespace detail

/// The shortest decimal that stands for exactly this value; "nan" and "inf" too. For messages, where
/// std::to_string would show 1e-10 as 0.000000.
inline std::string shortest_text(double value) {
    return detail::shortest_text_of(value);
}
inline std::string shortest_text(float value) {
    return detail::shortest_text_of(value);
}

}  // namespace tensafe
