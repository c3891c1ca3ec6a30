#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "clients.hpp"
#include "fixture.hpp"
#include "raw_connection.hpp"

// Peers that break the rules below the messages: sockets, TLS, HTTP, WebSocket frames.

namespace split::soak {

/// Bytes from a seed, so that a failure comes again.
inline std::string random_text(std::mt19937& generator, std::size_t most) {
    std::string result(1 + generator() % most, '\0');
    for (char& c : result) {
        c = static_cast<char>(generator() & 0xffu);
    }
    return result;
}

inline std::string killed_mid_frame(fixture& w) {
    std::size_t cut = 0;
    for (std::size_t r = 0; r < w.amount.repetitions; ++r) {
        for (const bool by_reset : {false, true}) {
            const auto end = [&](raw_connection& c) {
                if (by_reset) {
                    c.reset();
                }
                ++cut;
            };
            const std::string begun[] = {"GET /v1/split HTTP/1.1\r\nHost: local",
                                         frame_header(op_binary, 1000) + std::string(300, 'x'),
                                         frame_header(op_text, 70'000).substr(0, 5)};
            for (const std::string& each : begun) {
                raw_connection c(w.where());
                &each == begun ? static_cast<void>(c.secure()) : c.upgrade();
                c.send(each);
                end(c);
            }
            raw_session s(w);
            s.ask();
            const auto half = s.make(2);
            const std::string frame = whole_frame(op_binary, half.message);
            s.wire().send(std::string_view(frame).substr(0, frame.size() / 2));
            end(s.wire());
            // What came in half is not used up: the session goes on where it was.
            require(s.resume(), "resume after a cut", "no", "yes");
            require_equal("the next number after half a request", s.next_number, 2u);
            s.wire().send(frame);
            s.require_answer(half, 2);
        }
    }
    return text_of(cut) +
           " clients gone in the middle of a frame; each session resumed, half a request not counted";
}

inline std::string half_open(fixture& w) {
    // A peer that is gone says nothing, no matter what it is asked.
    raw_session silent(w);
    silent.ask();
    raw_session moving(w);
    moving.ask();
    std::vector<std::unique_ptr<raw_connection>> others;
    const std::size_t of_each = 2 * w.amount.repetitions;
    for (std::size_t i = 0; i < of_each; ++i) {
        others.push_back(std::make_unique<raw_connection>(w.where()));  // TCP alone
        others.push_back(std::make_unique<raw_connection>(w.where()));
        others.back()->upgrade();
        others.push_back(std::make_unique<raw_connection>(w.where()));  // between two requests
        others.back()->secure();
        others.back()->send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        require_contains("/healthz", others.back()->receive_until("ok\n"), " 200 ");
    }
    // The client is back before the server knows that it was gone: its old connection is closed.
    const std::unique_ptr<raw_connection> old = moving.leave_wire();
    require(moving.resume(), "resume beside a half-open connection", "no", "yes");
    require_equal("close code of the half-open connection", old->receive_end(), 1000u);
    moving.ask();

    std::size_t pings = 0;
    while (const auto next = silent.wire().receive_any_frame()) {
        pings += next->operation == op_ping ? 1u : 0u;
    }
    require(pings > 0, "pings before the server let a silent session go", pings, "one or more");
    for (const auto& each : others) {
        each->receive_all();  // throws if there is no end
    }
    good_client fine(w, "kjv");
    fine.ask();
    return text_of(others.size() + 1) + " silent peers let go, sessions after " + text_of(pings) +
           " pings; a session taken over from a half-open connection";
}

inline std::string slow_reader(fixture& w) {
    // More of them than the server has threads. What an opened session is told does not fit the buffers.
    constexpr std::size_t readers = 4;
    raw_connection::options small;
    small.receive_buffer = 2048;
    const std::size_t before = w.server->quiet_figures().descriptors;
    std::vector<std::unique_ptr<raw_session>> slow;
    for (std::size_t i = 0; i < readers; ++i) {
        slow.push_back(std::make_unique<raw_session>(w, false, small));
        const auto [greeting, key] = slow.back()->handshake(tensafe::wire::set_id<params>, "qwen", true);
        slow.back()->wire().send(greeting);
        slow.back()->wire().send(key);
    }
    good_client fine(w, "kjv");
    const auto connected = [&] { return w.server->figures().descriptors - before; };
    require_equal("connections with the slow readers", connected(), readers + 1);
    const auto begin = steady::now();
    auto next_byte = begin;
    std::size_t answers = 0;
    std::size_t bytes = 0;
    while (connected() > 1) {
        require(steady::now() - begin < raw_connection::patience, "slow readers", connected() - 1, 0);
        if (steady::now() >= next_byte) {
            next_byte += std::chrono::seconds(1);
            for (const auto& each : slow) {
                bytes += each->wire().receive_more(raw_connection::patience, 1);
            }
        }
        for (int i = 0; i < 5; ++i) {
            fine.ask();
            ++answers;
        }
    }
    require(bytes >= readers, "bytes that were read meanwhile", bytes, "one of each reader, or more");
    return text_of(readers) + " readers of a byte a second cut off; " + text_of(answers) +
           " answers to another client meanwhile";
}

/// Frames that the rules forbid, each on a connection of its own.
struct forbidden_frame {
    const char* name;
    std::string bytes;
};

inline std::vector<forbidden_frame> forbidden_frames() {
    constexpr std::uint64_t four_gigabytes = std::uint64_t{1} << 32;
    constexpr std::uint64_t top_bit = std::uint64_t{1} << 63;
    const auto frame = [](unsigned operation, std::string_view data, bool final, bool masked = true,
                          unsigned reserved = 0, int length_bytes = 0) {
        return whole_frame(operation, data, {final, masked, reserved, length_bytes});
    };
    std::string fragments = frame(op_binary, std::string(1000, 'x'), false);
    for (int i = 0; i < 600; ++i) {  // more than any message may have
        fragments += frame(op_continuation, std::string(1000, 'x'), false);
    }
    return {
        {"4 GB announced", frame_header(op_binary, four_gigabytes)},
        {"4 GB of text announced", frame_header(op_text, four_gigabytes)},
        {"2^63 bytes announced", frame_header(op_binary, top_bit)},
        {"2^63 - 1 bytes announced", frame_header(op_binary, top_bit - 1)},
        {"2^64 - 1 bytes announced", frame_header(op_binary, ~std::uint64_t{0})},
        {"4 GB announced in a second fragment",
         frame(op_binary, "x", false) + frame_header(op_continuation, four_gigabytes)},
        {"fragments whose sum passes 2^64",
         frame(op_binary, "xx", false) + frame_header(op_continuation, ~std::uint64_t{0} - 1)},
        {"endless fragments", fragments},
        {"a ping of 126 bytes", frame(op_ping, std::string(126, 'p'), true)},
        {"a close of 70,000 bytes", frame_header(op_close, 70'000)},
        {"a ping in fragments", frame(op_ping, "p", false)},
        {"no mask", frame(op_text, "{}", true, false)},
        {"reserved bit 1", frame(op_text, "{}", true, true, 4)},
        {"reserved bit 2", frame(op_text, "{}", true, true, 2)},
        {"reserved bit 3", frame(op_binary, "{}", true, true, 1)},
        {"reserved operation 3", frame(3, "x", true)},
        {"reserved operation 11", frame(11, "x", true)},
        {"a continuation of nothing", frame(op_continuation, "x", true)},
        {"a message within another", frame(op_binary, "x", false) + frame(op_text, "{}", true)},
        {"a length of 2 bytes that fits 1", frame(op_binary, "x", true, true, 0, 2)},
        {"a length of 8 bytes that fits 2", frame(op_binary, std::string(200, 'x'), true, true, 0, 8)},
        {"text that is no UTF-8", frame(op_text, "\xff\xfe", true)},
        {"a close with half a code", frame(op_close, "\x03", true)},
        {"a close with a code that nobody may send", frame(op_close, "\x03\xed", true)},
    };
}

inline std::string announced_4_gigabytes(fixture& w) {
    // Peaks count from here: what is announced must not be allocated.
    w.server->forget_peak();
    const std::size_t before = w.server->figures().peak_kb;
    const auto all = forbidden_frames();
    raw_session session(w);
    for (std::size_t r = 0; r < w.amount.repetitions; ++r) {
        for (const forbidden_frame& each : all) {
            raw_connection c(w.where());
            c.upgrade();
            c.send(each.bytes);
            const unsigned code = c.receive_end();  // throws if the connection does not end
            require(code == 0 || code == 1002 || code == 1007 || code == 1009 || code == 1008,
                    std::string("close code after ") + each.name, code, "one of RFC 6455 for a bad frame");
        }
    }
    // Not forbidden: a good request in fragments, with pings between them, and with empty ones.
    for (const std::size_t piece : {std::size_t{1000}, std::size_t{7001}}) {
        const auto asked = session.make(session.next_number);
        std::string bytes;
        for (std::size_t at = 0; at < asked.message.size(); at += piece) {
            const bool last = at + piece >= asked.message.size();
            bytes += whole_frame(at == 0 ? op_binary : op_continuation,
                                 std::string_view(asked.message).substr(at, piece), {.final = last});
            if (!last) {
                bytes += whole_frame(op_ping, "still there?");
                bytes += whole_frame(op_continuation, "", {.final = false});
            }
        }
        session.wire().send(bytes);
        for (;;) {
            const auto next = session.wire().receive_any_frame();
            require(next.has_value(), "reply to a request in fragments", "the end of the connection",
                    "a reply");
            if (next->operation != op_pong) {
                require(session.right(asked, session.next_number, next->data),
                        "reply to a request in fragments", next->data.substr(0, 200), "the right delta");
                ++w.answers;
                break;
            }
        }
        ++session.next_number;
    }
    // One byte more than any request of this adapter has is too many.
    const auto asked = session.make(session.next_number);
    session.wire().send(whole_frame(op_binary, asked.message + "x"));
    require_equal("close code after a byte too many", session.wire().receive_end(), 1009u);
    const std::size_t after = w.server->figures().peak_kb;
    constexpr std::size_t allowed_kb = 32 * 1024;
    require(after < before + allowed_kb, "peak memory, KB", after,
            text_of(before) + " and at most 32 MB more");
    return text_of(w.amount.repetitions * all.size()) + " connections with forbidden frames closed, peak " +
           text_of(after / 1024) + " MB; requests in fragments answered";
}

inline std::string random_bytes(fixture& w) {
    std::mt19937 generator(8);
    const std::vector<std::string> openings = {
        "",
        "GET / HTTP/1.1\r\n",
        "GET /v1/split HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        "POST /admin/adapters/kjv HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
        "PUT /admin/adapters/x HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "GET /" + std::string(10'000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n" + std::string(10'000, 'A') + ": x\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"};
    std::size_t sent = 0;
    for (std::size_t r = 0; r < w.amount.repetitions; ++r) {
        for (const std::string& opening : openings) {
            for (const bool after_tls : {false, true}) {
                raw_connection c(w.where());
                if (after_tls) {
                    c.secure();
                }
                c.send(opening + random_text(generator, 3000) + "\r\n\r\n");
                c.receive_all();  // throws if it does not end
                ++sent;
            }
        }
        for (int i = 0; i < 8; ++i) {
            raw_connection c(w.where());  // after the upgrade: no frames
            c.upgrade();
            c.send(random_text(generator, 3000));
            c.reset();
            ++sent;
        }
        // Whole frames of any bytes, before a session and within one.
        for (int i = 0; i < 8; ++i) {
            raw_connection c(w.where());
            c.upgrade();
            static_cast<void>(c.receive_text());
            c.send(whole_frame(op_binary, random_text(generator, 3000)));
            require_contains("the answer to random bytes before a session", c.receive_text(),
                             "\"malformed\"");
            require_equal("close code after them", c.receive_end(), 1008u);
            ++sent;
        }
        raw_session session(w);
        for (int i = 0; i < 32; ++i) {
            session.wire().send(whole_frame(op_binary, random_text(generator, 3000)));
            session.require_refusal("malformed", "random bytes");
            ++sent;
        }
        session.ask();
        // Too many in a row are too many.
        for (int i = 0; i < 64; ++i) {
            session.wire().send(whole_frame(op_binary, "TSHE" + random_text(generator, 100)));
        }
        require_equal("close code after 64 malformed frames in a row", session.wire().receive_end(), 1008u);
        sent += 64;
    }
    return text_of(sent) + " pieces of random bytes, before and after TLS, the upgrade and the handshake";
}

/// Requests without an end, from nobody and with the token. What is read of one must not pile up.
inline std::string endless_requests(fixture& w) {
    const std::string put = "PUT /admin/adapters/kjv HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ";
    const std::string allowed = put + w.server->admin_token() + "\r\n";
    const std::string chunked = "Transfer-Encoding: chunked\r\n\r\n";
    const std::string upgrade = "GET /v1/split HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    const std::vector<std::pair<std::string, std::string>> all = {
        {put + "\r\n" + chunked + "1;x=", "x"},
        {allowed + chunked + "1;x=", "x"},
        {allowed + chunked, "0"},
        {allowed + chunked + "0\r\n", "a: b\r\n"},
        {upgrade + chunked + "1;x=", "x"},
        {put + "\r\nContent-Length: 65000\r\n\r\n", "x"},
        {allowed + "Content-Length: 99999999999\r\n\r\n", "x"},
        {"GET /healthz HTTP/1.1\r\n", "a: b\r\n"},
        {"GET /", "x"},
        {"", "\r\n"}};
    constexpr std::size_t bytes_of_each = std::size_t{128} << 20;
    good_client fine(w, "kjv");
    fine.ask();
    w.server->forget_peak();
    const std::size_t before = w.server->figures().peak_kb;
    at_once(all.size(), [&](std::size_t i) {
        const auto& [opening, rest] = all[i];
        std::string piece;
        while (piece.size() < 60'000) {
            piece += rest;
        }
        raw_connection c(w.where());
        require(c.secure(), "TLS handshake", "no", "a connection");
        c.send(opening);
        for (std::size_t sent = 0; sent < bytes_of_each && c.send(piece); sent += piece.size()) {
        }
        c.receive_all();  // throws if there is no end
    });
    fine.ask();
    const std::size_t after = w.server->figures().peak_kb;
    constexpr std::size_t allowed_kb = 64 * 1024;
    require(after < before + allowed_kb, "peak memory, KB", after,
            text_of(before) + " and at most 64 MB more");
    return text_of(all.size()) + " requests without an end cut off, peak " + text_of(after / 1024) + " MB";
}

/// Peers that take their time with everything before a session. A good client beside them is served.
inline std::string slow_handshake(fixture& w) {
    const std::size_t peers = 8 * w.amount.repetitions;
    const std::string opening =
        w.tls ? std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) : std::string("GET /v1/sp");
    std::vector<std::unique_ptr<raw_connection>> slow;
    for (std::size_t i = 0; i < peers; ++i) {
        slow.push_back(std::make_unique<raw_connection>(w.where()));
        slow.back()->send(opening.substr(0, i % opening.size()));
    }
    good_client fine(w, "kjv");
    std::size_t answers = 0;
    // A drop now and then does not buy time: what is limited is the whole.
    std::atomic<bool> over{false};
    std::jthread dribble([&] {
        for (std::size_t i = opening.size(); !over; ++i) {
            slow.front()->send("x");
            std::this_thread::sleep_for(milliseconds(100));
        }
    });
    for (auto each = slow.rbegin(); each != slow.rend(); ++each) {
        fine.ask();
        ++answers;
        if (each + 1 == slow.rend()) {
            break;
        }
        (*each)->receive_all();  // throws if there is no end
    }
    slow.front()->receive_all();
    over = true;
    return text_of(peers) + " handshakes that never ended cut off, " + text_of(answers) +
           " answers meanwhile";
}

}  // namespace split::soak
