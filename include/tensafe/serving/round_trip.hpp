#pragma once

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tensafe::serving {

/// What a sequence wants next: a hidden state sent through a group of sites, or nothing more.
struct turn {
    std::size_t group = 0;
    std::span<const float> hidden{};  ///< d(group) entries, of the sequence's own memory
    bool ends_token = false;          ///< the last request of a token: its answers complete it
    bool done = false;

    /// @param hidden  stays in place, unchanged, until the sequence is called again or is over
    static turn ask(std::size_t group, std::span<const float> hidden) noexcept {
        return {group, hidden, false, false};
    }
    static turn ask_last(std::size_t group, std::span<const float> hidden) noexcept {
        return {group, hidden, true, false};
    }
    static turn end() noexcept { return {0, {}, false, true}; }
};

/// One autoregressive stream as code: called with the answers to its last request (rows(group) of them; none
/// the first time), it computes the model's forward up to the next encrypted site and returns what it wants
/// there. The answers are the caller's memory, there until it returns. Called by one thread at a time, though
/// not always the same one; its calls are in order.
using token_sequence = std::function<turn(std::span<const double> answers)>;

/// One hidden state on its way through a group of sites that share it, and back.
struct round_trip {
    std::size_t group = 0;
    std::span<const float> hidden{};  ///< d(group) entries
    std::span<double> answers{};      ///< rows(group) entries, to be written
    std::exception_ptr error{};       ///< what went wrong with this one; its answers are NaN then
};

/// Whatever answers batches of round trips: serving::host_engine, lora::block_engine, or your own, for a
/// server on another machine for example. `groups`, `d` and `rows` do not change. `run` is called by one
/// thread at a time; it answers each item or sets its error, and leaves neighbours alone. What it throws
/// itself concerns the whole batch.
template <class E>
concept round_trip_engine = requires(E& engine, const E& constant, std::size_t group,
                                     std::span<round_trip> batch) {
    { constant.groups() } -> std::convertible_to<std::size_t>;
    { constant.d(group) } -> std::convertible_to<std::size_t>;
    { constant.rows(group) } -> std::convertible_to<std::size_t>;
    engine.run(batch);
};

namespace detail {

/// Takes batches apart for engines: by group, and into tries. Keeps its memory from batch to batch.
class round_trip_sorter {
  public:
    /// A hidden state is tried so often; overflow margin doubles from try to try.
    static constexpr std::size_t most_tries = 21;

    /// @param largest  members of an attempt
    /// @throws parameter_error unless tries is in [1, most_tries]
    round_trip_sorter(const char* who, std::size_t tries,
                      std::size_t largest = std::numeric_limits<std::size_t>::max())
        : who_(who), tries_(tries), largest_(largest) {
        if (tries == 0 || tries > most_tries) {
            throw parameter_error(std::string(who) + ": got " + std::to_string(tries) +
                                  " tries of a hidden state, expected 1 to " + std::to_string(most_tries));
        }
    }

    /// Calls attempt(group, members, overflow margin, again) for each group among the batch, or several times
    /// if it has more members than `largest`; members are the places of its items. An item for which the
    /// range was too small sets its error and adds its place to `again`. What attempt throws is the error of
    /// all members that have none.
    template <class Engine, class Attempt>
    void run(const Engine& engine, std::span<round_trip> batch, Attempt&& attempt) {
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
                for (const std::size_t i : again_) {
                    batch[i].error = nullptr;
                    waiting_.push_back(i);
                }
            }
        }
        for (round_trip& item : batch) {
            if (item.error != nullptr) {
                std::fill(item.answers.begin(), item.answers.end(), std::numeric_limits<double>::quiet_NaN());
            }
        }
    }

  private:
    template <class Engine>
    std::exception_ptr check(const Engine& engine, const round_trip& item) const {
        const std::size_t groups = engine.groups();
        if (item.group >= groups) {
            return std::make_exception_ptr(parameter_error(std::string(who_) + ": got group " +
                                                           std::to_string(item.group) +
                                                           ", expected less than " + std::to_string(groups)));
        }
        const std::size_t d = engine.d(item.group);
        const std::size_t rows = engine.rows(item.group);
        if (item.hidden.size() != d || item.answers.size() != rows) {
            return std::make_exception_ptr(
                shape_error(std::string(who_) + ": group " + std::to_string(item.group) +
                            ": got a hidden state of " + std::to_string(item.hidden.size()) +
                            " entries and room for " + std::to_string(item.answers.size()) +
                            " answers, expected " + std::to_string(d) + " and " + std::to_string(rows)));
        }
        return nullptr;
    }

    /// Moves what is of the first one's group from waiting_ to members_, as many as an attempt takes.
    void take_group(std::span<const round_trip> batch) {
        const std::size_t group = batch[waiting_.front()].group;
        members_.clear();
        std::size_t kept = 0;
        for (const std::size_t i : waiting_) {
            if (batch[i].group == group && members_.size() < largest_) {
                members_.push_back(i);
            } else {
                waiting_[kept++] = i;
            }
        }
        waiting_.resize(kept);
    }

    const char* who_;
    std::size_t tries_;
    std::size_t largest_;
    std::vector<std::size_t> waiting_;
    std::vector<std::size_t> again_;
    std::vector<std::size_t> members_;
};

}  // namespace detail

}  // namespace tensafe::serving
