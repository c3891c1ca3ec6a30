#include "websocket_client.hpp"

#include <tensafe/core/text.hpp>

#include <openssl/x509.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <cerrno>
#include <cstdlib>
#include <future>
#include <initializer_list>
#include <limits>
#include <optional>
#include <poll.h>
#include <regex>
#include <sstream>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "../base64.hpp"
#include "../params.hpp"
#include "connection.hpp"
#include "tls_exporter.hpp"

namespace split {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
using boost::system::error_code;

using asio::ip::tcp;

/// Frames go out in one piece: the default would make a call of the system for each 4 KB.
constexpr std::size_t bytes_of_a_write = std::size_t{1} << 20;
constexpr std::size_t bytes_of_a_tls_record = 16'384;
/// Of the answer to an upgrade, whose buffer has no limit in Beast.
constexpr std::size_t bytes_before_frames = 65'536;
constexpr std::size_t bytes_before_tunnel = 8'192;

/// Of what arrives while a frame is sent.
constexpr std::size_t most_bytes_ahead = std::size_t{8} << 20;

/// Whether this status of an HTTP answer is one that may be another one later.
bool may_change(std::string_view answer) {
    return answer.starts_with("HTTP/1.") && (answer.find(" 5") == 8 || answer.find(" 429") == 8);
}

/// A socket that waits until a set time and no longer, and counts what passes. While it waits to write it
/// takes in what arrives, so that two sides that both have much to say do not wait for each other for ever.
class timed_socket {
  public:
    // What asio::ssl::stream asks for.
    using executor_type = tcp::socket::executor_type;
    using lowest_layer_type = tcp::socket::lowest_layer_type;
    executor_type get_executor() { return socket_.get_executor(); }
    lowest_layer_type& lowest_layer() { return socket_.lowest_layer(); }

    explicit timed_socket(asio::io_context& context) : socket_(context) {}

    /// All that follows is to be done within this time.
    void limit(std::chrono::milliseconds time) {
        until_ = clock::now() + time;
        polls_at_ = clock::now() + silence;
    }

    template <class Future>
    void wait_for(const Future& result, error_code& failure) {
        while (!is_over(failure) &&
               result.wait_until(std::min(until_, polls_at_)) != std::future_status::ready) {
        }
    }

    void connect(const tcp::endpoint& to, error_code& failure) {
        socket_.close(failure);
        failure = {};
        if (socket_.open(to.protocol(), failure) || socket_.non_blocking(true, failure)) {
            return;
        }
        error_code ignored;  // it works without, slower
        socket_.set_option(tcp::no_delay(true), ignored);
        if (::connect(socket_.native_handle(), to.data(), static_cast<::socklen_t>(to.size())) == 0) {
            return;
        }
        if (errno != EINPROGRESS) {
            failure = error_code(errno, asio::error::get_system_category());
            return;
        }
        if (wait(POLLOUT, failure)) {
            int outcome = 0;
            ::socklen_t size = sizeof(outcome);
            ::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_ERROR, &outcome, &size);
            failure = error_code(outcome, asio::error::get_system_category());
        }
    }

    template <class Buffers>
    std::size_t read_some(const Buffers& to, error_code& failure) {
        if (ahead_.size() > 0) {
            failure = {};
            const std::size_t n = asio::buffer_copy(to, ahead_.cdata());
            ahead_.consume(n);
            return n;
        }
        return when_ready(POLLIN, bytes.down, failure, [&] { return socket_.read_some(to, failure); });
    }

    template <class Buffers>
    std::size_t write_some(const Buffers& from, error_code& failure) {
        return when_ready(POLLOUT, bytes.up, failure, [&] {
            const std::size_t n = socket_.write_some(from, failure);
            if (failure == asio::error::would_block) {
                read_ahead();
            }
            return n;
        });
    }

    void close() noexcept {
        error_code ignored;
        socket_.close(ignored);
    }

