#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/serving/pipeline_report.hpp>
#include <tensafe/serving/request.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// How a token_pipeline works.
struct pipeline_options {
    static constexpr std::size_t most_forward_threads = 1024;
    static constexpr std::size_t most_in_flight = std::size_t{1} << 20;

    std::size_t forward_threads = 1;
    std::size_t largest_batch = 8;    ///< requests that the engine gets at once
    std::size_t most_sequences = 64;  ///< in flight; further submissions wait
    /// What the report is measured with; empty: std::chrono::steady_clock. Never goes back, throws nothing,
    /// may be called from any thread.
    std::function<std::chrono::nanoseconds()> clock{};
};

/// Decodes many sequences at once: while the engine encrypts, answers and decrypts for some, the model's
/// forward of others runs on threads of the pipeline (the forward of a GPU just blocks one).
///
/// One sequence alone gains nothing. Its next forward needs the answers to its last request, so forward and
/// request never overlap, and S = 1 makes 1 / (F + E) tokens a second with or without a pipeline.
/// examples/token_pipeline.cpp computes what more sequences can give.
///
/// A sequence is a token_sequence: see there. Calls of one never overlap, its steps are in order, and both
/// queues are first in, first out, so that none starves. The engine gets whatever waits for it, up to
/// largest_batch at once. Steps allocate nothing, if sequence and engine do not.
///
/// Errors: what a sequence throws, or the engine sets for its request, ends that sequence only and comes out
/// of its handle; what the engine throws as a whole ends the sequences of that batch.
///
/// Secrets: hidden states are read where the sequence has them; answers lie in memory of the pipeline that is
/// wiped when the sequence is over.
///
/// Thread-safe. A sequence may call try_submit, submit (which then throws instead of waiting), cancel, stop,
/// report, and drop handles. It must not wait for a handle or close its own pipeline: that throws. Two
/// pipelines whose sequences wait for each other are not noticed.
///
/// Destruction: all calls from other threads must have returned, and neither the code of a sequence nor what
/// it captured may hold the last reference to its own pipeline. A thread of the pipeline would have to wait
/// for its own end: the program ends in std::terminate.
template <request_engine Engine>
class token_pipeline {
  public:
    /// Starts the threads: forward_threads, and one for the engine.
    /// @param engine  must outlive the pipeline, and is used by its thread alone
    /// @throws parameter_error for an option out of range, or an engine without groups; std::system_error if
    ///         no thread can be started
    explicit token_pipeline(Engine& engine, pipeline_options options = {})
        : engine_(engine), options_(std::move(options)), watch_(options_.clock) {
        check("forward_threads", options_.forward_threads, pipeline_options::most_forward_threads);
        check("largest_batch", options_.largest_batch, pipeline_options::most_in_flight);
        check("most_sequences", options_.most_sequences, pipeline_options::most_in_flight);
        for (std::size_t g = 0; g < engine.groups(); ++g) {
            shapes_.push_back({engine.d(g), engine.rows(g)});
            most_rows_ = std::max(most_rows_, shapes_.back().rows);
        }
        if (shapes_.empty()) {
            throw parameter_error("token_pipeline: got an engine without groups, expected 1 or more");
        }
        watch_.report.forward_threads = options_.forward_threads;
        batch_.reserve(std::min(options_.largest_batch, options_.most_sequences));
        try {
            threads_.reserve(options_.forward_threads + 1);
            threads_.emplace_back([this] { run_engine(); });
            for (std::size_t i = 0; i < options_.forward_threads; ++i) {
                threads_.emplace_back([this] { run_forwards(); });
            }
        } catch (...) {
            leave();
            throw;
        }
    }
    token_pipeline(const token_pipeline&) = delete;
    token_pipeline& operator=(const token_pipeline&) = delete;

    /// Cancels everything and waits until no code of a sequence or the engine runs any more.
    ~token_pipeline() { leave(); }

    /// Starts a sequence, as soon as fewer than most_sequences are in flight: this is how the pipeline slows
    /// down who feeds it. Those who wait get room in no particular order.
    /// @throws closed_error if it is closed or stopped, also while waiting; parameter_error for an empty
    ///         function; error, instead of waiting, when called by a sequence of this pipeline
    sequence_handle submit(token_sequence sequence) { return *submit(sequence, true); }

    /// The same without waiting: nothing if there is no room, and then `sequence` is as it was.
    std::optional<sequence_handle> try_submit(token_sequence&& sequence) { return submit(sequence, false); }

