#pragma once

#include <cstddef>
#include <cstdio>

namespace examples::tiny_lm {

/// What one way took, for each character that the model read or wrote.
struct figures {
    double milliseconds = 0;
    double client = 0;
    double server = 0;
    std::size_t bytes_up = 0;
    std::size_t bytes_down = 0;
};

/// A line of the table, all for one character.
inline void print(const char* way, const figures& all, std::size_t characters) {
    const auto n = static_cast<double>(characters);
    std::printf("%-10s %12.0f %9.2f %9.2f %9.2f %11.0f %11.0f\n", way, 1e3 * n / all.milliseconds,
                (all.milliseconds - all.client - all.server) / n, all.client / n, all.server / n,
                static_cast<double>(all.bytes_up) / n, static_cast<double>(all.bytes_down) / n);
}

inline void print_title() {
    std::printf("%-10s %12s %9s %9s %9s %11s %11s\n", "way", "characters/s", "ms model", "client", "server",
                "bytes up", "down");
}

}  // namespace examples::tiny_lm
