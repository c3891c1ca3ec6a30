#pragma once

#include <tensafe/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// The tokens of the tiny language model, one for each character that it knows, and its shape.

namespace examples::tiny_lm {

struct model_shape {
    std::int64_t d_model = 256;
    std::int64_t layers = 3;
    std::int64_t heads = 4;
    std::int64_t d_hidden = 1024;  ///< of the MLP
    /// A position sees itself and the window - 1 before it, in training and when text is made: a text may be
    /// of any length, and what falls out of the window is forgotten.
    std::int64_t window = 256;
};

/// The newline is token 0, ' ' to '~' are tokens 1 to 95.
inline constexpr std::int64_t vocabulary = 96;

inline bool is_known(char c) noexcept {
    return c == '\n' || (c >= ' ' && c <= '~');
}

/// @throws tensafe::parameter_error, naming the place, for a character that is neither a newline nor
///         printable ASCII
inline std::vector<std::int64_t> tokens_of(std::string_view text) {
    std::vector<std::int64_t> tokens;
    tokens.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (!is_known(text[i])) {
            throw tensafe::parameter_error(
                "tokens_of: character " + std::to_string(i) + " of the text: got byte " +
                std::to_string(static_cast<unsigned>(static_cast<unsigned char>(text[i]))) +
                ", expected a newline or printable ASCII");
        }
        tokens.push_back(text[i] == '\n' ? 0 : text[i] - ' ' + 1);
    }
    return tokens;
}

/// @pre 0 <= token < vocabulary
inline char character_of(std::int64_t token) noexcept {
    return token == 0 ? '\n' : static_cast<char>(' ' + token - 1);
}

}  // namespace examples::tiny_lm
