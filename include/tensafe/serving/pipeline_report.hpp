#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/serving/latency.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tensafe::serving {

/// What a token_pipeline has done so far. Latency, which one stream feels, and throughput, which all of them
/// make together, are told apart: more sequences raise both.
struct pipeline_report {
    std::uint64_t submitted = 0;  ///< sequences
    std::uint64_t finished = 0;
    std::uint64_t failed = 0;
    std::uint64_t cancelled = 0;
    std::size_t submitters_waiting = 0;  ///< for room, at this moment

    std::uint64_t forwards = 0;     ///< calls of sequences
    std::uint64_t round_trips = 0;  ///< that were answered
    std::uint64_t tokens = 0;       ///< answered requests that end one
    std::uint64_t batches = 0;      ///< calls of the engine
    std::uint64_t batched = 0;      ///< round trips in them, failed ones too

    latency forward;  ///< of a call of a sequence
    latency waiting;  ///< of a round trip: from the end of its forward to the start of its batch
    latency working;  ///< of a round trip: its batch
    latency token;    ///< from the end of the token before, or the submission, to the last answers

    std::chrono::nanoseconds span{};          ///< from the first submission to the last work
    std::chrono::nanoseconds forward_busy{};  ///< of all forward threads together
    std::chrono::nanoseconds engine_busy{};
    std::chrono::nanoseconds both_busy{};  ///< the engine, and one forward thread or more
    std::size_t forward_threads = 1;

    /// tokens / span; 0 before the first.
    double tokens_per_second() const noexcept { return per_second(tokens); }
    double round_trips_per_second() const noexcept { return per_second(round_trips); }
    /// Round trips in a call of the engine.
    double mean_batch() const noexcept {
        return batches == 0 ? 0 : static_cast<double>(batched) / static_cast<double>(batches);
    }
    // Parts of the span, in [0, 1].
    double forward_fraction() const noexcept {
        return fraction(forward_busy) / static_cast<double>(forward_threads);
    }
    double engine_fraction() const noexcept { return fraction(engine_busy); }
    /// The overlap: the part of the span in which forward and encrypted work went on at the same time.
    double overlap() const noexcept { return fraction(both_busy); }

  private:
    double per_second(std::uint64_t count) const noexcept {
        return span.count() <= 0 ? 0 : static_cast<double>(count) / static_cast<double>(span.count()) * 1e9;
    }
    double fraction(std::chrono::nanoseconds busy) const noexcept {
        return span.count() <= 0 ? 0 : static_cast<double>(busy.count()) / static_cast<double>(span.count());
    }
};

/// Times, in one unit, of which throughput is made.
struct pipeline_load {
    std::size_t sequences = 1;
    std::size_t forward_threads = 1;
    std::size_t batch = 1;  ///< the largest
    double forward = 0;     ///< one forward, from request to request
    double alone = 0;       ///< a round trip in a batch of one
    double together = 0;    ///< a whole batch of min(batch, sequences)
};

/// Round trips in the unit of time that no order of work passes: a sequence waits for its own answers,
/// threads do one forward at a time, the engine one batch. min(S / (F + E(1)), threads / F, b / E(b)). One
/// sequence gives 1 / (F + E(1)) whatever the threads, because each forward needs the answers before it.
/// @throws parameter_error for a count or time that is not positive
inline double throughput_bound(const pipeline_load& load) {
    if (load.sequences == 0 || load.forward_threads == 0 || load.batch == 0 || !(load.forward > 0) ||
        !(load.alone > 0) || !(load.together > 0)) {
        throw parameter_error("throughput_bound: got a count or a time that is not positive");
    }
    const auto batch = static_cast<double>(std::min(load.batch, load.sequences));
    return std::min({static_cast<double>(load.sequences) / (load.forward + load.alone),
                     static_cast<double>(load.forward_threads) / load.forward, batch / load.together});
}

}  // namespace tensafe::serving
