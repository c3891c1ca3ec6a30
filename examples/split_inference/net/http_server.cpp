#include "http_server.hpp"

#include <tensafe/core/error.hpp>

#include <openssl/ssl.h>

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/beast/websocket.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace split::net {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using asio::ip::tcp;
using plain_stream = beast::tcp_stream;
using tls_stream = beast::ssl_stream<beast::tcp_stream>;

/// What the server asks of a connection, from any thread.
class open_connection {
  public:
    virtual ~open_connection() = default;
    virtual void begin() = 0;
    virtual void drain() = 0;
    virtual void end(std::uint16_t code, const std::string& reason) = 0;
};

/// A handler keeps this, and not the connection, so that a socket never outlives its server.
class weak_control final : public connection_control {
  public:
    explicit weak_control(std::weak_ptr<open_connection> of) : of_(std::move(of)) {}
    void end(std::uint16_t code, const std::string& reason) override {
        if (const auto still = of_.lock()) {
            still->end(code, reason);
        }
    }

  private:
    std::weak_ptr<open_connection> of_;
};

/// Who is there.
class places {
  public:
    bool take(const std::string& address, std::size_t most, std::size_t most_of_address) {
        const std::lock_guard lock(mutex_);
        if (taken_ >= most) {
            return false;
        }
        std::size_t& of_address = by_address_[address];
        if (of_address >= most_of_address) {
            return false;
        }
        ++of_address;
        ++taken_;
        return true;
    }
    void give_back(const std::string& address) {
        const std::lock_guard lock(mutex_);
        --taken_;
        const auto found = by_address_.find(address);
        if (--found->second == 0) {
            by_address_.erase(found);
        }
    }
    std::size_t taken() const {
        const std::lock_guard lock(mutex_);
        return taken_;
    }

    void add_websocket(const std::shared_ptr<open_connection>& one) {
        const std::lock_guard lock(mutex_);
        websockets_[one.get()] = one;
    }
    void remove_websocket(open_connection* one) {
        const std::lock_guard lock(mutex_);
        websockets_.erase(one);
        changed_.notify_all();
    }
    std::vector<std::shared_ptr<open_connection>> websockets() const {
        std::vector<std::shared_ptr<open_connection>> result;
        const std::lock_guard lock(mutex_);
        for (const auto& [address, one] : websockets_) {
            if (auto still = one.lock()) {
                result.push_back(std::move(still));
            }
        }
        return result;
    }
    bool wait_for_no_websocket(std::chrono::milliseconds time) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, time, [&] { return websockets_.empty(); });
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t taken_ = 0;
    std::map<std::string, std::size_t> by_address_;
    std::map<open_connection*, std::weak_ptr<open_connection>> websockets_;
};

/// What connections share.
struct shared_parts {
    const http_server_options& options;
    const http_server_handlers& handlers;
    places& who;
    const std::atomic<bool>& draining;
};

/// A place among the connections, for as long as it lives.
class place {
  public:
    place(places& of, std::string address) : of_(of), address_(std::move(address)) {}
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() { of_.give_back(address_); }
    const std::string& address() const noexcept { return address_; }

  private:
    places& of_;
    std::string address_;
};

/// One connection: TLS, HTTP requests, and after an upgrade frames. All of it on one strand.
template <class Stream>
class connection final : public open_connection, public std::enable_shared_from_this<connection<Stream>> {
    static constexpr bool has_tls = std::is_same_v<Stream, tls_stream>;

  public:
    template <class... Context>
    connection(const shared_parts& of, std::unique_ptr<place> seat, tcp::socket&& socket, Context&... context)
        : of_(of),
          seat_(std::move(seat)),
          socket_(std::move(socket), context...),
          write_timer_(socket_.get_executor()) {}

    ~connection() override {
        // The handler first: it may want to know that its connection is over before others do.
        handler_.reset();
        if (is_websocket_) {
            of_.who.remove_websocket(this);
        }
    }

    void begin() override {
        asio::dispatch(socket_.get_executor(), [self = this->shared_from_this()] {
            if constexpr (has_tls) {
                self->limit_time(self->of_.options.handshake_time);
                self->socket_.next_layer().async_handshake(
                    asio::ssl::stream_base::server, [self](beast::error_code failure) {
                        if (!failure) {
                            self->read_request(self->of_.options.handshake_time);
                        }
                    });
            } else {
                self->read_request(self->of_.options.handshake_time);
            }
        });
    }

