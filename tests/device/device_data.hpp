#pragma once

// For tests of kernels that run on the host and on a GPU: the same test body, another `where`. Also the part
// of the standard library that they use.

#include <tensafe/arith/word.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <memory>

#include "../random_numbers.hpp"

namespace tests {

using namespace tensafe;
using arith::word;
using device::host_blocks;
using device::thread_order;

/// Calls f(where) for each order in which the host may take the threads of a block.
void in_every_order(auto&& f) {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        f(host_blocks(order));
    }
}

/// Calls f(k) for each k < count, one number to a thread.
template <class F>
struct number_kernel {
    static constexpr int threads = 64;
    using shared_type = device::no_shared;

    F f;
    std::uint32_t count;

    TENSAFE_HOST_DEVICE void operator()(auto& ctx) const {
        ctx.last([&](int t) {
            const std::uint32_t k = ctx.block().x * threads + static_cast<std::uint32_t>(t);
            if (k < count) {
                f(k);
            }
        });
    }
};
template <class Where, class F>
void for_each_number(const Where& where, std::size_t count, const F& f) {
    where.launch(number_kernel<F>{f, static_cast<std::uint32_t>(count)}, {device::blocks_for(count, 64)});
}

template <class T, class Where>
using device_buffer = memory::buffer<T, typename Where::space>;

template <class T, class Where>
device_buffer<T, Where> to_device(const Where& where, const std::vector<T>& values) {
    return device::uploaded(where, values);
}

/// Room for results, filled with bytes that no result should show.
template <class T, class Where>
device_buffer<T, Where> poisoned(const Where& where, std::size_t size) {
    std::vector<T> garbage(size);
    std::memset(static_cast<void*>(garbage.data()), 0xA5, size * sizeof(T));
    return to_device(where, garbage);
}

template <class T, class Where>
std::vector<T> to_host(const Where& where, const memory::buffer<T, typename Where::space>& values) {
    std::vector<T> result(values.size());
    where.download(values.data(), std::span<T>(result));
    where.wait();
    return result;
}

/// Does what is enqueued at once, where another may record and replay it: run(where, key, f) does f(where),
/// or what f enqueued for an equal key before.
struct run_directly {
    template <class Where, class F>
    void operator()(const Where& where, std::size_t, F&& f) const {
        f(where);
    }
};

}  // namespace tests
