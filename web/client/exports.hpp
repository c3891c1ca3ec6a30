#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/session/store.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <string_view>
#include <vector>

// How JavaScript calls a module: it writes bytes where argument() says, calls, and reads result_size() bytes
// at result_data(), which stay until the next call. Calls give 0, or the number of an error, whose text is
// then shown.

#define TENSAFE_EXPORT(name) __attribute__((export_name(#name), used))

namespace exported {

using bytes = std::vector<std::uint8_t>;

inline bytes argument;                    ///< what JavaScript wrote
inline bytes result;                      ///< what it reads,
inline std::span<const std::byte> shown;  ///< or other bytes that stay until the next call

template <class T>
void wipe(std::vector<T>& values) noexcept {
    tensafe::memory::wipe(values.data(), values.size() * sizeof(T));
}

inline void show(std::span<const std::byte> what) {
    shown = what;
}
inline void show(const bytes& what) {
    shown = std::as_bytes(std::span(what));
}
inline void show(std::string_view text) {
    result.assign(text.begin(), text.end());
    show(result);
}

/// An error that client.js was told by the server, by its number there.
struct server_error : tensafe::error {
    explicit server_error(int number) : error("the server refused"), which(number) {}
    int which;
};

template <class E>
bool is(const std::exception& e) noexcept {
    return dynamic_cast<const E*>(&e) != nullptr;
}

/// The number of an error's kind; the numbers stand in client.js too.
inline int kind_of(const std::exception& e) {
    if (const auto* const said = dynamic_cast<const server_error*>(&e)) {
        return 7 + said->which;
    }
    return is<tensafe::range_exceeded_error>(e)     ? 2
           : is<tensafe::encoding_error>(e)         ? 3
           : is<tensafe::format_error>(e)           ? 4
           : is<std::bad_alloc>(e)                  ? 5
           : is<tensafe::session::refused_error>(e) ? 6
                                                    : 1;
}

/// Returns 0, or the kind of what went wrong: then its text is shown.
template <class F>
int guarded(F f) noexcept {
    try {
        shown = {};
        f();
        return 0;
    } catch (const std::exception& e) {
        show(e.what());
        return kind_of(e);
    }
}

/// Returns the argument as numbers.
template <class T>
std::span<const T> numbers() {
    tensafe::require<tensafe::parameter_error>(
        argument.size() % sizeof(T) == 0,
        {"got ", argument.size(), " bytes, expected a multiple of ", sizeof(T)});
    return {reinterpret_cast<const T*>(argument.data()), argument.size() / sizeof(T)};
}

/// Returns where the next call's argument of so many bytes goes; null: there is no such memory.
TENSAFE_EXPORT(argument) inline std::uint8_t* argument_of(std::size_t size) {
    try {
        if (size > argument.capacity()) {
            wipe(argument);  // it moves
        }
        argument.resize(size);
        return argument.data();
    } catch (const std::exception&) {
        return nullptr;
    }
}
TENSAFE_EXPORT(result_data) inline const std::byte* result_data() {
    return shown.data();
}
TENSAFE_EXPORT(result_size) inline std::size_t result_size() {
    return shown.size();
}

}  // namespace exported
