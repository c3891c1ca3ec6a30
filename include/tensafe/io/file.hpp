#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace tensafe::io {

namespace detail {

struct file_closer {
    void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
};
using file_handle = std::unique_ptr<std::FILE, file_closer>;

}  // namespace detail

/// Throws an io_error that says what the system said of an action on a path.
/// @param code  errno
[[noreturn]] inline void throw_io_error(const std::filesystem::path& path, const std::string& action,
                                        int code) {
    throw io_error(
        quote(path.string()) + ": cannot " + action + ": " + std::generic_category().message(code) +
        (code == EFBIG ? " (limit on file sizes: of the process, see ulimit -f, or of the file system)"
                       : ""));
}

/// A regular file, read from its beginning to its end. Directories, pipes and devices are refused: their
/// length says nothing about what reading them yields.
///
/// Movable, not copyable. One thread at a time. Errors: io_error, naming the path and the system's reason.
class input_file {
  public:
    /// Opens a file.  @throws io_error if `path` cannot be opened or is not a regular file
    explicit input_file(const std::filesystem::path& path) : path_(path) {
        // The path is resolved once; what is asked below is asked of the open file. Without O_NONBLOCK a
        // pipe that nobody writes to would be waited for.
        const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (descriptor < 0) {
            throw_io_error(path, "open", errno);
        }
        file_.reset(::fdopen(descriptor, "rb"));
        if (file_ == nullptr) {
            const int failure = errno;
            static_cast<void>(::close(descriptor));
            throw_io_error(path, "open", failure);
        }
        struct stat status {};
        if (::fstat(descriptor, &status) != 0) {
            throw_io_error(path, "read the length", errno);
        }
        if (!S_ISREG(status.st_mode)) {
            throw io_error(quote(path.string()) + ": is not a regular file");
        }
        size_ = static_cast<std::size_t>(status.st_size);
    }

    /// The file's length in bytes when it was opened.
    std::size_t size() const noexcept { return size_; }

    /// Fills `bytes` with the next bytes of the file.
    /// @throws io_error if the system reports an error or the file ends before
    void read(std::span<std::byte> bytes) {
        if (bytes.empty()) {
            return;
        }
        const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), file_.get());
        if (count == bytes.size()) {
            return;
        }
        if (std::ferror(file_.get()) != 0) {
            throw_io_error(path_, "read", errno);
        }
        throw io_error(quote(path_.string()) + ": became shorter while it was read: got " +
                       std::to_string(count) + " bytes, expected " + std::to_string(bytes.size()));
    }

  private:
    std::filesystem::path path_;
    detail::file_handle file_;
    std::size_t size_ = 0;
};

/// Reads all of a file into a std::string or a vector of bytes.
/// @throws io_error as input_file; format_error if it is longer than `largest` bytes
template <class Bytes>
Bytes read_file(const std::filesystem::path& path, std::size_t largest) {
    input_file file(path);
    if (file.size() > largest) {
        throw format_error(quote(path.string()) + ": got " + std::to_string(file.size()) +
                           " bytes, expected at most " + std::to_string(largest));
    }
    Bytes bytes(file.size(), typename Bytes::value_type{});
    file.read(std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    return bytes;
}

/// Puts `bytes` at `path`, all of them or none: they are written to a temporary file beside it, forced to the
/// device, and renamed over whatever stood there. A reader sees the old file or the new one.
/// The rename itself is not forced to the device: after a power failure the old file may be back, never a
/// mix. The file gets the mode that the process gives new files, not that of the file it replaces; a link at
/// `path` is replaced, not followed.
///
/// Thread safety: any threads and processes, also for the same path (the last rename wins).
/// @throws io_error naming the path; the old file is then untouched and the temporary file removed
inline void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    static std::atomic<unsigned> counter{0};
    std::filesystem::path temporary;
    detail::file_handle file;
    // Exclusive creation: neither another writer's file nor a planted link is ever written through.
    for (int attempts = 0; file == nullptr; ++attempts) {
        temporary = path;
        temporary += ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1));
        file.reset(std::fopen(temporary.c_str(), "wbx"));
        if (file == nullptr && (errno != EEXIST || attempts == 100)) {
            throw_io_error(temporary, "create", errno);
        }
    }
    int failure = 0;
    if ((!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) ||
        std::fflush(file.get()) != 0 || ::fsync(::fileno(file.get())) != 0) {
        failure = errno;
    }
    if (std::fclose(file.release()) != 0 && failure == 0) {
        failure = errno;
    }
    if (failure == 0) {
        std::error_code error;
        std::filesystem::rename(temporary, path, error);
        failure = error.value();
    }
    if (failure != 0) {
        std::error_code ignored;  // the first failure is the one to report
        std::filesystem::remove(temporary, ignored);
        throw_io_error(path, "write", failure);
    }
}

/// Removes what a process left in a folder that died while it wrote one of the files `names`: NAME.partial-X.
/// For whoever has the folder alone.
/// @throws io_error if the folder cannot be read or a file not removed
inline void remove_partial_files(const std::filesystem::path& folder,
                                 std::initializer_list<std::string_view> names) {
    std::error_code failure;
    std::filesystem::directory_iterator each(folder, failure);
    for (const std::filesystem::directory_iterator end; !failure && each != end; each.increment(failure)) {
        const std::string name = each->path().filename().string();
        const std::size_t stem = name.find(".partial-");
        if (stem != name.npos &&
            std::count(names.begin(), names.end(), std::string_view(name).substr(0, stem)) > 0) {
            std::filesystem::remove(each->path(), failure);
            if (failure) {
                throw_io_error(each->path(), "remove", failure.value());
            }
        }
    }
    if (failure) {
        throw_io_error(folder, "read this folder", failure.value());
    }
}

}  // namespace tensafe::io
