// Counts what a thread has allocated, and ends the program where a target allocates more than its
// memory_limit: hostile input must not cost more memory than a small multiple of its length. Under
// AddressSanitizer by its hooks, which see malloc as well, otherwise by replacing operator new.

#include <malloc.h>
#include <new>

#include "target.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define TENSAFE_FUZZ_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TENSAFE_FUZZ_HOOKS 1
#endif
#endif

namespace {

void check_room(std::size_t size) {
    fuzz::memory_account& account = fuzz::account;
    if (account.most < account.held || size > account.most - account.held) {
        account.most = SIZE_MAX;  // the message needs memory itself
        fuzz::broken("memory within its limit",
                     std::to_string(size) + " bytes asked for beside " + std::to_string(account.held));
    }
}

/// What another thread allocated is not in this one's account.
void give_back(std::size_t size) noexcept {
    fuzz::account.held -= size < fuzz::account.held ? size : fuzz::account.held;
}

}  // namespace

#if defined(TENSAFE_FUZZ_HOOKS)

#include <sanitizer/allocator_interface.h>

namespace {

void allocated(const volatile void* p, std::size_t size) {
    if (p != nullptr) {
        check_room(size);
        fuzz::account.held += size;
    }
}

void released(const volatile void* p) {
    if (p != nullptr) {
        give_back(__sanitizer_get_allocated_size(p));
    }
}

const bool hooks_installed = [] {
    fuzz::holds(__sanitizer_install_malloc_and_free_hooks(allocated, released) != 0,
                "the sanitizer has room for hooks");
    return true;
}();

}  // namespace

#else

namespace {

void* allocate(std::size_t size, std::size_t alignment) {
    check_room(size);  // before the system is asked: a length of 2^60 ends here, too
    void* const p = alignment <= alignof(std::max_align_t)
                        ? std::malloc(size == 0 ? 1 : size)
                        : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (p == nullptr) {
        throw std::bad_alloc();
    }
    fuzz::account.held += ::malloc_usable_size(p);
    return p;
}

void release(void* p) noexcept {
    if (p != nullptr) {
        give_back(::malloc_usable_size(p));
        std::free(p);
    }
}

}  // namespace

void* operator new(std::size_t size) {
    return allocate(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept {
    release(p);
}
void operator delete(void* p, std::size_t) noexcept {
    release(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    release(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    release(p);
}

#endif
