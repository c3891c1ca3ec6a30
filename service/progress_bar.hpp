#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <unistd.h>
#include <utility>

namespace examples {

/// What goes before a text on standard error while a bar may stand there: takes the bar away.
inline const char* over_progress_bar() noexcept {
    return ::isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "";
}

/// A bar on one line of standard error, for lora::pack_progress; nothing where that is no terminal. The last
/// step ends the line; what is printed before goes after over_progress_bar().
inline std::function<void(std::size_t, std::size_t)> progress_bar(std::string title) {
    return [title = std::move(title)](std::size_t done, std::size_t total) {
        if (::isatty(STDERR_FILENO) == 0) {
            return;
        }
        constexpr std::size_t width = 32;
        const std::size_t filled = total == 0 ? width : done * width / total;
        const std::string bar = std::string(filled, '#') + std::string(width - filled, '.');
        std::fprintf(stderr, "\r  %s [%s] %zu/%zu%s", title.c_str(), bar.c_str(), done, total,
                     done == total ? "\n" : "");
        std::fflush(stderr);
    };
}

}  // namespace examples
