#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/keystore/openssl.hpp>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tensafe::keystore {

/// Two lower-case hexadecimal digits for each byte, the first byte first.
inline std::string hex(std::span<const std::byte> bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    text.reserve(2 * bytes.size());
    for (const std::byte byte : bytes) {
        text += digits[std::to_integer<std::size_t>(byte >> 4)];
        text += digits[std::to_integer<std::size_t>(byte & std::byte{0x0f})];
    }
    return text;
}

/// The bytes that `hex` would write as `text`, and nothing else: no upper case, no prefix, no spaces. A value
/// then has one text, so that texts may be compared.
/// @param what how messages call the text
/// @throws format_error if it has not exactly 2 * Bytes digits, or another character (the message gives its
///         position, never the text: it may have been meant to be secret)
template <std::size_t Bytes>
std::array<std::byte, Bytes> from_hex(std::string_view text, std::string_view what = "hexadecimal text") {
    require<format_error>(text.size() == 2 * Bytes, {what, ": got ", text.size(), " characters, expected ",
                                                     2 * Bytes, " lower-case hexadecimal digits"});
    std::array<std::byte, Bytes> bytes{};
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char digit = text[i];
        unsigned value = 0;
        if (digit >= '0' && digit <= '9') {
            value = static_cast<unsigned>(digit - '0');
        } else if (digit >= 'a' && digit <= 'f') {
            value = static_cast<unsigned>(digit - 'a') + 10;
        } else {
            throw format_error({what, ": character ", i, " is not a lower-case hexadecimal digit"});
        }
        bytes[i / 2] |= static_cast<std::byte>(i % 2 == 0 ? value << 4 : value);
    }
    return bytes;
}

/// The SHA-256 of a message.
using sha256_digest = std::array<std::byte, 32>;

/// SHA-256 (FIPS 180-4) of a message that comes in pieces, by OpenSSL.
/// Cost: about 1 to 2 GB/s on a core with the SHA instructions, 0.4 GB/s without.
///
/// Movable, not copyable; a moved-from object may only be assigned to or destroyed. One thread at a time.
/// Errors: tensafe::error with OpenSSL's reason; none are known to occur but for memory.
/// OpenSSL's queue of reports stays as the application left it.
class sha256 {
  public:
    sha256() : context_(EVP_MD_CTX_new()) {
        const openssl_reports reports;
        reports.require(context_ != nullptr, "make a SHA-256 context");
        begin(reports);
    }

    /// Appends `bytes` to the message.
    void update(std::span<const std::byte> bytes) {
        const openssl_reports reports;
        reports.check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), "continue SHA-256");
    }

    /// The digest of all that was given to `update` since construction or the last `finish`. A new message
    /// begins.
    sha256_digest finish() {
        const openssl_reports reports;
        sha256_digest digest{};
        reports.check(EVP_DigestFinal_ex(context_.get(), octets(digest.data()), nullptr), "finish SHA-256");
        begin(reports);
        return digest;
    }

    /// The digest of a message in one piece.
    static sha256_digest of(std::span<const std::byte> bytes) {
        sha256 hash;
        hash.update(bytes);
        return hash.finish();
    }

  private:
    void begin(const openssl_reports& reports) {
        reports.check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), "begin SHA-256");
    }

    std::unique_ptr<EVP_MD_CTX, openssl_release<&EVP_MD_CTX_free>> context_;
};

/// HMAC-SHA-256 (RFC 2104) of a text: without the key nobody tells it from random bytes.
/// @param key  at least 32 random bytes
/// Errors: as of sha256.
inline sha256_digest hmac_sha256(std::span<const std::byte> key, std::string_view text) {
    const openssl_reports reports;
    sha256_digest digest{};
    reports.require(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), octets(text.data()),
                         text.size(), octets(digest.data()), nullptr) != nullptr,
                    "compute HMAC-SHA-256");
    return digest;
}

}  // namespace tensafe::keystore
