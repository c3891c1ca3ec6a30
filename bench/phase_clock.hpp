#pragma once

#include <tensafe/lora/protocol/phases.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

namespace bench {

using tensafe::lora::server_phase;

/// An observer that adds up milliseconds; `stop` ends the last phase.
class phase_clock {
  public:
    void operator()(server_phase begins) noexcept {
        stop();
        running_ = begins;
    }
    void stop() noexcept {
        const auto now = clock::now();
        if (running_) {
            sums_[static_cast<std::size_t>(*running_)] +=
                std::chrono::duration<double, std::milli>(now - since_).count();
        }
        running_.reset();
        since_ = now;
    }
    /// The milliseconds of this phase, since the clock was made.
    double milliseconds(server_phase of) const noexcept { return sums_[static_cast<std::size_t>(of)]; }

  private:
    using clock = std::chrono::steady_clock;

    std::array<double, 4> sums_{};
    std::optional<server_phase> running_;
    clock::time_point since_;
};

}  // namespace bench
