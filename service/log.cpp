#include "log.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <poll.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

namespace split {

namespace {

std::string utc_text(std::chrono::system_clock::time_point at) {
    const auto ms = std::chrono::floor<std::chrono::milliseconds>(at.time_since_epoch()).count();
    const std::time_t seconds = ms / 1000;
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    std::array<char, 48> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    static_cast<void>(
        std::snprintf(text.data() + size, text.size() - size, ".%03dZ", static_cast<int>(ms % 1000)));
    return text.data();
}

constexpr std::array<const char*, 3> level_names = {"info", "warning", "error"};

std::string line_text(std::chrono::system_clock::time_point at, log_level level, std::string_view event,
                      std::initializer_list<log::field> fields, std::uint64_t left_out = 0) {
    nlohmann::ordered_json object;
    object["time"] = utc_text(at);
    object["level"] = level_names[static_cast<std::size_t>(level)];
    object["event"] = event;
    for (const log::field& each : fields) {
        const auto* const text = std::get_if<std::string_view>(&each.value);
        if (text == nullptr || !text->empty()) {
            std::visit([&](const auto& value) { object[std::string(each.name)] = value; }, each.value);
        }
    }
    if (left_out > 0) {
        object["left_out"] = left_out;
    }
    return object.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// Lines on their way to a descriptor. Its thread may stand in a write that nothing ends but the reader:
/// others share the descriptor, so it cannot be set not to wait. So nobody waits for the thread.
class line_queue {
  public:
    void add(std::string_view line) {
        constexpr std::size_t most_bytes = std::size_t{1} << 20;
        const std::lock_guard lock(mutex_);
        if (waiting_.size() + line.size() > most_bytes) {
            count_lost(1);
            return;
        }
        if (lost_ > 0) {
            waiting_ += line_text(std::chrono::system_clock::now(), log_level::warning, "lines_lost",
                                  {{"count", lost_}});
            lost_ = 0;
        }
        waiting_ += line;
        changed_.notify_all();
    }

    void end(std::chrono::milliseconds patience) {
        std::unique_lock lock(mutex_);
        ends_ = true;
        changed_.notify_all();
        changed_.wait_for(lock, patience, [&] { return is_over_; });
    }

    /// Until the end.
    void write_to(int descriptor) {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
            if (waiting_.empty()) {
                break;
            }
            const std::string lines = std::exchange(waiting_, {});
            lock.unlock();
            const std::string_view left = write_all(descriptor, lines);
            lock.lock();
            count_lost(static_cast<std::uint64_t>(std::count(left.begin(), left.end(), '\n')));
        }
        is_over_ = true;
        changed_.notify_all();
    }

    std::atomic<std::uint64_t> lost_so_far{0};

  private:
    void count_lost(std::uint64_t lines) {
        lost_ += lines;
        lost_so_far += lines;
    }
    /// @return what nobody takes: the reader is gone, or the disk is full
    static std::string_view write_all(int descriptor, std::string_view lines) {
        while (!lines.empty()) {
            const ssize_t written = ::write(descriptor, lines.data(), lines.size());
            if (written >= 0) {
                lines.remove_prefix(static_cast<std::size_t>(written));
            } else if (errno == EAGAIN) {  // others have set the descriptor not to wait
                ::pollfd one{descriptor, POLLOUT, 0};
                static_cast<void>(::poll(&one, 1, -1));
            } else if (errno != EINTR) {
                break;
            }
        }
        return lines;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::string waiting_;
    std::uint64_t lost_ = 0;  ///< since the log said so
    bool ends_ = false;
    bool is_over_ = false;
};

}  // namespace

struct log::one_a_second {
    struct {
        rate_limiter lines{1, 1, 256};
        std::atomic<std::uint64_t> left_out{0};
    } errors, others;  // whatever strangers do, errors are told
};

log::log(std::function<void(std::string_view)> write,
         std::function<std::chrono::system_clock::time_point()> now, clock_function limited_by)
    : write_(std::move(write)),
      now_(std::move(now)),
      limited_by_(std::move(limited_by)),
      limits_(std::make_shared<one_a_second>()) {}

void log::line(log_level level, std::string_view event, std::initializer_list<field> fields,
               std::string_view limited_by) const noexcept {
    if (!write_) {
        return;
    }
    try {
        std::uint64_t left_out = 0;
        if (!limited_by.empty()) {
            auto& of = level == log_level::error ? limits_->errors : limits_->others;
            const std::string who = std::string(event) + " " + limited_address(std::string(limited_by));
            if (of.lines.take(who, limited_by_()).count() > 0) {
                ++of.left_out;
                return;
            }
            left_out = of.left_out.exchange(0);
        }
        write_(line_text(now_(), level, event, fields, left_out));
    } catch (...) {
        return;
    }
}

log log::to_descriptor(int descriptor) {
    auto queue = std::make_shared<line_queue>();
    std::thread([queue, descriptor] { queue->write_to(descriptor); }).detach();
    const std::shared_ptr<line_queue> held(queue.get(),
                                           [queue](line_queue* last) { last->end(std::chrono::seconds(1)); });
    log made([held](std::string_view line) { held->add(line); });
    made.lost_ = {queue, &queue->lost_so_far};
    return made;
}

}  // namespace split
