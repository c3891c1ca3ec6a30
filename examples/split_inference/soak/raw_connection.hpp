#pragma once

#include <openssl/ssl.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

#include "../net/tls_exporter.hpp"
#include "check.hpp"

namespace split::soak {

using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;

/// Where the server under test listens.
struct endpoint {
    std::uint16_t port = 0;
    bool tls = false;
};

// Operations of RFC 6455, section 5.2.
inline constexpr unsigned op_continuation = 0;
inline constexpr unsigned op_text = 1;
inline constexpr unsigned op_binary = 2;
inline constexpr unsigned op_close = 8;
inline constexpr unsigned op_ping = 9;
inline constexpr unsigned op_pong = 10;

/// How a frame breaks the rules.
struct frame_shape {
    bool final = true;
    bool masked = true;
    unsigned reserved = 0;  ///< three bits
    int length_bytes = 0;   ///< of the length: 1, 2 or 8; 0: the shortest, as the rules want it
};

/// The header of a frame from a client. Its mask, if there is one, is zero, so that data goes as it is.
inline std::string frame_header(unsigned operation, std::uint64_t length, frame_shape shape = {}) {
    std::string bytes;
    bytes += static_cast<char>((shape.final ? 0x80u : 0u) | (shape.reserved << 4) | operation);
    const unsigned mask = shape.masked ? 0x80u : 0u;
    const int size = shape.length_bytes != 0 ? shape.length_bytes
                     : length < 126          ? 1
                     : length < 65'536       ? 2
                                             : 8;
    if (size == 1) {
        bytes += static_cast<char>(mask | static_cast<unsigned>(length));
    } else {
        bytes += static_cast<char>(mask | (size == 2 ? 126u : 127u));
        for (int i = size - 1; i >= 0; --i) {
            bytes += static_cast<char>((length >> (8 * i)) & 0xffu);
        }
    }
    return shape.masked ? bytes.append(4, '\0') : bytes;
}

inline std::string whole_frame(unsigned operation, std::string_view data, frame_shape shape = {}) {
    return frame_header(operation, data.size(), shape).append(data);
}

/// A client that sends what it likes: a socket, TLS over it if asked, and WebSocket frames by hand. It does
/// not look at the server's certificate.
class raw_connection {
  public:
    struct frame {
        unsigned operation = 0;
        std::string data;
        /// Of a close frame; 0 if it has none.
        unsigned close_code() const {
            return data.size() < 2 ? 0u
                                   : static_cast<unsigned>(static_cast<unsigned char>(data[0])) << 8 |
                                         static_cast<unsigned char>(data[1]);
        }
    };
    struct options {
        int receive_buffer = 0;  ///< bytes in the kernel; 0: as the system likes
        const char* from = nullptr;
        const char* suites = nullptr;  ///< of TLS 1.2, and no other TLS
    };

