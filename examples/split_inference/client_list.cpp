#include "client_list.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>

#include <algorithm>
#include <span>
#include <sstream>

namespace split {

namespace {

constexpr std::string_view letters_and_digits =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
constexpr std::size_t key_digits = 64;
constexpr std::size_t longest_tenant = 64;
constexpr std::size_t largest_file = std::size_t{16} << 20;

}  // namespace

bool is_plain_name(std::string_view name, std::size_t longest) noexcept {
    return !name.empty() && name.size() <= longest && std::all_of(name.begin(), name.end(), [](char c) {
        return letters_and_digits.find(c) != letters_and_digits.npos || c == '-' || c == '_' || c == '.';
    });
}

client_list read_client_list(const std::filesystem::path& path) {
    using tensafe::quote;
    tensafe::io::input_file file(path);
    if (file.size() > largest_file) {
        throw tensafe::format_error(quote(path.string()) + ": got " + std::to_string(file.size()) +
                                    " bytes, expected at most " + std::to_string(largest_file));
    }
    std::string all(file.size(), '\0');
    file.read(std::as_writable_bytes(std::span<char>(all)));
    std::istringstream lines(all);
    client_list result;
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number) {
        if (line.empty() || line.front() == '#') {
            continue;
        }
        const auto refuse = [&](const std::string& problem) {
            throw tensafe::format_error(quote(path.string()) + ": line " + std::to_string(number) + ": got " +
                                        problem);
        };
        const std::size_t space = std::min(line.find(' '), line.size());
        const std::string key = line.substr(0, space);
        if (key.size() != key_digits || key.find_first_not_of("0123456789abcdef") != key.npos) {
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
