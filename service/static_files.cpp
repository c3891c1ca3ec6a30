#include "static_files.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>

#include <algorithm>
#include <array>
#include <regex>
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
        const auto bytes =
            std::make_shared<const std::string>(tensafe::io::read_file<std::string>(path, left));
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
    static const std::regex secure(R"(https://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:(?!443$)[0-9]{1,5})?)");
    static const std::regex here(R"(http://(localhost|127\.0\.0\.1|\[::1\])(:(?!80$)[0-9]{1,5})?)");
    return std::regex_match(text.begin(), text.end(), secure) ||
           std::regex_match(text.begin(), text.end(), here);
}

}  // namespace split
