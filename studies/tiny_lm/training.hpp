#pragma once

#include <tensafe/core/error.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "../../examples/tiny_lm/characters.hpp"
#include "bits_per_character.hpp"

// What studies/train_tiny_lm.cpp does beside reading and writing: batches, steps on several threads,
// learning rates.

namespace studies {

using namespace examples::tiny_lm;

struct training_options {
    std::int64_t steps = 1000;
    double minutes = 1e9;  ///< the schedule ends with whichever of the two comes first
    double rate = 1e-3;    ///< the learning rate at its highest
    double decay = 0.1;    ///< of AdamW
    std::int64_t sequences = 12;
    std::int64_t length = 384;  ///< characters of a sequence
    std::size_t threads = 2;
    std::uint64_t seed = 1;
    std::int64_t report_every = 200;
};

/// For shared_training::run: saves what there is and prints a line.
/// @param bits  measures text that was held out
template <class Save, class Bits>
auto reporter(Save save, Bits bits) {
    return [=, start = std::chrono::steady_clock::now()](std::int64_t step, double learned) {
        save();
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        std::printf("%6lld steps %7.1f minutes   bits per character: %.3f trained, %.3f held out\n",
                    static_cast<long long>(step), passed.count() / 60, learned, bits());
        std::fflush(stdout);
    };
}

/// A model, or the LoRA of one, that several threads train: each has a copy that shares the parameters'
/// memory and has gradients of its own.
template <class Module>
class shared_training {
  public:
    /// loss(copy, inputs, targets)
    using loss_function = std::function<at::Tensor(Module&, const at::Tensor&, const at::Tensor&)>;

    /// @param copy  makes another module of the same shape
    /// @throws tensafe::parameter_error for a text that is shorter than a sequence and its next character, or
    ///         has unknown characters
    shared_training(std::shared_ptr<Module> module, const std::function<std::shared_ptr<Module>()>& copy,
                    const training_options& options, std::string_view text, loss_function loss)
        : options_(options),
          tokens_(tokens_of(text)),
          loss_(std::move(loss)),
          copies_{std::move(module)},
          optimiser_(
              copies_[0]->parameters(),
              torch::optim::AdamWOptions(options.rate).betas({0.9, 0.95}).weight_decay(options.decay)) {
        if (std::ssize(tokens_) <= options.length) {
            throw tensafe::parameter_error("shared_training: got a text of " +
                                           std::to_string(tokens_.size()) +
                                           " characters to learn, expected more than the " +
                                           std::to_string(options.length) + " of a sequence");
        }
        while (copies_.size() < options.threads) {
            copies_.push_back(copy());
            auto own = copies_.back()->parameters();
            for (std::size_t p = 0; p < own.size(); ++p) {
                own[p].set_data(copies_[0]->parameters()[p].detach());
            }
        }
    }

    /// @param report  called with the step's number and the loss of training since the last report, in bits
    ///                per character
    void run(const std::function<void(std::int64_t, double)>& report) {
        const auto start = std::chrono::steady_clock::now();
        double progress = 0;
        double losses = 0;
        for (std::int64_t number = 1; progress < 1; ++number) {
            const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
            progress = std::max(static_cast<double>(number) / static_cast<double>(options_.steps),
                                passed.count() / 60 / options_.minutes);
            losses += step(number, progress) / std::log(2.0);
            if (number % options_.report_every == 0 || progress >= 1) {
                const auto since = (number - 1) % options_.report_every + 1;
                report(number, losses / static_cast<double>(since));
                losses = 0;
            }
        }
    }

  private:
    /// A hundred steps up to the highest rate, then half a cosine down to a tenth of it.
    double rate_at(std::int64_t number, double progress) const {
        const double warm = std::min(1.0, static_cast<double>(number) / 100);
        return options_.rate * warm * (0.55 + 0.45 * std::cos(std::min(progress, 1.0) * std::acos(-1.0)));
    }

    double step(std::int64_t number, double progress) {
        // Threads take sequences as they become free, so that one whose core is busy holds up nobody.
        std::atomic<std::int64_t> next = 0;
        std::vector<double> losses(copies_.size());
        std::vector<std::exception_ptr> problems(copies_.size());
        {
            std::vector<std::jthread> threads;
            for (std::size_t t = 0; t < copies_.size(); ++t) {
                threads.emplace_back([&, t] {
                    try {
                        at::set_num_threads(1);
                        copies_[t]->zero_grad();
                        for (std::int64_t i = next++; i < options_.sequences; i = next++) {
                            losses[t] += learn(*copies_[t], number, i);
                        }
                    } catch (...) {
                        problems[t] = std::current_exception();
                    }
                });
            }
        }
        for (const auto& problem : problems) {
            if (problem) {
                std::rethrow_exception(problem);
            }
        }
        auto sums = copies_[0]->parameters();
        for (std::size_t t = 1; t < copies_.size(); ++t) {
            const auto parameters = copies_[t]->parameters();
            for (std::size_t p = 0; p < sums.size(); ++p) {
                add_gradient(sums[p], parameters[p].grad());
            }
        }
        torch::nn::utils::clip_grad_norm_(sums, 1.0);
        for (auto& group : optimiser_.param_groups()) {
            group.options().set_lr(rate_at(number, progress));
        }
        optimiser_.step();
        double sum = 0;
        for (const double loss : losses) {
            sum += loss;
        }
        return sum;
    }

    static void add_gradient(at::Tensor& parameter, const at::Tensor& gradient) {
        if (!gradient.defined()) {
            return;
        }
        if (parameter.grad().defined()) {
            parameter.mutable_grad().add_(gradient);
        } else {
            parameter.mutable_grad() = gradient.clone();
        }
    }

    /// Adds the gradients of one sequence, which depends on the seed, the step and its number only.
    double learn(Module& copy, std::int64_t number, std::int64_t sequence) {
        std::seed_seq seeds{options_.seed, static_cast<std::uint64_t>(number),
                            static_cast<std::uint64_t>(sequence)};
        std::mt19937_64 generator(seeds);
        std::uniform_int_distribution<std::int64_t> first(0, std::ssize(tokens_) - options_.length - 1);
        const at::Tensor part =
            torch::from_blob(tokens_.data() + first(generator), {1, options_.length + 1}, at::kLong);
        const at::Tensor loss =
            loss_(copy, part.narrow(1, 0, options_.length), part.narrow(1, 1, options_.length)) /
            static_cast<double>(options_.sequences);
        loss.backward();
        return loss.template item<double>();
    }

    training_options options_;
    std::vector<std::int64_t> tokens_;
    loss_function loss_;
    std::vector<std::shared_ptr<Module>> copies_;
    torch::optim::AdamW optimiser_;
};

}  // namespace studies
