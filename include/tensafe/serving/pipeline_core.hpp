#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/serving/bounded_queue.hpp>
#include <tensafe/serving/pipeline_options.hpp>
#include <tensafe/serving/pipeline_report.hpp>
#include <tensafe/serving/pipeline_stopwatch.hpp>
#include <tensafe/serving/round_trip.hpp>
#include <tensafe/serving/sequence_ticket.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tensafe::serving {

namespace detail {

/// The queues of a token_pipeline, and what its threads do. A sequence is in one queue at a time or held by
/// one thread, so that queues with room for all of them are never full, nobody inside waits for room, and
/// nothing can be stuck in a circle.
class pipeline_core {
  public:
    using record = std::shared_ptr<sequence_record>;

    /// d and rows of each group.
    struct shape {
        std::size_t d;
        std::size_t rows;
    };

    pipeline_core(pipeline_options options, std::vector<shape> shapes)
        : options_((options.check(), std::move(options))),
          shapes_(std::move(shapes)),
          forwards_(options_.most_sequences),
          trips_(options_.most_sequences),
          watch_(options_.clock, options_.forward_threads),
          threads_(std::make_shared<pipeline_threads>()) {
        for (const shape& s : shapes_) {
            most_rows_ = std::max(most_rows_, s.rows);
        }
        threads_->ids.reserve(options_.forward_threads + 1);
        records_.reserve(std::min(options_.largest_batch, options_.most_sequences));
        batch_.reserve(records_.capacity());
    }

    /// Before the first submission.
    void add_thread(std::thread::id id) { threads_->ids.push_back(id); }

    /// Takes `sequence` over, or leaves it alone and returns null if there is no room and it may not wait.
    record submit(token_sequence& sequence, bool may_wait) {
        if (sequence == nullptr) {
            throw parameter_error("token_pipeline::submit: got an empty sequence, expected one to call");
        }
        // What can fail comes first: whoever is told of room takes it.
        auto made = std::make_shared<sequence_record>();
        made->answers = memory::secret_buffer<double>(most_rows_);
        made->threads = threads_;
        std::unique_lock lock(mutex_);
        if (may_wait && !closed_ && in_flight_ == options_.most_sequences) {
            if (threads_->here()) {
                throw error(
                    "token_pipeline::submit: no room, and a sequence of this pipeline must not wait for any; "
                    "use try_submit");
            }
            ++waiting_;
            room_.wait(lock, [&] { return closed_ || in_flight_ < options_.most_sequences; });
            --waiting_;
        }
        if (closed_) {
            throw closed_error("token_pipeline::submit: the pipeline is closed");
        }
        if (in_flight_ == options_.most_sequences) {
            return nullptr;
        }
        made->next = std::move(sequence);
        made->token_began = watch_.submitted();
        ++in_flight_;
        forwards_.push(made);
        forward_ready_.notify_one();
        return made;
    }

    /// No more submissions; returns when none is in flight.
    void close() {
        if (threads_->here()) {
            throw error(
                "token_pipeline::close: called by a sequence of this pipeline, which would wait for "
                "itself; use stop");
        }
        std::unique_lock lock(mutex_);
        closed_ = true;
        room_.notify_all();
        idle_.wait(lock, [&] { return in_flight_ == 0; });
    }

    /// No more submissions, and cancels everything; returns at once.
    void stop() noexcept {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        stopping_ = true;
        room_.notify_all();
    }

    /// Lets the threads go, after stop().
    void end() noexcept {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        forward_ready_.notify_all();
        engine_ready_.notify_all();
    }

    pipeline_report report() const {
        const std::lock_guard lock(mutex_);
        pipeline_report result = watch_.report();
        result.submitters_waiting = waiting_;
        return result;
    }

    /// What a forward thread does.
    void run_forwards() {
        std::unique_lock lock(mutex_);
        for (;;) {
            forward_ready_.wait(lock, [&] { return !forwards_.empty() || ending_; });
            if (forwards_.empty()) {
                return;
            }
            record r = forwards_.pop();
            if (is_cancelled(*r)) {
                finish(lock, std::move(r), sequence_status::cancelled, nullptr);
                continue;
            }
            const auto began = watch_.forward_began();
            lock.unlock();
            std::exception_ptr failure;
            try {
                r->asked = r->next(r->answers.span().first(r->rows));
                check(r->asked);
            } catch (...) {
                failure = std::current_exception();
            }
            lock.lock();
            const auto ended = watch_.forward_ended(began);
            if (failure != nullptr) {
                finish(lock, std::move(r), sequence_status::failed, std::move(failure));
            } else if (r->asked.done) {
                finish(lock, std::move(r), sequence_status::finished, nullptr);
            } else if (is_cancelled(*r)) {
                finish(lock, std::move(r), sequence_status::cancelled, nullptr);
            } else {
                r->asked_at = ended;
                trips_.push(std::move(r));
                engine_ready_.notify_one();
            }
        }
    }

