#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/serving/round_trip.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tensafe::serving {

enum class sequence_status { running, finished, failed, cancelled };

namespace detail {

/// The threads of one pipeline. Complete before the first sequence runs.
struct pipeline_threads {
    std::vector<std::thread::id> ids;

    bool here() const { return std::find(ids.begin(), ids.end(), std::this_thread::get_id()) != ids.end(); }
};

/// A sequence on its way, shared by the pipeline and the tickets.
struct sequence_record {
    // Of the thread that has taken it from a queue.
    token_sequence next;
    memory::secret_buffer<double> answers;  ///< room for the group with the most rows
    std::size_t rows = 0;                   ///< of the last answers
    turn asked;
    std::chrono::nanoseconds asked_at{};
    std::chrono::nanoseconds token_began{};

    std::atomic<bool> cancelled{false};

    mutable std::mutex mutex;
    mutable std::condition_variable over;
    sequence_status status = sequence_status::running;
    std::exception_ptr error;

    std::shared_ptr<const pipeline_threads> threads;
};

}  // namespace detail

/// A submitted sequence, to wait for or to cancel. Dropping it does neither. Copies are tickets of the same
/// sequence. Thread-safe but for assignment; may outlive the pipeline. One that was moved from is for
/// assignment and destruction only.
class sequence_ticket {
  public:
    /// When it is over, the sequence's code and what it captured are gone already, on a thread of the
    /// pipeline.
    sequence_status status() const {
        const std::lock_guard lock(record_->mutex);
        return record_->status;
    }
    bool done() const { return status() != sequence_status::running; }

    /// Returns when the sequence has finished.
    /// @throws what the sequence, its round trip or the engine threw; cancelled_error if it was cancelled;
    ///         error if called by a sequence of the same pipeline before that: it might wait for itself
    void wait() const {
        std::unique_lock lock(record_->mutex);
        check_thread();
        record_->over.wait(lock, [&] { return record_->status != sequence_status::running; });
        report();
    }

    /// The same for so long at most.
    /// @returns  false if the sequence is still running
    template <class Rep, class Period>
    bool wait_for(std::chrono::duration<Rep, Period> longest) const {
        std::unique_lock lock(record_->mutex);
        check_thread();
        if (!record_->over.wait_for(lock, longest,
                                    [&] { return record_->status != sequence_status::running; })) {
            return false;
        }
        report();
        return true;
    }

    /// Ends the sequence at its next turn boundary: a forward or batch that is under way goes on to its end.
    /// A sequence that ends by itself before counts as finished or failed.
    void cancel() const noexcept { record_->cancelled.store(true); }

  private:
    template <round_trip_engine Engine>
    friend class token_pipeline;

    explicit sequence_ticket(std::shared_ptr<detail::sequence_record> record) : record_(std::move(record)) {}

    void check_thread() const {
        if (record_->status == sequence_status::running && record_->threads->here()) {
            throw error(
                "sequence_ticket::wait: called by a sequence of the same pipeline, which might wait for "
                "itself; wait from another thread");
        }
    }
    void report() const {
        if (record_->error != nullptr) {
            std::rethrow_exception(record_->error);
        }
        if (record_->status == sequence_status::cancelled) {
            throw cancelled_error("sequence_ticket::wait: the sequence was cancelled");
        }
    }

    std::shared_ptr<detail::sequence_record> record_;
};

}  // namespace tensafe::serving
