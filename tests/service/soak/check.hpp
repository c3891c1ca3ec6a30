#pragma once

// The everyday part of the standard library, and what a scenario says where something is not as it has to be.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace split::soak {

/// A scenario did not go as it has to: what, got, expected.
class failure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

template <class Value>
std::string text_of(const Value& value) {
    std::ostringstream text;
    text << std::boolalpha << value;
    return text.str();
}

/// @throws failure
template <class Got, class Expected>
void require(bool holds, std::string_view what, const Got& got, const Expected& expected) {
    if (!holds) {
        throw failure(std::string(what) + ": got " + text_of(got) + ", expected " + text_of(expected));
    }
}

template <class Got, class Expected>
void require_equal(std::string_view what, const Got& got, const Expected& expected) {
    require(got == expected, what, got, expected);
}

inline void require_contains(std::string_view what, const std::string& text, std::string_view part) {
    require(text.find(part) != std::string::npos, what, "\"" + text + "\"",
            "\"" + std::string(part) + "\" in it");
}

using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;

/// For anything that a server has to do.
inline constexpr milliseconds patience{20'000};

/// Asks `problem` until it is empty. @throws failure with the last one
template <class Problem>
void wait_until_none(std::string_view what, std::string_view expected, Problem problem) {
    const auto end = steady::now() + patience;
    for (std::string got; !(got = problem()).empty();) {
        require(steady::now() < end, what, got + " after 20 s", expected);
        std::this_thread::sleep_for(milliseconds(2));
    }
}

/// A hidden state of normal entries.
inline std::vector<float> random_state(std::size_t d) {
    thread_local std::mt19937 generator(std::random_device{}());
    std::normal_distribution<float> normal;
    std::vector<float> h(d);
    for (float& x : h) {
        x = normal(generator);
    }
    return h;
}

/// f(0), ..., f(count - 1), each in a thread of its own. Returns when all are through. @throws what one of
/// them threw
template <class F>
void at_once(std::size_t count, F f) {
    std::vector<std::future<void>> all;
    for (std::size_t i = 0; i < count; ++i) {
        all.push_back(std::async(std::launch::async, [&f, i] { f(i); }));
    }
    for (auto& each : all) {
        each.get();
    }
}

}  // namespace split::soak
