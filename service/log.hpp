#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <variant>

#include "limits.hpp"

namespace split {

enum class log_level { info, warning, error };

/// One JSON object a line: {"time": ..., "level": ..., "event": ..., fields}. Fields are names, counts and
/// codes; whoever writes a line gives no message, seed, token or state to it. Thread-safe if `write` is.
class log {
  public:
    struct field {
        std::string_view name;
        std::variant<std::string_view, std::uint64_t, double> value;
    };

    /// @param write  takes one line with its end; empty: nothing is logged
    /// @param now    of the lines
    /// @param limited_by  the time that limits them
    explicit log(std::function<void(std::string_view)> write = {},
                 std::function<std::chrono::system_clock::time_point()> now = std::chrono::system_clock::now,
                 clock_function limited_by = std::chrono::steady_clock::now);

    /// Never throws: a line that cannot be written is lost.
    /// @param fields  of which those with empty texts are left out
    /// @param limited_by  who causes it as often as they like, an address or a client: one line a second for
    ///                    each event and limited_address, and for all beyond 256 of them together. The next
    ///                    such line has the number of those left out. Errors are limited by themselves
    void line(log_level level, std::string_view event, std::initializer_list<field> fields = {},
              std::string_view limited_by = {}) const noexcept;

    /// How many lines nobody took, of a log to a descriptor.
    std::uint64_t lost() const noexcept { return lost_ ? lost_->load() : 0; }

    /// Writes whole lines on a thread of its own: whoever reads them, or stands still, stops nobody. A MiB
    /// waits at most; what comes on top is lost, and once there is room a line "lines_lost" has the count.
    /// The last copy to go waits a second for what is left, and then leaves it, and the thread, to the end of
    /// the process.
    /// @param descriptor  stays open to the end of the process
    static log to_descriptor(int descriptor);

  private:
    struct one_a_second;

    std::function<void(std::string_view)> write_;
    std::function<std::chrono::system_clock::time_point()> now_;
    clock_function limited_by_;
    std::shared_ptr<one_a_second> limits_;
    std::shared_ptr<const std::atomic<std::uint64_t>> lost_;
};

/// The beginning of a name, enough to find it in a log.
inline std::string_view prefix_of(std::string_view hex) noexcept {
    return hex.substr(0, 8);
}

}  // namespace split
