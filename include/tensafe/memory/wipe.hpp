#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace tensafe::memory {

/// Overwrites `bytes` bytes with 0 in a way the optimiser may not drop, even just before a release.
inline void wipe(void* data, std::size_t bytes) noexcept {
    if (bytes == 0) {
        return;
    }
    std::memset(data, 0, bytes);
    // The barrier makes the compiler assume that the bytes are read.
    __asm__ __volatile__("" : : "r"(data) : "memory");
}

/// Wipes one trivially copyable object.
template <class T>
void wipe(T& object) noexcept {
    static_assert(std::is_trivially_copyable_v<T>,
                  "wipe: only trivially copyable objects can be overwritten");
    wipe(static_cast<void*>(&object), sizeof(T));
}

/// Overwrites `Bytes` bytes of the stack below the caller, where functions that it called, and that were not
/// inlined, had their frames: what a compiler moved there from registers.
template <std::size_t Bytes>
__attribute__((noinline)) inline void wipe_frames() noexcept {
    unsigned char frames[Bytes];
    wipe(frames);
}

/// Wipes the object that it refers to when the scope ends, also on an exception: for secret temporaries.
template <class T>
class wipe_guard {
    static_assert(!std::is_const_v<T>, "wipe_guard: a const object cannot be overwritten; drop the const");

  public:
    explicit wipe_guard(T& object) noexcept : object_(object) {}
    wipe_guard(const wipe_guard&) = delete;
    wipe_guard& operator=(const wipe_guard&) = delete;
    ~wipe_guard() { wipe(object_); }

  private:
    T& object_;
};

}  // namespace tensafe::memory
