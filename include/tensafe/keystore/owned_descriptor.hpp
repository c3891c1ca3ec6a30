#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/message.hpp>

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

// Files that hold something secret: descriptors instead of streams, whose buffers would keep it.

namespace tensafe::keystore::detail {

/// An open file that closes itself.
class owned_descriptor {
  public:
    explicit owned_descriptor(int value) noexcept : value_(value) {}
    owned_descriptor(owned_descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
    owned_descriptor& operator=(owned_descriptor other) noexcept {
        std::swap(value_, other.value_);
        return *this;
    }
    ~owned_descriptor() {
        if (value_ >= 0) {
            static_cast<void>(::close(value_));
        }
    }
    int get() const noexcept { return value_; }
    /// Closes it now.  Returns errno or 0.
    int close() noexcept { return ::close(std::exchange(value_, -1)) == 0 ? 0 : errno; }

  private:
    int value_;
};

/// A new file for its owner alone (mode 0600), to be written and then given its name.
/// @param name  ends in XXXXXX, which becomes what no file has: also after a process of the same number died
///              here. Empty if this throws
/// @throws io_error if it cannot be created
inline owned_descriptor create_temporary(std::string& name) {
    // Exclusive, and with mode 0600 whatever the process gives other files.
    const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor < 0) {
        const int failure = errno;
        io::throw_io_error(std::exchange(name, {}), "create", failure);
    }
    return owned_descriptor(descriptor);
}

/// @throws io_error if anybody but this user, or root, decides what stands there
inline void check_owner(const std::filesystem::path& path, const struct stat& status) {
    if ((status.st_uid != ::geteuid() && status.st_uid != 0) || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        throw io_error(io::quote(path.string()) + ": is not used: another user owns it or may write it");
    }
}

}  // namespace tensafe::keystore::detail
