#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/serving/pipeline_core.hpp>
#include <tensafe/serving/pipeline_options.hpp>
#include <tensafe/serving/pipeline_report.hpp>
#include <tensafe/serving/round_trip.hpp>
#include <tensafe/serving/sequence_ticket.hpp>

#include <cstddef>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// Decodes many sequences at once: while the engine encrypts, answers and decrypts for some, the model's
/// forward of others runs on threads of the pipeline (the forward of a GPU just blocks one).
///
/// One sequence alone gains nothing. Its next forward needs the answers to its last request, so forward and
/// round trip never overlap, and S = 1 makes 1 / (F + E) tokens a second with or without a pipeline.
/// throughput_bound says what more sequences can give.
///
/// A sequence is a token_sequence: see there. Calls of one never overlap, its turns are in order, and both
/// queues are first in, first out, so that none starves. The engine gets whatever waits for it, up to
/// largest_batch at once. Turns allocate nothing, if sequence and engine do not.
///
/// Errors: what a sequence throws, or the engine sets for its round trip, ends that sequence only and comes
/// out of its ticket; what the engine throws as a whole ends the sequences of that batch.
///
/// Secrets: hidden states are read where the sequence has them; answers lie in memory of the pipeline that is
/// wiped when the sequence is over.
///
/// Thread-safe. A sequence may call try_submit, submit (which then throws instead of waiting), cancel, stop,
/// report, and drop tickets. It must not wait for a ticket or close its own pipeline: that throws. Two
/// pipelines whose sequences wait for each other are not noticed.
///
/// Destruction: all calls from other threads must have returned, and neither the code of a sequence nor what
/// it captured may hold the last reference to its own pipeline. A thread of the pipeline would have to wait
/// for its own end: the program ends in std::terminate.
template <round_trip_engine Engine>
class token_pipeline {
  public:
    using ticket = sequence_ticket;

    /// Starts the threads: forward_threads, and one for the engine.
    /// @param engine  must outlive the pipeline, and is used by its thread alone
    /// @throws parameter_error for an option out of range, or an engine without groups; std::system_error if
    ///         no thread can be started
    explicit token_pipeline(Engine& engine, pipeline_options options = {}) : core_(options, shapes(engine)) {
        try {
            threads_.reserve(options.forward_threads + 1);
            start([this, &engine] { core_.run_engine(engine); });
            for (std::size_t i = 0; i < options.forward_threads; ++i) {
                start([this] { core_.run_forwards(); });
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
    ticket submit(token_sequence sequence) { return ticket(core_.submit(sequence, true)); }

    /// The same without waiting: nothing if there is no room, and then `sequence` is as it was.
    std::optional<ticket> try_submit(token_sequence&& sequence) {
        auto record = core_.submit(sequence, false);
        return record == nullptr ? std::optional<ticket>() : ticket(std::move(record));
    }

    /// Takes no more submissions, and returns when all sequences are over. Tickets tell how each ended.
    /// @throws error when called by a sequence of this pipeline
    void close() { core_.close(); }

    /// Takes no more submissions and cancels all sequences, each at its next turn boundary; returns at once.
    void stop() noexcept { core_.stop(); }

    /// So far. Cost: a copy of 60 KB under the lock that every turn takes.
    pipeline_report report() const { return core_.report(); }

  private:
    static std::vector<detail::pipeline_core::shape> shapes(const Engine& engine) {
        std::vector<detail::pipeline_core::shape> result;
        for (std::size_t g = 0; g < engine.groups(); ++g) {
            result.push_back({engine.d(g), engine.rows(g)});
        }
        if (result.empty()) {
            throw parameter_error("token_pipeline: got an engine without groups, expected 1 or more");
        }
        return result;
    }

    template <class F>
    void start(F&& f) {
        threads_.emplace_back(std::forward<F>(f));
        core_.add_thread(threads_.back().get_id());
    }

    void leave() noexcept {
        core_.stop();
        core_.end();
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }

    detail::pipeline_core core_;
    std::vector<std::thread> threads_;
};

}  // namespace tensafe::serving
