#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "net/connection.hpp"

namespace split {

/// The files of a page, read once: what was not in the folder then cannot be reached, whatever is asked for.
class static_files {
  public:
    static constexpr std::size_t most_files = 64;
    static constexpr std::size_t most_bytes = std::size_t{64} << 20;

    /// Reads all files of the folder and of those in it.
    /// @throws tensafe::io_error, naming it, for a folder without index.html, a file that cannot be read or
    ///         is none, as a link, or that nobody means to serve: with a dot in front, or where the server
    ///         has something else; and beyond the limits above
    explicit static_files(const std::filesystem::path& folder);

    /// The answer to a GET or HEAD of this target ("/", "/page.js?1"); status 404 if there is no such file.
    net::http_response find(std::string_view target) const;

  private:
    struct file {
        std::shared_ptr<const std::string> bytes;
        const char* type;
    };
    std::map<std::string, file, std::less<>> files_;
};

/// Whether this is what browsers send as Origin of a page that came safely: https, or http from this machine,
/// a host, a port if it is not the scheme's.
bool is_origin(std::string_view text);

}  // namespace split
