#pragma once

#include <cerrno>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "../test.hpp"

namespace tests {

inline std::vector<std::byte> to_bytes(std::string_view text) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

/// A safetensors file put together by hand: whatever header, whatever data.
inline std::string safetensors_text(std::string_view header, std::string_view data) {
    const auto length = std::bit_cast<std::array<char, 8>>(std::uint64_t{header.size()});
    return std::string(length.data(), length.size()) + std::string(header) + std::string(data);
}

/// All bytes of a file.
inline std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Permissions of a file, with the bits for set-user-ID, set-group-ID and sticky.
inline unsigned mode_of(const std::filesystem::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
        throw std::filesystem::filesystem_error("stat", path,
                                                std::error_code(errno, std::generic_category()));
    }
    return status.st_mode & 07777;
}

inline std::ptrdiff_t entries(const std::filesystem::path& folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
}

/// A directory that goes away with the object.
class temporary_directory {
  public:
    temporary_directory() {
        std::string name = (std::filesystem::temp_directory_path() / "tensafe-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::filesystem::filesystem_error("mkdtemp", name,
                                                    std::error_code(errno, std::generic_category()));
        }
        path_ = name;
    }
    temporary_directory(const temporary_directory&) = delete;
    temporary_directory& operator=(const temporary_directory&) = delete;
    ~temporary_directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    const std::filesystem::path& path() const noexcept { return path_; }

    std::filesystem::path put(const std::string& name, std::string_view contents) const {
        std::ofstream(path_ / name, std::ios::binary) << contents;
        return path_ / name;
    }

  private:
    std::filesystem::path path_;
};

}  // namespace tests
