// One file for all that a connection goes through, which runs on one thread: TLS, HTTP, the upgrade, frames,
// limits of time, the end. What several share stands above it.
#include "http_server.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/span_body.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "../limits.hpp"
#include "fair_queue.hpp"
#include "proxy_header.hpp"
#include "server_stream.hpp"

namespace split::net {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using asio::ip::tcp;
using steady = std::chrono::steady_clock;

class connection;

/// How many connections an address has, and how many of them are not established.
struct address_count {
    std::size_t all = 0;
    std::size_t strangers = 0;
};

class places;

/// A thread and the connections that are its own.
struct worker {
    static constexpr int one_thread = 1;
    std::atomic<std::size_t> connections{0};
    std::list<std::weak_ptr<connection>> thinking;  ///< who may have work for later, in turns
    bool is_posted = false;                         ///< a piece of it
    asio::io_context io{one_thread};
};

/// A place among the connections, of all and of a thread: for as long as it lives, or until a newcomer gets
/// it.
struct place {
    place(places& them, std::string peer, worker& by) : of(them), address(std::move(peer)), thread(by) {
        ++thread.connections;
    }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place();

    places& of;
    std::string address;
    worker& thread;
    std::weak_ptr<connection> holder;
    std::atomic<steady::time_point> idle_since = steady::now();  ///< the largest: a frame is being answered
    std::optional<std::map<std::string, address_count>::iterator> count;  ///< nothing: it has no place
    bool is_established = false;
    bool is_leaving = false;
    bool is_websocket = false;
};

/// Who is there. An eighth of the places is kept for connections that are established, and an eighth for
/// those that are not.
class places {
  public:
    places(std::size_t most, std::size_t most_of_address)
        : most_(most), most_of_each_sort_(most - most / 8), most_of_address_(most_of_address) {
        all_.reserve(most);
    }

    /// Whether there is a place. If all are taken, the oldest stranger of the address with the most of them
    /// makes room for one of an address with fewer.
    bool take(place& newcomer, std::weak_ptr<connection>& displaced) {
        const std::string address = limited_address(newcomer.address);
        const std::lock_guard lock(mutex_);
        const auto known = by_address_.find(address);
        const address_count mine = known == by_address_.end() ? address_count() : known->second;
        if (mine.all >= most_of_address_) {
            return false;
        }
        if (all_.size() >= most_ || strangers_ >= most_of_each_sort_) {
            place* const oldest = who_makes_room(false, mine.strangers);
            if (oldest == nullptr) {
                return false;
            }
            displaced = oldest->holder;
            remove(*oldest);
        }
        newcomer.count = by_address_.try_emplace(address).first;
        all_.push_back(&newcomer);  // never takes memory
        ++(*newcomer.count)->second.all;
        count_stranger(newcomer, 1);
        return true;
    }
    void give_back(place& of) {
        const std::lock_guard lock(mutex_);
        remove(of);
    }
    /// Of a WebSocket: whether there is room for one more that is established. If there is none, that which
    /// is idle for longest of the address with the most of them makes room for one of an address with fewer.
    bool settle(place& of, bool is_established, std::weak_ptr<connection>& displaced) {
        const std::lock_guard lock(mutex_);
        of.is_websocket = true;
        if (of.is_leaving || is_established == of.is_established) {
            return true;
        }
        if (!of.count) {
            return false;
        }
        if (is_established && all_.size() - strangers_ >= most_of_each_sort_) {
            place* const idlest = who_makes_room(true, established((*of.count)->second));
            if (idlest == nullptr) {
                return false;
            }
            displaced = idlest->holder;
            start_leaving(*idlest);
        }
        set_established(of, is_established);
        return true;
    }
    /// It has nothing more to say, and may take its time: from now on it can be displaced.
    void leave(place& of) {
        const std::lock_guard lock(mutex_);
        start_leaving(of);
    }

