#pragma once

#include <concepts>
#include <cstddef>

namespace tensafe::exec {

/// Runs an operation on the calling thread; operations that are given no other place run there.
struct host {
    static constexpr std::size_t threads() noexcept { return 1; }

    /// Calls f(index, 0) for each index in [0, count), in order.
    template <std::invocable<std::size_t, std::size_t> F>
    void for_each(std::size_t count, F&& f) const {
        for (std::size_t index = 0; index < count; ++index) {
            f(index, std::size_t{0});
        }
    }
};

/// A place on the host where operations run: `host`, or `host_parallel` of an opt-in header. for_each(count,
/// f) calls f(index, worker) once for each index in [0, count) and returns when all are done. Workers are
/// numbered in [0, threads()), and no two calls of f that overlap in time have the same worker: what a call
/// needs for itself stands ready once per worker. The result of an operation does not depend on the place.
template <class Where>
concept host_execution = requires(const Where& where, std::size_t count,
                                  void (*f)(std::size_t index, std::size_t worker)) {
    { where.threads() }
    noexcept->std::same_as<std::size_t>;
    where.for_each(count, f);
};

static_assert(host_execution<host>);

}  // namespace tensafe::exec
