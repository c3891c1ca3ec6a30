#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

namespace examples {

/// A bar on one line of standard error, for lora::pack_progress. A program that prints elsewhere ends the
/// line by itself: the last group does.
inline std::function<void(std::size_t, std::size_t)> progress_bar(std::string title) {
    return [title = std::move(title)](std::size_t done, std::size_t total) {
        constexpr std::size_t width = 32;
        const std::size_t filled = total == 0 ? width : done * width / total;
        const std::string bar = std::string(filled, '#') + std::string(width - filled, '.');
        std::fprintf(stderr, "\r  %s [%s] %zu/%zu%s", title.c_str(), bar.c_str(), done, total,
                     done == total ? "\n" : "");
        std::fflush(stderr);
    };
}

}  // namespace examples