    std::function<void()> poll;                                        ///< as of wait_options
    std::chrono::nanoseconds silence = std::chrono::milliseconds(50);  ///< before each call of it
    /// A wait begins with so much time in which the processor does not sleep.
    std::chrono::microseconds busy_wait{0};
    client_connection::traffic bytes;

  private:
    using clock = std::chrono::steady_clock;

    /// Whether the time is over, whatever is there: it might never end.
    bool is_over(error_code& failure) {
        const auto now = clock::now();
        if (now >= polls_at_) {
            polls_at_ = now + silence;
            poll();
        }
        failure = now >= until_ ? error_code(asio::error::timed_out) : error_code();
        return now >= until_;
    }

    bool has_room_ahead() const noexcept { return !is_over_ && ahead_.size() < most_bytes_ahead; }

    void read_ahead() {
        if (!has_room_ahead()) {
            return;
        }
        constexpr std::size_t at_once = 65'536;
        error_code failure;
        const std::size_t n =
            socket_.read_some(ahead_.prepare(std::min(at_once, most_bytes_ahead - ahead_.size())), failure);
        ahead_.commit(n);
        bytes.down += n;
        is_over_ = failure && failure != asio::error::would_block;  // read_some finds it, too
    }

    bool wait(short what, error_code& failure) {
        if (what == POLLOUT && has_room_ahead()) {
            what = POLLOUT | POLLIN;
        }
        while (!is_over(failure)) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(std::min(until_, polls_at_) - clock::now());
            ::pollfd one{socket_.native_handle(), what, 0};
            const int ready = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
            if (ready > 0) {
                return true;
            }
            if (ready < 0 && errno != EINTR) {
                failure = error_code(errno, asio::error::get_system_category());
                return false;
            }
        }
        return false;
    }

    template <class Call>
    std::size_t when_ready(short what, std::uint64_t& sum, error_code& failure, Call call) {
        const auto awake_until =
            busy_wait.count() > 0 ? std::min(until_, clock::now() + busy_wait) : clock::time_point::min();
        while (!is_over(failure)) {
            const std::size_t n = call();
            sum += n;
            if (failure != asio::error::would_block) {
                return n;
            }
            if (clock::now() >= awake_until && !wait(what, failure)) {
                break;
            }
        }
        return 0;
    }

    tcp::socket socket_;
    beast::flat_buffer ahead_;  ///< read, and not asked for yet
    bool is_over_ = false;      ///< nothing more can be read ahead
    clock::time_point until_;
    clock::time_point polls_at_;
};

/// With TLS or without: one type, so that all of Beast is compiled once. Its calls return when they are done:
/// the asynchronous ones take three times as long to compile.
class client_stream {
  public:
    using executor_type = timed_socket::executor_type;
    executor_type get_executor() { return socket.get_executor(); }

    explicit client_stream(asio::io_context& context) : socket(context) {}

    template <class Buffers>
    std::size_t read_some(const Buffers& to, error_code& failure) {
        if (most == 0) {
            failure = asio::error::message_size;
            return 0;
        }
        const std::size_t n = tls ? tls->read_some(to, failure) : socket.read_some(to, failure);
        most -= std::min(most, n);
        if (opening.empty()) {
            opening.resize(std::min<std::size_t>(n, 80));
            asio::buffer_copy(asio::buffer(opening), to);
        }
        return n;
    }
    template <class Buffers>
    std::size_t write_some(const Buffers& from, error_code& failure) {
        if (!tls) {
            return socket.write_some(from, failure);
        }
        // A record for each buffer would be one for the few bytes before a frame, too.
        record_.resize(bytes_of_a_tls_record);
        const std::size_t n = asio::buffer_copy(asio::buffer(record_), from);
        return tls->write_some(asio::buffer(record_.data(), n), failure);
    }
    // Beast wants the forms that throw to be declared; it calls none of them.
    template <class Buffers>
    std::size_t read_some(const Buffers&);
    template <class Buffers>
    std::size_t write_some(const Buffers&);

