#pragma once

#include <string>

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

}  // namespace tests
