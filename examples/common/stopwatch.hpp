#pragma once

#include <tensafe/lora/protocol/phases.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <vector>

namespace examples {

/// What a token goes through, in order.
enum class phase : std::size_t { encrypt, expand, multiply, protect, pack, decrypt, b };
inline constexpr std::array<std::string_view, 7> phase_names{"encrypt", "expand",  "multiply", "protect",
                                                             "pack",    "decrypt", "b"};

/// Milliseconds of each phase, token by token (batch by batch if hidden states travel in batches).
class stopwatch {
  public:
    void next_token() {
        for (auto& times : times_) {
            times.push_back(0);
        }
    }
    /// Runs f and books its time for the current token.
    template <class F>
    auto time(phase p, F f) {
        struct booking {
            double& to;
            std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
            ~booking() {
                const std::chrono::duration<double, std::milli> elapsed =
                    std::chrono::steady_clock::now() - start;
                to += elapsed.count();
            }
        } entry{times_[static_cast<std::size_t>(p)].back()};
        return f();
    }
    /// Books what the server's phases took.
    void add(const tensafe::lora::phase_clock& clock) {
        using tensafe::lora::server_phase;
        const auto book = [&](phase p, server_phase from) {
            times_[static_cast<std::size_t>(p)].back() += clock.milliseconds(from);
        };
        book(phase::expand, server_phase::expand);
        book(phase::multiply, server_phase::multiply);
        book(phase::protect, server_phase::protect);
        book(phase::pack, server_phase::serialize);
    }
    /// One entry for each token; zeros if the phase did not occur.
    const std::vector<double>& times(std::size_t p) const { return times_[p]; }

  private:
    std::array<std::vector<double>, phase_names.size()> times_;
};

}  // namespace examples
