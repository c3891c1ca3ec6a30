#pragma once

#include <tensafe/memory/wipe.hpp>

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace tensafe::memory {

/// Where bytes live: ordinary memory of the process.
struct host_space {};

/// What happens to the bytes of a buffer when they are released or overwritten by assignment.
struct keep_on_release {};
/// Secrets: zeros are written over the bytes before the memory goes back.
struct wipe_on_release {};

/// Tag: the elements will all be written before they are read.
struct uninitialized_t {};
inline constexpr uninitialized_t uninitialized{};

inline constexpr std::size_t alignment = 64;

/// An owning array of `size()` elements, 64-byte aligned (a cache line, and one AVX-512 register).
///
/// Value semantics: copies are deep, a moved-from buffer is empty. Elements start as zeros unless
/// `uninitialized` is asked for.
/// Thread safety: that of a standard container. Exception safety: strong; only allocation throws
/// (std::bad_alloc).
template <class T, class Space = host_space, class Release = keep_on_release>
class buffer {
    static_assert(std::is_trivially_copyable_v<T>, "memory::buffer: elements must be trivially copyable");
    static_assert(alignof(T) <= alignment,
                  "memory::buffer: elements must not need more than 64-byte alignment");
    static_assert(std::is_same_v<Space, host_space>, "memory::buffer: only host_space is available");

  public:
    using value_type = T;

    buffer() noexcept = default;
    explicit buffer(std::size_t size) : data_(allocate(size)), size_(size) { std::fill_n(data_, size_, T{}); }
    buffer(std::size_t size, uninitialized_t) : data_(allocate(size)), size_(size) {}
    buffer(const buffer& other) : data_(allocate(other.size_)), size_(other.size_) {
        std::copy_n(other.data_, size_, data_);
    }
    buffer(buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    buffer& operator=(buffer other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~buffer() { release(); }

    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

    T& operator[](std::size_t i) noexcept { return data_[i]; }
    const T& operator[](std::size_t i) const noexcept { return data_[i]; }
    T* begin() noexcept { return data_; }
    T* end() noexcept { return data_ + size_; }
    const T* begin() const noexcept { return data_; }
    const T* end() const noexcept { return data_ + size_; }

    /// The same memory as a buffer that is not wiped: for bytes that were secret and have become ciphertext.
    buffer<T, Space, keep_on_release> declassify() && noexcept {
        buffer<T, Space, keep_on_release> result;
        result.data_ = std::exchange(data_, nullptr);
        result.size_ = std::exchange(size_, 0);
        return result;
    }

    /// The same memory as a buffer that is wiped: for secrets in the place of old ciphertext.
    buffer<T, Space, wipe_on_release> classify() && noexcept {
        buffer<T, Space, wipe_on_release> result;
        result.data_ = std::exchange(data_, nullptr);
        result.size_ = std::exchange(size_, 0);
        return result;
    }

    std::span<T> span() noexcept { return {data_, size_}; }
    std::span<const T> span() const noexcept { return {data_, size_}; }

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
        return static_cast<T*>(::operator new (size * sizeof(T), std::align_val_t{alignment}));
    }
    void release() noexcept {
        if (data_ == nullptr) {
            return;
        }
        if constexpr (std::is_same_v<Release, wipe_on_release>) {
            wipe(static_cast<void*>(data_), size_ * sizeof(T));
        }
        ::operator delete (data_, std::align_val_t{alignment});
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A buffer for keys, plaintexts and randomness: wiped before its memory is released.
template <class T>
using secret_buffer = buffer<T, host_space, wipe_on_release>;

}  // namespace tensafe::memory
