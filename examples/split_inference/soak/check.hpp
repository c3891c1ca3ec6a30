#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
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

/// f(0), ..., f(count - 1), each in a thread of its own. @throws what the first of them threw that did
template <class F>
void at_once(std::size_t count, F f) {
    std::mutex mutex;
    std::exception_ptr first;
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < count; ++i) {
            threads.emplace_back([&, i] {
                try {
                    f(i);
                } catch (...) {
                    const std::lock_guard lock(mutex);
                    if (!first) {
                        first = std::current_exception();
                    }
                }
            });
        }
    }
    if (first) {
        std::rethrow_exception(first);
    }
}

}  // namespace split::soak
