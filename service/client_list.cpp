#include "client_list.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>

#include <algorithm>
#include <sstream>

namespace split {

bool is_plain_name(std::string_view name, std::size_t longest) noexcept {
    constexpr std::string_view known = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return !name.empty() && name.size() <= longest && name.find_first_not_of(known) == name.npos;
}

static bool is_key(std::string_view text) noexcept {
    return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool is_path_below(std::string_view path) noexcept {
    bool fits = tensafe::is_printable_utf8(path);
    for (bool more = true; fits && more;) {
        const std::size_t slash = path.find('/');
        const std::string_view part = path.substr(0, slash);
        more = slash != path.npos;
        fits = !part.empty() && part != "." && part != "..";
        path.remove_prefix(more ? slash + 1 : 0);
    }
    return fits;
}

bool is_adapter_name(std::string_view name) noexcept {
    return name.size() <= longest_adapter_name && name.find('=') == name.npos && is_path_below(name);
}

client_list read_client_list(const std::filesystem::path& path, bool has_marks) {
    using tensafe::in_quotes;
    using tensafe::quote;
    constexpr std::size_t largest_file = std::size_t{16} << 20;
    constexpr std::size_t longest_tenant = 64;
    std::istringstream lines(tensafe::io::read_file<std::string>(path, largest_file));
    client_list result;
    std::map<std::string, share_limit> shares;  // by tenant
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number) {
        if (line.empty() || line.front() == '#') {
            continue;
        }
        const auto refuse = [&](const std::string& problem) {
            throw tensafe::format_error({in_quotes(path.native()), ": line ", number, ": got ", problem});
        };
        const std::size_t size = line.size();
        const std::size_t first = std::min(line.find(' '), size);
        const std::size_t second = std::min(line.find(' ', std::min(first + 1, size)), size);
        const std::string key = line.substr(0, first);
        const std::string tenant = line.substr(std::min(first + 1, size), second - first - 1);
        if (!is_key(key)) {
            refuse("the key " + quote(key) + ", expected 64 lower-case hexadecimal digits");
        }
        if (first < size && (!is_plain_name(tenant, longest_tenant) || is_key(tenant) || share_of(tenant))) {
            refuse("the tenant " + quote(tenant) +
                   ", expected 1 to 64 letters, digits, -, _ and ., which are no key and no share");
        }
        if (!result.emplace(key, client_tenant{tenant}).second) {
            refuse("the key " + quote(key) + " again, expected each once");
        }
        if (second == size) {
            continue;
        }
        const std::string share = line.substr(second + 1);
        const auto read = share_of(share);
        const share_limit earlier = shares.emplace(tenant, read.value_or(std::nullopt)).first->second;
        const std::string expected =
            !read              ? expected_share
            : !has_marks       ? "expected --mark-key with it: without marks nothing names who took it"
            : *read != earlier ? "expected " + text_of_share(earlier) +
                                     ", as an earlier line of this tenant has, or no share"
                               : "";
        if (!expected.empty()) {
            refuse("the share " + quote(share) + " of the tenant " + quote(tenant) + ", " + expected);
        }
    }
    for (auto& [key, tenant] : result) {
        if (const auto known = shares.find(tenant.name); known != shares.end()) {
            tenant.share = known->second;
        }
    }
    return result;
}

}  // namespace split
