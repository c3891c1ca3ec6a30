#include "websocket_client.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/io/message.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/rate_policy.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <charconv>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "../params.hpp"

namespace split {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
using boost::system::error_code;

/// Lets everything pass and counts it.
class counting_policy {
  public:
    explicit counting_policy(client_connection::traffic& to) : to_(&to) {}

  private:
    friend class beast::rate_policy_access;
    static constexpr std::size_t all = std::numeric_limits<std::size_t>::max();

    std::size_t available_read_bytes() const noexcept { return all; }
    std::size_t available_write_bytes() const noexcept { return all; }
    void transfer_read_bytes(std::size_t n) const noexcept { to_->down += n; }
    void transfer_write_bytes(std::size_t n) const noexcept { to_->up += n; }
    void on_timer() const noexcept {}

    client_connection::traffic* to_;
};

using plain_stream = beast::basic_stream<asio::ip::tcp, asio::io_context::executor_type, counting_policy>;
using tls_stream = beast::ssl_stream<plain_stream>;

/// One thread, so that nothing needs a lock.
constexpr int one_thread = 1;

/// Frames go out in one piece: the default would make a call of the system for each 4 KB.
constexpr std::size_t bytes_of_a_write = std::size_t{1} << 20;

void finish_setup(plain_stream& stream) {
    error_code ignored;  // it works without, slower
    stream.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
}

template <class Stream>
class websocket_connection final : public client_connection {
  public:
    static constexpr bool tls = std::is_same_v<Stream, tls_stream>;

    websocket_connection(const server_address& to, const websocket_options& options)
        : options_(options),
          address_(to.text()),
          context_(one_thread),
          tls_(make_tls(options)),
          stream_(make_stream()) {
        // 'auto_fragment' off and nothing compressed: one frame is one message.
        stream_.auto_fragment(false);
        stream_.write_buffer_bytes(bytes_of_a_write);
        stream_.read_message_max(options.largest_frame);
        websocket::permessage_deflate plain;
        plain.client_enable = false;
        plain.server_enable = false;
        stream_.set_option(plain);
        stream_.set_option(websocket::stream_base::decorator([](websocket::request_type& request) {
            request.set(beast::http::field::user_agent, "tensafe split inference");
        }));

        lowest().expires_after(options.connect_limit);
        reach(to);
        finish_setup(lowest());
        if constexpr (tls) {
            shake_hands(to);
        }
        const std::string host =
            (to.host.find(':') == to.host.npos ? to.host : "[" + to.host + "]") + ":" + to.port;
        wait("open a WebSocket", [&](auto done) { stream_.async_handshake(host, websocket_path, done); });
    }

    ~websocket_connection() override { drop(); }

    void send_text(std::string_view text) override {
        stream_.text(true);
        send(asio::const_buffer(text.data(), text.size()));
    }

    void send_binary(std::span<const std::uint8_t> message) override {
        stream_.binary(true);
        send(asio::const_buffer(message.data(), message.size()));
    }

    frame receive(std::chrono::milliseconds limit) override {
        check_open("receive");
        buffer_.consume(buffer_.size());
        lowest().expires_after(limit);
        wait("receive",
             [&](auto done) { stream_.async_read(buffer_, [done](error_code e, std::size_t) { done(e); }); });
        const auto bytes = buffer_.cdata();
        return {stream_.got_text(), {static_cast<const std::uint8_t*>(bytes.data()), bytes.size()}};
    }

    void close() noexcept override {
        if (!open_) {
            return;
        }
        try {
            lowest().expires_after(options_.close_limit);
            run([&](auto done) { stream_.async_close(websocket::close_code::normal, done); });
        } catch (...) {  // whatever it was, the socket goes
        }
        drop();
    }

    traffic bytes() const noexcept override { return traffic_; }

  private:
    static std::optional<asio::ssl::context> make_tls(const websocket_options& options) {
        if constexpr (!tls) {
            return std::nullopt;
        } else {
            std::optional<asio::ssl::context> context(std::in_place, asio::ssl::context::tls_client);
            ::SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
            error_code failed;
            context->load_verify_file(options.trusted_certificates.string(), failed);
            if (failed) {
                throw tensafe::io_error(tensafe::io::quote(options.trusted_certificates.string()) +
                                        ": cannot read trusted certificates: " + failed.message());
            }
            // A certificate in the file is trusted itself, whoever signed it.
            ::X509_VERIFY_PARAM_set_flags(::SSL_CTX_get0_param(context->native_handle()),
                                          X509_V_FLAG_PARTIAL_CHAIN);
            context->set_verify_mode(asio::ssl::verify_peer);
            return context;
        }
    }

    websocket::stream<Stream, false> make_stream() {
        plain_stream lowest_stream(counting_policy(traffic_), context_);
        if constexpr (tls) {
            return websocket::stream<Stream, false>(std::move(lowest_stream), *tls_);
        } else {
            return websocket::stream<Stream, false>(std::move(lowest_stream));
        }
    }

    plain_stream& lowest() noexcept { return beast::get_lowest_layer(stream_); }

    /// Runs one operation to its end: `start` gets a function to call with its outcome. All of them end,
    /// since the lowest stream has a time at which it gives up.
    template <class Start>
    error_code run(Start start) {
        error_code outcome = asio::error::operation_aborted;
        start([&outcome](error_code e) { outcome = e; });
        context_.restart();
        context_.run();
        return outcome;
    }