    std::size_t taken() const {
        const std::lock_guard lock(mutex_);
        return all_.size();
    }
    std::vector<std::shared_ptr<connection>> websockets() const {
        std::vector<std::shared_ptr<connection>> result;
        const std::lock_guard lock(mutex_);
        result.reserve(all_.size());
        for (const place* each : all_) {
            if (auto still = each->is_websocket ? each->holder.lock() : nullptr) {
                result.push_back(std::move(still));
            }
        }
        return result;
    }
    bool wait_for_no_websocket(std::chrono::milliseconds time) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, time,
                                 [&] { return std::ranges::none_of(all_, &place::is_websocket); });
    }

  private:
    static std::size_t established(const address_count& of) { return of.all - of.strangers; }
    /// Of those that are established, or of the others, whoever is idle for longest of the address with the
    /// most; null: that has no more than the newcomer's, which has `mine`. Sessions come back: so that two
    /// addresses do not push each other out for ever, it must have two more, or be idle for long.
    place* who_makes_room(bool is_established, std::size_t mine) const {
        constexpr auto long_idle = std::chrono::seconds(10);
        const auto rank = [&](const place* each) {
            const address_count& of = (*each->count)->second;
            return std::pair(is_established ? established(of) : of.strangers,
                             steady::time_point::max() - each->idle_since.load());
        };
        place* found = nullptr;
        for (place* const each : all_) {
            const bool may = each->is_established == is_established &&
                             each->idle_since.load() != steady::time_point::max();
            found = may && (found == nullptr || rank(each) > rank(found)) ? each : found;
        }
        const bool is_fresh =
            is_established && found != nullptr && steady::now() - found->idle_since.load() < long_idle;
        return found != nullptr && rank(found).first > mine + (is_fresh ? 1 : 0) ? found : nullptr;
    }
    void start_leaving(place& of) {
        of.is_leaving = true;
        if (of.count && of.is_established) {
            set_established(of, false);
        }
    }
    void set_established(place& of, bool is_established) {
        of.is_established = is_established;
        count_stranger(of, is_established ? -1 : 1);
    }
    void count_stranger(const place& of, int change) {
        strangers_ += static_cast<std::size_t>(change);
        (*of.count)->second.strangers += static_cast<std::size_t>(change);
    }
    void remove(place& of) {
        if (!of.count) {
            return;
        }
        std::erase(all_, &of);
        if (!of.is_established) {
            count_stranger(of, -1);
        }
        if (--(*of.count)->second.all == 0) {
            by_address_.erase(*of.count);
        }
        of.count.reset();
        changed_.notify_all();
    }

    const std::size_t most_;
    const std::size_t most_of_each_sort_;
    const std::size_t most_of_address_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<place*> all_;  ///< as they came
    std::size_t strangers_ = 0;
    std::map<std::string, address_count> by_address_;
};

place::~place() {
    --thread.connections;
    of.give_back(*this);
}

