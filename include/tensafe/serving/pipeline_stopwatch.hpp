#pragma once

#include <tensafe/serving/pipeline_report.hpp>
#include <tensafe/serving/sequence_ticket.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>

namespace tensafe::serving::detail {

/// Makes a pipeline_report out of what begins and ends. Not thread-safe: the pipeline calls it with its lock
/// held, so that time does not go back from one call to the next.
class pipeline_stopwatch {
  public:
    using time = std::chrono::nanoseconds;

    pipeline_stopwatch(std::function<time()> clock, std::size_t forward_threads) : clock_(std::move(clock)) {
        if (clock_ == nullptr) {
            clock_ = [] {
                return std::chrono::duration_cast<time>(std::chrono::steady_clock::now().time_since_epoch());
            };
        }
        done_.forward_threads = forward_threads;
    }

    time submitted() {
        const time at = clock_();
        if (done_.submitted++ == 0) {
            first_ = last_ = marked_ = at;
        }
        return at;
    }

    time forward_began() {
        const time at = mark();
        ++forwards_;
        return at;
    }
    time forward_ended(time began) {
        last_ = mark();
        --forwards_;
        ++done_.forwards;
        done_.forward.record(last_ - began);
        return last_;
    }

    time batch_began() {
        const time at = mark();
        in_batch_ = true;
        return at;
    }
    time batch_ended(std::size_t round_trips) {
        last_ = mark();
        in_batch_ = false;
        ++done_.batches;
        done_.batched += round_trips;
        return last_;
    }

    void waited(time duration) { done_.waiting.record(duration); }
    void answered(time worked) {
        ++done_.round_trips;
        done_.working.record(worked);
    }
    void token_ended(time duration) {
        ++done_.tokens;
        done_.token.record(duration);
    }
    void over(sequence_status how) {
        ++(how == sequence_status::finished ? done_.finished
           : how == sequence_status::failed ? done_.failed
                                            : done_.cancelled);
    }

    pipeline_report report() const {
        pipeline_report result = done_;
        result.span = last_ - first_;
        return result;
    }

  private:
    /// Adds up what has been busy since the last call. The span grows with it, so that no part of it passes
    /// the whole in a report while work is under way.
    time mark() {
        const time at = clock_();
        const time passed = at - marked_;
        done_.forward_busy += passed * static_cast<time::rep>(forwards_);
        if (in_batch_) {
            done_.engine_busy += passed;
            if (forwards_ != 0) {
                done_.both_busy += passed;
            }
        }
        marked_ = at;
        if (forwards_ != 0 || in_batch_) {
            last_ = at;
        }
        return at;
    }

    std::function<time()> clock_;
    pipeline_report done_;
    std::size_t forwards_ = 0;  ///< under way
    bool in_batch_ = false;
    time first_{};
    time last_{};
    time marked_{};
};

}  // namespace tensafe::serving::detail
