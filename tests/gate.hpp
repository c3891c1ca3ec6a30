#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tests {

/// Opened once; whoever passes waits for that. Whoever waits long enough for a slow machine under a sanitizer
/// has failed.
class gate {
  public:
    static constexpr std::chrono::seconds patience{60};

    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    /// Whether it was opened in time.
    bool pass() {
        std::unique_lock lock(mutex_);
        ++arrived_;
        changed_.notify_all();
        return changed_.wait_for(lock, patience, [&] { return open_; });
    }
    /// Returns when somebody stands before it, or has passed; false if nobody comes in time.
    bool wait_until_somebody_is_there() {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, patience, [&] { return arrived_ > 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int arrived_ = 0;
    bool open_ = false;
};

}  // namespace tests
