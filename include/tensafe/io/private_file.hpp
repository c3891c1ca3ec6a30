#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/memory/buffer.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

// Files that hold something secret, and the steps of which writing one consists: descriptors instead of
// streams, whose buffers would keep the secret.

namespace tensafe::io {

/// An open file or folder, which is closed when this object is destroyed. Move-only; it may hold no file,
/// which a negative number says.
class owned_descriptor {
  public:
    explicit owned_descriptor(int value) noexcept : value_(value) {}
    owned_descriptor(owned_descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
    owned_descriptor& operator=(owned_descriptor&& other) noexcept {
        owned_descriptor taken(std::move(other));
        std::swap(value_, taken.value_);
        return *this;
    }
    ~owned_descriptor() {
        if (value_ >= 0) {
            static_cast<void>(::close(value_));
        }
    }
    /// The descriptor, negative if there is none.
    int get() const noexcept { return value_; }
    /// Closes the file now. Returns errno or 0.
    int close() noexcept { return ::close(std::exchange(value_, -1)) == 0 ? 0 : errno; }

  private:
    int value_;
};

namespace detail {

/// The bits of the file mode that give its group or others anything.
inline constexpr mode_t not_the_owner = 077;

inline std::string octal(mode_t mode) {
    std::array<char, 16> text{};
    static_cast<void>(std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode) & 07777u));
    return text.data();
}

/// Gives a file a name that nothing has, by hard links.  Returns errno or 0.
inline int link_to_free_name(const std::string& from, const std::filesystem::path& to) noexcept {
    if (::link(from.c_str(), to.c_str()) != 0) {
        return errno;
    }
    static_cast<void>(::unlink(from.c_str()));  // who is killed before leaves both names
    return 0;
}

/// Gives a file a name that nothing has.  Returns errno or 0.
inline int move_to_free_name(const std::string& from, const std::filesystem::path& to) noexcept {
#ifdef RENAME_NOREPLACE
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) {  // what a file system or kernel says that cannot do this
        return errno;
    }
#endif
    return link_to_free_name(from, to);
}