    /// What the engine's thread does.
    template <class Engine>
    void run_engine(Engine& engine) {
        std::unique_lock lock(mutex_);
        for (;;) {
            engine_ready_.wait(lock, [&] { return !trips_.empty() || ending_; });
            if (trips_.empty()) {
                return;
            }
            while (!trips_.empty() && records_.size() < options_.largest_batch) {
                record r = trips_.pop();
                if (is_cancelled(*r)) {
                    finish(lock, std::move(r), sequence_status::cancelled, nullptr);
                } else {
                    records_.push_back(std::move(r));
                }
            }
            // Ending a cancelled one opened the lock: the pipeline may have been stopped since.
            while (stopping_ && !records_.empty()) {
                record r = std::move(records_.back());
                records_.pop_back();
                finish(lock, std::move(r), sequence_status::cancelled, nullptr);
            }
            if (records_.empty()) {
                continue;
            }
            const auto began = watch_.batch_began();
            for (const record& r : records_) {
                watch_.waited(began - r->asked_at);
                r->rows = shapes_[r->asked.group].rows;
                batch_.push_back(
                    {r->asked.group, r->asked.hidden, r->answers.span().first(r->rows), nullptr});
            }
            lock.unlock();
            try {
                engine.run(std::span<round_trip>(batch_));
            } catch (...) {
                for (round_trip& item : batch_) {
                    item.error = std::current_exception();
                }
            }
            lock.lock();
            const auto ended = watch_.batch_ended(records_.size());
            for (std::size_t i = 0; i < records_.size(); ++i) {
                answer(lock, std::move(records_[i]), std::move(batch_[i].error), ended, ended - began);
            }
            records_.clear();
            batch_.clear();
        }
    }

  private:
    bool is_cancelled(const sequence_record& r) const noexcept { return stopping_ || r.cancelled.load(); }

    void check(const turn& asked) const {
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

    /// A round trip is over: the sequence goes on, or not.
    void answer(std::unique_lock<std::mutex>& lock, record r, std::exception_ptr wrong,
                std::chrono::nanoseconds ended, std::chrono::nanoseconds worked) {
        if (wrong != nullptr) {
            finish(lock, std::move(r), sequence_status::failed, std::move(wrong));
            return;
        }
        watch_.answered(worked);
        if (r->asked.ends_token) {
            watch_.token_ended(ended - r->token_began);
            r->token_began = ended;
        }
        if (is_cancelled(*r)) {
            finish(lock, std::move(r), sequence_status::cancelled, nullptr);
        } else {
            forwards_.push(std::move(r));
            forward_ready_.notify_one();
        }
    }

    /// Ends a sequence. The lock is open while foreign code goes away: that of the sequence, with what it
    /// captured, and, if nobody kept the ticket, the exception. It may call the pipeline.
    void finish(std::unique_lock<std::mutex>& lock, record r, sequence_status status,
                std::exception_ptr failure) {
        lock.unlock();
        r->next = nullptr;
        r->answers = {};
        r->asked = {};
        lock.lock();
        watch_.over(status);
        --in_flight_;
        room_.notify_one();
        if (in_flight_ == 0) {
            idle_.notify_all();
        }
        {
            const std::lock_guard of_record(r->mutex);
            r->status = status;
            r->error = std::move(failure);
            r->over.notify_all();
        }
        lock.unlock();
        r = nullptr;
        lock.lock();
    }

    pipeline_options options_;
    std::vector<shape> shapes_;
    std::size_t most_rows_ = 0;

    mutable std::mutex mutex_;
    std::condition_variable forward_ready_;
    std::condition_variable engine_ready_;
    std::condition_variable room_;
    std::condition_variable idle_;
    bounded_queue<record> forwards_;  ///< with answers, or at their start
    bounded_queue<record> trips_;     ///< with a request
    std::vector<record> records_;     ///< with the engine
    std::vector<round_trip> batch_;
    std::size_t in_flight_ = 0;
    std::size_t waiting_ = 0;  ///< submitters, for room
    bool closed_ = false;
    bool stopping_ = false;
    bool ending_ = false;

    pipeline_stopwatch watch_;
    std::shared_ptr<pipeline_threads> threads_;
};

}  // namespace detail

}  // namespace tensafe::serving
