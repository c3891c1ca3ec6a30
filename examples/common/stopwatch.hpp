#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <vector>

namespace examples {

/// Milliseconds of each phase, token by token.
class stopwatch {
  public:
    static constexpr std::array<std::string_view, 8> phases{"encode",  "encrypt", "expand", "multiply",
                                                            "rescale", "decrypt", "fold",   "b"};

    /// Runs f and books its time under `phase`.
    template <class F>
    auto time(std::size_t phase, F f) {
        struct booking {
            std::vector<double>& to;
            std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
            ~booking() {
                const std::chrono::duration<double, std::milli> elapsed =
                    std::chrono::steady_clock::now() - start;
                to.push_back(elapsed.count());
            }
        } entry{times_[phase]};
        return f();
    }
    const std::vector<double>& times(std::size_t phase) const { return times_[phase]; }

  private:
    std::array<std::vector<double>, phases.size()> times_;
};

}  // namespace examples
