#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/memory/buffer.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <span>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace tensafe::io {

namespace detail {

/// A file descriptor that is closed at the end of the scope. No stream: its buffer would keep secrets.
class descriptor {
  public:
    explicit descriptor(int number) noexcept : number_(number) {}
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
    ~descriptor() {
        if (number_ >= 0) {
            static_cast<void>(::close(number_));
        }
    }

    int number() const noexcept { return number_; }

  private:
    int number_;
};

/// Bits of the file mode that give its group or others anything.
inline constexpr mode_t not_the_owner = 077;

inline std::string octal(mode_t mode) {
    std::array<char, 16> text{};
    static_cast<void>(std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode) & 07777u));
    return text.data();
}

}  // namespace detail

/// Reads a file that holds a secret, all of it, into memory that is wiped. A file that its group or others
/// may read or write is refused, for it is no secret; the mode is that of the file that is then read.
/// @param largest the longest file that is read, in bytes
/// @throws io_error if it cannot be read, is no regular file, or its mode gives anything to others than its
///         owner; format_error if it is longer than `largest`
inline memory::secret_buffer<std::byte> read_private_file(const std::filesystem::path& path,
                                                          std::size_t largest) {
    const detail::descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (file.number() < 0) {
        detail::throw_io_error(path, "open", errno);
    }
    struct stat status {};
    if (::fstat(file.number(), &status) != 0) {
        detail::throw_io_error(path, "read the mode", errno);
    }
    if (!S_ISREG(status.st_mode)) {
        throw io_error(quote(path.string()) + ": is not a regular file");
    }
    if ((status.st_mode & detail::not_the_owner) != 0) {
        throw io_error(quote(path.string()) + ": others than its owner have access: got mode " +
                       detail::octal(status.st_mode) + ", wanted 0600 (chmod 600)");
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size > largest) {
        throw format_error(quote(path.string()) + ": got " + std::to_string(size) +
                           " bytes, wanted at most " + std::to_string(largest));
    }
    memory::secret_buffer<std::byte> bytes(size);
    for (std::size_t done = 0; done < size;) {
        const ssize_t count = ::read(file.number(), bytes.data() + done, size - done);
        if (count > 0) {
            done += static_cast<std::size_t>(count);
        } else if (count == 0) {
            throw io_error(quote(path.string()) + ": became shorter while it was read");
        } else if (errno != EINTR) {
            detail::throw_io_error(path, "read", errno);
        }
    }
    return bytes;
}

/// Puts a secret at `path` for its owner alone (mode 0600), all of it or nothing: written to a temporary file
/// beside it, forced to the device, then given its name. What stands at `path` already, a link too, is never
/// written over: a key that is lost is lost. Needs a file system with hard links.
///
/// Thread safety: any threads and processes; of several that create the same path, one succeeds.
/// @throws io_error naming the path; nothing is left behind
inline void create_private_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    static std::atomic<unsigned> counter{0};
    std::filesystem::path temporary = path;
    temporary += ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1));
    int failure = 0;
    {
        const detail::descriptor file(
            ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (file.number() < 0) {
            detail::throw_io_error(temporary, "create", errno);
        }
        for (std::size_t done = 0; done < bytes.size() && failure == 0;) {
            const ssize_t count = ::write(file.number(), bytes.data() + done, bytes.size() - done);
            if (count >= 0) {
                done += static_cast<std::size_t>(count);
            } else if (errno != EINTR) {
                failure = errno;
            }
        }
        if (failure == 0 && ::fsync(file.number()) != 0) {
            failure = errno;
        }
    }
    // A second name for the file, unlike a rename, fails where the name is taken.
    if (failure == 0 && ::link(temporary.c_str(), path.c_str()) != 0) {
        failure = errno;
    }
    static_cast<void>(::unlink(temporary.c_str()));
    if (failure != 0) {
        detail::throw_io_error(path, "create", failure);
    }
}

}  // namespace tensafe::io
