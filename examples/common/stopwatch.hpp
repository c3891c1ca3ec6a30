#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <vector>

#include "../../bench/phase_clock.hpp"

namespace examples {

/// What a block goes through before its tokens exist, and then a token, in order.
enum class phase : std::size_t {
    client_prepare,
    server_prepare,
    accept,
    encrypt,
    expand,
    multiply,
    protect,
    pack,
    answer,
    decrypt,
    b
};
inline constexpr std::array<std::string_view, 11> phase_names{
    "client_prepare", "server_prepare", "accept", "encrypt", "expand", "multiply",
    "protect",        "pack",           "answer", "decrypt", "b"};
inline constexpr auto first_of_token = static_cast<std::size_t>(phase::encrypt);

/// Milliseconds of each phase, block by block and token by token.
class stopwatch {
  public:
    void next_block() {
        for (std::size_t p = 0; p < first_of_token; ++p) {
            times_[p].push_back(0);
        }
    }
    void next_token() {
        for (std::size_t p = first_of_token; p < times_.size(); ++p) {
            times_[p].push_back(0);
        }
    }
    /// Runs f and books its time for the current block or token.
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
    void add(const bench::phase_clock& clock) {
        using tensafe::lora::server_phase;
        const auto book = [&](phase p, server_phase from) {
            times_[static_cast<std::size_t>(p)].back() += clock.milliseconds(from);
        };
        book(phase::expand, server_phase::expand);
        book(phase::multiply, server_phase::multiply);
        book(phase::protect, server_phase::protect);
        book(phase::pack, server_phase::serialize);
    }
    /// One entry for each block or token; zeros if the phase did not occur.
    const std::vector<double>& times(std::size_t p) const { return times_[p]; }

  private:
    std::array<std::vector<double>, phase_names.size()> times_;
};

}  // namespace examples
