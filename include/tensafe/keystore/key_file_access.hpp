#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/keystore/key_file_format.hpp>
#include <tensafe/keystore/owned_descriptor.hpp>
#include <tensafe/keystore/private_file.hpp>
#include <tensafe/memory/buffer.hpp>

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <span>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

// Key files in their folder: opened by one rule, and replaced by one at a time.

namespace tensafe::keystore::detail {

/// Opens a key file, at which nothing else may stand.
inline owned_descriptor open_key_file(int folder, const std::filesystem::path& name,
                                      const std::filesystem::path& path, int access) {
    owned_descriptor file(
        ::openat(folder, name.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    if (file.get() < 0) {
        if (errno == ELOOP) {
            throw io_error(io::quote(path.string()) +
                           ": is a link; expected the path of the key file itself");
        }
        io::throw_io_error(path, "open", errno);
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) {
        io::throw_io_error(path, "read the mode", errno);
    }
    if (S_ISREG(status.st_mode) && (status.st_mode & 07777) != (S_IRUSR | S_IWUSR)) {
        throw io_error(io::quote(path.string()) + ": got mode " + octal(status.st_mode) +
                       ", expected 0600 (chmod 600): a key is for its owner alone");
    }
    return file;
}

/// The bytes of a key file, and what they say.
struct read_key {
    memory::secret_buffer<std::byte> bytes;
    key_info info;
};

inline read_key read_open_key(const owned_descriptor& file, const std::filesystem::path& path) {
    memory::secret_buffer<std::byte> bytes = read_private(file, path, longest_key_file);
    const key_info info = parse_key_file(bytes.span(), io::quote(path.string()));
    return {std::move(bytes), info};
}

inline read_key read_key_at(const std::filesystem::path& path) {
    return read_open_key(open_key_file(AT_FDCWD, path, path, O_RDONLY), path);
}

/// The right to replace a key file: nobody else has it as long as this object lives. The lock (flock) is on
/// the file itself, so that none stays behind; what replaces it is another file, with a lock of its own.
class key_file_lock {
  public:
    explicit key_file_lock(const std::filesystem::path& path)
        : path_(path),
          folder_(::open(path.has_parent_path() ? path.parent_path().c_str() : ".",
                         O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
          file_(open_file()) {
        while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK) {
                throw io_error(io::quote(path_.string()) + ": is being replaced by somebody else");
            }
            if (errno != EINTR) {
                io::throw_io_error(path_, "lock", errno);
            }
        }
        check_place();
    }

    const owned_descriptor& file() const noexcept { return file_; }

    /// Puts other bytes in the place of the file, as in docs/key-life-cycle.md.
    void replace(std::span<const std::byte> bytes) {
        const std::filesystem::path name = path_.filename();
        const std::string partial = name.string() + ".partial";
        // What a process that died left there is nobody's: the lock is ours.
        static_cast<void>(::unlinkat(folder_.get(), partial.c_str(), 0));
        owned_descriptor written(::openat(folder_.get(), partial.c_str(),
                                          O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                                          S_IRUSR | S_IWUSR));
        if (written.get() < 0) {
            io::throw_io_error(path_.string() + ".partial", "create", errno);
        }
        // An unusual umask may have taken something away.
        int failure = ::fchmod(written.get(), S_IRUSR | S_IWUSR) == 0 ? 0 : errno;
        if (failure == 0) {
            failure = write_and_force(written, bytes);
        }
        if (const int closing = written.close(); failure == 0) {
            failure = closing;
        }
        if (failure == 0) {
            try {
                check_place();
            } catch (...) {
                static_cast<void>(::unlinkat(folder_.get(), partial.c_str(), 0));
                throw;
            }
            if (::renameat(folder_.get(), partial.c_str(), folder_.get(), name.c_str()) != 0) {
                failure = errno;
            }
        }
        if (failure != 0) {
            static_cast<void>(::unlinkat(folder_.get(), partial.c_str(), 0));
            io::throw_io_error(path_, "replace", failure);
        }
        // Not every file system can do this.
        if (::fsync(folder_.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
            io::throw_io_error(path_, "force the folder to the device (the new key file stands there)",
                               errno);
        }
    }

  private:
    owned_descriptor open_file() const {
        if (!path_.has_filename()) {
            throw io_error(io::quote(path_.string()) + ": names no file");
        }
        if (folder_.get() < 0) {
            io::throw_io_error(path_.parent_path(), "open", errno);
        }
        return open_key_file(folder_.get(), path_.filename(), path_, O_RDWR);
    }

    /// @throws io_error unless the file that we have locked is the one that has this name, and no other
    void check_place() const {
        struct stat ours {};
        struct stat there {};
        if (::fstat(file_.get(), &ours) != 0 ||
            ::fstatat(folder_.get(), path_.filename().c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0 ||
            ours.st_dev != there.st_dev || ours.st_ino != there.st_ino) {
            throw io_error(io::quote(path_.string()) + ": was replaced by somebody else meanwhile");
        }
        if (ours.st_nlink != 1) {
            throw io_error(io::quote(path_.string()) + ": is a file with " + std::to_string(ours.st_nlink) +
                           " names (hard links), and under the others the old key would stay; expected one: "
                           "remove the others (a creation that was killed may have left " +
                           io::quote(path_.string() + ".partial-XXXXXX") + ')');
        }
    }

    std::filesystem::path path_;
    owned_descriptor folder_;
    owned_descriptor file_;
};

}  // namespace tensafe::keystore::detail
