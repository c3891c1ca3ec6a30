#pragma once

#include <tensafe/core/error.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "characters.hpp"
#include "transformer.hpp"

namespace examples::tiny_lm {

struct generation_options {
    std::string prompt = "In the beginning";
    std::size_t characters = 300;
    double temperature = 0;  ///< 0: always the likeliest character
    std::uint64_t seed = 1;  ///< of the draws, of which each character takes one
};

struct generated_text {
    std::string text;                ///< without the prompt
    std::vector<at::Tensor> logits;  ///< that each character was chosen by
};

namespace detail {

/// The first character at which the sum of probabilities passes `draw`, 0 to 1.
inline std::int64_t sampled(const at::Tensor& logits, double temperature, double draw) {
    const at::Tensor exact = logits.to(at::kDouble);
    // The maximum first: a small temperature would make infinities of it, and these NaN.
    const at::Tensor sums = torch::softmax((exact - exact.max()) / temperature, 0).cumsum(0);
    const auto* const values = sums.data_ptr<double>();
    return std::min<std::int64_t>(std::upper_bound(values, values + vocabulary, draw) - values,
                                  vocabulary - 1);
}

}  // namespace detail

/// Continues a prompt, one character at a time.
/// @param on_character  called with each as soon as it is known
/// @throws tensafe::parameter_error for an empty prompt, one with unknown characters, and a temperature that
///         is negative or no finite number
inline generated_text generate(language_model& model, const generation_options& options,
                               const adapter_deltas& deltas,
                               const std::function<void(char)>& on_character = {}) {
    if (options.prompt.empty()) {
        throw tensafe::parameter_error("generate: got an empty prompt, expected at least one character");
    }
    if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
        throw tensafe::parameter_error("generate: got a temperature of " +
                                       std::to_string(options.temperature) +
                                       ", expected a finite number from 0 on");
    }
    const torch::NoGradGuard no_gradients;
    std::mt19937_64 generator(options.seed);
    auto memory = model.empty_memory();
    at::Tensor logits;
    for (const std::int64_t token : tokens_of(options.prompt)) {
        logits = model.step(token, memory, deltas);
    }
    generated_text result;
    while (result.text.size() < options.characters) {
        const double draw = std::ldexp(static_cast<double>(generator() >> 11), -53);
        const std::int64_t token = options.temperature > 0
                                       ? detail::sampled(logits, options.temperature, draw)
                                       : logits.argmax().item<std::int64_t>();
        result.text += character_of(token);
        result.logits.push_back(logits);
        if (on_character) {
            on_character(result.text.back());
        }
        if (result.text.size() < options.characters) {
            logits = model.step(token, memory, deltas);
        }
    }
    return result;
}

/// How near two texts came to each other, up to the first character in which they differ and with it.
struct comparison {
    std::size_t equal = 0;                ///< characters before that, or all
    double largest_logit_difference = 0;  ///< of any character of the vocabulary
    /// Between the likeliest character and the next one: of the first text. Greedy texts are the same for
    /// sure where this is more than twice the difference above.
    double smallest_margin = std::numeric_limits<double>::infinity();

    comparison(const generated_text& one, const generated_text& other) {
        const std::size_t both = std::min(one.text.size(), other.text.size());
        for (std::size_t i = 0; i < both; ++i) {
            const double difference = (one.logits[i] - other.logits[i]).abs().max().item<double>();
            largest_logit_difference = std::max(largest_logit_difference, difference);
            const at::Tensor best = std::get<0>(one.logits[i].topk(2));
            smallest_margin = std::min(smallest_margin, (best[0] - best[1]).item<double>());
            if (one.text[i] != other.text[i]) {
                break;
            }
            ++equal;
        }
    }
};

}  // namespace examples::tiny_lm