    timed_socket socket;
    std::optional<asio::ssl::stream<timed_socket&>> tls;
    std::size_t most = bytes_before_frames;  ///< that may be read
    std::string opening;                     ///< how the answer to the upgrade begins

  private:
    std::vector<std::uint8_t> record_;
};

/// What Beast calls when a WebSocket is over.
[[maybe_unused]] void teardown(beast::role_type, client_stream& stream, error_code& failure) {
    failure = {};
    stream.socket.close();
}

class websocket_connection final : public client_connection {
  public:
    websocket_connection(const server_address& to, const websocket_options& options, const wait_options& how)
        : options_(options), address_(to.text()), tls_(make_tls(to.tls, options)), stream_(context_) {
        if (options.proxy) {
            address_ += " through the proxy " + options.proxy->at.host_and_port();
        }
        // 'auto_fragment' off and nothing compressed: one frame is one message.
        stream_.auto_fragment(false);
        stream_.write_buffer_bytes(bytes_of_a_write);
        stream_.read_message_max(options.largest_frame);
        tensafe::require<tensafe::parameter_error>(
            options.traceparent.empty() || net::is_traceparent(options.traceparent),
            {"traceparent: got ", tensafe::in_quotes(options.traceparent),
             ", expected that of W3C Trace Context, version 00: 55 characters"});
        stream_.set_option(websocket::stream_base::decorator([this](websocket::request_type& request) {
            request.set(beast::http::field::user_agent, "tensafe split inference");
            if (!options_.traceparent.empty()) {
                request.set("traceparent", options_.traceparent);
            }
        }));

        lowest().poll = how.poll;
        begin("connecting and logging in", how.limit);
        reach(options.proxy ? options.proxy->at : to);
        if (options.proxy) {
            open_tunnel(to.host_and_port(), options.proxy->credentials);
        }
        if (tls_) {
            shake_hands(to);
        }
        error_code failed;
        const auto began = std::chrono::steady_clock::now();
        stream_.handshake(to.host_and_port(), net::websocket_path, failed);
        check("open a WebSocket", failed);
        round_trip_ = std::chrono::steady_clock::now() - began;
        stream_.next_layer().most = std::numeric_limits<std::size_t>::max();
        lowest().busy_wait = options.busy_wait;
        // An answer that is on its way was paid for: it is worth a round trip, a second at most.
        lowest().silence += std::min<std::chrono::nanoseconds>(round_trip_, std::chrono::seconds(1));
    }

    ~websocket_connection() override { drop(); }

    void begin(const char* step, std::chrono::milliseconds limit) override {
        step_ = step;
        step_limit_ = limit;
        lowest().limit(limit);
    }

    void send_text(std::string_view text) override {
        stream_.text(true);
        send(asio::const_buffer(text.data(), text.size()));
    }

    void send_binary(std::span<const std::uint8_t> message) override {
        stream_.binary(true);
        send(asio::const_buffer(message.data(), message.size()));
    }

    frame receive() override {
        check_open("receive");
        buffer_.consume(buffer_.size());
        error_code failed;
        stream_.read(buffer_, failed);
        check("receive", failed);
        const auto bytes = buffer_.cdata();
        return {stream_.got_text(), {static_cast<const std::uint8_t*>(bytes.data()), bytes.size()}};
    }

    void close() noexcept override {
        if (!open_) {
            return;
        }
        try {
            lowest().poll = [] {};  // nobody would hear of it
            lowest().limit(std::chrono::seconds(1));
            error_code ignored;
            stream_.close(websocket::close_code::normal, ignored);
        } catch (...) {  // whatever it was, the socket goes
        }
        drop();
    }

    traffic bytes() const noexcept override { return stream_.next_layer().socket.bytes; }
    std::chrono::nanoseconds round_trip() const noexcept override { return round_trip_; }

