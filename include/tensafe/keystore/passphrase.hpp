#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/keystore/private_file.hpp>
#include <tensafe/memory/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace tensafe::keystore {

/// A passphrase that is missing where one is needed, given where none is, or wrong.
class passphrase_error : public error {
  public:
    using error::error;
};

/// A passphrase in memory that is wiped, or none. Its bytes count as they are: the same letters typed on two
/// systems may be different bytes unless they are ASCII.
///
/// Movable, not copyable; a moved-from one is none. Const members may be called from any thread.
class passphrase {
  public:
    static constexpr std::size_t longest = 1024;

    /// None: what it would protect is not wrapped.
    passphrase() noexcept = default;

    /// @param text  copied; the caller wipes the original
    /// @throws parameter_error unless it has 1 to `longest` bytes: an empty variable of the environment does
    ///         not stand for "no passphrase"
    explicit passphrase(std::string_view text) : bytes_(checked(text.size()), memory::uninitialized) {
        std::copy(text.begin(), text.end(), bytes_.data());
    }

    passphrase(passphrase&&) noexcept = default;
    passphrase& operator=(passphrase&&) noexcept = default;
    passphrase(const passphrase&) = delete;
    passphrase& operator=(const passphrase&) = delete;

    /// The one line of a file that only its owner may read. Its line feed, if there is one, does not belong
    /// to the passphrase, nor does a carriage return before it.
    /// @throws io_error as read_private_file; format_error if there are several lines, or not 1 to `longest`
    ///         bytes in the one
    static passphrase read(const std::filesystem::path& path) {
        const memory::secret_buffer<std::byte> bytes = read_private_file(path, longest + 2);
        std::string_view line(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (line.ends_with('\n')) {
            line.remove_suffix(1);
            if (line.ends_with('\r')) {
                line.remove_suffix(1);
            }
        }
        if (line.empty() || line.size() > longest || line.find('\n') != line.npos) {
            throw format_error(io::quote(path.string()) + ": is no passphrase: expected one line of 1 to " +
                               std::to_string(longest) + " bytes");
        }
        return passphrase(line);
    }

    /// Whether there is none.
    bool empty() const noexcept { return bytes_.empty(); }
    /// Valid as long as this object is.
    std::string_view text() const noexcept { return {bytes_.data(), bytes_.size()}; }

  private:
    static std::size_t checked(std::size_t size) {
        if (size == 0 || size > longest) {
            throw parameter_error("passphrase: got " + std::to_string(size) + " bytes, expected 1 to " +
                                  std::to_string(longest));
        }
        return size;
    }

    memory::secret_buffer<char> bytes_;
};

}  // namespace tensafe::keystore
