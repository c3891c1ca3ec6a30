#pragma once

#include <openssl/ssl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/endian/conversion.hpp>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "../../../service/net/tls_exporter.hpp"
#include "check.hpp"

namespace split::soak {

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
    bytes += static_cast<char>(mask | (size == 1 ? static_cast<unsigned>(length) : size == 2 ? 126u : 127u));
    for (int i = size == 1 ? 0 : size; i > 0; --i) {
        bytes += static_cast<char>((length >> (8 * (i - 1))) & 0xffu);
    }
    return shape.masked ? bytes.append(4, '\0') : bytes;
}

inline std::string whole_frame(unsigned operation, std::string_view data, frame_shape shape = {}) {
    return frame_header(operation, data.size(), shape).append(data);
}

struct connection_options {
    int receive_buffer = 0;  ///< bytes in the kernel; 0: as the system likes
    const char* from = nullptr;
    const char* suites = nullptr;  ///< of TLS 1.2, and no other TLS
};

/// A client that sends what it likes: a socket, TLS over it if asked, and WebSocket frames by hand. It does
/// not look at the server's certificate.
class raw_connection {
    using tcp = boost::asio::ip::tcp;

  public:
    struct frame {
        unsigned operation = 0;
        std::string data;
    };

    /// Connects; no TLS yet. @throws boost::system::system_error
    explicit raw_connection(endpoint to, connection_options how = {})
        : to_(to), suites_(how.suites), socket_(system(), tcp::v4()) {
        if (how.receive_buffer > 0) {
            socket_.set_option(tcp::socket::receive_buffer_size(how.receive_buffer));
        }
        // A record of TLS must not wait until the one before it is acknowledged.
        socket_.set_option(tcp::no_delay(true));
        const timeval longest{20, 0};
        ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
        ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof(longest));
        if (how.from != nullptr) {
            socket_.bind({boost::asio::ip::make_address(how.from), 0});
        }
        socket_.connect({boost::asio::ip::address_v4::loopback(), to.port});
    }

    /// TLS, if the server has it. Whether there is one now that works.
    bool secure() {
        if (!to_.tls) {
            return true;
        }
        const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                        &SSL_CTX_free);
        if (suites_ != nullptr) {
            SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
            SSL_CTX_set_cipher_list(context.get(), suites_);
        }
        ssl_.reset(SSL_new(context.get()));
        SSL_set_fd(ssl_.get(), socket_.native_handle());
        return SSL_connect(ssl_.get()) == 1;
    }

    /// Whether the system took all of it.
    bool send(std::string_view data) {
        while (!data.empty()) {
            const auto sent = ssl_ ? SSL_write(ssl_.get(), data.data(), static_cast<int>(data.size()))
                                   : ::send(socket_.native_handle(), data.data(), data.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return false;
            }
            data.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }

    /// Whether the other system has all that was sent.
    bool is_delivered() {
        int left = 0;
        return ::ioctl(socket_.native_handle(), SIOCOUTQ, &left) == 0 && left == 0;
    }

    /// Whether bytes are there, or the end, that nobody took.
    bool has_something() {
        pollfd one{socket_.native_handle(), POLLIN, 0};
        return ::poll(&one, 1, 0) == 1;
    }

    /// Takes at least one byte more of what the server says. @return how many; 0 if it has ended the
    /// connection
    /// @throws failure if neither happens in time
    std::size_t receive_more(std::size_t most = 4096) {
        std::array<char, 4096> data{};
        most = std::min(most, data.size());
        if (!ssl_ || SSL_pending(ssl_.get()) == 0) {
            pollfd one{socket_.native_handle(), POLLIN, 0};
            require(::poll(&one, 1, static_cast<int>(patience.count())) == 1, "the server", "nothing in 20 s",
                    "a word, or the end of the connection");
        }
        const auto got = ssl_ ? SSL_read(ssl_.get(), data.data(), static_cast<int>(most))
                              : ::recv(socket_.native_handle(), data.data(), most, 0);
        const std::size_t count = got > 0 ? static_cast<std::size_t>(got) : 0;
        received_.append(data.data(), count);
        return count;
    }

    /// What comes until `end` is in it, or the connection ends.
    std::string receive_until(std::string_view end) {
        std::size_t place = 0;
        while ((place = received_.find(end)) == std::string::npos) {
            if (receive_more() == 0) {
                return std::exchange(received_, {});
            }
        }
        std::string result = received_.substr(0, place + end.size());
        received_.erase(0, result.size());
        return result;
    }
    /// All that comes until the connection ends. @throws failure if it does not
    std::string receive_all() {
        while (receive_more() > 0) {
        }
        return std::exchange(received_, {});
    }

    /// TLS and the upgrade, with these headers too. @throws failure if the server does not agree
    void upgrade(const std::string& headers = {}) {
        require(secure(), "TLS handshake", "no", "a connection");
        send(
            "GET /v1/split HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" +
            headers + "\r\n");
        require_contains("upgrade", receive_until("\r\n\r\n"), " 101 ");
    }

    /// The next frame, pings among them; nothing if the connection ends before it is whole.
    std::optional<frame> receive_any_frame() {
        const auto has = [&](std::size_t bytes) {
            while (received_.size() < bytes && receive_more() > 0) {
            }
            return received_.size() >= bytes;
        };
        const auto at = [&](std::size_t i) { return static_cast<unsigned char>(received_[i]); };
        if (!has(2)) {
            return std::nullopt;
        }
        std::uint64_t length = at(1) & 0x7fu;
        const std::size_t begin = length == 126 ? 4 : length == 127 ? 10 : 2;
        if (begin > 2 && has(begin)) {
            length = 0;
            for (std::size_t i = 2; i < begin; ++i) {
                length = length << 8 | at(i);
            }
        }
        if (!has(begin + length)) {
            return std::nullopt;
        }
        frame result{at(0) & 0x0fu, received_.substr(begin, length)};
        received_.erase(0, begin + length);
        return result;
    }
    /// The data of the next one that is no ping or pong, which must be of this kind. @throws failure
    std::string receive_frame(unsigned operation) {
        auto next = receive_any_frame();
        for (; next && (next->operation == op_ping || next->operation == op_pong);
             next = receive_any_frame()) {
            if (next->operation == op_ping) {
                send(whole_frame(op_pong, next->data));
            }
        }
        require(next && next->operation == operation, "frame",
                !next ? "the end of the connection"
                      : "operation " + text_of(next->operation) + ": " + next->data.substr(0, 200),
                "operation " + text_of(operation));
        return next->data;
    }
    std::string receive_text() { return receive_frame(op_text); }
    /// Reads until the connection ends. The code of the close frame before that, 0 if there is none.
    unsigned receive_end() {
        unsigned code = 0;
        while (const auto next = receive_any_frame()) {
            if (next->operation == op_close) {
                const auto* const bytes = reinterpret_cast<const unsigned char*>(next->data.data());
                code = next->data.size() < 2 ? 0u : boost::endian::load_big_u16(bytes);
                send(whole_frame(op_close, next->data));
            }
        }
        return code;
    }

    std::array<std::byte, 32> tls_exporter() const {
        return ssl_ ? net::tls_exporter(ssl_.get()) : std::array<std::byte, 32>{};
    }

    /// Ends the connection as a machine does that lost its power and came back.
    void reset() {
        socket_.set_option(tcp::socket::linger(true, 0));
        socket_.close();
    }

  private:
    static boost::asio::io_context& system() {
        static boost::asio::io_context result;
        return result;
    }

    endpoint to_;
    const char* suites_;
    tcp::socket socket_;
    std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, &SSL_free};
    std::string received_;
};

}  // namespace split::soak
