#pragma once

#include <string>
#include <string_view>

namespace tests {

/// The message of what `call` throws, which must be an E.
template <class E, class Call>
std::string refusal(Call call) {
    try {
        call();
    } catch (const E& e) {
        return e.what();
    }
    return "nothing was thrown";
}

inline bool has(std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
}

}  // namespace tests
