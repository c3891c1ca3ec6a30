#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/keystore/owned_descriptor.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace tensafe::io {

static_assert(
    std::endian::native == std::endian::little,
    "io/packed_file.hpp: packed words are stored as they are in memory, which must be little endian");

// A file of packed words, all numbers little endian:
//
//     offset      bytes
//     0           16      "tensafe packed 1": what this is, and the version of this format
//     16          32      the key: what the words were made from
//     48          8       the number of words
//     56          8 each  the words
//     after them  32      SHA-256 of all bytes before
//
// Words are not packed to the bits of their primes: a quarter of the bytes would go, but what is read would
// have to be copied through a shift for each word, where now the kernel puts it where it is used.

/// Bytes of a file of so many words.
/// @throws shape_error if that passes what a file can have
inline std::size_t packed_file_bytes(std::size_t words) {
    if (words > (std::size_t{1} << 59)) {
        throw shape_error("packed file: got " + std::to_string(words) + " words, wanted at most 2^59");
    }
    return 16 + 32 + 8 + words * sizeof(arith::word) + 32;
}

namespace detail {

inline std::array<std::byte, 56> packed_file_head(const sha256_digest& key, std::size_t words) {
    constexpr std::string_view magic = "tensafe packed 1";
    static_assert(magic.size() == 16);
    std::array<std::byte, 56> head{};
    std::transform(magic.begin(), magic.end(), head.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    std::copy(key.begin(), key.end(), head.begin() + 16);
    const auto count = std::bit_cast<std::array<std::byte, 8>>(std::uint64_t{words});
    std::copy(count.begin(), count.end(), head.begin() + 48);
    return head;
}

/// Hashed while they are in the cache: between the system and the hash.
inline constexpr std::size_t packed_file_chunk = std::size_t{1} << 18;

}  // namespace detail

/// Writes a file of packed words: beside its place, then `finish` renames it there. Until then, and if there
/// is no `finish`, whatever stood there stays. Only the owner can read or write the file (mode 0600). Words
/// go from the caller's memory to the system without a copy that would have to be wiped.
///
/// It is not forced to the device: after a power failure it may be torn, which its checksum shows.
///
/// Not copyable. One thread at a time; several writers for one path, also of other processes, are safe: the
/// last `finish` wins.
class packed_file_writer {
  public:
    /// @throws io_error if the file cannot be created; shape_error for too many words
    packed_file_writer(std::filesystem::path path, const sha256_digest& key, std::size_t words)
        : path_(std::move(path)),
          temporary_(path_.string() + ".partial-XXXXXX"),
          file_(detail::create_temporary(temporary_)) {
        try {
            left_ = packed_file_bytes(words) - 32;
            write(detail::packed_file_head(key, words));
        } catch (...) {
            remove();
            throw;
        }
    }
    packed_file_writer(const packed_file_writer&) = delete;
    packed_file_writer& operator=(const packed_file_writer&) = delete;
    ~packed_file_writer() { remove(); }

    /// Appends words.
    /// @throws io_error; shape_error if there are more than announced
    void write(std::span<const arith::word> words) { write(std::as_bytes(words)); }

    /// Puts the file in its place.
    /// @throws io_error; shape_error if there are fewer words than announced. The old file is then untouched
    void finish() {
        if (left_ != 0) {
            throw shape_error(quote(path_.string()) + ": " + std::to_string(left_) +
                              " bytes of packed words are missing");
        }
        put(hash_.finish());
        if (const int failure = file_.close(); failure != 0) {
            detail::throw_io_error(path_, "write", failure);
        }
        std::error_code error;
        std::filesystem::rename(temporary_, path_, error);
        if (error) {
            detail::throw_io_error(path_, "replace", error.value());
        }
        temporary_.clear();
    }

  private:
    void write(std::span<const std::byte> bytes) {
        if (bytes.size() > left_) {
            throw shape_error(quote(path_.string()) + ": got " + std::to_string(bytes.size()) +
                              " bytes of packed words, wanted at most " + std::to_string(left_));
        }
        left_ -= bytes.size();
        while (!bytes.empty()) {
            const auto chunk = bytes.first(std::min(bytes.size(), detail::packed_file_chunk));
            bytes = bytes.subspan(chunk.size());
            hash_.update(chunk);
            put(chunk);
        }
    }

    void put(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ::ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
            if (count < 0 && errno != EINTR) {
                detail::throw_io_error(path_, "write", errno);
            }
            bytes = bytes.subspan(static_cast<std::size_t>(std::max(count, ::ssize_t{0})));
        }
    }

    void remove() noexcept {
        if (!temporary_.empty()) {
            static_cast<void>(::unlink(temporary_.c_str()));
        }
    }