    std::array<std::byte, 32> tls_exporter() const override { return exporter_; }

  private:
    static std::optional<asio::ssl::context> make_tls(bool with_tls, const websocket_options& options) {
        if (!with_tls) {
            return std::nullopt;
        }
        std::optional<asio::ssl::context> context(std::in_place, asio::ssl::context::tls_client);
        ::SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
        error_code failed;
        context->load_verify_file(options.trusted_certificates.string(), failed);
        if (failed) {
            const bool can_read = ::access(options.trusted_certificates.c_str(), R_OK) == 0;
            throw tensafe::io_error(
                tensafe::quote(options.trusted_certificates.string()) +
                ": got no certificates to trust (--trust), expected the server's certificate.pem: " +
                (can_read ? failed.message() : std::generic_category().message(errno)));
        }
        // A certificate in the file is trusted itself, whoever signed it.
        ::X509_VERIFY_PARAM_set_flags(::SSL_CTX_get0_param(context->native_handle()),
                                      X509_V_FLAG_PARTIAL_CHAIN);
        context->set_verify_mode(asio::ssl::verify_peer);
        return context;
    }

    timed_socket& lowest() noexcept { return stream_.next_layer().socket; }

    void check(const char* what, const error_code& why) {
        if (!why) {
            return;
        }
        if (why == websocket::error::message_too_big) {
            drop();
            throw tensafe::format_error(address_ + ": got a frame of more than " +
                                        std::to_string(options_.largest_frame) +
                                        " bytes, expected at most so many (--largest-frame)");
        }
        std::string reason = why.message();
        const beast::error_code http_end = beast::http::error::end_of_stream;
        bool is_wrong = why.category() == asio::error::get_ssl_category() ||
                        why == asio::error::host_not_found ||
                        (why.category() == http_end.category() && !(tls_ && why == http_end));
        if (why == asio::error::timed_out) {
            reason = std::string(step_) + " took longer than " +
                     tensafe::shortest_text(std::chrono::duration<double>(step_limit_).count()) +
                     " s (--step-seconds, --total-seconds)";
        } else if (why == asio::error::message_size || why == websocket::error::upgrade_declined) {
            const std::string& said = stream_.next_layer().opening;
            reason = "got " + tensafe::quote(said.substr(0, said.find('\r'))) +
                     (why == asio::error::message_size
                          ? " and more than " + std::to_string(bytes_before_frames) + " bytes"
                          : "") +
                     ", expected an upgrade";
            is_wrong = !may_change(said);
        } else if (why == asio::error::connection_refused) {
            reason += " (does the server run, and is this its port?)";
        } else if (why == asio::error::eof || why == asio::ssl::error::stream_truncated) {
            reason = "the other side closed the connection";
        } else if (why == beast::http::error::end_of_stream && !tls_) {
            reason += " (is it a port with TLS? Then wss://)";
        } else if (why.category() == asio::error::get_ssl_category() &&
                   ERR_GET_REASON(static_cast<unsigned long>(why.value())) == SSL_R_WRONG_VERSION_NUMBER) {
            reason += " (is it a port without TLS? Then ws:// and --insecure-plaintext)";
        } else if (why == websocket::error::closed) {
            reason = "the server closed the connection, code " + std::to_string(stream_.reason().code);
            if (!stream_.reason().reason.empty()) {
                reason += ", " + tensafe::quote(std::string_view(stream_.reason().reason.data(),
                                                                 stream_.reason().reason.size()));
            }
        }
        drop();
        lose({address_, ": cannot ", what, ": ", reason}, is_wrong);
    }

    [[noreturn]] static void lose(std::initializer_list<tensafe::text_part> parts, bool is_wrong) {
        connection_lost lost(parts);
        lost.is_wrong_server = is_wrong;
        throw lost;
    }

    void check_open(const char* what) const {
        tensafe::require<connection_lost>(open_, {address_, ": cannot ", what, ": the connection is closed"});
    }

