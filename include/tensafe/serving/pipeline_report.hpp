#pragma once

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace tensafe::serving {

/// A histogram of durations in memory of fixed size, 15 KiB: percentiles of any number of them.
///
/// Durations are whole nanoseconds. Below 64 ns each has a bucket of its own; above, an octave is cut into 32
/// buckets, and a percentile is the middle of its bucket: off by 1/64 at most, 1.6 %. Count, smallest and
/// largest are exact. Value semantics; for one thread at a time. Recording costs a few nanoseconds.
class latency {
  public:
    using duration = std::chrono::nanoseconds;

    /// A percentile's error at most, as a part of the value.
    static constexpr double relative_error = 1.0 / 64;

    /// A negative duration counts as 0.
    void record(duration value) noexcept {
        const auto ticks = static_cast<std::uint64_t>(std::max<duration::rep>(value.count(), 0));
        ++buckets_[bucket_of(ticks)];
        ++count_;
        smallest_ = std::min(smallest_, ticks);
        largest_ = std::max(largest_, ticks);
    }

    std::uint64_t count() const noexcept { return count_; }

    // All of these are 0 if nothing was recorded.
    duration min() const noexcept { return as_duration(count_ == 0 ? 0 : smallest_); }
    duration max() const noexcept { return as_duration(largest_); }

    /// The smallest recorded value that at least `percent` of all do not pass (the nearest rank), to within
    /// relative_error: percentile(50) is the median, percentile(100) is max() exactly.
    /// @throws parameter_error unless percent is in [0, 100]
    duration percentile(double percent) const {
        if (!(percent >= 0 && percent <= 100)) {
            throw parameter_error("latency::percentile: got " + std::to_string(percent) +
                                  ", expected 0 to 100");
        }
        if (count_ == 0) {
            return duration::zero();
        }
        const double exact_rank = std::ceil(percent * static_cast<double>(count_) / 100);
        const std::uint64_t rank =
            exact_rank < 1 ? 1 : std::min(static_cast<std::uint64_t>(exact_rank), count_);
        if (rank == count_) {
            return max();
        }
        std::uint64_t passed = 0;
        std::size_t b = 0;
        while (passed + buckets_[b] < rank) {
            passed += buckets_[b];
            ++b;
        }
        return as_duration(std::clamp(middle_of(b), smallest_, largest_));
    }

  private:
    static constexpr int log_parts = 5;
    static constexpr std::uint64_t parts = std::uint64_t{1} << log_parts;  ///< of an octave
    /// Durations have 63 bits. The first two rows of `parts` are single nanoseconds.
    static constexpr std::size_t buckets = (63 - log_parts + 1) * parts;

    static constexpr std::size_t bucket_of(std::uint64_t ticks) noexcept {
        if (ticks < parts) {
            return static_cast<std::size_t>(ticks);
        }
        const auto row = static_cast<std::uint64_t>(std::bit_width(ticks) - log_parts - 1);
        return static_cast<std::size_t>((row + 1) * parts + (ticks >> row) - parts);
    }
    static constexpr std::uint64_t middle_of(std::size_t bucket) noexcept {
        if (bucket < 2 * parts) {
            return bucket;
        }
        const std::uint64_t row = bucket / parts - 1;
        const std::uint64_t first = (bucket % parts + parts) << row;
        return first + (std::uint64_t{1} << row) / 2;
    }
    static constexpr duration as_duration(std::uint64_t ticks) noexcept {
        return duration(static_cast<duration::rep>(ticks));
    }

    std::array<std::uint64_t, buckets> buckets_{};
    std::uint64_t count_ = 0;
    std::uint64_t smallest_ = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t largest_ = 0;
};

/// What a token_pipeline has done so far. Latency, which one stream feels, and throughput, which all of them
/// make together, are told apart: more sequences raise both.
struct pipeline_report {
    std::uint64_t submitted = 0;  ///< sequences
    std::uint64_t finished = 0;
    std::uint64_t failed = 0;
    std::uint64_t cancelled = 0;
    std::size_t submitters_waiting = 0;  ///< for room, at this moment

    std::uint64_t forwards = 0;  ///< calls of sequences
    std::uint64_t requests = 0;  ///< that were answered
    std::uint64_t tokens = 0;    ///< answered requests that end one
    std::uint64_t batches = 0;   ///< calls of the engine
    std::uint64_t batched = 0;   ///< requests in them, failed ones too

    latency forward;  ///< of a call of a sequence
    latency waiting;  ///< of a request: from the end of its forward to the start of its batch
    latency working;  ///< of a request: its batch
    latency token;    ///< from the end of the token before, or the submission, to the last answers

    std::chrono::nanoseconds span{};          ///< from the first submission to the last work
    std::chrono::nanoseconds forward_busy{};  ///< of all forward threads together
    std::chrono::nanoseconds engine_busy{};
    std::chrono::nanoseconds both_busy{};  ///< the engine, and one forward thread or more
    std::size_t forward_threads = 1;

    /// tokens / span; 0 before the first.
    double tokens_per_second() const noexcept { return per_second(tokens); }
    double requests_per_second() const noexcept { return per_second(requests); }
    /// Requests in a call of the engine.
    double mean_batch() const noexcept {
        return batches == 0 ? 0 : static_cast<double>(batched) / static_cast<double>(batches);
    }
    // Parts of the span, in [0, 1].
    double forward_fraction() const noexcept {
        return fraction(forward_busy) / static_cast<double>(forward_threads);
    }
    double engine_fraction() const noexcept { return fraction(engine_busy); }
    /// The part of the span in which forward and encrypted work went on at the same time.
    double overlap() const noexcept { return fraction(both_busy); }

  private:
    double per_second(std::uint64_t count) const noexcept {
        return span.count() <= 0 ? 0 : static_cast<double>(count) / static_cast<double>(span.count()) * 1e9;
    }
    double fraction(std::chrono::nanoseconds busy) const noexcept {
        return span.count() <= 0 ? 0 : static_cast<double>(busy.count()) / static_cast<double>(span.count());
    }
};

namespace detail {

/// Measures for a pipeline_report how long forwards and the engine are busy; the pipeline counts the rest.
/// Not thread-safe: it is called with the pipeline's lock held, so that time does not go back between calls.
class pipeline_stopwatch {
  public:
    using time = std::chrono::nanoseconds;

    explicit pipeline_stopwatch(std::function<time()> clock) : clock_(std::move(clock)) {
        if (clock_ == nullptr) {
            clock_ = [] { return time(std::chrono::steady_clock::now().time_since_epoch()); };
        }
    }

    pipeline_report report;

    time submitted() {
        const time at = clock_();
        if (report.submitted++ == 0) {
            first_ = marked_ = at;
        }
        return at;
    }
    time forward_began() { return mark(1, 0); }
    time forward_ended(time began) {
        const time at = mark(-1, 0);
        ++report.forwards;
        report.forward.record(at - began);
        return at;
    }
    time batch_began() { return mark(0, 1); }
    time batch_ended(std::size_t requests) {
        ++report.batches;
        report.batched += requests;
        return mark(0, -1);
    }

  private:
    /// Adds up what has been busy since the last call. The span grows with it, so that no part of it passes
    /// the whole in a report while work is under way; a pause counts once work goes on.
    time mark(int forwards, int batches) {
        const time at = clock_();
        const time passed = at - marked_;
        report.forward_busy += passed * forwards_;
        report.engine_busy += passed * batches_;
        report.both_busy += forwards_ != 0 && batches_ != 0 ? passed : time(0);
        if (forwards_ != 0 || batches_ != 0) {
            report.span = at - first_;
        }
        marked_ = at;
        forwards_ += forwards;
        batches_ += batches;
        return at;
    }

    std::function<time()> clock_;
    int forwards_ = 0;  ///< under way
    int batches_ = 0;   ///< under way: 0 or 1
    time first_{};
    time marked_{};
};

}  // namespace detail

}  // namespace tensafe::serving
