#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/device/exec/context.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::exec {

/// In which order the threads of a block, and the blocks of a launch, take their turn on the host.
enum class thread_order { forward, reverse, shuffled };

namespace detail {

/// What garbage looks like on the host.
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

/// The context of one block on the host: its threads take turns, phase by phase.
template <class Kernel>
class host_block {
  public:
    using shared_type = typename Kernel::shared_type;

    host_block(block_index index, shared_type& shared, detail::turns& turns)
        : index_(index), shared_(shared), turns_(turns) {}
    host_block(const host_block&) = delete;
    host_block& operator=(const host_block&) = delete;

    block_index block() const noexcept { return index_; }
    shared_type& shared() const noexcept { return shared_; }

    template <class Phase>
    void each(Phase&& phase) {
        if (finished_) {
            throw error(
                "exec::host_blocks: a phase after ctx.last: on a GPU there is no barrier between them");
        }
        for (const std::size_t t : turns_.next()) {
            phase(static_cast<int>(t));
        }
    }
    template <class Phase>
    void last(Phase&& phase) {
        each(std::forward<Phase>(phase));
        finished_ = true;
    }

    /// One T for each thread.
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
    block_index index_;
    shared_type& shared_;
    detail::turns& turns_;
    bool finished_ = false;
};

/// Runs block kernels on the calling thread, block by block, on ordinary memory: for tests, and to step
/// through device code in a debugger. Slow. Thread orders and poisoned memory bring out missing barriers,
/// races within a phase and reads of what was never written: run all three orders, as some races show in one
/// of them only. What a GPU would refuse is refused here.
///
/// A plain value; thread-safe for disjoint data.
class host_blocks {
  public:
    using space = memory::host_space;
    using staging_space = memory::host_space;  ///< host memory that uploads come from

    /// @param launches  counts the launches, if given; outlives this
    explicit host_blocks(thread_order order = thread_order::forward, std::size_t* launches = nullptr) noexcept
        : order_(order), launches_(launches) {}

    template <block_kernel Kernel>
    void launch(const Kernel& kernel, grid_shape grid) const {
        using shared_type = typename Kernel::shared_type;
        static_assert(std::is_trivially_copyable_v<shared_type>,
                      "block kernel: shared memory is not constructed");
        // What a GPU would refuse.
        static_assert(Kernel::threads % 32 == 0 && Kernel::threads >= 32 && Kernel::threads <= 1024,
                      "block kernel: a block has whole warps, and at most 1024 threads");
        static_assert(sizeof(shared_type) <= 227 * 1024,
                      "block kernel: a block has at most 227 KiB of shared memory");
        if (grid.x > 0x7fffffffU || grid.y > 65535 || grid.z > 65535) {
            throw parameter_error("exec::host_blocks: got a grid of " + std::to_string(grid.x) + " x " +
                                  std::to_string(grid.y) + " x " + std::to_string(grid.z) +
                                  " blocks, expected at most 2^31 - 1 x 65535 x 65535");
        }
        if (launches_ != nullptr) {
            ++*launches_;
        }
        const std::size_t count = std::size_t{grid.x} * grid.y * grid.z;
        detail::turns blocks(count, order_);
        detail::turns threads(static_cast<std::size_t>(Kernel::threads), order_);
        // Of exactly this size, so that address sanitizers see what is beyond.
        constexpr std::align_val_t alignment{64};
        void* const memory = ::operator new(sizeof(shared_type), alignment);
        const auto release = [](void* p) { ::operator delete (p, std::align_val_t{64}); };
        struct guard {
            void* memory;
            void (*release)(void*);
            ~guard() { release(memory); }
        } const owner{memory, +release};
        for (const std::size_t b : blocks.next()) {
            std::memset(memory, detail::poison, sizeof(shared_type));
            const block_index index{static_cast<std::uint32_t>(b % grid.x),
                                    static_cast<std::uint32_t>(b / grid.x % grid.y),
                                    static_cast<std::uint32_t>(b / grid.x / grid.y)};
            host_block<Kernel> context(index, *static_cast<shared_type*>(memory), threads);
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
    /// From one place of the space to another.
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

static_assert(block_execution<host_blocks>);

}  // namespace tensafe::exec
