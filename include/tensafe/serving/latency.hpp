#pragma once

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace tensafe::serving {

/// A histogram of durations in memory of fixed size, 15 KiB: percentiles of any number of them.
///
/// Durations are whole nanoseconds. Below 64 ns each has a bucket of its own; above, an octave is cut into 32
/// buckets, and a percentile is the middle of its bucket: off by 1/64 at most, 1.6 %. Count, smallest
/// and largest are exact.
///
/// Value semantics. Not for use by two threads at the same time; give each its own and merge them. Nothing
/// allocates, and recording costs a few nanoseconds.
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
        sum_ += static_cast<double>(ticks);
    }

    /// As if everything that `other` recorded had been recorded here.
    void merge(const latency& other) noexcept {
        for (std::size_t b = 0; b < buckets; ++b) {
            buckets_[b] += other.buckets_[b];
        }
        count_ += other.count_;
        smallest_ = std::min(smallest_, other.smallest_);
        largest_ = std::max(largest_, other.largest_);
        sum_ += other.sum_;
    }

    std::uint64_t count() const noexcept { return count_; }

    // All of these are 0 if nothing was recorded.
    duration min() const noexcept { return as_duration(count_ == 0 ? 0 : smallest_); }
    duration max() const noexcept { return as_duration(largest_); }
    /// To within the rounding of a double.
    duration mean() const noexcept {
        const double value = count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
        // A rounding up may pass what a duration holds.
        return value >= static_cast<double>(largest_) ? max() : duration(std::llround(value));
    }

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
        const double rank = std::ceil(percent * static_cast<double>(count_) / 100);
        const std::uint64_t wanted = rank < 1 ? 1 : std::min(static_cast<std::uint64_t>(rank), count_);
        if (wanted == count_) {
            return max();
        }
        std::uint64_t passed = 0;
        std::size_t b = 0;
        while (passed + buckets_[b] < wanted) {
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
    double sum_ = 0;
};

}  // namespace tensafe::serving
