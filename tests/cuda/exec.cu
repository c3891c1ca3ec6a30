// Streams, events, graphs and windows, and one kernel of each kind that a launch tells apart.
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/stream.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace {

using namespace tensafe;

/// Reverses the values of each block, through shared memory.
template <int Threads, int Values>
struct reverse_blocks {
    static constexpr int threads = Threads;
    struct shared_type {
        std::uint64_t values[Values];
    };
    const std::uint64_t* from;
    std::uint64_t* to;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        auto& values = ctx.shared().values;
        const std::size_t first = std::size_t{ctx.block().x} * Threads;
        ctx.each([&](int t) { values[t] = from[first + static_cast<std::size_t>(t)]; });
        ctx.last([&](int t) { to[first + static_cast<std::size_t>(t)] = values[Threads - 1 - t]; });
    }
};

/// Without shared memory, with a wish for many blocks.
struct increment {
    static constexpr int threads = 256;
    static constexpr int blocks_per_sm = 8;
    using shared_type = device::no_shared;
    std::uint32_t* count;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            if (t == 0) {
                ctx.atomic_or(count, 1U);
            }
        });
    }
};

template <class T>
constexpr bool moves_only =
    std::is_nothrow_move_constructible_v<T>&& std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && std::is_nothrow_destructible_v<T>;
static_assert(moves_only<device::stream> && moves_only<device::event> && moves_only<device::graph>);
static_assert(moves_only<device::graph_cache<int>>);
static_assert(!std::is_move_constructible_v<device::l2_window> &&
              std::is_nothrow_destructible_v<device::l2_window>);

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void use_the_runtime(std::uint64_t* values, std::uint32_t* count);
void use_the_runtime(std::uint64_t* values, std::uint32_t* count) {
    const device::stream first;
    const device::stream second;
    const device::cuda where = first.where();
    const device::l2_window window(where, values, 4096);
    device::event done(device::event_use::time);
    done.record(where);
    device::wait_for(second.where(), done);
    device::graph_cache<std::size_t> graphs;
    graphs.run(where, 1, [&](const device::cuda& recorded) {
        recorded.launch(reverse_blocks<256, 256>{values, values + 256}, {1});
        recorded.launch(reverse_blocks<1024, 8192>{values, values + 8192}, {1});  // more than 48 KiB
        recorded.launch(increment{count}, {1});
    });
    where.wait();
}
