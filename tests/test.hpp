#pragma once

// What most tests use: doctest, the everyday part of the standard library, the library's errors, random
// numbers, and messages of exceptions. `using namespace tests;` gives the short names, those of
// `tensafe` among them.

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-result"  // what is expected to throw gives nothing
#endif

#include <tensafe/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "random_numbers.hpp"
#include "refusal.hpp"

namespace tests {

using namespace tensafe;
using doctest::Contains;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// 0 on a machine of 32 bits, where nobody can give so large a number.
inline constexpr auto two_to_32 = static_cast<std::size_t>(std::uint64_t{1} << 32);

#if defined(__EMSCRIPTEN__)
inline constexpr bool has_fork = false;
#else
inline constexpr bool has_fork = true;
#endif

/// How often a property is tried on random inputs: by sanitizers, which see each access at once, an eighth.
constexpr auto trials(auto n) {
#ifdef TENSAFE_TEST_SANITIZED
    n /= 8;
#endif
    return n;
}

/// `text` with the first `from` replaced.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    DOCTEST_REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
}

/// Calls f(0), ..., f(count - 1), each on a thread of its own, and waits for all of them.
template <class F>
void on_threads(std::size_t count, F f) {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < count; ++t) {
        threads.emplace_back([&f, t] { f(t); });
    }
}

/// A text that is to be refused, and a piece of the message.
struct refused_text {
    std::string text;
    std::string piece;
};
/// Whether `parse` refuses each of them as malformed, with a message that begins so.
template <class Parse>
void check_refused(const std::vector<refused_text>& texts, std::string_view begin, Parse parse) {
    for (const refused_text& one : texts) {
        const std::string message = refusal<format_error>([&] { parse(one.text); });
        DOCTEST_INFO(one.text, "\n", message);
        DOCTEST_CHECK(message.starts_with(begin));
        DOCTEST_CHECK(contains(message, one.piece));
    }
}

/// The words of a text, between spaces.
inline std::vector<std::string> words(std::string_view text) {
    std::istringstream stream{std::string(text)};
    return {std::istream_iterator<std::string>(stream), {}};
}

}  // namespace tests
