// What the GPU at hand can do at most: bytes, multiply-adds, launches. The rates that other benchmarks are
// measured against, and what one launch costs.

#include <tensafe/device/cuda/cuda.cuh>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "harness.cuh"

namespace {

struct nothing {
    static constexpr int threads = 32;
    using shared_type = tensafe::device::no_shared;
    std::uint32_t* to;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            if (t < 0) {
                *to = 1;
            }
        });
    }
};

/// Reads and writes 16 bytes a thread.
struct copy_words {
    static constexpr int threads = 256;
    using shared_type = tensafe::device::no_shared;
    struct alignas(16) pair {
        std::uint64_t first;
        std::uint64_t second;
    };
    const pair* from;
    pair* to;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            const std::size_t i = std::size_t{ctx.block().x} * threads + static_cast<std::size_t>(t);
            to[i] = from[i];
        });
    }
};

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const tensafe::device::cuda& where, bench::table& results) {
        const auto device = tensafe::device::properties_of(tensafe::device::current_device());
        const bench::machine_limits& limits = results.limits();
        std::printf(
            "%s, sm_%d, %d multiprocessors at %.0f MHz, %.0f MiB of L2, %.0f GB/s to memory by its clock\n",
            device.name.c_str(), device.sm, device.multiprocessors, device.clock_hertz / 1e6,
            static_cast<double>(device.l2_bytes) / (1 << 20), device.peak_memory_rate() / 1e9);
        std::printf(
            "copies %.0f GB/s; a second: %.1f T multiply-adds of 32 bits, %.2f T upper words of products of "
            "64 "
            "bits, %.1f T multiply-adds of doubles\n",
            limits.copy_bytes / 1e9, limits.int_multiply_adds / 1e12, limits.mul_hi / 1e12,
            limits.fp64_multiply_adds / 1e12);

        const std::size_t bytes = std::size_t{512} << 20;
        // As times of a fixed amount, so that they stand in the same table as everything else.
        const double count = 1e12;
        results.report("machine/copy/1GiB_read_and_written",
                       1e6 * 2 * static_cast<double>(bytes) / limits.copy_bytes,
                       2.0 * static_cast<double>(bytes));
        results.report("machine/int32_multiply_add/1e12", 1e6 * count / limits.int_multiply_adds, 0, count);
        results.report("machine/uint64_mul_hi/1e12", 1e6 * count / limits.mul_hi);
        results.report("machine/fp64_multiply_add/1e12", 1e6 * count / limits.fp64_multiply_adds, 0, 0, 0,
                       count);

        {
            bench::device::device_buffer<copy_words::pair> from(bytes / sizeof(copy_words::pair));
            bench::device::device_buffer<copy_words::pair> to(bytes / sizeof(copy_words::pair));
            const auto blocks = tensafe::device::blocks_for(from.size(), copy_words::threads);
            results.report(
                "machine/copy_kernel/1GiB_read_and_written",
                bench::median_microseconds(where,
                                           [&] {
                                               where.launch(copy_words{from.data(), to.data()}, {blocks});
                                           }),
                2.0 * static_cast<double>(bytes));
            // 16 MiB stay in the L2 cache.
            const std::uint32_t few = blocks / 64;
            results.report(
                "machine/copy_kernel/16MiB_in_the_cache",
                bench::median_microseconds(where,
                                           [&] {
                                               where.launch(copy_words{from.data(), to.data()}, {few});
                                           }),
                2.0 * static_cast<double>(bytes) / 64);
        }

        const nothing empty{nullptr};
        results.report("machine/launch/one_after_the_other",
                       bench::median_microseconds(where, [&] { where.launch(empty, {1}); }));
        results.report("machine/launch/and_wait",
                       bench::median_microseconds_of_caller(where, [&] { where.launch(empty, {1}); }));
        for (const int kernels : {1, 12}) {
            const auto recorded = tensafe::device::capture(where, [&](const tensafe::device::cuda& w) {
                for (int i = 0; i < kernels; ++i) {
                    w.launch(empty, {1});
                }
            });
            const std::string name = "machine/graph_of_" + std::to_string(kernels);
            results.report(name + "/one_after_the_other",
                           bench::median_microseconds(where, [&] { recorded.launch(where); }));
            results.report(name + "/and_wait",
                           bench::median_microseconds_of_caller(where, [&] { recorded.launch(where); }));
            where.wait();
        }
    });
}
