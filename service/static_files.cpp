#include "static_files.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <utility>

namespace split {

namespace {

constexpr std::array<std::pair<std::string_view, const char*>, 8> types{
    {{".html", "text/html; charset=utf-8"},
     {".js", "text/javascript; charset=utf-8"},
     {".css", "text/css; charset=utf-8"},
     {".wasm", "application/wasm"},
     {".json", "application/json"},
     {".svg", "image/svg+xml"},
     {".png", "image/png"},
     {".txt", "text/plain; charset=utf-8"}}};

const char* type_of(const std::filesystem::path& file) {
    const std::string extension = file.extension().string();
    const auto known = std::ranges::find(types, extension, [](const auto& each) { return each.first; });
    return known == types.end() ? "application/octet-stream" : known->second;
}

}  // namespace

static_files::static_files(const std::filesystem::path& folder) {
    const auto refuse = [&](const std::filesystem::path& at, const std::string& what) {
        throw tensafe::io_error("--web " + tensafe::quote(folder.string()) + ": " +
                                tensafe::quote(at.string()) + ": " + what);
    };
    std::error_code failure;
    std::size_t left = most_bytes;
    for (std::filesystem::recursive_directory_iterator each(folder, failure), end; !failure && each != end;
         each.increment(failure)) {
        const auto& path = each->path();
        const std::string target = "/" + path.lexically_relative(folder).generic_string();
        if (target.find("/.") != target.npos || target == "/healthz" || target == "/metrics" ||
            target.starts_with("/admin") || target.starts_with("/v1")) {
            refuse(path, "expected names without a dot in front, and none of healthz, metrics, admin and v1");
        } else if (each->is_symlink()) {
            refuse(path, "got a link, expected a file");
        } else if (each->is_directory()) {
            continue;
        } else if (!each->is_regular_file()) {
            refuse(path, "expected a file");
        } else if (files_.size() == most_files) {
            refuse(path, "expected at most " + std::to_string(most_files) + " files");
        } else if (each->file_size() > left) {
            refuse(path, "expected at most " + std::to_string(most_bytes) + " bytes in all files");
        }
        std::ifstream in(path, std::ios::binary);
        const auto bytes = std::make_shared<const std::string>(std::istreambuf_iterator<char>(in),
                                                               std::istreambuf_iterator<char>());
        if (!in || bytes->size() > left) {
            refuse(path, "cannot be read");
        }
        left -= bytes->size();
        files_[target] = {bytes, type_of(path)};
    }
    if (failure) {
        refuse(folder, "cannot be read: " + failure.message());
    }
    const auto index = files_.find("/index.html");
    if (index == files_.end()) {
        refuse(folder / "index.html", "expected the page");
    }
    files_["/"] = index->second;
}

net::http_response static_files::find(std::string_view target) const {
    const auto found = files_.find(target.substr(0, target.find('?')));
    if (found == files_.end()) {
        return {404, "no such file\n"};
    }
    net::http_response answer{200, {}, found->second.type};
    answer.page = found->second.bytes;
    return answer;
}

bool is_origin(std::string_view text) {
    const bool is_secure = text.starts_with("https://");
    if (!is_secure && !text.starts_with("http://")) {
        return false;
    }
    text.remove_prefix(is_secure ? 8 : 7);
    const std::size_t end =
        text.starts_with('[') ? text.find(']') + 1 : std::min(text.find(':'), text.size());
    const std::string_view host = text.substr(0, end);
    const std::string_view port = text.substr(end);
    const auto all = [](std::string_view of, std::string_view known) {
        return !of.empty() && of.find_first_not_of(known) == of.npos;
    };
    const bool is_here = host == "localhost" || host == "127.0.0.1" || host == "[::1]";
    return (is_secure || is_here) &&
           (host.starts_with('[')
                ? host.size() > 2 && all(host.substr(1, host.size() - 2), "0123456789abcdef:.")
                : all(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_")) &&
           (port.empty() || (port.front() == ':' && port.size() <= 6 && all(port.substr(1), "0123456789") &&
                             port != (is_secure ? ":443" : ":80")));
}

}  // namespace split
