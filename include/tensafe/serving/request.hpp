#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// What a sequence asks for next: a hidden state sent through a group of sites, or nothing more.
struct step {
    std::size_t group = 0;
    std::span<const float> hidden{};  ///< d(group) entries, of the sequence's own memory
    bool ends_token = false;          ///< the last request of a token: its answers complete it
    bool done = false;

    /// @param hidden  stays in place, unchanged, until the sequence is called again or is over
    static step ask(std::size_t group, std::span<const float> hidden) noexcept {
        return {group, hidden, false, false};
    }
    static step ask_last(std::size_t group, std::span<const float> hidden) noexcept {
        return {group, hidden, true, false};
    }
    static step end() noexcept { return {0, {}, false, true}; }
};

/// One autoregressive stream as code: called with the answers to its last request (rows(group) of them; none
/// the first time), it computes the model's forward up to the next encrypted site and returns what it asks
/// for there. The answers are the caller's memory, there until it returns. Called by one thread at a time,
/// though not always the same one; its calls are in order.
using token_sequence = std::function<step(std::span<const double> answers)>;

/// One hidden state on its way through a group of sites that share it, and back.
struct request {
    std::size_t group = 0;
    std::span<const float> hidden{};  ///< d(group) entries
    std::span<double> answers{};      ///< rows(group) entries, to be written
    std::exception_ptr error{};       ///< what went wrong with this one; its answers are NaN then
};

/// Whatever answers batches of requests: serving::host_engine, the engine of device/lora/engine.hpp, or your
/// own, for a server on another machine for example. `groups`, `d` and `rows` do not change. `run` is called
/// by one thread at a time; it answers each item or sets its error, and leaves neighbours alone. What it
/// throws itself concerns the whole batch.
template <class E>
concept request_engine = requires(E& engine, const E& constant, std::size_t group, std::span<request> batch) {
    { constant.groups() } -> std::convertible_to<std::size_t>;
    { constant.d(group) } -> std::convertible_to<std::size_t>;
    { constant.rows(group) } -> std::convertible_to<std::size_t>;
    engine.run(batch);
};

enum class sequence_status { running, finished, failed, cancelled };

template <request_engine Engine>
class token_pipeline;

namespace detail {

/// Whose thread this is: a sequence must not wait for its own pipeline.
inline thread_local const void* pipeline_of_this_thread = nullptr;

/// A sequence on its way, shared by the pipeline and the handles.
struct sequence_state {
    // Of the thread that has taken it from a queue.
    token_sequence next;
    memory::secret_buffer<double> answers;  ///< room for the group with the most rows
    std::size_t rows = 0;                   ///< of the last answers
    step asked;
    std::chrono::nanoseconds asked_at{};
    std::chrono::nanoseconds token_began{};

    const void* pipeline = nullptr;
    std::atomic<bool> cancelled{false};
    std::promise<void> over;
    sequence_status status = sequence_status::running;  ///< written before `over` is set
};

}  // namespace detail

/// A submitted sequence, to wait for or to cancel. Dropping it does neither. Copies are handles of the same
/// sequence. Thread-safe but for assignment; may outlive the pipeline. One that was moved from is for
/// assignment and destruction only.
class sequence_handle {
  public:
    /// When it is over, the sequence's code and what it captured are gone already, on a thread of the
    /// pipeline.
    sequence_status status() const {
        return over_.wait_for(std::chrono::seconds(0)) == std::future_status::ready
                   ? state_->status
                   : sequence_status::running;
    }
    bool done() const { return status() != sequence_status::running; }

    /// Returns when the sequence has finished.
    /// @throws what the sequence, its request or the engine threw; cancelled_error if it was cancelled;
    ///         error if called by a sequence of the same pipeline before that: it might wait for itself
    void wait() const {
        check_thread();
        over_.get();
    }

    /// The same for so long at most.
    /// @returns  false if the sequence is still running
    template <class Rep, class Period>
    bool wait_for(std::chrono::duration<Rep, Period> longest) const {
        check_thread();
        if (over_.wait_for(longest) != std::future_status::ready) {
            return false;
        }
        over_.get();
        return true;
    }

    /// Ends the sequence at its next step: a forward or batch that is under way goes on to its end. A
    /// sequence that ends by itself before counts as finished or failed.
    void cancel() const noexcept { state_->cancelled.store(true); }

  private:
    template <request_engine Engine>
    friend class token_pipeline;

    explicit sequence_handle(std::shared_ptr<detail::sequence_state> state)
        : state_(std::move(state)), over_(state_->over.get_future()) {}

    void check_thread() const {
        if (state_->pipeline == detail::pipeline_of_this_thread && !done()) {
            throw error(
                "sequence_handle::wait: called by a sequence of the same pipeline, which might wait for "
                "itself; wait from another thread");
        }
    }

    std::shared_ptr<detail::sequence_state> state_;
    std::shared_future<void> over_;
};

namespace detail {

/// Takes batches apart for engines: by group, and into tries. Keeps its memory from batch to batch.
class batch_dispatcher {
  public:
    /// A hidden state is tried so often; overflow margin doubles from try to try.
    static constexpr std::size_t most_tries = 21;

    /// @param largest  members of an attempt
    /// @throws parameter_error unless tries is in [1, most_tries]
    batch_dispatcher(const char* who, std::size_t tries,
                     std::size_t largest = std::numeric_limits<std::size_t>::max())
        : who_(who), tries_(tries), largest_(largest) {
        if (tries == 0 || tries > most_tries) {
            throw parameter_error(who_ + ": got " + std::to_string(tries) +
                                  " tries of a hidden state, expected 1 to " + std::to_string(most_tries));
        }
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

    /// Moves what is of the first one's group from waiting_ to members_, as many as an attempt takes.
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
