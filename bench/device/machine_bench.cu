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

struct alignas(16) pair {
    std::uint64_t first;
    std::uint64_t second;
};

/// Reads and writes 16 bytes a thread.
struct copy_words {
    static constexpr int threads = 256;
    using shared_type = tensafe::device::no_shared;
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

/// Reads 16 bytes a thread, several times: each time what another block read before, so that L1 does not have
/// it.
struct read_words {
    static constexpr int threads = 256;
    static constexpr std::uint32_t times = 16;
    using shared_type = tensafe::device::no_shared;
    const pair* from;
    pair* to;
    std::uint32_t blocks;  ///< a power of two

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            std::uint64_t all = 0;
            for (std::uint32_t k = 0; k < times; ++k) {
                const std::uint32_t block = (ctx.block().x + k * (blocks / times)) & (blocks - 1);
                const pair p = from[std::size_t{block} * threads + static_cast<std::size_t>(t)];
                all += p.first ^ p.second;
            }
            if (all == 1) {
                to->first = all;
            }
        });
    }
};

/// Chains of one operation in each thread, as in machine_limits.cuh. Each takes its neighbour's value, too:
/// no compiler sums up its rounds.
template <class Operation>
struct chains_of {
    static constexpr int threads = 256;
    using shared_type = tensafe::device::no_shared;
    using word = typename Operation::word;
    word factor;
    word* out;

    template <class Context>
    __device__ void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            constexpr int chains = bench::detail::chains;
            word x[chains];
            for (int c = 0; c < chains; ++c) {
                x[c] = factor * (ctx.block().x + static_cast<word>(t * chains + c));
            }
            for (int r = 0; r < bench::detail::rounds; ++r) {
                for (int c = 0; c < chains; ++c) {
                    x[c] = Operation::of(x[c], x[(c + 1) % chains], factor, c);
                }
            }
            word all = 0;
            for (int c = 0; c < chains; ++c) {
                all ^= x[c];
            }
            if (all == factor) {
                *out = all;
            }
        });
    }
};

struct add {
    using word = std::uint32_t;
    static __device__ word of(word x, word y, word, int) { return x + y; }
};
struct choose_bits {
    using word = std::uint32_t;
    static __device__ word of(word x, word y, word f, int) { return (x & y) | (~x & f); }
};
struct funnel_shift {
    using word = std::uint32_t;
    static __device__ word of(word x, word y, word, int) { return __funnelshift_l(y, x, 7); }
};
struct high_word {
    using word = std::uint32_t;
    static __device__ word of(word x, word, word f, int) { return __umulhi(x, f); }
};
struct wide_multiply_add {
    using word = std::uint64_t;
    static __device__ word of(word x, word y, word f, int) {
        word result;
        asm("mad.wide.u32 %0, %1, %2, %3;"
            : "=l"(result)
            : "r"(static_cast<std::uint32_t>(x)), "r"(static_cast<std::uint32_t>(f)), "l"(y));
        return result;
    }
};
/// Half of the chains do one, half the other.
struct add_beside_multiply_add {
    using word = std::uint32_t;
    static __device__ word of(word x, word y, word f, int chain) {
        return chain % 2 == 0 ? x + y : x * f + y;
    }
};

template <class Operation>
void measure(const tensafe::device::cuda& where, bench::table& results, const std::string& name) {
    const auto device = tensafe::device::properties_of(tensafe::device::current_device());
    const auto blocks = static_cast<std::uint32_t>(device.multiprocessors * 64);
    bench::device::device_buffer<typename Operation::word> out(1);
    const chains_of<Operation> kernel{0xfffff123U, out.data()};
    const double seconds = bench::detail::best_seconds(where, [&] { where.launch(kernel, {blocks}); });
    const double operations = 256.0 * blocks * bench::detail::chains * bench::detail::rounds;
    results.report("machine/" + name + "/1e12", 1e6 * 1e12 * seconds / operations);
}

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
            bench::device::device_buffer<pair> from(bytes / sizeof(pair));
            bench::device::device_buffer<pair> to(bytes / sizeof(pair));
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
                "machine/read_kernel/8MiB_in_the_cache_16_times",
                bench::median_microseconds(where,
                                           [&] {
                                               where.launch(read_words{from.data(), to.data(), few}, {few});
                                           }),
                static_cast<double>(bytes) / 64 * read_words::times);
            results.report(
                "machine/copy_kernel/16MiB_in_the_cache",
                bench::median_microseconds(where,
                                           [&] {
                                               where.launch(copy_words{from.data(), to.data()}, {few});
                                           }),
                2.0 * static_cast<double>(bytes) / 64);
        }

        measure<add>(where, results, "int32_add");
        measure<choose_bits>(where, results, "int32_logic");
        measure<funnel_shift>(where, results, "int32_shift");
        measure<high_word>(where, results, "int32_high_word");
        measure<wide_multiply_add>(where, results, "int32_wide_multiply_add");
        measure<add_beside_multiply_add>(where, results, "int32_add_beside_multiply_add");

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