    void drain() override {
        asio::post(socket_.get_executor(), [self = this->shared_from_this()] {
            self->must_drain_ = true;
            self->say_last_words();
        });
    }

    void end(std::uint16_t code, const std::string& reason) override {
        asio::post(socket_.get_executor(), [self = this->shared_from_this(), code, reason] {
            self->must_end_ = std::pair(code, reason);
            self->say_last_words();
        });
    }

  private:
    // HTTP

    void limit_time(std::chrono::milliseconds time) { beast::get_lowest_layer(socket_).expires_after(time); }

    void read_request(std::chrono::milliseconds time) {
        parser_.emplace();
        parser_->header_limit(static_cast<std::uint32_t>(of_.options.header_bytes));
        parser_->body_limit(of_.options.body_bytes);
        limit_time(time);
        http::async_read(socket_.next_layer(), buffer_, *parser_,
                         [self = this->shared_from_this()](beast::error_code failure, std::size_t) {
                             self->got_request(failure);
                         });
    }

    void got_request(beast::error_code failure) {
        if (failure == http::error::body_limit || failure == http::error::header_limit) {
            respond({failure == http::error::body_limit ? 413u : 431u, "too large\n"}, 11, false);
            return;
        }
        if (failure) {
            shut_down();
            return;
        }
        const auto& request = parser_->get();
        if (websocket::is_upgrade(request) && as_text(request.target()) == of_.options.websocket_path) {
            upgrade();
            return;
        }
        http_response response;
        try {
            response = of_.handlers.answer({as_text(request.method_string()), as_text(request.target()),
                                            as_text(request[http::field::authorization]), request.body(),
                                            seat_->address()});
        } catch (...) {
            response = {500, "internal error\n"};
        }
        respond(std::move(response), request.version(), request.keep_alive() && !of_.draining);
    }

    static std::string as_text(beast::string_view view) { return std::string(view.data(), view.size()); }

    void respond(http_response from, unsigned version, bool keep_alive) {
        response_ = {};
        response_.version(version);
        response_.result(from.status);
        response_.set(http::field::content_type, from.content_type);
        response_.set(http::field::cache_control, "no-store");
        response_.keep_alive(keep_alive);
        response_.body() = std::move(from.body);
        response_.prepare_payload();
        limit_time(of_.options.write_time);
        http::async_write(
            socket_.next_layer(), response_,
            [self = this->shared_from_this(), keep_alive](beast::error_code failure, std::size_t) {
                if (!failure && keep_alive) {
                    self->read_request(self->of_.options.idle_time);
                } else {
                    self->shut_down();
                }
            });
    }

    /// Ends a connection that is no WebSocket, so that the peer has read all that was sent.
    void shut_down() {
        if constexpr (has_tls) {
            limit_time(of_.options.handshake_time);
            socket_.next_layer().async_shutdown([self = this->shared_from_this()](beast::error_code) {});
        } else {
            beast::error_code ignored;
            beast::get_lowest_layer(socket_).socket().shutdown(tcp::socket::shutdown_send, ignored);
        }
    }

    // WebSocket

    void upgrade() {
        beast::get_lowest_layer(socket_).expires_never();  // the WebSocket has times of its own
        websocket::stream_base::timeout times{};
        // Beast's own time for a close must not come first: while a read waits for the close, it fails an
        // assertion.
        times.handshake_timeout = 2 * of_.options.handshake_time;
        times.idle_timeout = of_.options.idle_time;
        times.keep_alive_pings = true;
        socket_.set_option(times);
        socket_.auto_fragment(false);  // a reply goes out as it lies there
        socket_.async_accept(parser_->get(), [self = this->shared_from_this()](beast::error_code failure) {
            if (!failure) {
                self->start();
            }
        });
    }

    void start() {
        parser_.reset();
        buffer_.consume(buffer_.size());
        is_websocket_ = true;
        of_.who.add_websocket(this->shared_from_this());
        call([&] {
            handler_ = of_.handlers.converse(seat_->address(),
                                             std::make_shared<weak_control>(this->weak_from_this()));
            handler_->start(answer_);
        });
        if (of_.draining) {
            must_drain_ = true;
        }
    }

    /// Lets the handler answer, and sends it.
    template <class Call>
    void call(Call of_handler) {
        answer_.clear();
        try {
            of_handler();
        } catch (...) {
            answer_.clear();
            answer_.close(close_internal, "internal error");
        }
        is_busy_ = true;
        next_frame_ = 0;
        write_next();
    }

