#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What every fuzz target is made of. A target is a function of bytes: it hands them to a reader and asks what
// must hold whatever they are. A property that does not hold ends the program, as a sanitizer does.

namespace fuzz {

/// Ends the program, saying which property was broken.
[[noreturn]] inline void broken(std::string_view property, std::string_view detail = {}) {
    std::fprintf(stderr, "fuzz: broken: %.*s%s%.*s\n", static_cast<int>(property.size()), property.data(),
                 detail.empty() ? "" : ": ", static_cast<int>(detail.size()), detail.data());
    std::abort();
}

inline void holds(bool fact, std::string_view property) {
    if (!fact) {
        broken(property);
    }
}

/// How often the reader that a target is for took an input, since the program began, for each form of input
/// that there is: those of a program that runs files.
struct taken_counts {
    std::array<std::size_t, 16> of{};
    std::size_t forms = 1;
};
inline taken_counts taken;

/// The reader that the target is for took the input, which has form `form` of `forms`.
inline void took(std::size_t form = 0, std::size_t forms = 1) noexcept {
    ++taken.of[form];
    taken.forms = forms;
}

/// The longest message of an error. Text from outside is cut in it, so that hostile input fills no log.
inline constexpr std::size_t longest_message = 4096;

/// What `read` returns, or nothing if it throws a tensafe::error, whose message must be short and printable.
/// Whatever else it throws is not caught and ends the program.
template <class Read>
auto read_or_refuse(Read&& read) -> std::optional<decltype(read())> {
    try {
        return std::optional<decltype(read())>(std::forward<Read>(read)());
    } catch (const tensafe::error& e) {
        const std::string_view message = e.what();
        holds(!message.empty(), "an error has a message");
        if (message.size() > longest_message || !tensafe::is_printable_utf8(message)) {
            broken("the message of an error is short and printable", message);
        }
        return std::nullopt;
    }
}

/// Bytes that this thread has from operator new now, and may have at most.
struct memory_account {
    std::size_t held = 0;
    std::size_t most = SIZE_MAX;
};
inline thread_local memory_account account;

/// As long as it lives, this thread may allocate `room` bytes more than it holds: the program ends where it
/// asks for the first byte beyond (allocation.cpp).
class memory_limit {
  public:
    explicit memory_limit(std::size_t room) noexcept : before_(account.most) {
        account.most = account.held + room;
    }
    memory_limit(const memory_limit&) = delete;
    memory_limit& operator=(const memory_limit&) = delete;
    ~memory_limit() { account.most = before_; }

  private:
    std::size_t before_;
};

/// The bytes as text.
inline std::string_view text_of(std::span<const std::uint8_t> input) noexcept {
    return {reinterpret_cast<const char*>(input.data()), input.size()};
}

using target_function = void (*)(std::span<const std::uint8_t> input);

/// The targets of a program that runs files, one after the other as they register themselves.
struct registered_target {
    registered_target(const char* its_name, target_function its_function) noexcept
        : name(its_name), function(its_function), next(first) {
        first = this;
    }
    const char* name;
    target_function function;
    registered_target* next;
    static inline registered_target* first = nullptr;
};

}  // namespace fuzz

// TENSAFE_FUZZ_TARGET(name) { ... }: the body of a target; its bytes are `input`. With TENSAFE_LIBFUZZER it
// becomes the entry of a libFuzzer program, of which there can be only one; otherwise it registers itself,
// and any number of them share a program.
#if defined(TENSAFE_LIBFUZZER)
#define TENSAFE_FUZZ_TARGET(name)                                                       \
    static void fuzz_target_##name(std::span<const std::uint8_t> input);                \
    extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
        fuzz_target_##name(std::span<const std::uint8_t>(data, size));                  \
        return 0;                                                                       \
    }                                                                                   \
    static void fuzz_target_##name(std::span<const std::uint8_t> input)
#else
#define TENSAFE_FUZZ_TARGET(name)                                                           \
    static void fuzz_target_##name(std::span<const std::uint8_t> input);                    \
    static const fuzz::registered_target fuzz_registered_##name(#name, fuzz_target_##name); \
    static void fuzz_target_##name(std::span<const std::uint8_t> input)
#endif
