#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/container/static_vector.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tls_exporter.hpp"

namespace split::net {

/// A connection with TLS or without, as Beast wants one. Beast's operations are templates over the stream,
/// and those of the stream over what is to be done then: with one type for each they are compiled once.
///
/// All on one thread. What is given to it must keep it alive until it is called.
class server_stream {
  public:
    using error_code = boost::system::error_code;
    using socket_type = boost::asio::ip::tcp::socket;
    using executor_type = socket_type::executor_type;

    /// What is to be done when an operation ends: any function of its outcome and its bytes.
    class then {
      public:
        /// @param sum  to which the bytes are added
        template <class Function>
        requires(!std::same_as<std::remove_cvref_t<Function>, then>) explicit then(
            Function&& f, std::uint64_t* sum = nullptr)
            : what_(std::make_shared<std::remove_cvref_t<Function>>(std::forward<Function>(f))),
              call_(&call<std::remove_cvref_t<Function>>),
              sum_(sum) {}
        void operator()(error_code outcome, std::size_t bytes = 0) {
            if (sum_ != nullptr) {
                *sum_ += bytes;
            }
            call_(what_.get(), outcome, bytes);
        }

        /// An operation begins where another one ended: no further thread need wake for it.
        friend bool asio_handler_is_continuation(then*) { return true; }

      private:
        template <class Function>
        static void call(void* function, error_code outcome, std::size_t bytes) {
            Function mine = std::move(*static_cast<Function*>(function));
            if constexpr (std::invocable<Function, error_code, std::size_t>) {
                mine(outcome, bytes);
            } else {
                mine(outcome);
            }
        }

        std::shared_ptr<void> what_;
        void (*call_)(void* function, error_code outcome, std::size_t bytes);
        std::uint64_t* sum_;
    };

    /// @param secure     null: no TLS
    /// @param finishing  called when this side has said its last: the peer should not be waited for without
    ///                   an end
    server_stream(socket_type&& socket, boost::asio::ssl::context* secure, std::function<void()> finishing)
        : socket_(std::move(socket)), finishing_(std::move(finishing)) {
        if (secure != nullptr) {
            tls_.emplace(socket_, *secure);
        }
    }
    server_stream(const server_stream&) = delete;
    server_stream& operator=(const server_stream&) = delete;

    executor_type get_executor() { return socket_.get_executor(); }

    /// Of what the peer sent and took, so that somebody who looks now and then sees whether it is there.
    std::uint64_t bytes_in() const noexcept { return bytes_in_; }
    std::uint64_t bytes_out() const noexcept { return bytes_out_; }

    /// Fills a buffer with what comes before TLS, and takes nothing behind it.
    void async_read_before_tls(boost::asio::mutable_buffer to, then done) {
        boost::asio::async_read(socket_, to, std::move(done));
    }

    /// The server's half of a TLS handshake; nothing where there is no TLS.
    void async_handshake(then done) {
        if (tls_) {
            tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(done));
        } else {
            done({});
        }
    }

    std::array<std::byte, 32> tls_exporter() {
        return tls_ ? net::tls_exporter(tls_->native_handle()) : std::array<std::byte, 32>{};
    }

    template <class Buffers, class Done>
    void async_read_some(const Buffers& to, Done&& done) {
        const auto parts = first_of<boost::asio::mutable_buffer>(to);
        then last(std::forward<Done>(done), &bytes_in_);
        tls_ ? tls_->async_read_some(parts, std::move(last))
             : socket_.async_read_some(parts, std::move(last));
    }
    template <class Buffers, class Done>
    void async_write_some(const Buffers& from, Done&& done) {
        if (!tls_) {
            const auto parts = first_of<boost::asio::const_buffer>(from);
            socket_.async_write_some(parts, then(std::forward<Done>(done), &bytes_out_));
            return;
        }
        // A record for each buffer would be one for the few bytes before a frame, too.
        record_.resize(bytes_of_a_tls_record);
        const std::size_t n = boost::asio::buffer_copy(boost::asio::buffer(record_), from);
        tls_->async_write_some(boost::asio::buffer(record_.data(), n),
                               then(std::forward<Done>(done), &bytes_out_));
    }

    /// Says that no more comes, and discards what the peer still sends until it ends too, or has sent a
    /// megabyte: were the socket closed before, the system would take back what the peer has not read yet.
    void async_finish(then done) {
        finishing_();
        if (!tls_) {
            end_sending(std::move(done));
            return;
        }
        tls_->async_shutdown(
            [this, done = std::move(done)](error_code) mutable { end_sending(std::move(done)); });
    }

    void close() noexcept {
        error_code ignored;
        socket_.close(ignored);
    }

  private:
    static constexpr std::size_t bytes_of_a_tls_record = 16'384;

    /// The first few of a sequence of buffers: an operation may do less than it was asked for.
    template <class Buffer, class Buffers>
    static auto first_of(const Buffers& all) {
        boost::container::static_vector<Buffer, 8> result;
        for (const Buffer each : boost::beast::buffers_range_ref(all)) {
            if (each.size() > 0 && result.size() < result.max_size()) {
                result.push_back(each);
            }
        }
        return result;
    }

    void end_sending(then done) {
        error_code ignored;
        socket_.shutdown(socket_type::shutdown_send, ignored);
        discard(std::move(done), std::size_t{1} << 20);
    }

    void discard(then done, std::size_t most) {
        auto discarded = [this, done = std::move(done), most](error_code failure, std::size_t bytes) mutable {
            failure || bytes >= most ? done({}) : discard(std::move(done), most - bytes);
        };
        socket_.async_read_some(boost::asio::buffer(rest_), then(std::move(discarded)));
    }

    socket_type socket_;
    std::optional<boost::asio::ssl::stream<socket_type&>> tls_;
    std::function<void()> finishing_;
    std::uint64_t bytes_in_ = 0;
    std::uint64_t bytes_out_ = 0;
    std::vector<std::uint8_t> record_;
    std::array<std::uint8_t, 4096> rest_;
};

// What Beast calls when a WebSocket is over.

template <class Done>
void async_teardown(boost::beast::role_type, server_stream& stream, Done&& done) {
    stream.async_finish(server_stream::then(std::forward<Done>(done)));
}

inline void beast_close_socket(server_stream& stream) {
    stream.close();
}

}  // namespace split::net
