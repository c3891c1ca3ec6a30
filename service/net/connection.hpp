#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace split::net {

// What stands between a network and what is said over it: no type of a network library, so that a test can
// drive the other side without one.

/// One frame that goes out. `shared`, if there is one, is sent instead of `bytes`: many connections send it.
struct frame {
    bool is_text = false;
    std::vector<std::uint8_t> bytes;
    std::shared_ptr<const std::vector<std::uint8_t>> shared;

    std::span<const std::uint8_t> data() const noexcept { return shared ? *shared : bytes; }
};

/// Where a WebSocket connection begins.
inline constexpr const char* websocket_path = "/v1/split";

// Why it closes: RFC 6455, section 7.4.1.
inline constexpr std::uint16_t close_normal = 1000;
inline constexpr std::uint16_t close_going_away = 1001;
inline constexpr std::uint16_t close_policy = 1008;
inline constexpr std::uint16_t close_internal = 1011;
inline constexpr std::uint16_t close_try_later = 1013;

/// The frames that answer one that came, in order, and whether the connection ends after them. Its frames
/// keep their memory from answer to answer.
class answer {
  public:
    /// A frame to be filled; its `bytes` still has the memory of an earlier one.
    frame& add(bool is_text) {
        if (count_ == frames_.size()) {
            frames_.emplace_back();
        }
        frame& next = frames_[count_++];
        next.is_text = is_text;
        return next;
    }
    void add_text(std::string_view text) { add(true).bytes.assign(text.begin(), text.end()); }
    void close(std::uint16_t code, std::string reason) { close_ = std::pair(code, std::move(reason)); }
    /// Forgets the frames, not their memory, unless they are many or long.
    void clear() {
        frames_.resize(std::min(frames_.size(), most_kept));
        for (frame& each : frames_) {
            each.shared.reset();
            if (each.bytes.capacity() > longest_kept) {
                each.bytes = std::vector<std::uint8_t>();
            }
        }
        count_ = 0;
        close_.reset();
    }

    std::span<const frame> frames() const noexcept { return {frames_.data(), count_}; }
    const std::optional<std::pair<std::uint16_t, std::string>>& closing() const noexcept { return close_; }

  private:
    static constexpr std::size_t most_kept = 4;
    static constexpr std::size_t longest_kept = std::size_t{128} << 10;  // bytes

    std::vector<frame> frames_;
    std::size_t count_ = 0;
    std::optional<std::pair<std::uint16_t, std::string>> close_;
};

/// Whether a text is a "traceparent" as W3C Trace Context, version 00, has it.
inline bool is_traceparent(std::string_view text) noexcept {
    constexpr std::string_view form = "00-tttttttttttttttttttttttttttttttt-pppppppppppppppp-ff";
    const auto fits = [](char is, char as) {
        return as == '0' || as == '-' ? is == as : (is >= '0' && is <= '9') || (is >= 'a' && is <= 'f');
    };
    return std::ranges::equal(text, form, fits) && text.find_first_not_of('0', 3) < 35 &&
           text.find_first_not_of('0', 36) < 52;  // neither the trace nor its parent is zero
}

/// Whose a WebSocket connection is, and under which names others log it.
struct caller {
    std::string address;
    std::string unique_id = {};    ///< that a proxy gave the connection, at most 128 characters, or empty
    std::string traceparent = {};  ///< of the upgrade: see is_traceparent; empty: it had none
};

/// What a handler asks of its connection. Others hold it weakly: no connection outlives its server.
class connection_control {
  public:
    virtual ~connection_control() = default;
    /// From any thread.
    virtual void end(std::uint16_t code, const std::string& reason) = 0;
    /// What a signature is bound to: of a page, which sees no more of its connection, SHA-256 of
    /// "tensafe split inference origin\n" and its origin; else as net::tls_exporter; zeros where there is no
    /// TLS. For the connection's handler, in its calls.
    virtual std::array<std::byte, 32> channel_binding() = 0;
};

/// One side of a WebSocket connection. Calls come one at a time, from different threads; each writes what is
/// to be sent into an empty answer. The next frame is read when that is written. Frames are answered in
/// turns, see fair_queue; everything else should take microseconds.
class websocket_handler {
  public:
    virtual ~websocket_handler() = default;
    virtual void start(answer& to) = 0;
    /// Who takes turns with others: the next frame is theirs.
    virtual std::string whose() const = 0;
    virtual void on_text(std::string_view text, answer& to) = 0;
    virtual void on_binary(std::span<const std::uint8_t> bytes, answer& to) = 0;
    /// The server stops: the last words.
    virtual void on_drain(answer& to) = 0;
    /// Called while nothing is there to be done: one small piece of work for later. Whether there is more.
    virtual bool idle() { return false; }
    /// Whether the peer got where it may stay. Who did not within handshake_time is cut off, or before that
    /// where its place is needed.
    virtual bool established() const = 0;
    /// The longest frame that may come next, in bytes: a longer one ends the connection before memory is
    /// taken.
    virtual std::size_t largest_frame() const = 0;
};

/// A request that is no WebSocket upgrade.
struct http_request {
    std::string method;         ///< "GET", ...
    std::string target;         ///< as it was sent: "/healthz"
    std::string authorization;  ///< the header's value; empty if there is none
    std::string body;
    std::string address;  ///< of the peer
    /// A body was announced and is not read yet. It is if the answer has status 100, and then this request
    /// comes again with it; any other answer ends the connection.
    bool body_follows = false;
};

struct http_response {
    unsigned status = 200;
    std::string body;
    std::string content_type = "text/plain; charset=utf-8";
    std::shared_ptr<const std::string> page = nullptr;  ///< a page's file, instead of `body`
};

}  // namespace split::net
