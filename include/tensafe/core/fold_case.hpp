#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace tensafe {

/// ASCII letters in lower case, all other bytes as they are.
inline std::string fold_case(std::string_view text) {
    std::string trace(text);
    std::transform(trace.begin(), trace.end(), trace.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return trace;
}

}  // namespace tensafe
