#pragma once

#include <tensafe/core/error.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace split {

/// The connection could not be made, ended, or did not bring what was waited for in time. Another one may
/// work; what was under way is lost.
class connection_lost : public tensafe::io_error {
  public:
    using tensafe::io_error::io_error;
    connection_lost(const std::string& message, std::optional<std::chrono::milliseconds> later)
        : io_error(message), retry_after(later) {}

    std::optional<std::chrono::milliseconds> retry_after{};  ///< when to come again, if the server said so
    /// The host is not known, or who answered is no such server or speaks another scheme: whoever was never
    /// connected waits for it in vain.
    bool is_wrong_server = false;
};

/// How long a client waits, and what it does meanwhile.
struct wait_options {
    std::chrono::milliseconds limit{60'000};
    /// Called where nothing came for 50 ms, and a round trip if it is known. What it throws ends the wait and
    /// the connection.
    std::function<void()> poll = [] {};
};

/// A WebSocket connection as a client sees it: whole frames, in order. For one thread at a time.
///
/// All calls of a step together are bounded in time. After connection_lost the connection is closed, and
/// every further call throws it.
class client_connection {
  public:
    struct frame {
        bool is_text = false;
        std::span<const std::uint8_t> bytes;  ///< valid until the next call of receive

        std::string_view text() const noexcept {
            return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
        }
    };
    /// Bytes on the wire, both ways, since the beginning: with frames, and where there is TLS with that.
    struct traffic {
        std::uint64_t up = 0;
        std::uint64_t down = 0;
    };

    virtual ~client_connection() = default;

    /// Begins a step: all calls until the next one are to be done within this time, whatever comes meanwhile.
    /// The making of a connection begins its first.
    /// @param step  for people
    virtual void begin(const char* step, std::chrono::milliseconds limit) = 0;

    /// Returns when the frame is given to the system. Meanwhile a connection takes in what arrives, up to a
    /// bound: so whoever sends many frames before it receives is not waited for by a server that answers
    /// each.
    /// @throws connection_lost
    virtual void send_text(std::string_view text) = 0;
    virtual void send_binary(std::span<const std::uint8_t> message) = 0;

    /// The next frame.
    /// @throws connection_lost if it does not come; format_error if it is longer than this connection takes,
    ///         as it would be again over another one
    virtual frame receive() = 0;

    /// Says so to the other side, waits a moment for its answer, and closes. Nothing if it is closed already.
    virtual void close() noexcept = 0;

    virtual traffic bytes() const noexcept = 0;

    /// Of the upgrade, on which a server computes nothing: also through a proxy; 0 if it was not measured.
    virtual std::chrono::nanoseconds round_trip() const noexcept { return {}; }

    /// As net::tls_exporter; zeros where there is no TLS.
    virtual std::array<std::byte, 32> tls_exporter() const { return {}; }
};

/// wss://host:port, or ws://host:port for a connection in the clear.
struct server_address {
    bool tls = true;
    std::string host;  ///< a name, or an IPv4 or IPv6 address without brackets
    std::string port;  ///< a number, 1 to 65535; 443 or 80 if the text has none

    /// @throws tensafe::parameter_error, saying what was needed
    static server_address of(std::string_view url);

    std::string host_and_port() const;
    std::string text() const { return (tls ? "wss://" : "ws://") + host_and_port(); }
};

/// An HTTP proxy that takes CONNECT. TLS goes through it from end to end, and it looks up the server's name.
struct http_proxy {
    server_address at;
    std::string credentials{};  ///< "user:password" in base64, or empty; no message shows them

    /// The proxy to this server by the environment, as curl reads it: the first of https_proxy, HTTPS_PROXY,
    /// all_proxy and ALL_PROXY that is not empty, unless no_proxy or else NO_PROXY has `*`, the host, or a
    /// domain that it is in. So a loopback address has one, too; ws:// has none.
    /// @throws tensafe::parameter_error for a value that is not http://[user:password@]host[:port], where 80
    ///         is the port if there is none; without the value, which may have a password in it
    static std::optional<http_proxy> of_environment(const server_address& to);
};

/// What may help where who is at the other end of TLS is not who should be.
inline constexpr std::string_view if_tls_ends_on_the_way =
    "; a proxy or middlebox that ends TLS must let this server's through unopened: a session is bound to it";

struct websocket_options {
    /// Certificates in PEM that are trusted, and no others. Needed for TLS.
    std::filesystem::path trusted_certificates{};
    /// That is received; a longer one ends the connection.
    std::size_t largest_frame = std::size_t{64} << 20;
    /// A wait for the server begins with so much time in which the processor asks again and again instead of
    /// sleeping: a reply that comes within it comes sooner, by the time to wake up, and a core is busy.
    std::chrono::microseconds busy_wait{0};
    std::optional<http_proxy> proxy{};  ///< that it goes through
    /// As W3C Trace Context has it, version 00, for the server's log; empty: nothing is sent.
    std::string traceparent{};
};

/// Connects to a server. TLS 1.2 at least; its certificate must be one of the trusted, or be signed by one,
/// and be made out to the host of the address. Nothing is compressed.
///
/// @param how  for the host's name, TCP, TLS, WebSocket and what follows, until `begin`; its `poll` for good
/// @throws connection_lost naming the address if it cannot be reached, also by the proxy, or is no such
///         server; what `how.poll` throws;
///         tensafe::signature_error if its certificate is not trusted, unsupported_error for TLS without
///         net::tls_exporter: trying again would not help;
///         tensafe::io_error if the trusted certificates cannot be read;
///         tensafe::parameter_error for TLS without trusted certificates, and another traceparent
std::unique_ptr<client_connection> connect_websocket(const server_address& to,
                                                     const websocket_options& options,
                                                     const wait_options& how = {});

}  // namespace split