    std::filesystem::path path_;
    std::string temporary_;
    sha256 hash_;
    std::size_t left_ = 0;  ///< bytes before the checksum
    // Last: if a member after it failed to be made, the temporary file would stay.
    detail::owned_descriptor file_;
};

/// Reads a file of packed words, taken for hostile: it must be a regular file (a link is not followed) that
/// belongs to this user and that nobody else can write, and have exactly the length of the expected words,
/// before anything is allocated for it. The checksum comes last: what `read` gave counts only after `finish`.
///
/// The checksum is no signature: it shows accidents. Whoever can write the folder can write a good one.
///
/// Movable, not copyable. One thread at a time.
class packed_file_reader {
  public:
    /// Nothing if there is no such file.
    /// @throws io_error if it cannot be opened, or is not a regular file of this user; format_error unless it
    ///         has the length, the format and the key that are expected
    static std::optional<packed_file_reader> open(const std::filesystem::path& path, const sha256_digest& key,
                                                  std::size_t words) {
        // Without O_NONBLOCK a pipe that nobody writes to would be waited for.
        detail::owned_descriptor file(
            ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
        if (file.get() < 0) {
            if (errno == ENOENT) {
                return std::nullopt;
            }
            detail::throw_io_error(path, "open", errno);
        }
        return packed_file_reader(path, std::move(file), key, words);
    }

    /// Fills the span with the next words.
    /// @throws io_error; format_error if there are not so many
    void read(std::span<arith::word> words) {
        if (words.size_bytes() > left_) {
            throw format_error(quote(path_.string()) + ": has " + std::to_string(left_) +
                               " more bytes of packed words, wanted " + std::to_string(words.size_bytes()));
        }
        left_ -= words.size_bytes();
        read(std::as_writable_bytes(words));
    }

    /// @throws format_error unless all words were read and the checksum is right; io_error
    void finish() {
        if (left_ != 0) {
            throw format_error(quote(path_.string()) + ": has " + std::to_string(left_) +
                               " bytes of packed words too many");
        }
        sha256_digest stored{};
        get(stored);
        if (stored != hash_.finish()) {
            throw format_error(quote(path_.string()) + ": its checksum is wrong: it was changed or torn");
        }
    }

  private:
    packed_file_reader(const std::filesystem::path& path, detail::owned_descriptor file,
                       const sha256_digest& key, std::size_t words)
        : path_(path), file_(std::move(file)) {
        struct stat status {};
        if (::fstat(file_.get(), &status) != 0) {
            detail::throw_io_error(path_, "read the length", errno);
        }
        if (!S_ISREG(status.st_mode)) {
            throw io_error(quote(path_.string()) + ": is not a regular file");
        }
        detail::check_owner(path_, status);
        const std::size_t wanted = packed_file_bytes(words);
        if (static_cast<std::uintmax_t>(status.st_size) != wanted) {
            throw format_error(quote(path_.string()) + ": got " + std::to_string(status.st_size) +
                               " bytes, wanted " + std::to_string(wanted));
        }
        std::array<std::byte, 56> head{};
        read(head);
        const auto expected = detail::packed_file_head(key, words);
        const auto differs = [&](std::size_t from, std::size_t count) {
            return !std::equal(head.begin() + static_cast<std::ptrdiff_t>(from),
                               head.begin() + static_cast<std::ptrdiff_t>(from + count),
                               expected.begin() + static_cast<std::ptrdiff_t>(from));
        };
        if (differs(0, 16)) {
            throw format_error(quote(path_.string()) + ": does not begin with \"tensafe packed 1\"");
        }
        if (differs(16, 32)) {
            throw format_error(quote(path_.string()) + ": was made for another adapter or another server");
        }
        if (differs(48, 8)) {
            throw format_error(quote(path_.string()) + ": does not announce " + std::to_string(words) +
                               " words");
        }
        left_ = words * sizeof(arith::word);
    }

    void read(std::span<std::byte> bytes) {
        while (!bytes.empty()) {
            const auto chunk = bytes.first(std::min(bytes.size(), detail::packed_file_chunk));
            bytes = bytes.subspan(chunk.size());
            get(chunk);
            hash_.update(chunk);
        }
    }

    void get(std::span<std::byte> bytes) {
        while (!bytes.empty()) {
            const ::ssize_t count = ::read(file_.get(), bytes.data(), bytes.size());
            if (count < 0 && errno != EINTR) {
                detail::throw_io_error(path_, "read", errno);
            }
            if (count == 0) {
                throw io_error(quote(path_.string()) + ": became shorter while it was read");
            }
            bytes = bytes.subspan(static_cast<std::size_t>(std::max(count, ::ssize_t{0})));
        }
    }

    std::filesystem::path path_;
    detail::owned_descriptor file_;
    sha256 hash_;
    std::size_t left_ = 0;  ///< bytes before the checksum
};

}  // namespace tensafe::io
