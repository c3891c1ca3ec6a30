#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace split {

struct backoff_options {
    std::chrono::milliseconds first{100};
    std::chrono::milliseconds largest{10'000};
    std::size_t attempts = 10;  ///< before a client gives up: 21 to 43 s of waiting with these
};

/// How long to wait before the next attempt: the first time, then twice as long each time up to the largest,
/// of which a random half is left out, so that the clients of a server that was away do not all come back at
/// once.
class backoff {
  public:
    explicit backoff(const backoff_options& options) : options_(options), step_(options.first) {}

    /// @param draw  uniform in [0, 1)
    std::chrono::milliseconds next(double draw) {
        const std::chrono::milliseconds step = std::min(step_, options_.largest);
        step_ = step < options_.largest / 2 ? 2 * step : options_.largest;
        const auto half = static_cast<double>(step.count()) / 2;
        return std::chrono::milliseconds(static_cast<std::chrono::milliseconds::rep>(half + half * draw));
    }

  private:
    backoff_options options_;
    std::chrono::milliseconds step_;
};

}  // namespace split
