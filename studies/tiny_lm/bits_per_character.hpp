#pragma once

#include <tensafe/core/error.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "../../examples/tiny_lm/characters.hpp"
#include "../../examples/tiny_lm/transformer.hpp"

namespace studies {

using namespace examples::tiny_lm;

/// Logits to the mean loss in nats.
inline at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
    return torch::cross_entropy_loss(logits.reshape({-1, vocabulary}), targets.reshape({-1}));
}

/// Bits that a character of the text takes, on average. The text is cut into sequences of this length, each
/// of which is read without those before it.
/// @throws tensafe::parameter_error for a text of less than two characters, or unknown ones
inline double bits_per_character(language_model& model, const adapter_deltas& deltas, std::string_view text,
                                 std::int64_t length = 384) {
    const torch::NoGradGuard no_gradients;
    auto tokens = tokens_of(text);
    if (tokens.size() < 2) {
        throw tensafe::parameter_error("bits_per_character: got a text of " + std::to_string(tokens.size()) +
                                       " characters to measure, expected at least 2");
    }
    double nats = 0;
    std::int64_t characters = 0;
    for (std::int64_t first = 0; first + 1 < std::ssize(tokens); first += length) {
        const std::int64_t count = std::min(length, std::ssize(tokens) - 1 - first);
        const at::Tensor part = torch::from_blob(tokens.data() + first, {1, count + 1}, at::kLong);
        const at::Tensor loss =
            loss_of(model.forward(part.narrow(1, 0, count), deltas), part.narrow(1, 1, count));
        nats += loss.item<double>() * static_cast<double>(count);
        characters += count;
    }
    return nats / static_cast<double>(characters) / std::log(2.0);
}

}  // namespace studies