    /// Takes no more submissions, and returns when all sequences are over. Handles tell how each ended.
    /// @throws error when called by a sequence of this pipeline
    void close() {
        if (here()) {
            throw error(
                "token_pipeline::close: called by a sequence of this pipeline, which would wait for "
                "itself; use stop");
        }
        std::unique_lock lock(mutex_);
        closed_ = true;
        room_.notify_all();
        idle_.wait(lock, [&] { return in_flight_ == 0; });
    }

    /// Takes no more submissions and cancels all sequences, each at its next step; returns at once.
    void stop() noexcept {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        stopping_ = true;
        room_.notify_all();
    }

    /// So far. Cost: a copy of 60 KB under the lock that every step takes.
    pipeline_report report() const {
        const std::lock_guard lock(mutex_);
        return watch_.report;
    }

  private:
    /// A sequence is in one list at a time or held by one thread: moving it on allocates nothing, and nobody
    /// inside waits for room, so that nothing can be stuck in a circle.
    using queue = std::list<std::shared_ptr<detail::sequence_state>>;
    using clock_time = std::chrono::nanoseconds;

    static void check(const char* what, std::size_t got, std::size_t most) {
        if (got == 0 || got > most) {
            throw parameter_error("token_pipeline: " + std::string(what) + ": got " + std::to_string(got) +
                                  ", expected 1 to " + std::to_string(most));
        }
    }

    bool here() const noexcept { return detail::pipeline_of_this_thread == this; }
    bool is_cancelled(const queue& one) const noexcept { return stopping_ || one.front()->cancelled.load(); }

    static queue pop(queue& from) noexcept {
        queue first;
        first.splice(first.end(), from, from.begin());
        return first;
    }
    static void push(queue& to, queue& one, std::condition_variable& ready) noexcept {
        to.splice(to.end(), one);
        ready.notify_one();
    }

    std::optional<sequence_handle> submit(token_sequence& sequence, bool may_wait) {
        if (sequence == nullptr) {
            throw parameter_error("token_pipeline::submit: got an empty sequence, expected one to call");
        }
        // What can fail comes first: whoever is told of room takes it.
        queue made{std::make_shared<detail::sequence_state>()};
        detail::sequence_state& state = *made.front();
        state.answers = memory::secret_buffer<double>(most_rows_);
        state.pipeline = this;
        sequence_handle handle(made.front());
        std::unique_lock lock(mutex_);
        const auto full = [&] { return in_flight_ == options_.most_sequences; };
        if (may_wait && !closed_ && full()) {
            if (here()) {
                throw error(
                    "token_pipeline::submit: no room, and a sequence of this pipeline must not wait for any; "
                    "use try_submit");
            }
            ++watch_.report.submitters_waiting;
            room_.wait(lock, [&] { return closed_ || !full(); });
            --watch_.report.submitters_waiting;
        }
        if (closed_) {
            throw closed_error("token_pipeline::submit: the pipeline is closed");
        }
        if (full()) {
            return std::nullopt;
        }
        state.next = std::move(sequence);
        state.token_began = watch_.submitted();
        ++in_flight_;
        push(forwards_, made, forward_ready_);
        return handle;
    }

    /// Waits until there is something to do.  @return  false if there will be nothing any more
    bool wait_for_work(std::unique_lock<std::mutex>& lock, std::condition_variable& ready, const queue& of) {
        ready.wait(lock, [&] { return !of.empty() || ending_; });
        return !of.empty();
    }

    void run_forwards() {
        detail::pipeline_of_this_thread = this;
        std::unique_lock lock(mutex_);
        while (wait_for_work(lock, forward_ready_, forwards_)) {
            queue one = pop(forwards_);
            detail::sequence_state& s = *one.front();
            if (is_cancelled(one)) {
                finish(lock, one, sequence_status::cancelled);
                continue;
            }
            const clock_time began = watch_.forward_began();
            lock.unlock();
            std::exception_ptr failure;
            try {
                s.asked = s.next(s.answers.span().first(s.rows));
                check(s.asked);
            } catch (...) {
                failure = std::current_exception();
            }
            lock.lock();
            s.asked_at = watch_.forward_ended(began);
            if (failure != nullptr) {
                finish(lock, one, sequence_status::failed, std::move(failure));
            } else if (s.asked.done) {
                finish(lock, one, sequence_status::finished);
            } else if (is_cancelled(one)) {
                finish(lock, one, sequence_status::cancelled);
            } else {
                push(requests_, one, engine_ready_);
            }
        }
    }

