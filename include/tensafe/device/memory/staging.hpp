#pragma once

#include <tensafe/core/precondition.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace tensafe::memory {

/// Host memory that Where copies from without waiting: pinned for a GPU.
template <class Where>
using staging_buffer = buffer<std::uint8_t, typename Where::staging_space, wipe_on_release>;

/// Everything that one operation takes from the host, or gives back to it: pieces on both sides, brought over
/// in one copy. Both sides are allocated once, and wiped on release, which waits for the device.
///
/// Move-only in effect: pieces point into it, and stay valid when it is moved.
template <class Where>
class staging_area {
  public:
    /// A piece of it, on both sides.
    template <class T>
    struct piece {
        std::span<T> host;
        T* device = nullptr;
    };

    /// Bytes that a piece takes.
    template <class T>
    static constexpr std::size_t bytes_for(std::size_t count) noexcept {
        return (count * sizeof(T) + alignment - 1) / alignment * alignment;
    }

    staging_area() noexcept = default;
    /// @param bytes  the sum of bytes_for over all pieces
    explicit staging_area(std::size_t bytes) : host_(bytes), device_(bytes) {}
    staging_area(staging_area&&) noexcept = default;
    staging_area& operator=(staging_area&&) noexcept = default;
    staging_area(const staging_area&) = delete;  // pieces would point into the other one
    staging_area& operator=(const staging_area&) = delete;

    /// The next piece.  @pre  there is room for it
    template <class T>
    piece<T> take(std::size_t count) noexcept {
        static_assert(std::is_trivially_copyable_v<T>, "staging_area: pieces are copied as bytes");
        TENSAFE_PRECONDITION(used_ + bytes_for<T>(count) <= host_.size());
        const piece<T> result{{reinterpret_cast<T*>(host_.data() + used_), count},
                              reinterpret_cast<T*>(device_.data() + used_)};
        used_ += bytes_for<T>(count);
        return result;
    }

    /// Brings all pieces over. The host's side must stay as it is until that is done.
    void upload(const Where& where) const { upload_bytes(where, used_); }

    /// The same up to the first `count` elements of a piece: for one that is larger than what it holds now.
    template <class T>
    void upload_until(const Where& where, const piece<T>& last, std::size_t count) const {
        const auto* const end = reinterpret_cast<const std::uint8_t*>(last.host.data() + count);
        upload_bytes(where, static_cast<std::size_t>(end - host_.data()));
    }

    /// Brings pieces back, up to the first `count` elements of one: there when `where.wait()` returns.
    template <class T>
    void download_until(const Where& where, const piece<T>& last, std::size_t count) {
        const auto* const end = reinterpret_cast<const std::uint8_t*>(last.host.data() + count);
        where.download(std::as_const(device_).data(),
                       std::span<std::uint8_t>(host_.data(), static_cast<std::size_t>(end - host_.data())));
    }

  private:
    void upload_bytes(const Where& where, std::size_t bytes) const {
        where.upload(std::span<const std::uint8_t>(host_.data(), bytes),
                     const_cast<std::uint8_t*>(device_.data()));
    }

    staging_buffer<Where> host_;  // released after the other, which waits for copies that are under way
    buffer<std::uint8_t, typename Where::space, wipe_on_release> device_;
    std::size_t used_ = 0;
};

}  // namespace tensafe::memory
