#pragma once

#include <tensafe/core/macros.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tensafe::memory {

/// Every buffer on the host is aligned to this many bytes: a cache line, and one AVX-512 register.
inline constexpr std::size_t alignment = 64;

/// Large blocks of memory that were released, for whoever wants one of the same size next. Without it a
/// polynomial's pages come from the system and go back to it with each operation, which can take longer than
/// what is computed in them. Keeps at most 64 MiB unless limit() says otherwise; the oldest blocks leave
/// first. Thread-safe, and never waits: a thread that meets another here does without.
class retained_blocks {
  public:
    static constexpr std::size_t most_bytes = std::size_t{64} << 20;
    static constexpr std::size_t huge_page = std::size_t{2} << 20;
    /// Smaller blocks are the allocator's. With a sanitizer all are, so that it sees what was released.
    static constexpr std::size_t least_bytes =
        TENSAFE_WATCHED_MEMORY ? static_cast<std::size_t>(-1) : std::size_t{64} << 10;

    retained_blocks() = default;
    retained_blocks(const retained_blocks&) = delete;
    retained_blocks& operator=(const retained_blocks&) = delete;
    ~retained_blocks() { clear(); }

    /// The blocks of the process. Lives as long as it does.
    static retained_blocks& shared() {
        static retained_blocks& blocks = *new retained_blocks;
        return blocks;
    }

    /// Keeps at most so many bytes from now on, and gives all back; 0 keeps nothing.
    void limit(std::size_t bytes) noexcept {
        most_.store(bytes, std::memory_order_relaxed);
        clear();
    }

    /// Returns `bytes` bytes, aligned to 64 bytes.  @throws std::bad_alloc
    void* allocate(std::size_t bytes) {
        if (bytes >= least_bytes) {
            if (void* const found = take(bytes)) {
                return found;
            }
        }
        if (bytes > most_of_any) {
            throw std::bad_alloc();
        }
        // The throwing operator, since programs that replace it may leave the others.
        void* made = nullptr;
        try {
            made = ::operator new(bytes, alignment_of(bytes));
        } catch (const std::bad_alloc&) {
            if (!clear()) {
                throw;
            }
            made = ::operator new(bytes, alignment_of(bytes));
        }
#if defined(__linux__)
        if (bytes >= huge_page) {
            // A hint: a transform walks through more pages than the processor has translations for.
            static_cast<void>(::madvise(made, bytes / huge_page * huge_page, MADV_HUGEPAGE));
        }
#endif
        return made;
    }
    /// Takes a block back.
    void release(void* data, std::size_t bytes) noexcept {
        const std::size_t most = most_.load(std::memory_order_relaxed);
        if (bytes < least_bytes || bytes > most || busy_.test_and_set(std::memory_order_acquire)) {
            give_back({data, bytes});
            return;
        }
        while (count_ == blocks_.size() || bytes_ + bytes > most) {
            bytes_ -= blocks_[0].bytes;
            give_back(blocks_[0]);
            std::move(blocks_.begin() + 1, blocks_.begin() + static_cast<std::ptrdiff_t>(count_),
                      blocks_.begin());
            --count_;
        }
        blocks_[count_++] = {data, bytes};
        bytes_ += bytes;
        busy_.clear(std::memory_order_release);
    }

  private:
    struct block {
        void* data = nullptr;
        std::size_t bytes = 0;
    };

    /// Allocators round sizes up to the alignment, unchecked.
    static constexpr std::size_t most_of_any = static_cast<std::size_t>(-1) / 2;
    static constexpr std::align_val_t alignment_of([[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__)
        return std::align_val_t{bytes < huge_page ? alignment : huge_page};
#else
        return std::align_val_t{alignment};
#endif
    }
    static void give_back(block b) noexcept {
        ::operator delete(b.data, alignment_of(b.bytes));
    }

    /// Gives all blocks back. Returns whether there were any.
    bool clear() noexcept {
        if (busy_.test_and_set(std::memory_order_acquire)) {
            return false;
        }
        const std::size_t count = std::exchange(count_, 0);
        for (std::size_t i = 0; i < count; ++i) {
            give_back(blocks_[i]);
        }
        bytes_ = 0;
        busy_.clear(std::memory_order_release);
        return count > 0;
    }
    /// The youngest block of that size, which may still be in cache, or null.
    void* take(std::size_t bytes) noexcept {
        if (busy_.test_and_set(std::memory_order_acquire)) {
            return nullptr;
        }
        void* found = nullptr;
        for (std::size_t i = count_; i-- > 0 && found == nullptr;) {
            if (blocks_[i].bytes == bytes) {
                found = blocks_[i].data;
                bytes_ -= bytes;
                std::move(blocks_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                          blocks_.begin() + static_cast<std::ptrdiff_t>(count_),
                          blocks_.begin() + static_cast<std::ptrdiff_t>(i));
                --count_;
            }
        }
        busy_.clear(std::memory_order_release);
        return found;
    }

    std::atomic_flag busy_;
    std::atomic<std::size_t> most_{most_bytes};
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
    std::array<block, 256> blocks_{};  ///< from the oldest to the youngest
};

}  // namespace tensafe::memory
