#pragma once

#include <tensafe/core/error.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace tensafe::serving {

/// How a token_pipeline works.
struct pipeline_options {
    static constexpr std::size_t most_forward_threads = 1024;
    static constexpr std::size_t most_in_flight = std::size_t{1} << 20;

    std::size_t forward_threads = 1;
    std::size_t largest_batch = 8;    ///< round trips that the engine gets at once
    std::size_t most_sequences = 64;  ///< in flight; further submissions wait
    /// What the report is measured with; empty: std::chrono::steady_clock. Never goes back, throws nothing,
    /// may be called from any thread.
    std::function<std::chrono::nanoseconds()> clock{};

    /// @throws parameter_error, naming the one that is out of range
    void check() const {
        check("forward_threads", forward_threads, most_forward_threads);
        check("largest_batch", largest_batch, most_in_flight);
        check("most_sequences", most_sequences, most_in_flight);
    }

  private:
    static void check(const char* what, std::size_t got, std::size_t most) {
        if (got == 0 || got > most) {
            throw parameter_error("token_pipeline: " + std::string(what) + ": got " + std::to_string(got) +
                                  ", expected 1 to " + std::to_string(most));
        }
    }
};

}  // namespace tensafe::serving