inline std::filesystem::path name_of_folder(const std::filesystem::path& path) {
    return path.has_parent_path() ? path.parent_path() : ".";
}
/// Open, if this user may read it; errno says why not.
inline owned_descriptor folder_of(const std::filesystem::path& path) {
    return owned_descriptor(::open(name_of_folder(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace detail

/// Creates a file for its owner alone (mode 0600), which is to be written and then renamed.
/// @param name  ends in XXXXXX, which are replaced so that no file had this name; empty if this throws
/// @throws io_error if the file cannot be created
inline owned_descriptor create_temporary(std::string& name) {
    // Exclusive, and with mode 0600 whatever the process gives other files.
    const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor < 0) {
        const int failure = errno;
        throw_io_error(std::exchange(name, {}), "create", failure);
    }
    return owned_descriptor(descriptor);
}

/// Checks that nobody but this user and root decides what stands in a file or folder.
/// @throws io_error if another user owns it, or its group or others may write it
inline void check_owner(const std::filesystem::path& path, const struct stat& status) {
    require<io_error>(
        (status.st_uid == ::geteuid() || status.st_uid == 0) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0,
        {in_quotes(path.native()), ": is not used: another user owns it or may write it"});
}

/// Locks an open file or folder (flock) until it is closed.
/// @throws io_error "<path><busy>" if another process or object holds the lock, or if the system refuses
inline void lock_alone(const owned_descriptor& open, const std::filesystem::path& path, const char* busy) {
    while (::flock(open.get(), LOCK_EX | LOCK_NB) != 0) {
        require<io_error>(errno != EWOULDBLOCK, {in_quotes(path.native()), busy});
        if (errno != EINTR) {
            throw_io_error(path, "lock", errno);
        }
    }
}

/// Returns the status of an open file if it is what stands under this name in a folder.
inline std::optional<struct stat> status_at(const owned_descriptor& open, const owned_descriptor& folder,
                                            const std::string& name) {
    struct stat ours {};
    struct stat there {};
    const bool is_there = ::fstat(open.get(), &ours) == 0 &&
                          ::fstatat(folder.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
                          ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
    return is_there ? std::optional(ours) : std::nullopt;
}

/// Opens the folder in which a file stands or will stand.
/// @throws io_error if it cannot be opened for reading
inline owned_descriptor open_folder_of(const std::filesystem::path& path) {
    const std::filesystem::path name = detail::name_of_folder(path);
    owned_descriptor folder(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0) {
        throw_io_error(name, "open", errno);
    }
    return folder;
}

/// Forces the names in an open folder to the device, where the file system can do that.
/// @param path    a file in that folder, which messages name
/// @param action  what the message says cannot be done
/// @throws io_error if the device refuses
inline void force_folder(const owned_descriptor& folder, const std::filesystem::path& path,
                         const char* action = "force the folder to the device") {
    if (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
        throw_io_error(path, action, errno);
    }
}

/// Forces the names in a file's folder to the device, so that a new name survives a power failure. A folder
/// that this user may not read is left alone.
/// @throws io_error if the device refuses
inline void force_folder_of(const std::filesystem::path& path) {
    if (const owned_descriptor folder = detail::folder_of(path); folder.get() >= 0) {
        force_folder(folder, path);
    }
}

/// Writes all bytes at the file's position, gives the file mode 0600, and forces it to the device. Returns
/// errno or 0.
inline int write_and_force(const owned_descriptor& file, std::span<const std::byte> bytes) noexcept {
    // An unusual umask may have taken something away.
    if (::fchmod(file.get(), S_IRUSR | S_IWUSR) != 0) {
        return errno;
    }
    for (std::size_t done = 0; done < bytes.size();) {
        const ssize_t count = ::write(file.get(), bytes.data() + done, bytes.size() - done);
        if (count > 0) {
            done += static_cast<std::size_t>(count);
        } else if (count == 0) {
            return EIO;  // again and again it would be the same
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return ::fsync(file.get()) == 0 ? 0 : errno;
}

/// Puts a file of mode 0600 in the place of the one at `path`, whose folder is open: the bytes are written to
/// `<path>.partial`, forced to the device, and renamed. Two threads or processes must not do this at once for
/// one path: the caller holds a lock.
/// @param action  which the message says cannot be done
/// @param check   called before the renaming, to throw what speaks against it
/// @throws io_error and what check throws; the old file then stays
template <class Check>
void replace_private_file(const owned_descriptor& folder, const std::filesystem::path& path,
                          std::span<const std::byte> bytes, const char* action, Check check) {
    const std::string name = path.filename().string();
    const std::string partial = name + ".partial";
    const auto remove = [&] { static_cast<void>(::unlinkat(folder.get(), partial.c_str(), 0)); };
    remove();  // what a process that died left there is nobody's: the lock is ours
    owned_descriptor file(::openat(folder.get(), partial.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
    if (file.get() < 0) {
        throw_io_error(path.string() + ".partial", "create", errno);
    }
    try {
        int failure = write_and_force(file, bytes);
        if (const int closing = file.close(); failure == 0) {
            failure = closing;
        }
        if (failure == 0) {
            check();
            failure = ::renameat(folder.get(), partial.c_str(), folder.get(), name.c_str()) == 0 ? 0 : errno;
        }
        if (failure != 0) {
            throw_io_error(path, action, failure);
        }
    } catch (...) {
        remove();
        throw;
    }
}

/// What the system says of an open file. Where it could not be opened, errno says why.
/// @param path  names the file in messages
/// @throws io_error if it was not opened, or the system refuses
inline struct stat status_of(const owned_descriptor& file, const std::filesystem::path& path) {
    if (file.get() < 0) {
        throw_io_error(path, "open", errno);
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) {
        throw_io_error(path, "read the mode", errno);
    }
    return status;
}

/// Reads a file that is open, and refuses it, as read_private_file(path, largest) does. Where it could not be
/// opened, errno says why.
/// @param path     names the file in messages
/// @param largest  the longest file that is read, in bytes
/// @throws io_error if it was not opened, cannot be read, is no regular file, belongs to another user but
///         root, or its mode gives anything to others than its owner; format_error if it is longer than
///         `largest`
inline memory::secret_buffer<std::byte> read_private_file(const owned_descriptor& file,
                                                          const std::filesystem::path& path,
                                                          std::size_t largest) {
    const struct stat status = status_of(file, path);
    require<io_error>(S_ISREG(status.st_mode), {in_quotes(path.native()), ": is not a regular file"});
    require<io_error>((status.st_mode & detail::not_the_owner) == 0,
                      {in_quotes(path.native()), ": others than its owner have access: got mode ",
                       detail::octal(status.st_mode), ", expected 0600 (chmod 600)"});
    check_owner(path, status);
    const auto size = static_cast<std::size_t>(status.st_size);
    require<format_error>(size <= largest,
                          {in_quotes(path.native()), ": got ", size, " bytes, expected at most ", largest});
    memory::secret_buffer<std::byte> bytes(size);
    for (std::size_t done = 0; done < size;) {
        const ssize_t count = ::read(file.get(), bytes.data() + done, size - done);
        if (count > 0) {
            done += static_cast<std::size_t>(count);
        } else if (count == 0) {
            throw io_error({in_quotes(path.native()), ": became shorter while it was read"});
        } else if (errno != EINTR) {
            throw_io_error(path, "read", errno);
        }
    }
    return bytes;
}

/// Reads a file that holds a secret, all of it, into memory that is wiped. A file that its group or others
/// may read or write is refused, for it is no secret, and so is one of another user but root, for it is not
/// ours; both are asked of the file that is then read.
/// @param largest the longest file that is read, in bytes
/// @throws io_error if it cannot be read, is no regular file, belongs to another user but root, or its mode
///         gives anything to others than its owner; format_error if it is longer than `largest`
inline memory::secret_buffer<std::byte> read_private_file(const std::filesystem::path& path,
                                                          std::size_t largest) {
    return read_private_file(
        owned_descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)), path, largest);
}

/// Puts a secret at `path` for its owner alone (mode 0600), all of it or nothing: written to a temporary file
/// beside it, forced to the device, then given its name, which is forced to the device too where the file
/// system can do that. What stands at `path` already, a link too, is never written over: a key that is lost
/// is lost. Needs a file system that renames without replacing, as those of Linux do, or has hard links.
///
/// A process or system that dies here can leave the secret, or a part of it, in a file that is named as
/// `path` with ".partial-" and six characters behind it, mode 0600, which nothing removes. Where there are
/// hard links only, that can also be a second name of the file at `path`.
///
/// Thread safety: any threads and processes; of several that create the same path, one succeeds.
/// @throws io_error naming the path; nothing is left behind, but if it says that the folder cannot be forced
///         to the device: the whole file then stands at `path`, but a power failure may take it away
inline void create_private_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::string temporary = path.string() + ".partial-XXXXXX";
    int failure = write_and_force(create_temporary(temporary), bytes);
    if (failure == 0) {
        failure = detail::move_to_free_name(temporary, path);
    }
    if (failure != 0) {
        static_cast<void>(::unlink(temporary.c_str()));
        throw_io_error(path, "create", failure);
    }
    force_folder_of(path);
}

}  // namespace tensafe::io
