#pragma once

#include <tensafe/core/error.hpp>

#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace split::net {

/// The value tls-exporter of RFC 9266, which the two ends of one TLS connection share: who stands between
/// them has another one with each, whatever certificates there are.
/// @param of  after its handshake
/// @throws tensafe::unsupported_error for TLS 1.2 without extended master secret, where that does not hold
inline std::array<std::byte, 32> tls_exporter(SSL* of) {
    constexpr std::string_view label = "EXPORTER-Channel-Binding";
    constexpr int with_context = 1;  // an empty one, which in TLS 1.2 is not the same as none
    std::array<std::byte, 32> value{};
    if ((SSL_version(of) < TLS1_3_VERSION && SSL_get_extms_support(of) != 1) ||
        SSL_export_keying_material(of, reinterpret_cast<unsigned char*>(value.data()), value.size(),
                                   label.data(), label.size(), nullptr, 0, with_context) != 1) {
        throw tensafe::unsupported_error("TLS: got " + std::string(SSL_get_version(of)) +
                                         " without extended master secret (RFC 7627), expected TLS 1.3, or "
                                         "1.2 with it");
    }
    return value;
}

}  // namespace split::net
