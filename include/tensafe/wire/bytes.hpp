#pragma once

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace tensafe::wire {

static_assert(std::endian::native == std::endian::little,
              "wire: the formats are little endian and no byte-swapping path has been written");

/// A number that the formats store as it is in memory.
template <class T>
concept wire_number = std::same_as<T, std::uint8_t> || std::same_as<T, std::uint16_t> ||
    std::same_as<T, std::uint32_t> || std::same_as<T, std::uint64_t> || std::same_as<T, double>;

/// Fills bytes from the front: `body.number<std::uint32_t>(rank)`. The size is fixed before, so that nothing
/// is allocated or moved while a message is written. One thread at a time.
class byte_writer {
  public:
    /// Writes over these bytes.  @param what  how errors call the bytes; must stay as long as the writer
    byte_writer(std::span<std::uint8_t> bytes, std::string_view what) noexcept : left_(bytes), what_(what) {}

    /// Writes a number, the lowest byte first; a double as its 64 bits.  @throws shape_error without room
    template <wire_number T>
    void number(std::type_identity_t<T> value) {
        std::memcpy(take(sizeof(T)).data(), &value, sizeof(T));
    }

    /// Writes a copy of these bytes.  @throws shape_error if there is no room
    void bytes(std::span<const std::uint8_t> from) {
        std::copy(from.begin(), from.end(), take(from.size()).begin());
    }

    /// Returns the next `count` bytes, for the caller to write.  @throws shape_error if there is no room
    std::span<std::uint8_t> take(std::size_t count) {
        require<shape_error>(count <= left_.size(),
                             {what_, ": got ", count, " bytes to write, expected at most ", left_.size()});
        const std::span<std::uint8_t> taken = left_.first(count);
        left_ = left_.subspan(count);
        return taken;
    }

    /// The number of bytes that are still to be written.
    std::size_t left() const noexcept { return left_.size(); }

    /// Ends the writing.  @throws shape_error unless every byte was written
    void finish() const {
        require<shape_error>(left_.empty(), {what_, ": ", left_.size(), " bytes were not written"});
    }

  private:
    std::span<std::uint8_t> left_;
    std::string_view what_;
};

/// Takes bytes from outside apart, from the front: `body.number<std::uint32_t>()`. Never reads beyond them,
/// and never allocates: it looks at the bytes where they are, and they must stay. One thread at a time.
class byte_reader {
  public:
    /// Reads these bytes.  @param what  how errors call the bytes; must stay as long as the reader
    byte_reader(std::span<const std::uint8_t> bytes, std::string_view what) noexcept
        : left_(bytes), what_(what) {}

    /// Reads a number, whatever its bits stand for.  @throws format_error if the bytes end before
    template <wire_number T>
    T number() {
        T value{};
        std::memcpy(&value, bytes(sizeof(T)).data(), sizeof(T));
        return value;
    }

    /// Returns the next `count` bytes.  @throws format_error if the bytes end before
    std::span<const std::uint8_t> bytes(std::size_t count) {
        require<format_error>(count <= left_.size(),
                              {what_, ": got ", left_.size(), " more bytes, expected ", count});
        const std::span<const std::uint8_t> taken = left_.first(count);
        left_ = left_.subspan(count);
        return taken;
    }

    /// Copies the next Count bytes.  @throws format_error if the bytes end before
    template <std::size_t Count>
    std::array<std::uint8_t, Count> array() {
        std::array<std::uint8_t, Count> copy{};
        const auto from = bytes(Count);
        std::copy(from.begin(), from.end(), copy.begin());
        return copy;
    }

    /// The number of bytes that nobody has taken yet.
    std::size_t left() const noexcept { return left_.size(); }

    /// The name by which errors call the bytes.
    std::string_view what() const noexcept { return what_; }

    /// Checks, before memory is taken for them, that bytes are left.  @throws format_error unless `count` are
    void expect(std::size_t count) const {
        require<format_error>(left_.size() == count,
                              {what_, ": got ", left_.size(), " more bytes, expected ", count});
    }

    /// Ends the reading.  @throws format_error if anything is left
    void finish() const {
        require<format_error>(left_.empty(), {what_, ": got ", left_.size(), " bytes too many at the end"});
    }

  private:
    std::span<const std::uint8_t> left_;
    std::string_view what_;
};

}  // namespace tensafe::wire