    void check(const step& asked) const {
        if (asked.done) {
            return;
        }
        if (asked.group >= shapes_.size()) {
            throw parameter_error("token_pipeline: a sequence asked for group " +
                                  std::to_string(asked.group) + ", expected less than " +
                                  std::to_string(shapes_.size()));
        }
        if (asked.hidden.size() != shapes_[asked.group].d) {
            throw shape_error("token_pipeline: group " + std::to_string(asked.group) +
                              ": a sequence gave a hidden state of " + std::to_string(asked.hidden.size()) +
                              " entries, expected " + std::to_string(shapes_[asked.group].d));
        }
    }

    void run_engine() {
        detail::pipeline_of_this_thread = this;
        std::unique_lock lock(mutex_);
        while (wait_for_work(lock, engine_ready_, requests_)) {
            queue taken;
            while (!requests_.empty() && taken.size() < options_.largest_batch) {
                queue one = pop(requests_);
                if (is_cancelled(one)) {
                    finish(lock, one, sequence_status::cancelled);  // which opens the lock meanwhile
                } else {
                    taken.splice(taken.end(), one);
                }
            }
            if (stopping_) {  // since the first was taken: all of them end in the next round
                requests_.splice(requests_.begin(), taken);
            }
            if (!taken.empty()) {
                run_batch(lock, taken);
            }
        }
    }

    void run_batch(std::unique_lock<std::mutex>& lock, queue& taken) {
        const clock_time began = watch_.batch_began();
        for (const auto& s : taken) {
            watch_.report.waiting.record(began - s->asked_at);
            s->rows = shapes_[s->asked.group].rows;
            batch_.push_back({s->asked.group, s->asked.hidden, s->answers.span().first(s->rows), nullptr});
        }
        lock.unlock();
        try {
            engine_.run(std::span<request>(batch_));
        } catch (...) {
            for (request& item : batch_) {
                item.error = std::current_exception();
            }
        }
        lock.lock();
        const clock_time ended = watch_.batch_ended(taken.size());
        for (request& item : batch_) {
            queue one = pop(taken);
            detail::sequence_state& s = *one.front();
            if (item.error != nullptr) {
                finish(lock, one, sequence_status::failed, std::exchange(item.error, nullptr));
                continue;
            }
            ++watch_.report.requests;
            watch_.report.working.record(ended - began);
            if (s.asked.ends_token) {
                ++watch_.report.tokens;
                watch_.report.token.record(ended - s.token_began);
                s.token_began = ended;
            }
            if (is_cancelled(one)) {
                finish(lock, one, sequence_status::cancelled);
            } else {
                push(forwards_, one, forward_ready_);
            }
        }
        batch_.clear();
    }

    /// Ends a sequence. The lock is open while foreign code goes away: that of the sequence, with what it
    /// captured, and, if nobody kept the handle, the exception. It may call the pipeline.
    void finish(std::unique_lock<std::mutex>& lock, queue& one, sequence_status status,
                std::exception_ptr failure = nullptr) {
        detail::sequence_state& s = *one.front();
        lock.unlock();
        s.next = nullptr;
        s.answers = {};
        s.asked = {};
        lock.lock();
        --in_flight_;
        room_.notify_one();
        if (in_flight_ == 0) {
            idle_.notify_all();
        }
        s.status = status;
        if (status == sequence_status::finished) {
            ++watch_.report.finished;
            s.over.set_value();
        } else if (status == sequence_status::failed) {
            ++watch_.report.failed;
            s.over.set_exception(std::move(failure));
        } else {
            ++watch_.report.cancelled;
            s.over.set_exception(std::make_exception_ptr(
                cancelled_error("sequence_handle::wait: the sequence was cancelled")));
        }
        lock.unlock();
        failure = nullptr;
        one.clear();
        lock.lock();
    }

    void leave() noexcept {
        stop();
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
            forward_ready_.notify_all();
            engine_ready_.notify_all();
        }
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }

    struct shape {
        std::size_t d;
        std::size_t rows;
    };

    Engine& engine_;
    const pipeline_options options_;
    std::vector<shape> shapes_;  ///< of the engine's groups
    std::size_t most_rows_ = 0;

    mutable std::mutex mutex_;
    std::condition_variable forward_ready_;
    std::condition_variable engine_ready_;
    std::condition_variable room_;
    std::condition_variable idle_;
    queue forwards_;              ///< with answers, or at their start
    queue requests_;              ///< waiting for the engine
    std::vector<request> batch_;  ///< with the engine
    std::size_t in_flight_ = 0;
    bool closed_ = false;
    bool stopping_ = false;
    bool ending_ = false;
    detail::pipeline_stopwatch watch_;
    std::vector<std::thread> threads_;
};

}  // namespace tensafe::serving
