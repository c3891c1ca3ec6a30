#include "base64.hpp"

#include <tensafe/core/error.hpp>

#include <openssl/evp.h>

#include <charconv>
#include <cstddef>

namespace split {

constexpr std::size_t longest = std::size_t{1} << 30;  // OpenSSL counts in int

std::string base64(std::span<const std::uint8_t> bytes) {
    tensafe::require<tensafe::parameter_error>(
        bytes.size() <= longest / 4 * 3,
        {"base64: got ", bytes.size(), " bytes, expected at most ", longest / 4 * 3});
    std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL ends it with a zero
    auto* const to = reinterpret_cast<unsigned char*>(text.data());
    text.resize(static_cast<std::size_t>(EVP_EncodeBlock(to, bytes.data(), static_cast<int>(bytes.size()))));
    return text;
}

std::vector<std::uint8_t> from_base64(std::string_view text, std::string_view what) {
    tensafe::require<tensafe::format_error>(
        text.size() % 4 == 0 && text.size() <= longest,
        {what, ": got ", text.size(), " characters, expected a multiple of 4 of at most ", longest});
    std::vector<std::uint8_t> bytes(text.size() / 4 * 3);
    const int count = EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()));
    bytes.erase(bytes.end() - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0), bytes.end());
    // OpenSSL takes spaces at both ends, and bits that stand for nothing, too.
    tensafe::require<tensafe::format_error>(count >= 0 && base64(bytes) == text,
                                            {what, ": is not of base64, or not as it is written"});
    return bytes;
}

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string bytes;
    for (; !text.empty(); text.remove_prefix(1)) {
        auto byte = static_cast<unsigned char>(text.front());
        if (byte == '%') {
            const char* const digits = text.data() + 1;
            if (text.size() < 3 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
                return std::nullopt;
            }
            text.remove_prefix(2);
        }
        bytes += static_cast<char>(byte);
    }
    return bytes;
}

}  // namespace split
