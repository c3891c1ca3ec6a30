#pragma once

#include <tensafe/serving/meter.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control_message.hpp"

namespace split {

/// What is so at a moment.
struct service_figures {
    struct adapter {
        std::string name;
        std::uint64_t version = 0;
        std::optional<double> used{};  ///< as service::used_share
    };
    std::size_t sessions = 0;
    std::size_t pool_size = 0;
    std::size_t block_bytes = 0;
    bool is_loading = false;  ///< something that should be served is not yet
    bool draining = false;
    std::uint64_t lines_lost = 0;  ///< of the log
    std::vector<adapter> adapters{};
    std::pair<std::size_t, std::uint64_t> marked{};  ///< as model_store::marked
};

/// Counters of the service beside those of the meter. Thread-safe.
class metrics {
  public:
    std::atomic<std::uint64_t> connections{0};
    std::atomic<std::uint64_t> connections_refused{0};
    std::atomic<std::uint64_t> sessions_opened{0};
    std::atomic<std::uint64_t> sessions_resumed{0};
    std::atomic<std::int64_t> certificate_until{0};  ///< seconds since 1970; 0: there is none

    void refused(error_code code) noexcept { ++refusals_[static_cast<std::size_t>(code)]; }
    /// @param computing  without waiting for a thread, reading and writing
    void answered(std::chrono::steady_clock::duration computing) noexcept;

    /// A page for Prometheus: usage by adapter, without names of clients; connections, sessions, refusals by
    /// code, a histogram of the time that replies take to compute, adapters, certificate, process, version.
    /// Values of several servers can be added, but for used_ratio and the certificate.
    std::string text(const tensafe::serving::meter_snapshot& used, const service_figures& now) const;

  private:
    /// Upper bounds of the histogram, in microseconds.
    static constexpr std::array<std::uint64_t, 10> bounds = {250,    500,    1'000,   2'500,   5'000,
                                                             10'000, 25'000, 100'000, 500'000, 2'500'000};

    std::array<std::atomic<std::uint64_t>, error_codes> refusals_{};
    std::array<std::atomic<std::uint64_t>, bounds.size() + 1> latencies_{};
    std::atomic<std::uint64_t> microseconds_{0};
};

}  // namespace split