    /// Connects; no TLS yet. @throws failure
    explicit raw_connection(endpoint to, options how)
        : to_(to), suites_(how.suites), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        require(socket_ >= 0, "socket", std::strerror(errno), "a socket");
        if (how.receive_buffer > 0) {
            ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &how.receive_buffer, sizeof(how.receive_buffer));
        }
        // A record of TLS must not wait until the one before it is acknowledged.
        const int now = 1;
        ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &now, sizeof(now));
        const timeval longest{20, 0};
        ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
        ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof(longest));
        sockaddr_in where{};
        where.sin_family = AF_INET;
        if (how.from != nullptr) {
            ::inet_pton(AF_INET, how.from, &where.sin_addr);
            ::bind(socket_, reinterpret_cast<const sockaddr*>(&where), sizeof(where));
        }
        where.sin_port = htons(to.port);
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(socket_, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
            const int reason = errno;
            ::close(socket_);
            throw failure(std::string("connect: got ") + std::strerror(reason) + ", expected a connection");
        }
    }
    explicit raw_connection(endpoint to) : raw_connection(to, options{}) {}
    raw_connection(const raw_connection&) = delete;
    raw_connection& operator=(const raw_connection&) = delete;
    ~raw_connection() {
        ssl_.reset();
        ::close(socket_);
    }

    /// TLS, if the server has it. Whether there is one now that works.
    bool secure() {
        if (!to_.tls) {
            return true;
        }
        context_.reset(SSL_CTX_new(TLS_client_method()));
        if (suites_ != nullptr) {
            SSL_CTX_set_max_proto_version(context_.get(), TLS1_2_VERSION);
            SSL_CTX_set_cipher_list(context_.get(), suites_);
        }
        ssl_.reset(SSL_new(context_.get()));
        SSL_set_fd(ssl_.get(), socket_);
        return SSL_connect(ssl_.get()) == 1;
    }

    /// Whether the system took all of it.
    bool send(std::string_view data) {
        while (!data.empty()) {
            const auto sent = ssl_ ? SSL_write(ssl_.get(), data.data(), static_cast<int>(data.size()))
                                   : ::send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return false;
            }
            data.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }

    /// Takes at least one byte more of what the server says. @return how many; 0 if it has ended the
    /// connection
    /// @throws failure if neither happens in time
    std::size_t receive_more(milliseconds limit, std::size_t most = 4096) {
        std::array<char, 4096> data{};
        most = std::min(most, data.size());
        if (!ssl_ || SSL_pending(ssl_.get()) == 0) {
            pollfd one{socket_, POLLIN, 0};
            require(::poll(&one, 1, static_cast<int>(limit.count())) == 1, "the server",
                    "nothing in " + text_of(limit.count()) + " ms", "a word, or the end of the connection");
        }
        const auto got = ssl_ ? SSL_read(ssl_.get(), data.data(), static_cast<int>(most))
                              : ::recv(socket_, data.data(), most, 0);
        const std::size_t count = got > 0 ? static_cast<std::size_t>(got) : 0;
        received_.append(data.data(), count);
        return count;
    }

    /// What comes until `end` is in it, or the connection ends.
    std::string receive_until(std::string_view end, milliseconds limit = patience) {
        std::size_t place = 0;
        while ((place = received_.find(end)) == std::string::npos) {
            if (receive_more(limit) == 0) {
                return std::exchange(received_, {});
            }
        }
        std::string result = received_.substr(0, place + end.size());
        received_.erase(0, result.size());
        return result;
    }
    /// All that comes until the connection ends.
    std::string receive_all(milliseconds limit = patience) {
        while (receive_more(limit) > 0) {
        }
        return std::exchange(received_, {});
    }

    /// TLS and the upgrade. @throws failure if the server does not agree
    void upgrade() {
        require(secure(), "TLS handshake", "no", "a connection");
        send(
            "GET /v1/split HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
        require_contains("upgrade", receive_until("\r\n\r\n"), " 101 ");
    }

    /// The next frame, pings among them; nothing if the connection ends before it is whole.
    std::optional<frame> receive_any_frame(milliseconds limit = patience) {
        const auto wait_for = [&](std::size_t bytes) {
            while (received_.size() < bytes) {
                if (receive_more(limit) == 0) {
                    return false;
                }
            }
            return true;
        };
        const auto at = [&](std::size_t i) { return static_cast<unsigned char>(received_[i]); };
        if (!wait_for(2)) {
            return std::nullopt;
        }
        std::uint64_t length = at(1) & 0x7fu;
        const std::size_t extra = length == 126 ? 2 : length == 127 ? 8 : 0;
        if (!wait_for(2 + extra)) {
            return std::nullopt;
        }
        if (extra > 0) {
            length = 0;
            for (std::size_t i = 0; i < extra; ++i) {
                length = length << 8 | at(2 + i);
            }
        }
        frame result;
        result.operation = at(0) & 0x0fu;
        if (!wait_for(2 + extra + length)) {
            return std::nullopt;
        }
        result.data = received_.substr(2 + extra, length);
        received_.erase(0, 2 + extra + length);
        return result;
    }
    /// The next one that is no ping; pings are answered.
    std::optional<frame> receive_frame(milliseconds limit = patience) {
        for (;;) {
            auto next = receive_any_frame(limit);
            if (!next || next->operation != op_ping) {
                return next;
            }
            send(whole_frame(op_pong, next->data));
        }
    }
    /// The next frame, which must be a text. @throws failure
    std::string receive_text() {
        const auto next = receive_frame();
        require(next && next->operation == op_text, "frame",
                next ? "operation " + text_of(next->operation) : std::string("the end of the connection"),
                "a text");
        return next->data;
    }
    /// Reads until the connection ends. The code of the close frame before that, 0 if there is none.
    unsigned receive_end(milliseconds limit = patience) {
        unsigned code = 0;
        for (;;) {
            const auto next = receive_any_frame(limit);
            if (!next) {
                return code;
            }
            if (next->operation == op_close) {
                code = next->close_code();
                send(whole_frame(op_close, next->data));
            }
        }
    }

    std::array<std::byte, 32> tls_exporter() const {
        return ssl_ ? net::tls_exporter(ssl_.get()) : std::array<std::byte, 32>{};
    }

    /// Ends the connection as a machine does that lost its power and came back.
    void reset() {
        const linger now{1, 0};
        ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }

    static constexpr milliseconds patience{20'000};

  private:
    struct free_ssl {
        void operator()(SSL* p) const noexcept { SSL_free(p); }
        void operator()(SSL_CTX* p) const noexcept { SSL_CTX_free(p); }
    };

    endpoint to_;
    const char* suites_;
    int socket_;
    std::unique_ptr<SSL_CTX, free_ssl> context_;
    std::unique_ptr<SSL, free_ssl> ssl_;
    std::string received_;
};

}  // namespace split::soak
