#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace split {

/// Base64 with padding, RFC 4648 section 4: four characters for each three bytes begun.
std::string base64(std::span<const std::uint8_t> bytes);

/// The bytes that `base64` would write as `text`, and nothing else: no spaces, no missing padding, no bits
/// that stand for nothing. A value then has one text.
/// @param what  how messages call the text
/// @pre  text.size() < 2^31
/// @throws tensafe::format_error otherwise, before anything is allocated if the length is wrong
std::vector<std::uint8_t> from_base64(std::string_view text, std::string_view what = "base64 text");

/// The bytes that a part of a URL stands for, RFC 3986 section 2.1; none if a % has no two digits behind it.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace split
