#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../tls_certificate.hpp"
#include "connection.hpp"
#include "proxy_header.hpp"

namespace split::net {

struct http_server_options {
    std::string address = "127.0.0.1";
    std::uint16_t port = 0;  ///< 0: any
    std::size_t threads = 2;
    std::optional<tls_files> secure{};  ///< nothing: no TLS
    std::string websocket_path = net::websocket_path;
    /// At once. Of these an eighth is only for established ones, an eighth only for others. Where all of a
    /// sort are taken, that which is idle for longest of the address with the most of the sort makes room for
    /// one of an address with fewer; else the newcomer is closed. An address of IPv6 is a /64.
    std::size_t connections = 512;
    std::size_t connections_of_address = 256;
    /// Whose connections begin with a header of the PROXY protocol, which says whose they are.
    /// Before it is there they take no place; as many as there are places may wait for theirs.
    std::vector<address_range> proxies{};
    bool has_pages = false;            ///< browsers are told to use nothing but TLS for this host from now on
    std::size_t header_bytes = 8'192;  ///< also of what is read ahead of a request
    std::size_t body_bytes = 65'536;
    /// For a proxy's header and TLS, for a whole HTTP request, from an upgrade to a handler that is
    /// established, for a close.
    std::chrono::milliseconds handshake_time = std::chrono::seconds(10);
    /// Of silence; a ping is sent after half of it. Also how long HTTP requests may follow each other on one
    /// connection: then it is closed after the next.
    std::chrono::milliseconds idle_time = std::chrono::seconds(60);
    /// For a frame that was begun to be there whole.
    std::chrono::milliseconds frame_time = std::chrono::seconds(30);
    /// For a frame, or each MB of a longer one, and for an HTTP response to be taken.
    std::chrono::milliseconds write_time = std::chrono::seconds(30);
};

/// What a server does with what comes. Called from its threads, several at a time.
struct http_server_handlers {
    std::function<http_response(const http_request&)> answer;
    /// One side of a WebSocket connection. It is destroyed when the connection is over.
    std::function<std::unique_ptr<websocket_handler>(const caller& from,
                                                     std::weak_ptr<connection_control> control)>
        connect;
    /// A connection from this address was closed, as it came or for another one: there are as many as there
    /// may be.
    std::function<void(const std::string& address)> refused = [](const std::string&) {};
    /// A page of this origin was refused.
    std::function<void(const std::string& origin, const std::string& address)> origin_refused =
        [](const std::string&, const std::string&) {};
    /// Whether a connection may come from this address now.
    std::function<bool(const std::string& address)> admits = [](const std::string&) { return true; };
};

/// A server of HTTP/1.1 and WebSockets on one port, with TLS 1.3, TLS 1.2 with AEAD, or none. A connection
/// belongs to one of the server's threads, that with the fewest when it came. While frames of others are
/// being answered, its own are answered by as many other threads, in turns: see fair_queue.
///
/// A frame beyond what its handler takes ends the connection before memory is taken for it. Whoever is silent
/// for idle_time, a ping included, does not finish a handshake, a session's beginning or a frame in time, or
/// does not take a frame in time, is gone. Compression is never agreed on. Every socket is closed when the
/// server is destroyed.
class http_server {
  public:
    /// Binds and listens; connections wait until run.
    /// @throws tensafe::io_error if the address cannot be used, or certificate and key cannot
    http_server(http_server_options options, http_server_handlers handlers);
    ~http_server();
    http_server(const http_server&) = delete;
    http_server& operator=(const http_server&) = delete;

    std::uint16_t port() const noexcept;

    /// From now on WebSockets of pages of these origins may come; of others none.
    void allow_origins(std::vector<std::string> origins);
    /// From now on newcomers are shown this one, where there is TLS. @throws std::exception if it is no good
    void use_certificate(const tls_files& files);
    /// Starts the threads. Once.
    void run();
    /// WebSocket connections get their handler's last words, each when it has answered what it is at, and
    /// close. New ones are still taken: their handlers know what to say, and /healthz must be answered.
    void drain();
    /// Waits until no WebSocket connection is left. Whether that was so in time.
    bool wait_until_drained(std::chrono::milliseconds time);
    /// Cuts what there is and ends the threads. Also done by the destructor.
    void stop();

    std::size_t connections() const noexcept;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace split::net
