#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace split::net {

/// Runs jobs so that nobody waits for another's many or long ones: at once where nothing else runs, else on
/// threads of its own, and next is the owner with the fewest jobs running, among those the one whose jobs
/// took least time since it came, and among those who waits longest. Jobs of one owner begin in order.
/// Thread-safe.
class fair_queue {
  public:
    explicit fair_queue(std::size_t threads) {
        for (std::size_t i = 0; i < std::max<std::size_t>(threads, 1); ++i) {
            threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
        }
    }
    fair_queue(const fair_queue&) = delete;
    fair_queue& operator=(const fair_queue&) = delete;
    ~fair_queue() { stop(); }

    /// @param job  what it throws is lost
    void post(const std::string& whose, std::function<void()> job) {
        const std::lock_guard lock(mutex_);
        add(whose, std::move(job));
    }

    /// On this thread, at once, where nothing else waits or runs: another one takes 0.1 ms to wake. Else as
    /// `post`.
    void run(const std::string& whose, std::function<void()> job) {
        std::unique_lock lock(mutex_);
        const bool is_idle = owners_.empty();
        const auto of = add(whose, std::move(job));
        if (is_idle) {
            do_next_of(of, lock);
        }
    }

    /// Waits for the jobs on its own threads; those that wait are dropped.
    void stop() {
        std::vector<std::deque<waiting_job>> dropped;  // outside the lock
        {
            const std::lock_guard lock(mutex_);
            for (auto& [whose, of] : owners_) {
                dropped.push_back(std::exchange(of.waiting, {}));
            }
            waiting_ = 0;
        }
        threads_.clear();
    }

  private:
    using steady = std::chrono::steady_clock;
    struct waiting_job {
        std::uint64_t number;  ///< as they came
        std::function<void()> what;
    };
    struct owner {
        std::deque<waiting_job> waiting;
        std::size_t running = 0;
        steady::duration used{};  ///< by its jobs, beside what whoever was next had when it came
    };

    using owners = std::map<std::string, owner>;

    owners::iterator add(const std::string& whose, std::function<void()> job) {
        const auto of = owners_.try_emplace(whose, owner{{}, 0, least_}).first;
        of->second.waiting.push_back({came_++, std::move(job)});
        ++waiting_;
        changed_.notify_one();
        return of;
    }

    void work(const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (changed_.wait(lock, stop, [&] { return waiting_ > 0; })) {
            const auto order = [](const auto& each) {
                const owner& of = each.second;
                return std::tuple(of.waiting.empty(), of.running, of.used,
                                  of.waiting.empty() ? 0 : of.waiting.front().number);
            };
            do_next_of(std::ranges::min_element(owners_, {}, order), lock);
        }
    }

    /// Gives the lock back meanwhile; the owner stays where it is.
    void do_next_of(owners::iterator next, std::unique_lock<std::mutex>& lock) {
        owner& of = next->second;
        std::function<void()> job = std::move(of.waiting.front().what);
        of.waiting.pop_front();
        --waiting_;
        ++of.running;
        least_ = of.used;
        lock.unlock();
        const auto began = steady::now();
        try {
            std::exchange(job, nullptr)();
        } catch (...) {
            // No memory, most likely: the others go on.
        }
        const auto took = steady::now() - began;
        lock.lock();
        of.used += took;
        if (--of.running == 0 && of.waiting.empty()) {
            owners_.erase(next);
        }
    }

    std::mutex mutex_;
    std::condition_variable_any changed_;
    owners owners_;  ///< with a job that waits or runs
    std::size_t waiting_ = 0;
    std::uint64_t came_ = 0;
    steady::duration least_{};  ///< used by whoever was next
    std::vector<std::jthread> threads_;
};

}  // namespace split::net
