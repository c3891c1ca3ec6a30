#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "client_connection.hpp"

namespace split {

/// wss://host:port, or ws://host:port for a connection in the clear.
struct server_address {
    bool tls = true;
    std::string host;  ///< a name, or an IPv4 or IPv6 address without brackets
    std::string port;  ///< a number, 1 to 65535; 443 or 80 if the text has none

    /// @throws tensafe::parameter_error, saying what was needed
    static server_address of(std::string_view url);

    std::string text() const;
};

struct websocket_options {
    /// Certificates in PEM that are trusted, and no others. Needed for TLS.
    std::filesystem::path trusted_certificates;
    std::chrono::milliseconds connect_limit{10'000};  ///< TCP, TLS and WebSocket together
    std::chrono::milliseconds send_limit{30'000};     ///< for one frame
    std::chrono::milliseconds close_limit{1'000};
    /// That is received; a longer one ends the connection.
    std::size_t largest_frame = std::size_t{64} << 20;
    /// A wait for the server begins with so much time in which the processor asks again and again instead of
    /// sleeping: a reply that comes within it comes sooner, by the time to wake up, and a core is busy.
    std::chrono::microseconds busy_wait{0};
};

/// Connects to a server. TLS 1.2 at least; its certificate must be one of the trusted, or be signed by one,
/// and be made out to the host of the address. Nothing is compressed.
///
/// Looking up a host's name takes as long as the system's resolver lets it; all else keeps to the limits.
/// @throws connection_lost naming the address if it cannot be reached or is no such server;
///         tensafe::signature_error if its certificate is not trusted: trying again would not help;
///         tensafe::io_error if the trusted certificates cannot be read;
///         tensafe::parameter_error for TLS without trusted certificates
std::unique_ptr<client_connection> connect_websocket(const server_address& to,
                                                     const websocket_options& options);

}  // namespace split