    void write_next() {
        if (next_frame_ == answer_.frames().size()) {
            is_busy_ = false;
            write_timer_.cancel();
            if (answer_.closing()) {
                close(answer_.closing()->first, answer_.closing()->second);
            } else if (must_drain_ || must_end_) {
                say_last_words();
            } else if (!is_reading_) {
                read();
            }
            return;
        }
        const frame& next = answer_.frames()[next_frame_++];
        socket_.text(next.is_text);
        // A peer that does not take what it asked for would keep its place and this memory.
        write_timer_.expires_after(of_.options.write_time);
        write_timer_.async_wait([weak = this->weak_from_this()](beast::error_code cancelled) {
            if (const auto self = weak.lock();
                self && !cancelled && self->is_busy_ &&
                self->write_timer_.expiry() <= asio::steady_timer::clock_type::now()) {
                self->cut();
            }
        });
        socket_.async_write(asio::buffer(next.data().data(), next.data().size()),
                            [self = this->shared_from_this()](beast::error_code failure, std::size_t) {
                                if (failure) {
                                    self->cut();
                                } else {
                                    self->write_next();
                                }
                            });
    }

    void read() {
        is_reading_ = true;
        socket_.read_message_max(handler_->largest_frame());
        socket_.async_read(buffer_,
                           [self = this->shared_from_this()](beast::error_code failure, std::size_t) {
                               self->is_reading_ = false;
                               self->got_frame(failure);
                           });
        think_ahead();
    }

    void got_frame(beast::error_code failure) {
        if (failure || is_closing_) {
            if (!is_closing_) {
                cut();
            }
            return;
        }
        if (is_busy_) {  // the last words are on their way: nothing is answered any more
            buffer_.consume(buffer_.size());
            return;
        }
        const auto data = buffer_.data();
        const auto* const bytes = static_cast<const std::uint8_t*>(data.data());
        call([&] {
            if (socket_.got_text()) {
                handler_->on_text({reinterpret_cast<const char*>(bytes), data.size()}, answer_);
            } else {
                handler_->on_binary({bytes, data.size()}, answer_);
            }
            buffer_.consume(buffer_.size());
        });
    }

    /// Work for later, in small pieces, each behind everything that waits for a thread.
    void think_ahead() {
        asio::post(socket_.get_executor(), [weak = this->weak_from_this()] {
            const auto self = weak.lock();
            if (self && self->is_reading_ && !self->is_busy_ && !self->is_closing_ &&
                self->handler_->idle()) {
                self->think_ahead();
            }
        });
    }

    /// Once what is being sent is sent.
    void say_last_words() {
        if (!is_websocket_ || is_busy_ || is_closing_ || !handler_) {
            return;
        }
        if (must_end_) {
            close(must_end_->first, must_end_->second);
        } else if (must_drain_) {
            must_drain_ = false;
            call([&] { handler_->on_drain(answer_); });
        }
    }

    void close(std::uint16_t code, const std::string& reason) {
        if (is_closing_) {
            return;
        }
        is_closing_ = true;
        constexpr std::size_t longest_reason = 120;
        websocket::close_reason why(static_cast<websocket::close_code>(code));
        why.reason.assign(reason.data(), std::min(reason.size(), longest_reason));
        write_timer_.expires_after(of_.options.handshake_time);
        write_timer_.async_wait([weak = this->weak_from_this()](beast::error_code cancelled) {
            if (const auto self = weak.lock(); self && !cancelled) {
                self->cut();
            }
        });
        socket_.async_close(why, [self = this->shared_from_this()](beast::error_code) { self->cut(); });
    }

    void cut() {
        is_closing_ = true;
        write_timer_.cancel();
        beast::error_code ignored;
        beast::get_lowest_layer(socket_).socket().close(ignored);
    }

    const shared_parts of_;
    std::unique_ptr<place> seat_;
    websocket::stream<Stream> socket_;
    asio::steady_timer write_timer_;
    beast::flat_buffer buffer_;
    std::optional<http::request_parser<http::string_body>> parser_;
    http::response<http::string_body> response_;
    std::unique_ptr<websocket_handler> handler_;
    answer answer_;
    std::size_t next_frame_ = 0;
    bool is_websocket_ = false;
    bool is_busy_ = false;  ///< an answer is being made or sent
    bool is_reading_ = false;
    bool is_closing_ = false;
    bool must_drain_ = false;
    std::optional<std::pair<std::uint16_t, std::string>> must_end_;
};

