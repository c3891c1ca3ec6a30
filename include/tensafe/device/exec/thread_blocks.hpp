#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/memory/buffer.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::device {

using arith::word;

/// The number of thread blocks of a launch; a thread block's own place among them.
struct grid_shape {
    std::uint32_t x = 1;
    std::uint32_t y = 1;
    std::uint32_t z = 1;
};
struct thread_block_index {
    std::uint32_t x = 0;
    std::uint32_t y = 0;
    std::uint32_t z = 0;
};

/// The shared memory of a kernel that needs none.
struct no_shared {};

// A kernel is a trivially copyable struct: its members are the arguments of a launch, and
//
//     static constexpr int threads;        // of a thread block
//     using shared_type = ...;             // a trivial struct, or no_shared
//     template <class Context>
//     TENSAFE_HOST_DEVICE void operator()(Context& ctx) const;
//
// does the work of one thread block, on a GPU, or on the host, block by block, for tests. Its rules:
//
// - All code for single threads stands in ctx.each([&](int t) {...}), or ctx.last for the last phase of the
//   kernel. `each` ends with a barrier: what one phase wrote to shared memory, the next may read. Within a
//   phase no thread reads what another one writes.
// - What a thread keeps from one phase to the next is in `auto r = ctx.template make_private<T>()`, used as
//   r[t]; T is trivial. Local variables of the kernel itself must be the same for all threads.
// - No control flow outside of a phase depends on t; it may depend on ctx.block().
// - Shared memory and private values are garbage at first; on the host they are filled with 0xA5.
// - Thread blocks run in any order and share nothing but what atomics of the context touch.

/// The context of a thread block, with what a kernel may call. device::cuda_thread_block is the GPU's,
/// device::host_thread_block the host's.
template <class C>
concept context = requires(C& ctx, void (*phase)(int), std::uint32_t* number, std::uint32_t value) {
    { ctx.block() } -> std::same_as<thread_block_index>;
    ctx.shared();
    ctx.each(phase);
    ctx.last(phase);
    ctx.template make_private<int>();
    ctx.atomic_or(number, value);
};

/// The members that every kernel has, whatever the context.
template <class K>
concept kernel = std::is_trivially_copyable_v<K> && requires {
    { K::threads } -> std::convertible_to<int>;
    typename K::shared_type;
};

/// A place where kernels run: device::cuda{stream}, or device::host_blocks. Kernels get plain pointers into
/// memory::buffer<T, typename Where::space>. All calls return at once and take effect in order; `wait`
/// returns when everything is done.
template <class Where>
concept execution = requires(const Where& where, std::span<const int> from, std::span<int> to,
                             const int* device_from, int* device_to) {
    typename Where::space;
    where.upload(from, device_to);
    where.download(device_from, to);
    where.fill_zero(device_to, std::size_t{1});
    where.wait();
};

/// Copies a table to where kernels run, and waits until it is there.
template <class T, execution Where>
memory::buffer<T, typename Where::space> uploaded(const Where& where, const std::vector<T>& values) {
    memory::buffer<T, typename Where::space> result(values.size(), memory::uninitialized);
    where.upload(std::span<const T>(values), result.data());
    where.wait();
    return result;
}

/// The number of thread blocks that cover `count` items.
constexpr std::uint32_t blocks_for(std::size_t count, std::size_t items_per_block) noexcept {
    return static_cast<std::uint32_t>((count + items_per_block - 1) / items_per_block);
}

/// Two neighbouring words, the unit in which kernels touch memory.
struct alignas(16) word_pair {
    word first;
    word second;
};
/// Loads two neighbouring words.  @pre `words` is 16-byte aligned
TENSAFE_HD_INLINE word_pair load_pair(const word* words) noexcept {
    return *reinterpret_cast<const word_pair*>(words);
}
/// Stores a pair in memory of the device; in shared memory pairs are assigned.  @pre `words` is 16-byte
/// aligned
TENSAFE_HD_INLINE void store_pair(word* words, word_pair values) noexcept {
    arith::store_two(words, values.first, values.second);
}

/// The number of limb I of a polynomial among those of a stack.
template <class Basis, int I>
TENSAFE_HD_INLINE constexpr std::size_t limb_of(std::size_t polynomial) noexcept {
    return polynomial * std::size_t{Basis::limbs} + std::size_t{I};
}

/// Calls `f.template operator()<I>()` for the I in [First, Count) that equals `index`, the same for all
/// threads of a thread block; nothing for any other index.
template <int Count, int First = 0, class F>
TENSAFE_HD_INLINE constexpr void with_index(int index, F&& f) {
    if constexpr (First < Count) {
        if (index == First) {
            f.template operator()<First>();
        } else {
            with_index<Count, First + 1>(index, f);
        }
    }
}

/// The order of turns on the host, of the threads of a thread block and of the thread blocks of a launch.
enum class thread_order { forward, reverse, shuffled };

namespace detail {

inline constexpr int poison = 0xA5;

/// A permutation of [0, count), another one at each call of `next` if shuffled.
class turns {
  public:
    turns(std::size_t count, thread_order order) : order_(count), kind_(order) {
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        if (kind_ == thread_order::reverse) {
            std::reverse(order_.begin(), order_.end());
        }
    }

    const std::vector<std::size_t>& next() {
        if (kind_ == thread_order::shuffled) {
            for (std::size_t i = order_.size(); i > 1; --i) {
                state_ = state_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX generator
                std::swap(order_[i - 1], order_[static_cast<std::size_t>((state_ >> 33) % i)]);
            }
        }
        return order_;
    }