/// What a browser may do with a response: what a page of this server needs, and from here alone.
constexpr std::array<std::pair<const char*, const char*>, 6> page_headers{
    {{"Content-Security-Policy",
      "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; "
      "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
     {"Cross-Origin-Opener-Policy", "same-origin"},
     {"Cross-Origin-Embedder-Policy", "require-corp"},
     {"Cross-Origin-Resource-Policy", "same-origin"},
     {"X-Content-Type-Options", "nosniff"},
     {"Referrer-Policy", "no-referrer"}}};

/// What connections share.
struct shared_parts {
    const http_server_options options;
    const http_server_handlers handlers;
    std::mutex settings{};               ///< of what may be replaced while it runs
    std::vector<std::string> origins{};  ///< of pages that may come
    places who{options.connections, options.connections_of_address};
    fair_queue frames{options.threads};
    std::atomic<bool> draining{false};
};

/// What a connection has a limited time for.
enum class wait_for : std::size_t {
    http,     ///< TLS, a request, a response
    session,  ///< an upgraded connection to be good for something
    a_sign,   ///< of the peer's life
    frame,    ///< one that was begun
    taking,   ///< what is written to be taken
    the_end,  ///< once this side has said its last
    count
};

/// One connection: TLS, HTTP requests, and after an upgrade frames. All of it on one thread.
class connection final : public connection_control, public std::enable_shared_from_this<connection> {
  public:
    connection(shared_parts& of, std::unique_ptr<place> seat, tcp::socket&& socket,
               asio::ssl::context* secure)
        : of_(of),
          seat_(std::move(seat)),
          socket_(std::move(socket), secure,
                  [this] { limit(wait_for::the_end, of_.options.handshake_time); }),
          timer_(socket_.get_executor()),
          began_(steady::now()),
          buffer_(of.options.header_bytes) {
        due_.fill(never);
    }

    /// @param is_of_proxy  takes its place once a header says for whom
    void begin(bool is_of_proxy) {
        if (!is_of_proxy && !take_place()) {
            return;
        }
        asio::post(socket_.get_executor(), [self = shared_from_this(), is_of_proxy] {
            self->limit(wait_for::http, self->of_.options.handshake_time);
            is_of_proxy ? self->read_proxy_header() : self->begin_tls();
        });
    }

    void drain() {
        asio::post(socket_.get_executor(), [self = shared_from_this()] {
            self->must_drain_ = true;
            self->say_last_words();
        });
    }

    void end(std::uint16_t code, const std::string& reason) override {
        asio::post(socket_.get_executor(), [self = shared_from_this(), code, reason] {
            self->of_.who.leave(*self->seat_);
            self->must_end_ = std::pair(code, reason);
            self->say_last_words();
        });
    }

    std::array<std::byte, 32> channel_binding() override {
        if (origin_.empty()) {
            return socket_.next_layer().tls_exporter();
        }
        const std::string bound = "tensafe split inference origin\n" + origin_;
        return tensafe::keystore::sha256::of(std::as_bytes(std::span(bound)));
    }
    /// Another one got its place.
    /// @param code, reason  for who has a session, once what it is at is answered
    void make_room(std::uint16_t code = 0, const std::string& reason = {}) {
        asio::post(socket_.get_executor(), [self = shared_from_this(), code, reason] {
            self->of_.handlers.refused(self->seat_->address);
            code == 0 ? self->cut() : self->end(code, reason);
        });
    }

  private:
    /// Whether there was a place, also if another one had to go for it.
    bool take_place() {
        seat_->holder = weak_from_this();
        std::weak_ptr<connection> displaced;
        const bool is_in = of_.handlers.admits(seat_->address) && of_.who.take(*seat_, displaced);
        if (const auto gone = displaced.lock()) {
            gone->make_room();
        }
        if (!is_in) {
            of_.handlers.refused(seat_->address);
        }
        return is_in;
    }

    // Time. One timer for all, which is set anew only for what is due before it: not for each frame.

    static constexpr steady::time_point never = steady::time_point::max();

    steady::time_point& due(wait_for what) { return due_[static_cast<std::size_t>(what)]; }

    void limit(wait_for what, std::chrono::milliseconds time) {
        due(what) = steady::now() + time;
        if (due(what) < wakes_) {
            wake_at(due(what));
        }
    }

    void no_limit(wait_for what) { due(what) = never; }

    void wake_at(steady::time_point when) {
        wakes_ = when;
        timer_.expires_at(when);
        timer_.async_wait([weak = weak_from_this()](beast::error_code cancelled) {
            if (const auto self = weak.lock(); self && !cancelled) {
                self->look_at_the_clock();
            }
        });
    }

    void look_at_the_clock() {
        wakes_ = never;
        const auto now = steady::now();
        for (std::size_t i = 0; i < due_.size(); ++i) {
            if (due_[i] <= now && !has_more_time(static_cast<wait_for>(i))) {
                cut();
                return;
            }
        }
        if (const auto next = *std::min_element(due_.begin(), due_.end()); next != never) {
            wake_at(next);
        }
    }

    /// Whether it is not over although its time is.
    bool has_more_time(wait_for what) {
        switch (what) {
            case wait_for::session:
                if (is_busy_) {  // it may wait for others' frames, and the handler is in use
                    limit(what, of_.options.handshake_time);
                    return true;
                }
                no_limit(what);
                return handler_ && handler_->established();
            case wait_for::a_sign:
                return look_for_life();
            case wait_for::taking: {
                // A long frame on a slow line: as long as it moves, it may.
                constexpr std::uint64_t enough = std::uint64_t{1} << 20;
                const std::uint64_t moved = socket_.next_layer().bytes_out() - out_before_;
                if (moved < enough) {
                    return false;
                }
                out_before_ += moved;
                limit(what, of_.options.write_time);
                return true;
            }
            default:
                return false;
        }
    }

    /// Twice in idle_time: who was silent is pinged, who was silent after that is gone. While something is
    /// sent nothing is read: then the time to take it is the limit.
    bool look_for_life() {
        const std::uint64_t in = socket_.next_layer().bytes_in();
        const bool is_silent = in == in_before_ && !is_busy_;
        in_before_ = in;
        if (is_silent && std::exchange(is_pinged_, true)) {
            return false;
        }
        if (is_silent && !is_closing_ && !std::exchange(is_pinging_, true)) {
            socket_.async_ping({},
                               [self = shared_from_this()](beast::error_code) { self->is_pinging_ = false; });
        }
        is_pinged_ = is_silent;
        limit(wait_for::a_sign, of_.options.idle_time / 2);
        return true;
    }

    // Before HTTP

    /// @param bytes  of it that are needed to know more
    void read_proxy_header(std::size_t bytes = proxy_header::fixed_bytes) {
        socket_.next_layer().async_read_before_tls(
            buffer_.prepare(bytes),
            server_stream::then([self = shared_from_this(), bytes](beast::error_code failure) {
                if (!failure) {
                    self->buffer_.commit(bytes);
                    self->got_proxy_header();
                }
            }));
    }

    void got_proxy_header() {
        const auto read = static_cast<const std::uint8_t*>(buffer_.data().data());
        const std::optional<proxy_header> known = proxy_header::of({read, buffer_.size()});
        if (!known) {
            of_.handlers.refused(seat_->address);
            return cut();
        }
        if (known->missing > 0) {
            return read_proxy_header(known->missing);
        }
        buffer_.consume(buffer_.size());
        if (!known->source.empty()) {
            seat_->address = known->source;
        }
        from_.unique_id = known->unique_id;
        take_place() ? begin_tls() : cut();
    }

    void begin_tls() {
        socket_.next_layer().async_handshake(
            server_stream::then([self = shared_from_this()](beast::error_code failure) {
                if (!failure) {
                    self->read_request(self->of_.options.handshake_time);
                }
            }));
    }

    // HTTP

    void read_request(std::chrono::milliseconds time) {
        parser_.emplace();
        parser_->header_limit(static_cast<std::uint32_t>(of_.options.header_bytes));
        parser_->body_limit(of_.options.body_bytes);
        limit(wait_for::http, time);
        http::async_read_header(socket_.next_layer(), buffer_, *parser_,
                                std::bind_front(&connection::got_header, shared_from_this()));
    }

    void got_header(beast::error_code failure, std::size_t) {
        const auto& header = parser_->get();
        const bool body_follows = !failure && parser_->content_length().value_or(0) > 0;
        const auto refuse = [&](unsigned status, const std::string& why) {
            respond({status, why + "\n"}, false);
        };
        if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
            refuse(431, "too large");
        } else if (failure == http::error::body_limit) {
            refuse(413, "too large");
        } else if (failure) {
            shut_down();
        } else if (header.count(http::field::transfer_encoding) > 0) {
            refuse(411, "got Transfer-Encoding, expected Content-Length");
        } else if (header.count(http::field::authorization) > 1) {
            refuse(400, "got two headers Authorization, expected one");
        } else if (body_follows && header.method() != http::verb::put &&
                   header.method() != http::verb::post) {
            refuse(400, "got a body, expected none");
        } else if (header.target() != of_.options.websocket_path) {
            answer_request(body_follows);
        } else if (!is_allowed_origin(header)) {
            of_.handlers.origin_refused(origin_, seat_->address);
            refuse(403, "got the origin " + tensafe::quote(origin_) + ", expected one of --origin");
        } else if (websocket::is_upgrade(header)) {
            upgrade();
        } else {
            refuse(426, "expected a WebSocket");
        }
    }

    /// Who sends none is no page.
    template <class Header>
    bool is_allowed_origin(const Header& header) {
        origin_ = std::string(header[http::field::origin]);
        const std::lock_guard lock(of_.settings);
        return header.count(http::field::origin) == 0 ||
               (header.count(http::field::origin) == 1 &&
                std::ranges::find(of_.origins, origin_) != of_.origins.end());
    }

    void answer_request(bool body_follows) {
        const auto& request = parser_->get();
        http_response response;
        try {
            response =
                of_.handlers.answer({std::string(request.method_string()), std::string(request.target()),
                                     std::string(request[http::field::authorization]), request.body(),
                                     seat_->address, body_follows});
        } catch (...) {
            response = {500, "internal error\n"};
        }
        if (body_follows && response.status == 100) {
            go_on();
            return;
        }
        // Who asks now and then for ever would keep a place from others.
        const bool is_old = steady::now() - began_ >= of_.options.idle_time;
        respond(std::move(response), request.keep_alive() && !body_follows && !of_.draining && !is_old);
    }

    /// Tells who waits for it that its body is wanted.
    void go_on() {
        if (!beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
            read_body();
            return;
        }
        response_ = {http::status::continue_, 11};
        http::async_write(socket_.next_layer(), response_,
                          [self = shared_from_this()](beast::error_code failure, std::size_t) {
                              failure ? self->shut_down() : self->read_body();
                          });
    }

    void read_body() {
        http::async_read(socket_.next_layer(), buffer_, *parser_,
                         [self = shared_from_this()](beast::error_code failure, std::size_t) {
                             failure ? self->shut_down() : self->answer_request(false);
                         });
    }

    void respond(http_response from, bool keep_alive) {
        response_ = {static_cast<http::status>(from.status), parser_->get().version()};
        response_.set(http::field::content_type, from.content_type);
        response_.set(http::field::cache_control, from.page ? "no-cache" : "no-store");
        for (const auto& [name, value] : page_headers) {
            response_.set(name, value);
        }
        if (of_.options.secure && of_.options.has_pages) {
            response_.set("Strict-Transport-Security", "max-age=31536000");
        }
        if (from.status == 426) {
            response_.set(http::field::upgrade, "websocket");
        }
        response_.keep_alive(keep_alive);
        body_ = from.page ? std::move(from.page) : std::make_shared<const std::string>(std::move(from.body));
        response_.body() = {body_->data(), body_->size()};
        response_.prepare_payload();
        if (parser_->get().method() == http::verb::head) {
            response_.body() = {};  // what a GET would bring is announced, and does not come
        }
        limit(wait_for::http, of_.options.write_time * static_cast<int>(1 + (body_->size() >> 20)));
        http::async_write(socket_.next_layer(), response_,
                          [self = shared_from_this(), keep_alive](beast::error_code failure, std::size_t) {
                              keep_alive && !failure ? self->read_request(self->of_.options.idle_time)
                                                     : self->shut_down();
                          });
    }

    /// Ends a connection that is no WebSocket, once the peer has read what was sent, or has had time for it.
    void shut_down() {
        socket_.next_layer().async_finish(server_stream::then(
            [self = shared_from_this()](beast::error_code) { self->socket_.next_layer().close(); }));
    }

    // WebSocket

    void upgrade() {
        limit(wait_for::http, of_.options.handshake_time);
        socket_.auto_fragment(false);  // a reply goes out as it lies there
        socket_.async_accept(parser_->get(), [self = shared_from_this()](beast::error_code failure) {
            if (!failure) {
                self->start();
            }
        });
    }

    void start() {
        no_limit(wait_for::http);
        limit(wait_for::session, of_.options.handshake_time);
        in_before_ = socket_.next_layer().bytes_in();
        limit(wait_for::a_sign, of_.options.idle_time / 2);
        from_.address = seat_->address;
        const auto& header = parser_->get();
        const std::string trace(header["traceparent"]);
        if (header.count("traceparent") == 1 && is_traceparent(trace)) {
            from_.traceparent = trace;
        }
        parser_.reset();
        buffer_ = beast::flat_buffer();  // how long a frame may be is the handler's to say
        fill_answer([&] {
            handler_ = of_.handlers.connect(from_, weak_from_this());
            handler_->start(answer_);
        });
        must_drain_ = of_.draining;
        send_answer();
    }

    /// Lets the handler answer.
    template <class Call>
    void fill_answer(Call of_handler) {
        answer_.clear();
        std::weak_ptr<connection> displaced;
        try {
            of_handler();
            const bool has_place = of_.who.settle(*seat_, handler_->established(), displaced);
            if (const auto gone = displaced.lock()) {
                gone->make_room(close_try_later, "idle, and others need the place: come again");
            }
            if (!has_place) {
                of_.handlers.refused(seat_->address);
                answer_.clear();
                answer_.close(close_try_later, "as many sessions are connected as may be");
            }
        } catch (...) {
            static_cast<void>(of_.who.settle(*seat_, false, displaced));
            answer_.clear();
            answer_.close(close_internal, "internal error");
        }
    }

    void send_answer() {
        is_busy_ = true;
        next_frame_ = 0;
        write_next();
    }

    void write_next() {
        seat_->idle_since = steady::now();
        if (next_frame_ == answer_.frames().size()) {
            is_busy_ = false;
            no_limit(wait_for::taking);
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
        out_before_ = socket_.next_layer().bytes_out();
        limit(wait_for::taking, of_.options.write_time);
        socket_.async_write(asio::buffer(next.data().data(), next.data().size()),
                            [self = shared_from_this()](beast::error_code failure, std::size_t) {
                                failure ? self->cut() : self->write_next();
                            });
    }

    void read() {
        is_reading_ = true;
        socket_.read_message_max(handler_->largest_frame());
        read_more();
        think_ahead();
    }

    void read_more() {
        socket_.async_read_some(buffer_, 0, std::bind_front(&connection::got_part, shared_from_this()));
    }

    void got_part(beast::error_code failure, std::size_t) {
        if (!failure && !socket_.is_message_done()) {
            if (due(wait_for::frame) == never) {
                limit(wait_for::frame, of_.options.frame_time);
            }
            read_more();
            return;
        }
        no_limit(wait_for::frame);
        is_reading_ = false;
        if (is_closing_) {
            return;
        }
        if (failure) {
            cut();
        } else if (is_busy_) {  // the last words are on their way: nothing is answered any more
            buffer_.consume(buffer_.size());
        } else {
            answer_frame();
        }
    }

    void answer_frame() {
        is_busy_ = true;
        seat_->idle_since = steady::time_point::max();
        of_.frames.run(handler_->whose(), [self = shared_from_this(), text = socket_.got_text()]() mutable {
            const auto data = self->buffer_.data();
            self->fill_answer([&] {
                text ? self->handler_->on_text({static_cast<const char*>(data.data()), data.size()},
                                               self->answer_)
                     : self->handler_->on_binary({static_cast<const std::uint8_t*>(data.data()), data.size()},
                                                 self->answer_);
            });
            // The connection ends on its own thread.
            const auto own = self->socket_.get_executor();
            asio::dispatch(own, [self = std::move(self)] {
                self->buffer_.consume(self->buffer_.size());
                self->send_answer();
            });
        });
    }

    /// Work for later, in small pieces, each behind everything that waits for this thread: whatever comes
    /// waits for one piece of one connection, not for one of each.
    void think_ahead() {
        worker& own = seat_->thread;
        if (!is_thinking_) {
            own.thinking.push_back(weak_from_this());
            is_thinking_ = true;
        }
        post_thought(own);
    }

    static void post_thought(worker& own) {
        if (own.is_posted || own.thinking.empty()) {
            return;
        }
        asio::post(own.io, [&own] {
            own.is_posted = false;
            if (const auto self = own.thinking.front().lock(); self && self->is_reading_ && !self->is_busy_ &&
                                                               !self->is_closing_ && self->handler_->idle()) {
                own.thinking.splice(own.thinking.end(), own.thinking, own.thinking.begin());
            } else {
                own.thinking.pop_front();
                if (self) {
                    self->is_thinking_ = false;
                }
            }
            post_thought(own);
        });
        own.is_posted = true;
    }

    /// Once what is being sent is sent.
    void say_last_words() {
        if (!handler_ || is_busy_ || is_closing_) {
            return;
        }
        if (must_end_) {
            close(must_end_->first, must_end_->second);
        } else if (must_drain_) {
            must_drain_ = false;
            fill_answer([&] { handler_->on_drain(answer_); });
            send_answer();
        }
    }

    void close(std::uint16_t code, const std::string& reason) {
        if (is_closing_) {
            return;
        }
        is_closing_ = true;
        of_.who.leave(*seat_);
        constexpr std::size_t longest_reason = 120;
        websocket::close_reason why(static_cast<websocket::close_code>(code));
        why.reason.assign(reason.data(), std::min(reason.size(), longest_reason));
        limit(wait_for::the_end, of_.options.handshake_time);
        socket_.async_close(why, [self = shared_from_this()](beast::error_code) { self->cut(); });
    }

    void cut() {
        is_closing_ = true;
        due_.fill(never);
        timer_.cancel();
        socket_.next_layer().close();
    }

    shared_parts& of_;
    std::unique_ptr<place> seat_;  // goes last: the handler knows that its connection is over before others
    websocket::stream<server_stream, false> socket_;
    asio::steady_timer timer_;
    const steady::time_point began_;
    std::array<steady::time_point, static_cast<std::size_t>(wait_for::count)> due_{};
    steady::time_point wakes_ = never;
    std::uint64_t in_before_ = 0;   ///< bytes, as of the last look for life
    std::uint64_t out_before_ = 0;  ///< bytes, when the time for taking began
    bool is_pinged_ = false;
    bool is_pinging_ = false;
    beast::flat_buffer buffer_;
    std::optional<http::request_parser<http::string_body>> parser_;
    http::response<http::span_body<const char>> response_;
    std::shared_ptr<const std::string> body_;  ///< of the response
    std::string origin_;                       ///< of the page that came; empty: it is none
    caller from_;                              ///< whole once it is a WebSocket
    std::unique_ptr<websocket_handler> handler_;
    answer answer_;
    std::size_t next_frame_ = 0;
    bool is_busy_ = false;  ///< an answer is being made or sent
    bool is_reading_ = false;
    bool is_thinking_ = false;  ///< among those of its thread
    bool is_closing_ = false;
    bool must_drain_ = false;
    std::optional<std::pair<std::uint16_t, std::string>> must_end_;
};

asio::ssl::context tls_context(const tls_files& files) {
    asio::ssl::context context(asio::ssl::context::tls_server);
    SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
    SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_cipher_list(context.native_handle(), "ECDHE+AESGCM:ECDHE+CHACHA20");  // of TLS 1.2
    context.use_certificate_chain_file(files.certificate.string());
    context.use_private_key_file(files.key.string(), asio::ssl::context::pem);
    return context;
}

}  // namespace

