// What only a GPU has: streams beside each other, events, graphs, pinned memory, windows of the L2 cache.

#include <tensafe/device/cuda/stream.cuh>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device_checks.hpp"
#include "device_data.hpp"
#include "exec/launch_checks.hpp"

using namespace tests;

namespace {

/// to[i] = from[i] + 1, a little late: each thread first counts to `delay`.
struct increment_late {
    static constexpr int threads = 256;
    using shared_type = device::no_shared;
    const std::uint32_t* from;
    std::uint32_t* to;
    std::uint32_t delay;
    std::uint32_t never = 0;  // which the compiler cannot know, so that it keeps the loop

    TENSAFE_HOST_DEVICE void operator()(auto& ctx) const {
        const std::size_t first = std::size_t{ctx.block().x} * threads;
        ctx.last([&](int t) {
            const std::size_t i = first + static_cast<std::size_t>(t);
            std::uint32_t state = from[i];
            for (std::uint32_t n = 0; n < delay; ++n) {
                state = state * 1664525U + 1013904223U;
            }
            to[i] = from[i] + 1 + (state & never);
        });
    }
};

constexpr std::uint32_t blocks = 64;
constexpr std::size_t count = 256 * blocks;
/// A millisecond or so. The software device starts late enough by itself, and counts slowly.
std::uint32_t long_delay() {
    static const bool software = device::properties_of(device::current_device()).name == "software device";
    return software ? 20 : 200000;
}

std::vector<std::uint32_t> counted_from(std::uint32_t first) {
    std::vector<std::uint32_t> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

void check_device_properties(const device::cuda&) {
    CHECK(device::device_count() >= 1);
    CHECK_NOTHROW(device::require_device());
    const device::device_properties p = device::properties_of(device::current_device());
    CHECK_FALSE(p.name.empty());
    CHECK(p.sm >= 80);
    CHECK(p.multiprocessors > 0);
    CHECK(p.clock_hertz > 1e8);
    CHECK(p.l2_bytes > 0);
    CHECK(p.shared_bytes_of_block > 48 * 1024);
    CHECK_THROWS_AS(device::properties_of(device::device_count()), device_error);
    CHECK(cudaGetLastError() == cudaSuccess);
}

/// One stream waits for what another one does, without the host.
void check_events_order_streams(const device::cuda& where) {
    const device::stream other;
    auto first = tests::to_device(where, counted_from(1));
    auto second = tests::poisoned<std::uint32_t>(where, count);
    auto third = tests::poisoned<std::uint32_t>(where, count);
    for (int repetition = 0; repetition < 5; ++repetition) {
        device::event half;
        where.launch(increment_late{first.data(), second.data(), long_delay()}, {blocks});
        half.record(where);
        device::wait_for(other.where(), half);
        other.where().launch(increment_late{second.data(), third.data(), 0}, {blocks});
        CHECK(tests::to_host<std::uint32_t>(other.where(), third) == counted_from(3));
        where.fill_zero(second.data(), count);
        where.fill_zero(third.data(), count);
        where.wait();
    }
}

void check_events_pass_and_measure(const device::cuda& where) {
    auto values = tests::to_device(where, counted_from(1));
    device::event start(device::event_use::time);
    device::event end(device::event_use::time);
    CHECK(start.passed());  // never recorded
    start.record(where);
    where.launch(increment_late{values.data(), values.data(), 20 * long_delay()}, {blocks});
    end.record(where);
    CHECK_FALSE(end.passed());  // some ten milliseconds of work, and nobody waited
    end.wait();
    CHECK(end.passed());
    const double microseconds = device::microseconds_between(start, end);
    CHECK(microseconds > 100);
    CHECK(microseconds < 1e7);
    device::event moved = std::move(end);
    CHECK(moved.passed());
    CHECK(cudaGetLastError() == cudaSuccess);
}

void check_pinned_copies_return_at_once(const device::cuda& where) {
    device::pinned_buffer<std::uint32_t> from(count);
    device::pinned_buffer<std::uint32_t> to(count);
    std::iota(from.begin(), from.end(), 7U);
    auto a = tests::poisoned<std::uint32_t>(where, count);
    auto b = tests::poisoned<std::uint32_t>(where, count);
    device::event done;
    where.upload(std::span<const std::uint32_t>(from.data(), count), a.data());
    where.launch(increment_late{a.data(), b.data(), 20 * long_delay()}, {blocks});
    where.download(b.data(), to.span());
    done.record(where);
    CHECK_FALSE(done.passed());  // the host is here while the kernel still runs
    where.wait();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
        wrong += to[i] != i + 8;
    }
    CHECK(wrong == 0);
}

void check_graph_repeats_what_was_recorded(const device::cuda& where) {
    auto values = tests::to_device(where, std::vector<std::uint32_t>(count, 5));
    std::size_t launches = 0;
    const device::cuda counting{where.stream, &launches};
    const device::graph three = device::capture(counting, [&](const device::cuda& recorded) {
        for (int i = 0; i < 3; ++i) {
            recorded.launch(increment_late{values.data(), values.data(), 0}, {blocks});
        }
    });
    CHECK(three.kernels() == 3);
    CHECK(launches == 0);
    CHECK(tests::to_host<std::uint32_t>(where, values) == std::vector<std::uint32_t>(count, 5));
    three.launch(counting);
    three.launch(counting);
    CHECK(launches == 2);
    CHECK(tests::to_host<std::uint32_t>(where, values) == std::vector<std::uint32_t>(count, 11));
    const device::stream other;
    three.launch(other.where());
    CHECK(tests::to_host<std::uint32_t>(other.where(), values) == std::vector<std::uint32_t>(count, 14));
}

/// Kernels that run for the first time while a graph is recorded, with more shared memory than usual.
void check_graph_prepares_kernels(const device::cuda& where) {
    constexpr int threads = 512;
    constexpr int shared_values = 20001;  // a size that no other check has
    std::vector<std::uint64_t> values(threads);
    std::iota(values.begin(), values.end(), std::uint64_t{1});
    const auto from = tests::to_device(where, values);
    auto to = tests::poisoned<std::uint64_t>(where, threads);
    const device::graph recorded = device::capture(where, [&](const device::cuda& w) {
        w.launch(tests::reverse_each_block<threads, shared_values>{from.data(), to.data()}, {1});
    });
    recorded.launch(where);
    const std::vector<std::uint64_t> got = tests::to_host<std::uint64_t>(where, to);
    CHECK(got[0] == values[threads - 1] + (values[0] << 32));
    CHECK(got[threads - 1] == values[0] + (values[threads - 1] << 32));
}

void check_graph_copies_pinned_memory_when_it_runs(const device::cuda& where) {
    device::pinned_buffer<std::uint32_t> host(count);
    auto device = tests::poisoned<std::uint32_t>(where, count);
    const device::graph recorded = device::capture(where, [&](const device::cuda& w) {
        w.upload(std::span<const std::uint32_t>(host.data(), count), device.data());
        w.launch(increment_late{device.data(), device.data(), 0}, {blocks});
        w.download(device.data(), host.span());
    });
    for (std::uint32_t first : {0U, 1000U}) {
        std::iota(host.begin(), host.end(), first);
        recorded.launch(where);
        where.wait();
        CHECK(host[0] == first + 1);
        CHECK(host[count - 1] == first + count);
    }
}

void check_failed_recordings_leave_the_stream_usable(const device::cuda& where) {
    auto values = tests::to_device(where, std::vector<std::uint32_t>(count, 5));
    CHECK_THROWS_AS(device::capture(device::cuda{}, [](const device::cuda&) {}), parameter_error);
    CHECK_THROWS_WITH_AS(
        device::capture(where,
                        [&](const device::cuda& w) {
                            w.launch(increment_late{values.data(), values.data(), 0}, {blocks});
                            throw std::runtime_error("half way");
                        }),
        "half way", std::runtime_error);
    // Waiting for a stream that records is an error, and spoils the recording.
    CHECK_THROWS_AS(device::capture(where, [&](const device::cuda& w) { w.wait(); }), device_error);
    CHECK_THROWS_AS(device::capture(where,
                                    [&](const device::cuda& w) {
                                        try {
                                            w.wait();
                                        } catch (const device_error&) {
                                        }
                                    }),
                    device_error);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(tests::to_host<std::uint32_t>(where, values) == std::vector<std::uint32_t>(count, 5));
    where.launch(increment_late{values.data(), values.data(), 0}, {blocks});
    CHECK(tests::to_host<std::uint32_t>(where, values) == std::vector<std::uint32_t>(count, 6));
}

void check_graph_cache_records_each_shape_once(const device::cuda& where) {
    auto values = tests::to_device(where, std::vector<std::uint32_t>(count, 0));
    device::graph_cache<int> cache(2);
    const auto run = [&](int times) {
        cache.run(where, times, [&](const device::cuda& w) {
            for (int i = 0; i < times; ++i) {
                w.launch(increment_late{values.data(), values.data(), 0}, {blocks});
            }
        });
    };
    run(1);
    run(2);
    run(1);
    CHECK(cache.recordings() == 2);
    run(4);  // pushes out 2, which was used before 1
    CHECK(cache.recordings() == 3);
    run(1);
    CHECK(cache.recordings() == 3);
    run(2);
    CHECK(cache.recordings() == 4);
    CHECK(cache.size() == 2);
    CHECK(tests::to_host<std::uint32_t>(where, values) ==
          std::vector<std::uint32_t>(count, 1 + 2 + 1 + 4 + 1 + 2));
    CHECK_THROWS_AS(cache.run(where, 9, [](const device::cuda&) { throw std::runtime_error("no"); }),
                    std::runtime_error);
    CHECK(cache.size() == 2);
    CHECK_THROWS_AS(device::graph_cache<int>(0), parameter_error);
}

/// Results do not depend on it, and the part of the cache is given back.
void check_l2_window(const device::cuda& where) {
    auto values = tests::to_device(where, counted_from(1));
    auto to = tests::poisoned<std::uint32_t>(where, count);
    std::size_t before = 0;
    device::check_cuda(cudaDeviceGetLimit(&before, cudaLimitPersistingL2CacheSize), "limit");
    {
        const device::l2_window window(where, values.data(), values.size() * sizeof(std::uint32_t));
        MESSAGE("the L2 window is ", window.active() ? "active" : "not active");
        const device::graph recorded = device::capture(where, [&](const device::cuda& w) {
            w.launch(increment_late{values.data(), to.data(), 0}, {blocks});
        });
        recorded.launch(where);
        where.launch(increment_late{to.data(), values.data(), 0}, {blocks});
        CHECK(tests::to_host<std::uint32_t>(where, values) == counted_from(3));
    }
    std::size_t after = 0;
    device::check_cuda(cudaDeviceGetLimit(&after, cudaLimitPersistingL2CacheSize), "limit");
    CHECK(after == before);
    const device::l2_window unwanted(where, values.data(), count, false);
    CHECK_FALSE(unwanted.active());
    const device::l2_window empty(where, values.data(), 0);
    CHECK_FALSE(empty.active());
    CHECK(cudaGetLastError() == cudaSuccess);
}

/// All that a block may have on the larger of our GPUs; the smaller one refuses it.
void check_most_shared_memory(const device::cuda& where) {
    constexpr int values = 227 * 1024 / 8;
    if (device::properties_of(device::current_device()).shared_bytes_of_block >= 227 * 1024) {
        tests::check_reversal<1024, values>(where);
    } else {
        CHECK_THROWS_AS((tests::check_reversal<1024, values>(where)), device_error);
        CHECK(cudaGetLastError() == cudaSuccess);
    }
}

/// Several threads use one kernel for the first time.
void check_threads_prepare_a_kernel_together(const device::cuda&) {
    constexpr int threads = 64;
    constexpr int shared_values = 20003;  // a size that no other check has
    std::atomic<int> right{0};
    std::vector<std::thread> pool;
    for (int i = 0; i < 4; ++i) {
        pool.emplace_back([&] {
            try {
                const device::stream own;
                const device::cuda where = own.where();
                std::vector<std::uint64_t> values(threads);
                std::iota(values.begin(), values.end(), std::uint64_t{1});
                const auto from = tests::to_device(where, values);
                auto to = tests::poisoned<std::uint64_t>(where, threads);
                where.launch(tests::reverse_each_block<threads, shared_values>{from.data(), to.data()}, {1});
                const std::vector<std::uint64_t> got = tests::to_host<std::uint64_t>(where, to);
                right += got[0] == threads + (std::uint64_t{1} << 32) ? 1 : 0;
            } catch (const device_error& e) {
                std::printf("  a thread: %s\n", e.what());
            }
        });
    }
    for (std::thread& t : pool) {
        t.join();
    }
    CHECK(right == 4);
}

/// Bad launches are reported where they happen, and not again later.
void check_errors_are_reported_once(const device::cuda& where) {
    CHECK_THROWS_AS(where.launch(tests::write_block_index{{}, nullptr}, {1, 65536, 1}), device_error);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK_THROWS_AS(device::device_buffer<std::uint8_t>(std::size_t{1} << 50), device_error);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK_NOTHROW(where.wait());
}

/// Zeros, whatever other streams do to the memory until then.
void check_secrets_are_wiped(const device::cuda& where) {
    auto values = tests::to_device(where, std::vector<std::uint32_t>(count, 5));
    where.launch(increment_late{values.data(), values.data(), 5 * long_delay()}, {blocks});
    device::device_space::wipe(values.data(), count * sizeof(std::uint32_t));
    CHECK(tests::to_host<std::uint32_t>(where, values) == std::vector<std::uint32_t>(count, 0));
}

}  // namespace

DEVICE_CHECK(check_device_properties(where))
DEVICE_CHECK(check_events_order_streams(where))
DEVICE_CHECK(check_events_pass_and_measure(where))
DEVICE_CHECK(check_pinned_copies_return_at_once(where))
DEVICE_CHECK(check_graph_repeats_what_was_recorded(where))
DEVICE_CHECK(check_graph_prepares_kernels(where))
DEVICE_CHECK(check_graph_copies_pinned_memory_when_it_runs(where))
DEVICE_CHECK(check_failed_recordings_leave_the_stream_usable(where))
DEVICE_CHECK(check_graph_cache_records_each_shape_once(where))
DEVICE_CHECK(check_l2_window(where))
DEVICE_CHECK(check_most_shared_memory(where))
DEVICE_CHECK(check_threads_prepare_a_kernel_together(where))
DEVICE_CHECK(check_errors_are_reported_once(where))
DEVICE_CHECK(check_secrets_are_wiped(where))
