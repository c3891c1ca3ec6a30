#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "limits.hpp"

namespace split {

/// Whose limits a client counts in.
struct client_tenant {
    std::string name;  ///< empty: the client is a tenant of its own
    /// Of the tenant, and of each of its clients, in place of the server's; what all clients together may
    /// have is then that of the others. Nothing: the server's hold.
    std::optional<share_limit> share{};

    friend bool operator==(const client_tenant&, const client_tenant&) = default;
};

/// Public keys, 64 digits each, with the tenant that each belongs to.
using client_list = std::map<std::string, client_tenant, std::less<>>;

/// Whether this is UTF-8 without control characters, and no part between slashes is empty, "." or "..".
bool is_path_below(std::string_view path) noexcept;

inline constexpr std::size_t longest_adapter_name = 128;

/// Whether an adapter may be called this, as models are elsewhere ("org/adapter@v2", "gpt-oss:120b"): as
/// is_path_below, of at most longest_adapter_name bytes, without "=". No file is called so: stores count
/// under hashes of it.
bool is_adapter_name(std::string_view name) noexcept;

/// 1 to `longest` of letters, digits, -, _ and .: what tenants and hosts are called.
bool is_plain_name(std::string_view name, std::size_t longest) noexcept;

/// Reads lines of a key, and after a space each its tenant and the tenant's share, which holds for all lines
/// of it. Empty lines and those that begin with # say nothing.
/// @param has_marks  without marks nothing names who took a share, and none is read
/// @throws tensafe::io_error; format_error with the line for one that is none of these, a key that comes
///         twice, or a tenant with two shares
client_list read_client_list(const std::filesystem::path& path, bool has_marks);

}  // namespace split
