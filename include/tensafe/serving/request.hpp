#pragma once

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tensafe::serving {

/// One hidden state on its way through a group of sites that share it, and back.
struct request {
    std::size_t group = 0;
    std::span<const float> hidden{};  ///< d(group) entries
    std::span<double> answers{};      ///< rows(group) entries, to be written
    std::exception_ptr error{};       ///< the failure of this request, whose answers are NaN then
};

/// Something that answers batches of requests: the engine of device/lora/engine.hpp, or your own. `groups`,
/// `d` and `rows` do not change. `run` is called by one thread at a time; it answers each item or sets its
/// error, and leaves neighbours alone. What it throws itself concerns the whole batch.
template <class E>
concept request_engine = requires(E& engine, const E& constant, std::size_t group, std::span<request> batch) {
    { constant.groups() } -> std::convertible_to<std::size_t>;
    { constant.d(group) } -> std::convertible_to<std::size_t>;
    { constant.rows(group) } -> std::convertible_to<std::size_t>;
    engine.run(batch);
};

namespace detail {

/// Takes batches apart for engines: by group, and into tries. Keeps its memory from batch to batch.
class batch_dispatcher {
  public:
    /// The most tries of a hidden state; overflow margin doubles from try to try.
    static constexpr std::size_t most_tries = 21;

    /// Makes a dispatcher.
    /// @param largest  members of an attempt
    /// @throws parameter_error unless tries is in [1, most_tries]
    batch_dispatcher(const char* who, std::size_t tries,
                     std::size_t largest = std::numeric_limits<std::size_t>::max())
        : who_(who), tries_(tries), largest_(largest) {
        require<parameter_error>(
            tries != 0 && tries <= most_tries,
            {who_, ": got ", tries, " tries of a hidden state, expected 1 to ", most_tries});
    }

    /// Calls attempt(group, members, overflow margin, again) for each group among the batch, or several times
    /// if it has more members than `largest`; members are the places of its items. An item for which the
    /// range was too small sets its error and adds its place to `again`. What attempt throws is the error of
    /// all members that have none.
    template <class Engine, class Attempt>
    void run(const Engine& engine, std::span<request> batch, Attempt&& attempt) {
        waiting_.clear();
        for (std::size_t i = 0; i < batch.size(); ++i) {
            batch[i].error = check(engine, batch[i]);
            if (batch[i].error == nullptr) {
                waiting_.push_back(i);
            }
        }
        double overflow_margin = 1;
        for (std::size_t attempts = 1; !waiting_.empty(); ++attempts, overflow_margin *= 2) {
            again_.clear();
            while (!waiting_.empty()) {
                take_group(batch);
                try {
                    attempt(batch[members_.front()].group, std::span<const std::size_t>(members_),
                            overflow_margin, again_);
                } catch (...) {
                    for (const std::size_t i : members_) {
                        if (batch[i].error == nullptr) {
                            batch[i].error = std::current_exception();
                        }
                    }
                }
            }
            if (attempts < tries_) {
                waiting_.swap(again_);
                for (const std::size_t i : waiting_) {
                    batch[i].error = nullptr;
                }
            }
        }
        for (request& item : batch) {
            if (item.error != nullptr) {
                std::fill(item.answers.begin(), item.answers.end(), std::numeric_limits<double>::quiet_NaN());
            }
        }
    }

  private:
    template <class Engine>
    std::exception_ptr check(const Engine& engine, const request& item) const {
        const auto where = [&] { return who_ + ": got group " + std::to_string(item.group); };
        if (item.group >= engine.groups()) {
            return std::make_exception_ptr(
                parameter_error(where() + ", expected less than " + std::to_string(engine.groups())));
        }
        const std::size_t d = engine.d(item.group);
        const std::size_t rows = engine.rows(item.group);
        if (item.hidden.size() != d || item.answers.size() != rows) {
            return std::make_exception_ptr(
                shape_error(where() + " with a hidden state of " + std::to_string(item.hidden.size()) +
                            " entries and room for " + std::to_string(item.answers.size()) +
                            " answers, expected " + std::to_string(d) + " and " + std::to_string(rows)));
        }
        return nullptr;
    }

    /// Moves the requests of the first one's group from waiting_ to members_, as many as an attempt takes.
    void take_group(std::span<const request> batch) {
        const std::size_t group = batch[waiting_.front()].group;
        members_.clear();
        std::erase_if(waiting_, [&](std::size_t i) {
            const bool taken = batch[i].group == group && members_.size() < largest_;
            if (taken) {
                members_.push_back(i);
            }
            return taken;
        });
    }

    std::string who_;
    std::size_t tries_;
    std::size_t largest_;
    std::vector<std::size_t> waiting_;
    std::vector<std::size_t> again_;
    std::vector<std::size_t> members_;
};

}  // namespace detail

}  // namespace tensafe::serving
