#pragma once

#include <tensafe/memory/retained_blocks.hpp>
#include <tensafe/memory/wipe.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace tensafe::memory {

/// Ordinary memory of the process, as the space of a buffer. A space says how to get memory, give it back and
/// write to it, and whether the host may touch it. device/cuda/ has those of a GPU.
struct host_space {
    static constexpr bool host_accessible = true;

    /// Returns `bytes` bytes, aligned to 64 bytes.  @throws std::bad_alloc
    static void* allocate(std::size_t bytes) { return retained_blocks::shared().allocate(bytes); }
    static void release(void* data, std::size_t bytes) noexcept {
        retained_blocks::shared().release(data, bytes);
    }
    static void wipe(void* data, std::size_t bytes) noexcept { memory::wipe(data, bytes); }
    static void fill_zero(void* data, std::size_t bytes) noexcept { std::memset(data, 0, bytes); }
    static void copy(void* to, const void* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }
};

/// Tag of a buffer whose bytes are left as they are when they are released or overwritten by assignment.
struct keep_on_release {};
/// Tag of a buffer of secrets: its bytes are overwritten with 0 before they are released or replaced.
struct wipe_on_release {};

/// Tag of a constructor: the caller will write all elements before it reads them.
struct uninitialized_t {};
inline constexpr uninitialized_t uninitialized{};

/// An owning array of `size()` elements, 64-byte aligned.
///
/// Value semantics: copies are deep, a moved-from buffer is empty. Elements start as 0 unless `uninitialized`
/// is asked for. Thread safety of a standard container; strong exception safety: only allocation throws
/// (std::bad_alloc), and in other spaces what their functions throw.
template <class T, class Space = host_space, class Release = keep_on_release>
class buffer {
    static_assert(std::is_trivially_copyable_v<T>, "memory::buffer: elements must be trivially copyable");
    static_assert(alignof(T) <= alignment,
                  "memory::buffer: elements must not need more than 64-byte alignment");

  public:
    using value_type = T;

    buffer() noexcept = default;
    explicit buffer(std::size_t size) : buffer(size, uninitialized) {
        if constexpr (Space::host_accessible) {
            std::fill_n(data_, size_, T{});
        } else if (size_ != 0) {
            Space::fill_zero(data_, size_ * sizeof(T));
        }
    }
    buffer(std::size_t size, uninitialized_t) : data_(allocate(size)), size_(size) {}
    buffer(const buffer& other) : buffer(other.size_, uninitialized) {
        if (size_ != 0) {
            Space::copy(data_, other.data_, size_ * sizeof(T));
        }
    }
    buffer(buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    // Not by value: in templates, clang 14 never destroys the parameter of `b = {}`, nor wipes it.
    buffer& operator=(const buffer& other) { return *this = buffer(other); }
    buffer& operator=(buffer&& other) noexcept {
        buffer taken(std::move(other));
        std::swap(data_, taken.data_);
        std::swap(size_, taken.size_);
        return *this;
    }
    ~buffer() { release(); }

    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

    // Where the host can touch the elements.
    T& operator[](std::size_t i) noexcept requires(Space::host_accessible) { return data_[i]; }
    const T& operator[](std::size_t i) const noexcept requires(Space::host_accessible) { return data_[i]; }
    T* begin() noexcept requires(Space::host_accessible) { return data_; }
    T* end() noexcept requires(Space::host_accessible) { return data_ + size_; }
    const T* begin() const noexcept requires(Space::host_accessible) { return data_; }
    const T* end() const noexcept requires(Space::host_accessible) { return data_ + size_; }

    /// Moves the memory into a buffer that is not wiped: for secret bytes that have become ciphertext.
    buffer<T, Space, keep_on_release> declassify() && noexcept { return retyped<keep_on_release>(); }
    /// Moves the memory into a buffer that is wiped: for secrets in the place of old ciphertext.
    buffer<T, Space, wipe_on_release> classify() && noexcept { return retyped<wipe_on_release>(); }

    std::span<T> span() noexcept requires(Space::host_accessible) { return {data_, size_}; }
    std::span<const T> span() const noexcept requires(Space::host_accessible) { return {data_, size_}; }

  private:
    template <class, class, class>
    friend class buffer;

    static T* allocate(std::size_t size) {
        if (size == 0) {
            return nullptr;
        }
        if (size > static_cast<std::size_t>(-1) / sizeof(T)) {
            throw std::bad_array_new_length();
        }
        return static_cast<T*>(Space::allocate(size * sizeof(T)));
    }
    template <class R>
    buffer<T, Space, R> retyped() noexcept {
        buffer<T, Space, R> result;
        result.data_ = std::exchange(data_, nullptr);
        result.size_ = std::exchange(size_, 0);
        return result;
    }
    void release() noexcept {
        if (data_ == nullptr) {
            return;
        }
        if constexpr (std::is_same_v<Release, wipe_on_release>) {
            Space::wipe(data_, size_ * sizeof(T));
        }
        Space::release(data_, size_ * sizeof(T));
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A buffer for keys, plaintexts and randomness: wiped before its memory is released.
template <class T>
using secret_buffer = buffer<T, host_space, wipe_on_release>;

}  // namespace tensafe::memory