    void reach(const server_address& to) {
        // The system's resolver cannot be ended: where nobody waits any longer, it is left to itself.
        std::packaged_task task([to] {
            asio::io_context context;
            error_code failed;
            auto found = tcp::resolver(context).resolve(to.host, to.port, failed);
            return std::pair(std::move(found), failed);
        });
        auto result = task.get_future();
        std::thread(std::move(task)).detach();
        error_code failed;
        lowest().wait_for(result, failed);
        check("look up the host", failed);
        const auto [found, not_found] = result.get();
        check("find the host", not_found);
        for (const auto& each : found) {
            lowest().connect(each.endpoint(), failed);
            if (!failed) {
                return;
            }
        }
        check("connect", failed);
    }

    /// Reads a proxy's answer, and nothing behind it.
    void open_tunnel(const std::string& to, const std::string& credentials) {
        const std::string request =
            "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n" +
            (credentials.empty() ? "" : "Proxy-Authorization: Basic " + credentials + "\r\n") + "\r\n";
        error_code failed;
        asio::write(lowest(), asio::buffer(request), failed);
        std::string answer;
        while (!failed && !answer.ends_with("\r\n\r\n") && answer.size() < bytes_before_tunnel) {
            answer.push_back('\0');
            lowest().read_some(asio::buffer(&answer.back(), 1), failed);
        }
        check("open a tunnel", failed);
        const bool is_endless = answer.size() == bytes_before_tunnel;
        if (is_endless || !answer.starts_with("HTTP/1.") || answer.find(" 2") != 8) {
            lose({address_, ": cannot open a tunnel: got ",
                  tensafe::in_quotes(std::string_view(answer).substr(0, answer.find('\r'))),
                  is_endless ? " and a header without an end" : "", ", expected a status of 2xx: ",
                  answer.find(" 407") == 8
                      ? "HTTPS_PROXY must have the user:password@ that the proxy asks for"
                      : "the proxy must allow this host and port, or NO_PROXY name the host"},
                 !may_change(answer));
        }
    }

    void shake_hands(const server_address& to) {
        auto& secure = stream_.next_layer().tls.emplace(lowest(), *tls_);
        error_code is_name;
        asio::ip::make_address(to.host, is_name);
        if (is_name) {  // the name goes along in the clear only where it is one
            ::SSL_set_tlsext_host_name(secure.native_handle(), to.host.c_str());
        }
        secure.set_verify_callback(asio::ssl::host_name_verification(to.host));
        error_code outcome;
        secure.handshake(asio::ssl::stream_base::client, outcome);
        if (outcome) {
            const long verdict = ::SSL_get_verify_result(secure.native_handle());
            if (outcome.category() == asio::error::get_ssl_category() &&
                ERR_GET_REASON(static_cast<unsigned long>(outcome.value())) ==
                    SSL_R_CERTIFICATE_VERIFY_FAILED) {
                drop();
                const bool is_name_alone = verdict == X509_V_OK || verdict == X509_V_ERR_UNSPECIFIED;
                throw tensafe::signature_error(
                    address_ + ": its certificate is not " +
                    (is_name_alone
                         ? "for " + tensafe::quote(to.host) +
                               ", expected a host that it names, or a server whose certificate was made "
                               "with --host " +
                               to.host
                         : "trusted: " + std::string(::X509_verify_cert_error_string(verdict)) +
                               ", expected one of " + tensafe::quote(options_.trusted_certificates.string()) +
                               ", which may be another server's" + std::string(if_tls_ends_on_the_way)));
            }
        }
        check("agree on TLS", outcome);
        exporter_ = net::tls_exporter(secure.native_handle());
    }

    void send(asio::const_buffer bytes) {
        check_open("send");
        error_code failed;
        stream_.write(bytes, failed);
        check("send", failed);
    }