  private:
    std::vector<std::size_t> order_;
    thread_order kind_;
    std::uint64_t state_ = 20240229;
};

}  // namespace detail

/// The context of one thread block on the host: its threads take turns, phase by phase.
template <class Kernel>
class host_thread_block {
  public:
    using shared_type = typename Kernel::shared_type;

    host_thread_block(thread_block_index index, shared_type& shared, detail::turns& turns)
        : index_(index), shared_(shared), turns_(turns) {}
    host_thread_block(const host_thread_block&) = delete;
    host_thread_block& operator=(const host_thread_block&) = delete;

    thread_block_index block() const noexcept { return index_; }
    shared_type& shared() const noexcept { return shared_; }

    template <class Phase>
    void each(Phase&& phase) {
        require<error>(
            !finished_,
            {"device::host_blocks: a phase after ctx.last: on a GPU there is no barrier between them"});
        for (const std::size_t t : turns_.next()) {
            phase(static_cast<int>(t));
        }
    }
    template <class Phase>
    void last(Phase&& phase) {
        each(std::forward<Phase>(phase));
        finished_ = true;
    }

    /// Registers: one T for each thread.
    template <class T>
    class privates {
        static_assert(std::is_trivially_copyable_v<T>, "make_private: registers hold trivial types only");

      public:
        privates() : values_(static_cast<std::size_t>(Kernel::threads)) {
            std::memset(static_cast<void*>(values_.data()), detail::poison, values_.size() * sizeof(T));
        }
        T& operator[](int t) noexcept {
            TENSAFE_PRECONDITION(t >= 0 && t < Kernel::threads);
            return values_[static_cast<std::size_t>(t)];
        }

      private:
        std::vector<T> values_;
    };
    template <class T>
    privates<T> make_private() const {
        return {};
    }

    template <class T>
    void atomic_or(T* to, T value) const noexcept {
        *to |= value;
    }
    template <class T>
    void atomic_add(T* to, T value) const noexcept {
        *to += value;
    }

  private:
    thread_block_index index_;
    shared_type& shared_;
    detail::turns& turns_;
    bool finished_ = false;
};

/// Runs kernels on the calling thread, one thread block after the other, on ordinary memory: for tests and
/// debuggers. Slow. Thread orders and poisoned memory bring out missing barriers, races within a phase and
/// reads of what was never written, some of them in one order only. What a GPU would refuse is refused here.
///
/// A plain value; thread-safe for disjoint data.
class host_blocks {
  public:
    using space = memory::host_space;
    using staging_space = memory::host_space;  ///< host memory that uploads come from

    /// @param launches  counts the launches, if given; outlives this
    explicit host_blocks(thread_order order = thread_order::forward, std::size_t* launches = nullptr) noexcept
        : order_(order), launches_(launches) {}

    template <kernel Kernel>
    void launch(const Kernel& kernel, grid_shape grid) const {
        using shared_type = typename Kernel::shared_type;
        static_assert(std::is_trivially_copyable_v<shared_type>, "kernel: shared memory is not constructed");
        // What a GPU would refuse.
        static_assert(Kernel::threads % 32 == 0 && Kernel::threads >= 32 && Kernel::threads <= 1024,
                      "kernel: a block has whole warps, and at most 1024 threads");
        static_assert(sizeof(shared_type) <= 227 * 1024,
                      "kernel: a block has at most 227 KiB of shared memory");
        require<parameter_error>(grid.x <= 0x7fffffffU && grid.y <= 65535 && grid.z <= 65535,
                                 {"device::host_blocks: got a grid of ", grid.x, " x ", grid.y, " x ", grid.z,
                                  " blocks, expected at most 2^31 - 1 x 65535 x 65535"});
        if (launches_ != nullptr) {
            ++*launches_;
        }
        const std::size_t count = std::size_t{grid.x} * grid.y * grid.z;
        detail::turns blocks(count, order_);
        detail::turns threads(static_cast<std::size_t>(Kernel::threads), order_);
        // Of exactly this size, so that address sanitizers see what is beyond.
        memory::buffer<unsigned char> shared(sizeof(shared_type), memory::uninitialized);
        for (const std::size_t b : blocks.next()) {
            std::memset(shared.data(), detail::poison, shared.size());
            const thread_block_index index{static_cast<std::uint32_t>(b % grid.x),
                                           static_cast<std::uint32_t>(b / grid.x % grid.y),
                                           static_cast<std::uint32_t>(b / grid.x / grid.y)};
            host_thread_block<Kernel> context(index, *reinterpret_cast<shared_type*>(shared.data()), threads);
            kernel(context);
        }
    }

    template <class T, std::size_t Extent>
    void upload(std::span<const T, Extent> from, T* to) const noexcept {
        std::copy(from.begin(), from.end(), to);
    }
    template <class T, std::size_t Extent>
    void download(const T* from, std::span<T, Extent> to) const noexcept {
        std::copy_n(from, to.size(), to.begin());
    }
    /// Copies from one place of the space to another.
    template <class T>
    void copy(const T* from, T* to, std::size_t count) const noexcept {
        std::copy_n(from, count, to);
    }
    template <class T>
    void fill_zero(T* to, std::size_t count) const noexcept {
        std::memset(static_cast<void*>(to), 0, count * sizeof(T));
    }
    void wait() const noexcept {}

  private:
    thread_order order_;
    std::size_t* launches_;
};

static_assert(execution<host_blocks>);

}  // namespace tensafe::device
