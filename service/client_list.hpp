#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace split {

/// Public keys, 64 digits each, with the name of the tenant that each belongs to; empty: it is one of its
/// own.
using client_list = std::map<std::string, std::string, std::less<>>;

/// Whether this is UTF-8 without control characters, and no part between slashes is empty, "." or "..".
bool is_path_below(std::string_view path) noexcept;

inline constexpr std::size_t longest_adapter_name = 128;

/// Whether an adapter may be called this, as models are elsewhere ("org/adapter@v2", "gpt-oss:120b"): as
/// is_path_below, of at most longest_adapter_name bytes, without "=". No file is called so: stores count
/// under hashes of it.
bool is_adapter_name(std::string_view name) noexcept;

/// 1 to `longest` of letters, digits, -, _ and .: what tenants and hosts are called.
bool is_plain_name(std::string_view name, std::size_t longest) noexcept;

/// Reads lines of a key, or a key, a space and a tenant. Empty lines and those that begin with # say nothing.
/// @throws tensafe::io_error; format_error with the line for one that is neither, or a key that comes twice
client_list read_client_list(const std::filesystem::path& path);

}  // namespace split