struct http_server::state : shared_parts {
    state(http_server_options o, http_server_handlers h)
        : shared_parts{std::move(o), std::move(h)},
          workers(std::max<std::size_t>(options.threads, 1)),
          acceptor(workers.front().io) {
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

    /// On a thread of its own, until `stop`. Never stops accepting, whatever there is too little of.
    void accept() noexcept {
        while (!is_over) {
            try {
                worker& next = *std::ranges::min_element(
                    workers, {}, [](const worker& each) { return each.connections.load(); });
                take(acceptor.accept(next.io), next);
            } catch (const std::exception&) {  // out of descriptors, most likely: it would fail again at once
                std::this_thread::sleep_for(std::chrono::milliseconds(is_over ? 0 : 100));
            }
        }
    }

    void take(tcp::socket socket, worker& by) {
        beast::error_code failure;
        const tcp::endpoint peer = socket.remote_endpoint(failure);
        if (failure) {
            return;
        }
        const bool is_proxy = std::ranges::any_of(
            options.proxies, [&](const address_range& each) { return contains(each, peer.address()); });
        // As many as there are places may wait for a header. `by` is the thread with the fewest of all.
        if (is_proxy && by.connections * workers.size() >= 2 * options.connections) {
            return handlers.refused(peer.address().to_string());
        }
        auto seat = std::make_unique<place>(who, peer.address().to_string(), by);
        socket.set_option(tcp::no_delay(true), failure);
        const std::lock_guard lock(settings);
        std::make_shared<connection>(*this, std::move(seat), std::move(socket), secure ? &*secure : nullptr)
            ->begin(is_proxy);
    }

    std::optional<asio::ssl::context> secure;  ///< what it began goes on without it
    std::vector<worker> workers;  // destroy what is left of connections, which look at what stands above
    tcp::acceptor acceptor;
    std::uint16_t port = 0;
    std::atomic<bool> is_over{false};
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

void http_server::allow_origins(std::vector<std::string> origins) {
    const std::lock_guard lock(state_->settings);
    state_->origins = std::move(origins);
}

void http_server::use_certificate(const tls_files& files) {
    asio::ssl::context fresh = tls_context(files);
    const std::lock_guard lock(state_->settings);
    state_->secure = std::move(fresh);
}

void http_server::run() {
    state_->threads.emplace_back([s = state_.get()] { s->accept(); });
    for (worker& each : state_->workers) {
        state_->threads.emplace_back([&io = each.io] {
            const auto keep = asio::make_work_guard(io);
            for (;;) {
                try {
                    io.run();
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
    state_->is_over = true;
    ::shutdown(state_->acceptor.native_handle(), SHUT_RDWR);  // wakes who accepts
    for (worker& each : state_->workers) {
        each.io.stop();
    }
    state_->threads.clear();
    state_->frames.stop();
}

std::size_t http_server::connections() const noexcept {
    return state_->who.taken();
}

}  // namespace split::net
