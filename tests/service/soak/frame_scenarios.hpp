#pragma once

#include <stop_token>

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

inline void half_open(fixture& w) {
    // A peer that is gone says nothing, no matter what it is asked.
    raw_session silent(w);
    silent.ask();
    raw_session moving(w);
    moving.ask();
    std::deque<raw_connection> others;
    for (std::size_t i = 0; i < 2 * w.amount.repetitions; ++i) {
        others.emplace_back(w.where());  // TCP alone
        others.emplace_back(w.where()).upgrade();
        raw_connection& between_requests = others.emplace_back(w.where());
        between_requests.secure();
        between_requests.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        require_contains("/healthz", between_requests.receive_until("ok\n"), " 200 ");
    }
    // The client is back before the server knows that it was gone: its old connection is closed.
    raw_connection old = std::move(moving.wire());
    moving.resume();
    require_equal("close code of the half-open connection", old.receive_end(), 1000u);
    moving.ask();

    std::size_t pings = 0;
    while (const auto next = silent.wire().receive_any_frame()) {
        pings += next->operation == op_ping ? 1u : 0u;
    }
    require(pings > 0, "pings before the server let a silent session go", pings, "one or more");
    for (raw_connection& each : others) {
        each.receive_all();
    }
    good_client(w, "kjv").ask();
}

inline void slow_reader(fixture& w) {
    // More of them than the server has threads. What an opened session is told does not fit the buffers.
    constexpr std::size_t readers = 4;
    const std::size_t before = w.server->quiet_figures().descriptors;
    std::deque<raw_session> slow;
    for (std::size_t i = 0; i < readers; ++i) {
        raw_session& next = slow.emplace_back(w, false, connection_options{.receive_buffer = 2048});
        const auto [greeting, key] = next.handshake(tensafe::wire::set_id<params>, "qwen", true);
        next.wire().send(greeting + key);
    }
    good_client fine(w, "kjv");
    const auto connected = [&] { return w.server->figures().descriptors - before; };
    require_equal("connections with the slow readers", connected(), readers + 1);
    const auto begin = steady::now();
    auto next_byte = begin;
    std::size_t bytes = 0;
    for (; connected() > 1; fine.ask()) {
        require(steady::now() - begin < patience, "slow readers", connected() - 1, 0);
        if (steady::now() >= next_byte) {
            next_byte += std::chrono::seconds(1);
            for (raw_session& each : slow) {
                bytes += each.wire().receive_more(1);
            }
        }
    }
    require(bytes >= readers, "bytes that were read meanwhile", bytes, "one of each reader, or more");
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

/// Peers that take their time with everything before a session. A good client beside them is served.
inline void slow_handshake(fixture& w) {
    const std::string opening =
        w.tls ? std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) : std::string("GET /v1/sp");
    std::deque<raw_connection> slow;
    for (std::size_t i = 0; i < 8 * w.amount.repetitions; ++i) {
        slow.emplace_back(w.where()).send(opening.substr(0, i % opening.size()));
    }
    good_client fine(w, "kjv");
    // A drop now and then does not buy time: what is limited is the whole.
    const std::jthread dribble([&](const std::stop_token& over) {
        while (!over.stop_requested()) {
            slow.front().send("x");
            std::this_thread::sleep_for(milliseconds(100));
        }
    });
    for (auto each = slow.rbegin(); each != slow.rend(); ++each) {
        fine.ask();
        each->receive_all();
    }
}

}  // namespace split::soak
