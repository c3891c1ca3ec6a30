#pragma once

#include <array>
#include <cstddef>
#include <ctime>
#include <optional>

namespace tensafe::lora {

/// The phases of server::apply, in this order; the last three for a few products at a time.
enum class server_phase : std::size_t {
    expand,     ///< polynomials from a request's bytes and seed
    multiply,   ///< products with the packed matrix
    protect,    ///< adds encryptions of zero and floods; not of bare replies
    serialize,  ///< switches to the small modulus and writes bytes
};

/// An observer, called as observer(server_phase) when a phase begins, that does nothing and costs nothing.
struct no_observer {
    constexpr void operator()(server_phase) const noexcept {}
};

/// An observer that adds up milliseconds; `stop` ends the last phase.
class phase_clock {
  public:
    void operator()(server_phase begins) noexcept {
        stop();
        running_ = begins;
    }
    void stop() noexcept {
        std::timespec time{};
        static_cast<void>(::clock_gettime(CLOCK_MONOTONIC, &time));  // <chrono> would cost each program 0.2 s
        const double now = static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
        if (running_) {
            sums_[static_cast<std::size_t>(*running_)] += now - since_;
        }
        running_.reset();
        since_ = now;
    }
    /// The milliseconds of this phase, since the clock was made.
    double milliseconds(server_phase of) const noexcept { return sums_[static_cast<std::size_t>(of)]; }

  private:
    std::array<double, 4> sums_{};
    std::optional<server_phase> running_;
    double since_ = 0;
};

}  // namespace tensafe::lora
