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

client_list read_client_list(const std::filesystem::path& path) {
    using tensafe::in_quotes;
    using tensafe::quote;
    constexpr std::size_t largest_file = std::size_t{16} << 20;
    constexpr std::size_t longest_tenant = 64;
    std::istringstream lines(tensafe::io::read_file<std::string>(path, largest_file));
    client_list result;
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number) {
        if (line.empty() || line.front() == '#') {
            continue;
        }
        const auto refuse = [&](const std::string& problem) {
            throw tensafe::format_error({in_quotes(path.native()), ": line ", number, ": got ", problem});
        };
        const std::size_t space = std::min(line.find(' '), line.size());
        const std::string key = line.substr(0, space);
        if (key.size() != 64 || key.find_first_not_of("0123456789abcdef") != key.npos) {
            refuse("the key " + quote(key) + ", expected 64 lower-case hexadecimal digits");
        }
        const std::string tenant = line.substr(std::min(space + 1, line.size()));
        if (space < line.size() && !is_plain_name(tenant, longest_tenant)) {
            refuse("the tenant " + quote(tenant) + ", expected 1 to 64 letters, digits, -, _ and .");
        }
        if (!result.emplace(key, tenant).second) {
            refuse("the key " + quote(key) + " again, expected each once");
        }
    }
    return result;
}

}  // namespace split