asio::ssl::context tls_context(const http_server_options::tls& files) {
    asio::ssl::context context(asio::ssl::context::tls_server);
    SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
    SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
    context.use_certificate_chain_file(files.certificate.string());
    context.use_private_key_file(files.key.string(), asio::ssl::context::pem);
    return context;
}

}  // namespace

struct http_server::state {
    state(http_server_options o, http_server_handlers h)
        : options(std::move(o)),
          handlers(std::move(h)),
          acceptor(asio::make_strand(io)),
          pause(acceptor.get_executor()) {
        if (options.secure) {
            secure.emplace(tls_context(*options.secure));
        }
        const tcp::endpoint where(asio::ip::make_address(options.address), options.port);
        acceptor.open(where.protocol());
        acceptor.set_option(tcp::acceptor::reuse_address(true));
        acceptor.bind(where);
        acceptor.listen();
        port = acceptor.local_endpoint().port();
    }

    void accept() {
        acceptor.async_accept(asio::make_strand(io), [this](beast::error_code failure, tcp::socket socket) {
            if (failure == asio::error::operation_aborted) {
                return;
            }
            if (failure) {
                // Out of descriptors, most likely: it would fail again at once.
                pause.expires_after(std::chrono::milliseconds(100));
                pause.async_wait([this](beast::error_code cancelled) {
                    if (!cancelled) {
                        accept();
                    }
                });
                return;
            }
            take(std::move(socket));
            accept();
        });
    }

    void take(tcp::socket socket) {
        try {
            beast::error_code failure;
            const tcp::endpoint peer = socket.remote_endpoint(failure);
            const std::string address = failure ? std::string() : peer.address().to_string();
            if (failure || !who.take(address, options.connections, options.connections_of_address)) {
                return;
            }
            auto seat = std::make_unique<place>(who, address);
            socket.set_option(tcp::no_delay(true), failure);
            const shared_parts parts{options, handlers, who, draining};
            std::shared_ptr<open_connection> made;
            if (secure) {
                made = std::make_shared<connection<tls_stream>>(parts, std::move(seat), std::move(socket),
                                                                *secure);
            } else {
                made = std::make_shared<connection<plain_stream>>(parts, std::move(seat), std::move(socket));
            }
            made->begin();
        } catch (const std::exception&) {
            return;  // no memory for one more: it is closed
        }
    }

    const http_server_options options;
    const http_server_handlers handlers;
    places who;
    std::atomic<bool> draining{false};
    std::optional<asio::ssl::context> secure;
    asio::io_context io;  // destroys what is left of connections, which look at what stands above
    tcp::acceptor acceptor;
    asio::steady_timer pause;
    std::uint16_t port = 0;
    std::vector<std::jthread> threads;
};

http_server::http_server(http_server_options options, http_server_handlers handlers) {
    const std::string where = options.address + ":" + std::to_string(options.port);
    try {
        state_ = std::make_unique<state>(std::move(options), std::move(handlers));
    } catch (const boost::system::system_error& e) {
        throw tensafe::io_error("http_server: cannot listen on " + where + ": " + e.what());
    }
}

http_server::~http_server() {
    stop();
}

std::uint16_t http_server::port() const noexcept {
    return state_->port;
}

void http_server::run() {
    asio::post(state_->acceptor.get_executor(), [s = state_.get()] { s->accept(); });
    for (std::size_t i = 0; i < std::max<std::size_t>(state_->options.threads, 1); ++i) {
        state_->threads.emplace_back([s = state_.get()] {
            const auto keep = asio::make_work_guard(s->io);
            for (;;) {
                try {
                    s->io.run();
                    return;
                } catch (...) {
                    continue;  // one connection's lack of memory must not end the others
                }
            }
        });
    }
}

void http_server::drain() {
    state_->draining = true;
    for (const auto& each : state_->who.websockets()) {
        each->drain();
    }
}

bool http_server::wait_until_drained(std::chrono::milliseconds time) {
    return state_->who.wait_for_no_websocket(time);
}

void http_server::stop() {
    state_->io.stop();
    state_->threads.clear();
}

std::size_t http_server::connections() const noexcept {
    return state_->who.taken();
}

}  // namespace split::net
