#pragma once

#include <tensafe/core/macros.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::memory {
struct host_space;
struct device_space;
}  // namespace tensafe::memory

namespace tensafe::exec {

/// How many blocks a launch has; a block's own place among them.
struct grid_shape {
    std::uint32_t x = 1;
    std::uint32_t y = 1;
    std::uint32_t z = 1;
};
struct block_index {
    std::uint32_t x = 0;
    std::uint32_t y = 0;
    std::uint32_t z = 0;
};

/// The shared memory of a kernel that needs none.
struct no_shared {};

// A block algorithm, here called a kernel, is a trivially copyable struct: its members are the arguments of a
// launch, and
//
//     static constexpr int threads;        // of a block
//     using shared_type = ...;             // a trivial struct, or no_shared
//     template <class Context>
//     TENSAFE_HOST_DEVICE void operator()(Context& ctx) const;
//
// does the work of one block. The same source runs on a GPU, where it compiles to what a hand-written kernel
// would, and on the host, block by block, which is how it is tested. Its rules:
//
// - All code for single threads stands in ctx.each([&](int t) {...}), or ctx.last for the last phase of the
//   kernel. `each` ends with a barrier: what one phase wrote to shared memory, the next may read. Within a
//   phase no thread reads what another one writes.
// - What a thread keeps from one phase to the next is in `auto r = ctx.template make_private<T>()`, used as
//   r[t]; T is trivial. Local variables of the kernel itself must be the same for all threads.
// - No control flow outside of a phase depends on t; it may depend on ctx.block().
// - Shared memory and private values are garbage at first; on the host they are filled with 0xA5.
// - Blocks run in any order and share nothing but what atomics of the context touch.

/// Where a block algorithm finds itself: what a kernel may call. exec::cuda_block is the GPU's,
/// exec::host_block the host's.
template <class C>
concept block_context = requires(C& ctx, void (*phase)(int), std::uint32_t* number, std::uint32_t value) {
    { ctx.block() } -> std::same_as<block_index>;
    ctx.shared();
    ctx.each(phase);
    ctx.last(phase);
    ctx.template make_private<int>();
    ctx.atomic_or(number, value);
};

/// What every block kernel has, whatever the context.
template <class K>
concept block_kernel = std::is_trivially_copyable_v<K> && requires {
    { K::threads } -> std::convertible_to<int>;
    typename K::shared_type;
};

/// Where block kernels run: exec::cuda{stream}, or exec::host_blocks for tests and machines without a GPU.
/// Memory that kernels work on is memory::buffer<T, typename Where::space>. All calls return at once and take
/// effect in order; `wait` returns when everything is done. Kernels get plain pointers into that memory.
template <class Where>
concept block_execution = requires(const Where& where, std::span<const int> from, std::span<int> to,
                                   const int* device_from, int* device_to) {
    typename Where::space;
    where.upload(from, device_to);
    where.download(device_from, to);
    where.fill_zero(device_to, std::size_t{1});
    where.wait();
};

/// Blocks that cover `count` items.
constexpr std::uint32_t blocks_for(std::size_t count, std::size_t items_per_block) noexcept {
    return static_cast<std::uint32_t>((count + items_per_block - 1) / items_per_block);
}

}  // namespace tensafe::exec