    template <class Start>
    void wait(const char* what, Start start) {
        const error_code outcome = run(start);
        if (outcome) {
            fail(what, outcome);
        }
    }

    [[noreturn]] void fail(const char* what, const error_code& why) {
        std::string reason = why.message();
        if (why == beast::error::timeout) {
            reason = "not done in time";
        } else if (why == websocket::error::closed) {
            reason = "the server closed the connection, code " + std::to_string(stream_.reason().code);
            if (!stream_.reason().reason.empty()) {
                reason += ", " + tensafe::io::quote(std::string_view(stream_.reason().reason.data(),
                                                                     stream_.reason().reason.size()));
            }
        }
        drop();
        throw connection_lost(address_ + ": cannot " + what + ": " + reason);
    }

    void check_open(const char* what) const {
        if (!open_) {
            throw connection_lost(address_ + ": cannot " + std::string(what) + ": the connection is closed");
        }
    }

    void reach(const server_address& to) {
        error_code failed;
        asio::ip::tcp::resolver resolver(context_);
        const auto found = resolver.resolve(to.host, to.port, failed);
        if (failed) {
            fail("find the host", failed);
        }
        wait("connect", [&](auto done) {
            lowest().async_connect(found, [done](error_code e, const asio::ip::tcp::endpoint&) { done(e); });
        });
    }

    void shake_hands(const server_address& to) requires tls {
        Stream& secure = stream_.next_layer();
        error_code is_name;
        asio::ip::make_address(to.host, is_name);
        if (is_name) {  // the name goes along in the clear only where it is one
            ::SSL_set_tlsext_host_name(secure.native_handle(), to.host.c_str());
        }
        secure.set_verify_callback(asio::ssl::host_name_verification(to.host));
        const error_code outcome =
            run([&](auto done) { secure.async_handshake(asio::ssl::stream_base::client, done); });
        if (outcome) {
            const long verdict = ::SSL_get_verify_result(secure.native_handle());
            if (outcome.category() == asio::error::get_ssl_category() && refused_certificate(outcome)) {
                drop();
                throw tensafe::signature_error(
                    address_ + ": its certificate is not trusted: " +
                    (verdict == X509_V_OK ? std::string("it is made out to another host")
                                          : ::X509_verify_cert_error_string(verdict)) +
                    ", wanted one of " + tensafe::io::quote(options_.trusted_certificates.string()) +
                    " for the host " + tensafe::io::quote(to.host));
            }
            fail("agree on TLS", outcome);
        }
    }

    static bool refused_certificate(const error_code& e) noexcept {
        return ERR_GET_REASON(static_cast<unsigned long>(e.value())) == SSL_R_CERTIFICATE_VERIFY_FAILED;
    }

    void send(asio::const_buffer bytes) {
        check_open("send");
        lowest().expires_after(options_.send_limit);
        wait("send",
             [&](auto done) { stream_.async_write(bytes, [done](error_code e, std::size_t) { done(e); }); });
    }

    void drop() noexcept {
        open_ = false;
        error_code ignored;
        lowest().socket().close(ignored);
    }

    websocket_options options_;
    std::string address_;
    traffic traffic_;
    asio::io_context context_;
    std::optional<asio::ssl::context> tls_;
    websocket::stream<Stream, false> stream_;
    beast::flat_buffer buffer_;
    bool open_ = true;
};

}  // namespace

server_address server_address::of(std::string_view url) {
    const auto refuse = [&] {
        throw tensafe::parameter_error("server address: got " + tensafe::io::quote(url) +
                                       ", wanted wss://host:port, or ws://host:port without TLS");
    };
    server_address result;
    std::string_view rest = url;
    if (rest.starts_with("wss://")) {
        rest.remove_prefix(6);
    } else if (rest.starts_with("ws://")) {
        rest.remove_prefix(5);
        result.tls = false;
    } else {
        refuse();
    }
    if (rest.ends_with('/')) {
        rest.remove_suffix(1);
    }
    std::size_t end = 0;  // of the host
    if (rest.starts_with('[')) {
        end = rest.find(']');
        if (end == rest.npos) {
            refuse();
        }
        result.host = rest.substr(1, end - 1);
        ++end;
    } else {
        end = std::min(rest.find(':'), rest.size());
        result.host = rest.substr(0, end);
    }
    std::string_view port = rest.substr(end);
    if (port.empty()) {
        port = result.tls ? ":443" : ":80";
    }
    unsigned number = 0;
    const char* const last = port.data() + port.size();
    const auto [stop, problem] = std::from_chars(port.data() + 1, last, number);
    constexpr std::string_view of_hosts =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._:";
    if (port.front() != ':' || problem != std::errc() || stop != last || number == 0 || number > 65535 ||
        result.host.empty() || result.host.find_first_not_of(of_hosts) != result.host.npos) {
        refuse();
    }
    result.port = std::to_string(number);
    return result;
}

std::string server_address::text() const {
    return (tls ? "wss://" : "ws://") + (host.find(':') == host.npos ? host : "[" + host + "]") + ":" + port;
}

std::unique_ptr<client_connection> connect_websocket(const server_address& to,
                                                     const websocket_options& options) {
    if (!to.tls) {
        return std::make_unique<websocket_connection<plain_stream>>(to, options);
    }
    if (options.trusted_certificates.empty()) {
        throw tensafe::parameter_error(to.text() +
                                       ": got no certificate to trust, wanted the file of the server's");
    }
    return std::make_unique<websocket_connection<tls_stream>>(to, options);
}

}  // namespace split
