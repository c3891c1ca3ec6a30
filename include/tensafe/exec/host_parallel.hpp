#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/exec/host.hpp>

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <string>

namespace tensafe::exec {

namespace detail {

/// Whether this thread is inside a for_each of any host_parallel.
constinit inline thread_local bool in_for_each = false;

class for_each_scope {
  public:
    for_each_scope() noexcept : before_(in_for_each) { in_for_each = true; }
    ~for_each_scope() { in_for_each = before_; }
    for_each_scope(const for_each_scope&) = delete;
    for_each_scope& operator=(const for_each_scope&) = delete;

  private:
    bool before_;
};

}  // namespace detail

/// Runs operations on the calling thread and on threads of oneTBB, which the process shares and which sleep
/// when there is nothing to do. A call costs about 1 us, 5 to 30 us if they sleep: worth it from 50 us on.
///
/// Thread-safe: calls of for_each from several threads number their workers apart and share `threads()`
/// places to run; a call for which no place is free waits, so f must not wait for a thread that calls
/// for_each of the same object. Inside f, for_each works, on the threads that the outer call has.
class host_parallel {
  public:
    static constexpr int max_threads = 1024;

    /// Makes a place with its own limit of threads.
    /// @param threads  how many threads may work at a time, the caller included; 0: as many as the process
    ///                 may use (its processor affinity, and oneTBB's global_control). More than that adds
    ///                 workers, but no threads.
    /// @throws parameter_error unless `threads` is in [0, max_threads]
    explicit host_parallel(int threads = 0)
        : threads_(resolved(threads)), arena_(std::min(threads_, available_threads())) {}

    // Two copies would run twice as many threads as either says: pass a reference.
    host_parallel(const host_parallel&) = delete;
    host_parallel& operator=(const host_parallel&) = delete;

    /// The number of workers.
    std::size_t threads() const noexcept { return static_cast<std::size_t>(threads_); }

    /// Calls f(index, worker) once for each index in [0, count), in any order and always on the same f, and
    /// returns when all are done. f sees the caller's rounding mode. While it waits, the caller does no work
    /// but this call's. With one thread or one index the caller does all, in order.
    /// @throws what f throws: one exception, if there were several; indices that had not begun are left out
    /// @throws std::bad_alloc
    template <std::invocable<std::size_t, std::size_t> F>
    void for_each(std::size_t count, F&& f) const {
        const std::size_t workers = std::min(count, threads());
        if (workers <= 1) {
            host{}.for_each(count, f);
            return;
        }
        // A worker is a loop that takes the next index until none is left, not a place in the arena. One task
        // has it from start to end, whatever else its thread does; no late thread is waited for.
        std::atomic<std::size_t> next{0};
        const auto run_worker = [&](std::size_t worker) {
            const detail::for_each_scope scope;
            try {
                for (std::size_t index = next++; index < count; index = next++) {
                    f(index, worker);
                }
            } catch (...) {
                next = count;
                throw;
            }
        };
        // Isolated: were it bound to the caller's context, the end of an outer task group would end this loop
        // early, and without an exception.
        tbb::task_group_context context(tbb::task_group_context::isolated,
                                        tbb::task_group_context::fp_settings);
        // isolate() keeps the waiting caller off other tasks: they might want a lock that it holds.
        const auto run = [&] {
            tbb::this_task_arena::isolate([&] {
                tbb::parallel_for(std::size_t{0}, workers, run_worker, tbb::simple_partitioner{}, context);
            });
        };
        // Entering an arena may mean waiting for a place. Whoever has a place already must not: two objects
        // whose calls are nested in both orders would wait for each other.
        if (detail::in_for_each) {
            run();
        } else {
            arena_.execute(run);
        }
    }

  private:
    static int resolved(int threads) {
        if (threads < 0 || threads > max_threads) {
            throw parameter_error("exec::host_parallel: got " + std::to_string(threads) +
                                  " threads, expected 1 to " + std::to_string(max_threads) +
                                  ", or 0 for as many as the process may use");
        }
        return threads != 0 ? threads : std::min(available_threads(), max_threads);
    }
    /// The most threads that an arena can get; one that wants more makes oneTBB print a warning.
    static int available_threads() {
        return static_cast<int>(
            tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
    }

    int threads_;
    mutable tbb::task_arena arena_;  // its execute() is thread-safe but not const
};

static_assert(host_execution<host_parallel>);

}  // namespace tensafe::exec
