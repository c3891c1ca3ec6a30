#pragma once

// What the GPU at hand can do at most, measured: how many bytes it copies a second, how many multiply-adds it
// does. Other figures are given as shares of these.

#include <tensafe/arith/word.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/stream.cuh>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace bench {

/// All a second.
struct machine_limits {
    double copy_bytes = 0;          ///< from one place in its memory to another: bytes read and bytes written
    double int_multiply_adds = 0;   ///< of 32 bits
    double mul_hi = 0;              ///< upper words of products of 64 bits
    double fp64_multiply_adds = 0;  ///< of doubles
};

namespace detail {

/// Independent chains in each thread: more than enough to hide how long one operation takes.
inline constexpr int chains = 8;
inline constexpr int rounds = 512;

// The operands come as arguments, so that the compiler cannot know the results; a value that never occurs
// makes a store.

struct int_chains {
    static constexpr int threads = 256;
    using shared_type = tensafe::device::no_shared;
    std::uint32_t factor;
    std::uint32_t addend;
    std::uint32_t* out;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            std::uint32_t x[chains];
            for (int c = 0; c < chains; ++c) {
                x[c] = ctx.block().x + static_cast<std::uint32_t>(t * chains + c);
            }
            for (int r = 0; r < rounds; ++r) {
                for (int c = 0; c < chains; ++c) {
                    x[c] = x[c] * factor + addend;
                }
            }
            std::uint32_t all = 0;
            for (int c = 0; c < chains; ++c) {
                all ^= x[c];
            }
            if (all == factor) {
                *out = all;
            }
        });
    }
};

struct mul_hi_chains {
    static constexpr int threads = 256;
    using shared_type = tensafe::device::no_shared;
    std::uint64_t factor;
    std::uint64_t* out;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            std::uint64_t x[chains];
            for (int c = 0; c < chains; ++c) {
                x[c] = ~(std::uint64_t{ctx.block().x} << 20) - static_cast<std::uint64_t>(t * chains + c);
            }
            for (int r = 0; r < rounds; ++r) {
                for (int c = 0; c < chains; ++c) {
                    x[c] = tensafe::arith::mul_hi(x[c], factor);
                }
            }
            std::uint64_t all = 0;
            for (int c = 0; c < chains; ++c) {
                all ^= x[c];
            }
            if (all == factor) {
                *out = all;
            }
        });
    }
};

struct fp64_chains {
    static constexpr int threads = 256;
    using shared_type = tensafe::device::no_shared;
    double factor;
    double addend;
    double* out;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            double x[chains];
            for (int c = 0; c < chains; ++c) {
                x[c] = static_cast<double>(t * chains + c);
            }
            for (int r = 0; r < rounds; ++r) {
                for (int c = 0; c < chains; ++c) {
                    x[c] = std::fma(x[c], factor, addend);
                }
            }
            double all = 0;
            for (int c = 0; c < chains; ++c) {
                all += x[c];
            }
            if (all == factor) {
                *out = all;
            }
        });
    }
};

/// Seconds of the best of five runs, after one to warm up: a limit is what the machine can do.
template <class F>
double best_seconds(const tensafe::device::cuda& where, F&& f) {
    tensafe::device::event start(tensafe::device::event_use::time);
    tensafe::device::event end(tensafe::device::event_use::time);
    double best = 1e9;
    for (int i = 0; i < 6; ++i) {
        start.record(where);
        f();
        end.record(where);
        end.wait();
        if (i > 0) {
            best = std::min(best, 1e-6 * tensafe::device::microseconds_between(start, end));
        }
    }
    return best;
}

}  // namespace detail

/// Takes some tens of milliseconds and, for that long, 1 GiB of the GPU's memory.
/// @throws device_error
inline machine_limits measure_limits(const tensafe::device::cuda& where) {
    using tensafe::memory::uninitialized;
    const auto device = tensafe::device::properties_of(tensafe::device::current_device());
    machine_limits limits;
    {
        const std::size_t bytes = std::size_t{512} << 20;  // many times the L2 cache
        tensafe::device::device_buffer<std::uint8_t> from(bytes);
        tensafe::device::device_buffer<std::uint8_t> to(bytes, uninitialized);
        const double seconds =
            detail::best_seconds(where, [&] { where.copy(from.data(), to.data(), bytes); });
        limits.copy_bytes = 2.0 * static_cast<double>(bytes) / seconds;
    }
    tensafe::device::device_buffer<std::uint64_t> out(1);
    // Blocks of 256 threads, eight at a time on each multiprocessor, several times over.
    const auto blocks = static_cast<std::uint32_t>(device.multiprocessors * 64);
    const double operations = 256.0 * blocks * detail::chains * detail::rounds;
    limits.int_multiply_adds =
        operations / detail::best_seconds(where, [&] {
            where.launch(
                detail::int_chains{1664525U, 1013904223U, reinterpret_cast<std::uint32_t*>(out.data())},
                {blocks});
        });
    limits.mul_hi = operations / detail::best_seconds(where, [&] {
                        where.launch(detail::mul_hi_chains{0xfffffffffffffabcU, out.data()}, {blocks});
                    });
    limits.fp64_multiply_adds =
        operations / detail::best_seconds(where, [&] {
            where.launch(detail::fp64_chains{0.999, 1e-3, reinterpret_cast<double*>(out.data())}, {blocks});
        });
    where.wait();
    return limits;
}

}  // namespace bench
