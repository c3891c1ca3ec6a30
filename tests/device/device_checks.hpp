#pragma once

// How checks of kernels get into the programs that run them on a GPU: one line each, a call that names
// `where` to run, and `launches`, which counts them, if it needs that:
//
//     DEVICE_CHECK(tests::check_slots<11>(where, 2))
//
// DEVICE_CHECK_SMALL is for those that are quick enough to be run under compute-sanitizer, too, which makes
// kernels a hundred times slower.

#include <tensafe/device/cuda/stream.cuh>

#include <doctest/doctest.h>

namespace device_tests {

using place = tensafe::device::cuda;

struct named_check {
    const char* name;
    void (*run)(const place& where, std::size_t& launches);
    bool small;
};
inline std::vector<named_check>& all_checks() {
    static std::vector<named_check> checks;
    return checks;
}
inline bool add_check(const named_check& check) {
    all_checks().push_back(check);
    return true;
}

}  // namespace device_tests

namespace tests {

/// Records what is enqueued for each key, and replays it.
struct run_recorded {
    tensafe::device::graph_cache<std::size_t> graphs;

    template <class F>
    void operator()(const tensafe::device::cuda& where, std::size_t key, F&& f) {
        graphs.run(where, key, std::forward<F>(f));
    }
};

}  // namespace tests

#define DEVICE_TESTS_ADD(small, name, ...)                                                    \
    [[maybe_unused]] static const bool DEVICE_TESTS_JOIN(device_tests_added_, __COUNTER__) =  \
        device_tests::add_check({name,                                                        \
                                 []([[maybe_unused]] const device_tests::place& where,        \
                                    [[maybe_unused]] std::size_t& launches) { __VA_ARGS__; }, \
                                 small});
#define DEVICE_CHECK(...) DEVICE_TESTS_ADD(false, #__VA_ARGS__, __VA_ARGS__)
#define DEVICE_CHECK_SMALL(...) DEVICE_TESTS_ADD(true, #__VA_ARGS__, __VA_ARGS__)
