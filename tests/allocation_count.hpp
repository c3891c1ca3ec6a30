#pragma once

// Counts the allocations of a program, and lets one fail: replaces its operators new and delete. For one unit
// of a program, which is then no member of a group (tests/CMakeLists.txt). Large buffers are not kept
// meanwhile.

#include <tensafe/memory/retained_blocks.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace tests {

inline std::atomic<std::size_t> allocations{0};
/// The bytes of this thread's largest one.
inline thread_local std::size_t largest_allocation = 0;
/// Of this thread; the one after them fails.
inline thread_local std::size_t allocations_left = ~std::size_t{0};

inline const bool counts_large_ones = (tensafe::memory::retained_blocks::shared().limit(0), true);

namespace detail {

inline void* counted(std::size_t size, std::size_t alignment) {
    ++allocations;
    largest_allocation = std::max(largest_allocation, size);
    void* const p = allocations_left-- == 0
                        ? nullptr
                        : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (p == nullptr) {
        throw std::bad_alloc();
    }
    return p;
}

// Not inlined: compilers look for the allocation that belongs to a free.
__attribute__((noinline)) inline void release(void* p) noexcept {
    std::free(p);
}

}  // namespace detail

}  // namespace tests

void* operator new(std::size_t size) {
    return tests::detail::counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return tests::detail::counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept {
    tests::detail::release(p);
}
void operator delete(void* p, std::size_t) noexcept {
    tests::detail::release(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    tests::detail::release(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    tests::detail::release(p);
}
