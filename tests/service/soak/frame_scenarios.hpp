#pragma once

#include "check.hpp"
#include "clients.hpp"
#include "fixture.hpp"
#include "raw_connection.hpp"

// Peers that break the rules below the messages: sockets, TLS, HTTP, WebSocket frames.

namespace split::soak {

inline std::string random_text(std::mt19937& generator, std::size_t most) {
    std::string result(1 + generator() % most, '\0');
    std::ranges::generate(result, [&] { return static_cast<char>(generator() & 0xffu); });
    return result;
}

inline void killed_mid_frame(fixture& w) {
    struct {
        bool upgraded;
        std::string bytes;
    } const begun[] = {{false, "GET /v1/split HTTP/1.1\r\nHost: local"},
                       {true, frame_header(op_binary, 1000) + std::string(300, 'x')},
                       {true, frame_header(op_text, 70'000).substr(0, 5)}};
    for (const bool by_reset : {false, true}) {
        const auto kill = [&](raw_connection& c, std::string_view sent) {
            c.send(sent);
            if (by_reset) {
                c.reset();
            }
        };
        for (const auto& [upgraded, bytes] : begun) {
            raw_connection c(w.where());
            upgraded ? c.upgrade() : static_cast<void>(c.secure());
            kill(c, bytes);
        }
        raw_session s(w);
        s.ask();
        const auto half = s.make();
        const std::string frame = whole_frame(op_binary, text_of(half.message));
        kill(s.wire(), std::string_view(frame).substr(0, frame.size() / 2));
        // What came in half is not used up: the session goes on where it was.
        s.resume();
        require_equal("the next number after half a request", s.next_number, 2u);
        s.wire().send(frame);
        s.require_answer(half, 2);
        s.leave();
    }
}

/// And other frames that the rules forbid, each on a connection of its own.
inline void announced_4_gigabytes(fixture& w) {
    const std::size_t before = w.server->forget_peak();  // what is announced must not be allocated
    raw_session session(w);
    constexpr std::uint64_t four_gigabytes = std::uint64_t{1} << 32;
    constexpr std::uint64_t top_bit = std::uint64_t{1} << 63;
    constexpr frame_shape begun{.final = false};
    std::string fragments = whole_frame(op_binary, std::string(1000, 'x'), begun);
    for (int i = 0; i < 600; ++i) {  // more than any message may have
        fragments += whole_frame(op_continuation, std::string(1000, 'x'), begun);
    }
    const std::pair<std::string, std::string> forbidden[] = {
        {"4 GB announced", frame_header(op_binary, four_gigabytes)},
        {"4 GB of text announced", frame_header(op_text, four_gigabytes)},
        {"2^63 bytes announced", frame_header(op_binary, top_bit)},
        {"2^63 - 1 bytes announced", frame_header(op_binary, top_bit - 1)},
        {"2^64 - 1 bytes announced", frame_header(op_binary, ~std::uint64_t{0})},
        {"4 GB announced in a second fragment",
         whole_frame(op_binary, "x", begun) + frame_header(op_continuation, four_gigabytes)},
        {"fragments whose sum passes 2^64",
         whole_frame(op_binary, "xx", begun) + frame_header(op_continuation, ~std::uint64_t{0} - 1)},
        {"endless fragments", fragments},
        {"a ping of 126 bytes", whole_frame(op_ping, std::string(126, 'p'))},
        {"a close of 70,000 bytes", frame_header(op_close, 70'000)},
        {"a ping in fragments", whole_frame(op_ping, "p", begun)},
        {"no mask", whole_frame(op_text, "{}", {.masked = false})},
        {"reserved bit 1", whole_frame(op_text, "{}", {.reserved = 4})},
        {"reserved bit 2", whole_frame(op_text, "{}", {.reserved = 2})},
        {"reserved bit 3", whole_frame(op_binary, "{}", {.reserved = 1})},
        {"reserved operation 3", whole_frame(3, "x")},
        {"reserved operation 11", whole_frame(11, "x")},
        {"a continuation of nothing", whole_frame(op_continuation, "x")},
        {"a message within another", whole_frame(op_binary, "x", begun) + whole_frame(op_text, "{}")},
        {"a length of 2 bytes that fits 1", whole_frame(op_binary, "x", {.length_bytes = 2})},
        {"a length of 8 bytes that fits 2",
         whole_frame(op_binary, std::string(200, 'x'), {.length_bytes = 8})},
        {"text that is no UTF-8", whole_frame(op_text, "\xff\xfe")},
        {"a close with half a code", whole_frame(op_close, "\x03")},
        {"a close with a code that nobody may send", whole_frame(op_close, "\x03\xed")},
    };
    for (const auto& [name, bytes] : forbidden) {
        raw_connection c(w.where());
        c.upgrade();
        c.send(bytes);
        const unsigned code = c.receive_end();
        require(code == 0 || code == 1002 || code == 1007 || code == 1009 || code == 1008,
                "close code after " + name, code, "one of RFC 6455 for a bad frame");
    }
    // Not forbidden: a good request in fragments, with pings between them, and with empty ones.
    for (const std::size_t piece : {std::size_t{1000}, std::size_t{7001}}) {
        const auto asked = session.make();
        const std::string message = text_of(asked.message);
        std::string bytes;
        for (std::size_t at = 0; at < message.size(); at += piece) {
            const bool last = at + piece >= message.size();
            bytes += whole_frame(at == 0 ? op_binary : op_continuation,
                                 std::string_view(message).substr(at, piece), {.final = last});
            if (!last) {
                bytes += whole_frame(op_ping, "still there?");
                bytes += whole_frame(op_continuation, "", {.final = false});
            }
        }
        session.wire().send(bytes);
        session.require_answer(asked, session.next_number++);
    }
    // One byte more than any request of this adapter has is too many.
    session.send(text_of(session.make().message) + "x");
    session.require_end(1009, "a byte too many");
    w.server->require_peak(before, 32);
}

/// Random bytes before and after TLS, the upgrade and the handshake.
inline void random_bytes(fixture& w) {
    const std::string openings[] = {
        "",
        "GET / HTTP/1.1\r\n",
        "GET /v1/split HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        "POST /admin/adapters/kjv HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
        "PUT /admin/adapters/x HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "GET /" + std::string(10'000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n" + std::string(10'000, 'A') + ": x\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"};
    for (const std::string& opening : openings) {
        for (const bool after_tls : {false, true}) {
            raw_connection c(w.where());
            if (after_tls) {
                c.secure();
            }
            c.send(opening + random_text(w.generator, 3000) + "\r\n\r\n");
            c.receive_all();
        }
    }
    for (int i = 0; i < 8; ++i) {
        raw_connection no_frames(w.where());
        no_frames.upgrade();
        no_frames.send(random_text(w.generator, 3000));
        no_frames.reset();

        raw_session before_hello(w, false);
        before_hello.require_refusal("malformed", "random bytes before a session", op_binary,
                                     random_text(w.generator, 3000));
        before_hello.require_end(1008, "them");
    }
    raw_session session(w);
    for (int i = 0; i < 32; ++i) {
        session.require_refusal("malformed", "random bytes", op_binary, random_text(w.generator, 3000));
    }
    session.ask();
    // Too many in a row are too many.
    for (int i = 0; i < 64; ++i) {
        session.wire().send(whole_frame(op_binary, "TSHE" + random_text(w.generator, 100)));
    }
    session.require_end(1008, "64 malformed frames in a row");
}

/// Requests without an end, from nobody and with the token. What is read of one must not pile up.
inline void endless_requests(fixture& w) {
    const std::string put = "PUT /admin/adapters/kjv HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ";
    const std::string allowed = put + w.server->admin_token() + "\r\n";
    const std::string chunked = "Transfer-Encoding: chunked\r\n\r\n";
    const std::string upgrade = "GET /v1/split HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    struct {
        std::string opening;
        std::string rest;
    } const all[] = {{put + "\r\n" + chunked + "1;x=", "x"},
                     {allowed + chunked + "1;x=", "x"},
                     {allowed + chunked, "0"},
                     {allowed + chunked + "0\r\n", "a: b\r\n"},
                     {upgrade + chunked + "1;x=", "x"},
                     {put + "\r\nContent-Length: 65000\r\n\r\n", "x"},
                     {allowed + "Content-Length: 99999999999\r\n\r\n", "x"},
                     {"GET /healthz HTTP/1.1\r\n", "a: b\r\n"},
                     {"GET /", "x"},
                     {"", "\r\n"}};
    constexpr std::size_t bytes_of_each = std::size_t{32} << 20;
    good_client fine(w, "kjv");
    fine.ask();
    const std::size_t before = w.server->forget_peak();
    at_once(std::size(all), [&](std::size_t i) {
        std::string piece;
        while (piece.size() < 60'000) {
            piece += all[i].rest;
        }
        raw_connection c(w.where());
        require(c.secure(), "TLS handshake", "no", "a connection");
        c.send(all[i].opening);
        std::size_t sent = 0;
        while (sent < bytes_of_each && c.send(piece)) {
            sent += piece.size();
        }
        require(sent < bytes_of_each, "bytes taken of request " + std::to_string(i), sent,
                "to be cut long before");
        c.receive_all();
    });
    fine.ask();
    w.server->require_peak(before, 64);
}

}  // namespace split::soak