    void drop() noexcept {
        open_ = false;
        lowest().close();
    }

    websocket_options options_;
    std::string address_;
    asio::io_context context_;  // nothing runs on it
    std::optional<asio::ssl::context> tls_;
    websocket::stream<client_stream, false> stream_;
    beast::flat_buffer buffer_;
    std::array<std::byte, 32> exporter_{};
    bool open_ = true;
    const char* step_ = "";
    std::chrono::milliseconds step_limit_{0};
    std::chrono::nanoseconds round_trip_{0};
};

}  // namespace

server_address server_address::of(std::string_view url) {
    static const std::regex form(
        R"((wss?)://(?:\[([0-9A-Za-z._:-]+)\]|([0-9A-Za-z._-]+))(?::([0-9]{1,5}))?/?)");
    const std::string text(url);
    std::smatch parts;
    const bool fits = std::regex_match(text, parts, form);
    server_address result;
    result.tls = fits && parts[1] == "wss";
    result.port = fits && parts[4].matched ? parts[4].str() : result.tls ? "443" : "80";
    const unsigned long number = std::stoul(result.port);
    tensafe::require<tensafe::parameter_error>(
        fits && number != 0 && number <= 65'535,
        {"server address: got ", tensafe::in_quotes(url),
         ", expected wss://host:port, or ws://host:port without TLS",
         fits ? ", the port from 1 to 65535" : "",
         url.starts_with("https://") ? ": write wss:// for https://" : ""});
    result.host = parts[2].matched ? parts[2] : parts[3];
    result.port = std::to_string(number);
    return result;
}

std::optional<http_proxy> http_proxy::of_environment(const server_address& to) {
    const auto first_of = [](std::initializer_list<const char*> names) -> std::string {
        for (const char* const name : names) {
            if (const char* const value = std::getenv(name); value != nullptr && *value != '\0') {
                return value;
            }
        }
        return {};
    };
    const std::string value = first_of({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
    if (!to.tls || value.empty()) {
        return std::nullopt;
    }
    std::string without = tensafe::fold_case(first_of({"no_proxy", "NO_PROXY"}));
    std::ranges::replace(without, ',', ' ');
    std::istringstream entries(without);
    for (std::string entry; entries >> entry;) {
        if (entry == "*" ||
            ("." + tensafe::fold_case(to.host)).ends_with(entry.starts_with('.') ? entry : "." + entry)) {
            return std::nullopt;
        }
    }
    static const std::regex form(
        R"((?:([A-Za-z0-9+.-]+)://)?(?:(.*)@)?((?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::[0-9]{1,5})?)/?)");
    std::smatch parts;
    const bool is_read = std::regex_match(value, parts, form);
    const auto credentials = percent_decoded(parts[2].str());
    const bool is_http = !parts[1].matched || tensafe::fold_case(parts[1].str()) == "http";
    tensafe::require<tensafe::parameter_error>(
        is_read && credentials && is_http,
        {"HTTPS_PROXY or ALL_PROXY: got ",
         is_http ? "what names no proxy" : "the scheme " + tensafe::quote(parts[1].str()),
         ", expected http://[user:password@]host[:port], with % and two digits for what is special"});
    return http_proxy{
        server_address::of("ws://" + parts[3].str()),
        base64({reinterpret_cast<const std::uint8_t*>(credentials->data()), credentials->size()})};
}

std::string server_address::host_and_port() const {
    return (host.find(':') == host.npos ? host : "[" + host + "]") + ":" + port;
}

std::unique_ptr<client_connection> connect_websocket(const server_address& to,
                                                     const websocket_options& options,
                                                     const wait_options& how) {
    tensafe::require<tensafe::parameter_error>(
        !to.tls || !options.trusted_certificates.empty(),
        {to.text(), ": got no certificate to trust, expected --trust with the server's certificate.pem"});
    return std::make_unique<websocket_connection>(to, options, how);
}

}  // namespace split
