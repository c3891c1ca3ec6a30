// The server's network layer against a plain socket that breaks the rules, at any step, and others beside it
// that must not notice. Long for its faults are many, each with its own time limit.
#include "../../service/net/http_server.hpp"

#include <fcntl.h>
#include <latch>

#include "../../service/net/fair_queue.hpp"
#include "../../service/net/websocket_client.hpp"
#include "echo_server.hpp"
#include "soak/raw_connection.hpp"

using namespace tests;

namespace {

using namespace std::chrono_literals;

std::size_t open_descriptors() {
    std::size_t open = 0;
    for (int d = 0; d < 4096; ++d) {  // a bare chroot has no /proc
        open += ::fcntl(d, F_GETFD) >= 0 ? 1U : 0U;
    }
    return open;
}

const std::string host = " HTTP/1.1\r\nHost: x\r\n";
const std::string health = "GET /healthz" + host + "\r\n";
const std::string hello_of_tls("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);

/// A client that sends what it likes.
class raw_socket : public split::soak::raw_connection {
  public:
    explicit raw_socket(const echo_server& to, int receive_buffer = 0, const char* from = nullptr)
        : raw_connection({to.server.port(), false}, {receive_buffer, from}) {}
    void send_frame(unsigned operation, std::string_view data) {
        send(split::soak::whole_frame(operation, data));
    }
    /// The upgrade, and what the server says first.
    raw_socket& open() {
        upgrade();
        static_cast<void>(receive_until("hello"));
        return *this;
    }
    /// Whether text comes back.
    bool echoes(const std::string& text) {
        send_frame(1, text);
        return contains(receive_until(text), text);
    }
};

/// A header of the PROXY protocol.
std::string proxy_header_of(unsigned command, unsigned family, const std::string& rest) {
    std::string text("\r\n\r\n\0\r\nQUIT\n", 12);
    for (const std::size_t byte :
         {std::size_t{command}, std::size_t{family}, rest.size() >> 8, rest.size() & 0xff}) {
        text += static_cast<char>(byte);
    }
    return text + rest;
}

const std::string ports("\x10\0\x20\0", 4);
/// Of a client at 10.1.2.3.
const std::string v4_header = proxy_header_of(0x21, 0x11, std::string("\x0a\1\2\3\x7f\0\0\1", 8) + ports);
const std::vector<net::address_range> proxies{net::range_of(std::string("127.0.0.9")).value()};

/// All that is said to this, on a connection of its own.
std::string said_to(const echo_server& s, const std::string& text) {
    raw_socket one(s);
    one.send(text);
    return one.receive_all();
}

}  // namespace

TEST_CASE("HTTP requests are answered, also several on one connection, and too long ones are refused") {
    echo_server s;
    raw_socket one(s);
    for (int i = 0; i < 2; ++i) {
        one.send(health);
        CHECK(one.receive_until("ok\n").find("HTTP/1.1 200 OK") == 0);
    }
    one.send("GET /other" + host + "Connection: close\r\n\r\n");
    CHECK(contains(one.receive_all(), " 404 "));
    raw_socket two(s);
    two.send("GET /" + std::string(200'000, 'a') + " HTTP/1.1\r\n\r\n");
    CHECK(contains(two.receive_all(), " 431 "));
    std::this_thread::sleep_for(100ms);
    CHECK(two.send("x"));  // with the rest unread, a close would have taken back the answer
    CHECK(contains(said_to(s, "PUT /x HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n"), " 413 "));
    CHECK_NOTHROW(
        said_to(s, std::string("\x16\x03\x01\x00\xff\x00\x01 random bytes \x00\xfe", 24) + "\r\n\r\n"));
    CHECK(s.begun == 0);
}

TEST_CASE("a body is read when it is wanted, and what is wrong with a header is said before that") {
    echo_server s;
    const std::string five = "Content-Length: 5\r\n\r\n";
    // Where the body was read, the connection goes on.
    const std::string both =
        said_to(s, "PUT /keep" + host + five + "12345" + "GET /healthz" + host + "Connection: close\r\n\r\n");
    CHECK(contains(both, "\r\n\r\n12345HTTP/1.1 200 "));
    CHECK(contains(both, "\r\n\r\nok\n"));
    const std::string unwanted = said_to(s, "PUT /other" + host + five);  // and nothing of the five
    CHECK(contains(unwanted, " 404 "));
    CHECK(contains(unwanted, "Connection: close"));
    raw_socket waits(s);
    waits.send("PUT /keep" + host + "Expect: 100-continue\r\n" + five);
    CHECK(waits.receive_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    waits.send("12345");
    CHECK(contains(waits.receive_until("12345"), " 200 "));
    const std::string upgrade =
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
    for (const auto& [request, part] : std::initializer_list<std::pair<std::string, std::string>>{
             {"PUT /other" + host + "Expect: 100-continue\r\n" + five, "HTTP/1.1 404 "},
             {"GET /healthz" + host + five, " 400 "},
             {"GET /v1/split" + host + upgrade + five, " 400 "},
             {"GET /v1/split" + host + "\r\n", " 426 "},
             {"GET /v1/split" + host + "\r\n", "Upgrade: websocket"},
             {"PUT /keep" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", " 411 "},
             {"GET /v1/split" + host + upgrade + "Transfer-Encoding: gzip\r\n\r\n", " 411 "},
             {"GET /healthz" + host + "Authorization: a\r\nauthorization: a\r\n\r\n", " 400 "}}) {
        const std::string said = said_to(s, request);
        CAPTURE(said);
        CHECK(contains(said, part));
    }
}

TEST_CASE(
    "every response has the policies of a page, and with TLS and pages says that there is nothing else") {
    const certificate of;
    echo_server plain({.has_pages = true});
    echo_server secure(of.options({.has_pages = true}));
    echo_server without_pages(of.options());
    for (const char* const target : {"/healthz", "/other", "/v1/split"}) {
        const std::string request = std::string("GET ") + target + host + "Connection: close\r\n\r\n";
        const auto said_over_tls = [&](const echo_server& s) {
            split::soak::raw_connection one({s.server.port(), true});
            REQUIRE(one.secure());
            one.send(request);
            return one.receive_until("\r\n\r\n");
        };
        const std::string over_tls = said_over_tls(secure);
        const std::string in_the_clear = said_to(plain, request);
        for (const char* const header :
             {"Content-Security-Policy: default-src 'none'", "X-Content-Type-Options: nosniff",
              "Referrer-Policy: no-referrer", "Cross-Origin-Resource-Policy: same-origin"}) {
            CHECK(contains(over_tls, header));
            CHECK(contains(in_the_clear, header));
        }
        CHECK(contains(over_tls, "Strict-Transport-Security: max-age=31536000\r\n"));
        CHECK_FALSE(contains(said_over_tls(without_pages) + in_the_clear, "Strict-Transport-Security"));
    }
}

TEST_CASE("a new certificate and other origins are for newcomers, and a bad certificate changes nothing") {
    const certificate first;
    const certificate second;
    echo_server s(first.options(), "");
    const auto trusts = [&](const certificate& of) {
        try {
            auto one = split::connect_websocket(split::server_address::of(s.url(true)),
                                                {.trusted_certificates = of.files.certificate});
            one->begin("a test", 10s);
            one->send_text("x");
            return one->receive().is_text;
        } catch (const tensafe::error&) {
            return false;
        }
    };
    const auto from_page = [&] {
        split::soak::raw_connection one({s.server.port(), true});
        REQUIRE(one.secure());
        one.send("GET /v1/split" + host + "Origin: https://example.org\r\nConnection: close\r\n\r\n");
        return one.receive_until("\r\n");
    };
    CHECK(trusts(first));
    split::soak::raw_connection before({s.server.port(), true});
    before.upgrade();
    CHECK(contains(from_page(), " 403 "));
    CHECK_THROWS(s.server.use_certificate({second.files.certificate, first.files.key}));
    CHECK(trusts(first));
    s.server.use_certificate(second.files);
    s.server.allow_origins({"https://example.org"});
    CHECK(trusts(second));
    CHECK_FALSE(trusts(first));
    CHECK(contains(from_page(), " 426 "));
    before.send(split::soak::whole_frame(1, "still there"));
    CHECK(before.receive_text() == "still there");
}

TEST_CASE("HEAD brings what GET would, but for the body") {
    echo_server s;
    raw_socket one(s);
    one.send("HEAD /healthz" + host + "\r\n" + health);
    CHECK(contains(one.receive_until("\r\n\r\n"), "Content-Length: 3\r\n"));
    CHECK(one.receive_until("ok\n").find("HTTP/1.1 200 OK") == 0);
}

TEST_CASE("who asks now and then does not keep a connection for ever") {
    echo_server s({.idle_time = 500ms});
    raw_socket one(s);
    int answers = 0;
    for (; answers < 100; ++answers) {
        one.send(health);
        if (one.receive_until("ok\n").empty()) {
            break;
        }
        std::this_thread::sleep_for(50ms);
    }
    CHECK(answers < 100);
}

TEST_CASE("a frame that announces 4 GB or 2^63 bytes ends the connection before memory is taken") {
    for (const std::uint64_t length :
         {std::uint64_t{1} << 32, ~std::uint64_t{0} >> 1, std::uint64_t{1} << 63, std::uint64_t{1001}}) {
        echo_server s;
        {
            raw_socket one(s);
            one.open().send(split::soak::frame_header(2, length, {.length_bytes = 8}) + "some of it");
            CHECK_NOTHROW(one.receive_all());
        }
        CHECK(s.wait_for([&] { return s.over == 1; }));
        CHECK(s.heard == 0);
    }
}

TEST_CASE("half an HTTP request is ended, half a TLS handshake, and one that is none") {
    echo_server clear({.handshake_time = 100ms});
    CHECK_NOTHROW(said_to(clear, "GET /v1/split HT"));
    raw_socket dribbles(clear);  // what is limited is the whole
    int sent = 0;
    for (; sent < 100 && dribbles.send("G"); ++sent) {
        std::this_thread::sleep_for(20ms);
    }
    CHECK(sent < 100);
    const certificate of;
    echo_server s(of.options({.handshake_time = 100ms}));
    CHECK_NOTHROW(said_to(s, hello_of_tls));
    CHECK_FALSE(contains(said_to(s, "GET /healthz HTTP/1.1\r\n\r\n"), "ok"));
}

TEST_CASE("who is silent and answers no ping is gone") {
    echo_server s({.idle_time = 200ms});
    raw_socket silent(s);
    silent.upgrade();
    CHECK(s.wait_for([&] { return s.begun == 1; }));
    CHECK(s.wait_for([&] { return s.over == 1; }));
}

TEST_CASE("who is alive but never gets anywhere is gone, and others stay") {
    echo_server s({.handshake_time = 2s});
    raw_socket good(s);
    good.open();
    s.establishes = false;
    raw_socket idler(s);
    idler.upgrade();
    for (int i = 0; i < 200 && !s.wait_for([&] { return s.over > 0; }, 50ms); ++i) {
        idler.send_frame(10, "");  // a pong
    }
    CHECK(s.over == 1);
    CHECK(good.echoes("still here"));
}

TEST_CASE("what comes waits for one piece of the work for later, not for one of each connection") {
    echo_server s({.threads = 1}, "hello", 1000, true);
    std::deque<raw_socket> all;
    for (int i = 0; i < 12; ++i) {
        all.emplace_back(s).open();
    }
    REQUIRE(s.wait_for([&] { return s.pieces > 1000; }));  // all have begun
    s.set([&] { s.stops_work = true; });
    int before = 0;
    REQUIRE(s.wait_for([&] {
        before = s.pieces;
        return s.stopped == 1;
    }));
    all.front().send_frame(1, "text");
    REQUIRE(s.wait_for([&] { return all.front().is_delivered(); }));
    s.set([&] { s.stops_work = false; });
    CHECK(contains(all.front().receive_until("text"), "text"));
    CHECK(s.set([&] { return s.pieces_when_heard; }) - before <=
          2);                                                    // the one that was stopped, and one more
    CHECK(s.wait_for([&] { return s.pieces > before + 100; }));  // and it goes on
}

TEST_CASE("while frames are answered, a thread serves other connections") {
    echo_server s({.threads = 2});
    std::deque<raw_socket> slow;
    for (int i = 1; i <= 2; ++i) {  // one for each thread
        slow.emplace_back(s).open().send_frame(1, "hold");
        REQUIRE(s.wait_for([&] { return s.held == i; }));
    }
    raw_socket of_first_thread(s);
    raw_socket other(s);
    other.send(health);
    CHECK(contains(other.receive_until("ok\n"), "200 OK"));
    s.set([&] { s.lets_go = true; });
    for (raw_socket& each : slow) {
        CHECK(contains(each.receive_until("hold"), "hold"));
    }
}

TEST_CASE("a queue takes turns: many jobs of one owner hold back no other's, nor do long ones") {
    std::mutex mutex;
    std::string done;
    std::latch begins(1);
    std::latch ends(8);
    std::latch is_first(1);
    net::fair_queue queue(1);
    const auto run = [&](const std::string& whose, std::chrono::milliseconds time) {
        queue.run(whose, [&, whose, time] {
            std::this_thread::sleep_for(time);
            const std::lock_guard lock(mutex);
            done += whose;
            ends.count_down();
        });
    };
    // Done at once, on the thread that asks; the first of the others then holds the queue's own.
    const std::jthread asks([&] {
        queue.run("", [&] {
            is_first.count_down();
            begins.wait();
            ends.count_down();
        });
    });
    is_first.wait();
    for (int i = 0; i < 4; ++i) {
        run("a", 30ms);
    }
    queue.run("b", [] { throw std::bad_alloc(); });
    for (int i = 0; i < 3; ++i) {
        run("b", 1ms);
    }
    begins.count_down();
    ends.wait();
    CHECK(done == "abbbaaa");
}

TEST_CASE("of owners who used nothing yet the one that came first is next, whatever their names") {
    std::string done;
    std::latch begins(1);
    std::latch is_first(1);
    net::fair_queue queue(1);
    queue.post("", [&] {
        is_first.count_down();
        begins.wait();
    });
    is_first.wait();
    std::latch ends(4);
    for (const char* const whose : {"d", "a", "c", "b"}) {
        queue.post(whose, [&, whose] {
            done += whose;
            ends.count_down();
        });
    }
    begins.count_down();
    ends.wait();
    CHECK(done == "dacb");
}

TEST_CASE("a queue that stops drops what waits and ends what runs") {
    std::atomic<int> done = 0;
    std::latch is_first(1);
    std::latch running(2);
    std::latch is_over(1);
    net::fair_queue queue(2);
    const std::jthread asks([&] {
        queue.run("", [&] {
            is_first.count_down();
            is_over.wait();
        });
    });
    is_first.wait();
    for (int i = 0; i < 100; ++i) {
        queue.run("a", [&] {
            if (done++ < 2) {
                running.count_down();
            }
            std::this_thread::sleep_for(1ms);
        });
    }
    running.wait();
    queue.stop();
    const int at_the_end = done;
    std::this_thread::sleep_for(5ms);
    CHECK(done == at_the_end);
    CHECK(done < 100);
    is_over.count_down();
}

TEST_CASE("who begins a frame and sends it byte by byte is gone") {
    echo_server s({.frame_time = 200ms});
    raw_socket slow(s);
    slow.upgrade();
    slow.send(split::soak::frame_header(2, 1000));  // bytes that are to come
    for (int i = 0; i < 300 && !s.wait_for([&] { return s.over > 0; }, 20ms); ++i) {
        slow.send("x");
    }
    CHECK(s.over == 1);
    CHECK(s.heard == 0);
}

TEST_CASE("of TLS 1.2 the suites with AEAD are spoken, and no others") {
    const certificate of;
    echo_server s(of.options());
    for (const auto& [suites, agrees] : {std::pair<const char*, bool>(nullptr, true),
                                         {"ECDHE-ECDSA-AES128-GCM-SHA256", true},
                                         {"ECDHE-ECDSA-CHACHA20-POLY1305", true},
                                         {"ECDHE-ECDSA-AES128-SHA256", false},
                                         {"ECDHE-ECDSA-AES256-SHA", false}}) {
        split::soak::raw_connection one({s.server.port(), true}, {.suites = suites});
        CHECK(one.secure() == agrees);
    }
}

TEST_CASE("a peer that does not take what is sent to it is cut off") {
    echo_server s({.write_time = 100ms}, std::string(std::size_t{32} << 20, 'x'));
    raw_socket slow(s, 4096);
    slow.upgrade();
    CHECK(s.wait_for([&] { return s.over == 1; }));
}

TEST_CASE("a peer that takes a long frame slowly gets all of it") {
    constexpr std::size_t length = std::size_t{24} << 20;
    echo_server s({.idle_time = 500ms, .write_time = 1s},
                  std::string(length, 'x'));  // it says nothing meanwhile
    raw_socket slow(s, 1 << 16);
    slow.upgrade();
    std::size_t got = 0;
    for (std::size_t pause = 0; got < length;) {
        const std::size_t n = slow.receive_more();
        if (n == 0) {
            break;
        }
        got += n;
        if (got >= pause) {
            std::this_thread::sleep_for(50ms);
            pause = got + (std::size_t{1} << 19);
        }
    }
    CHECK(got >= length);
}

TEST_CASE("connections beyond the limits are closed, in all and of one address") {
    for (const bool in_all : {true, false}) {
        net::http_server_options options;
        (in_all ? options.connections : options.connections_of_address) = 2;
        echo_server s(options);
        auto one = std::make_unique<raw_socket>(s);
        raw_socket two(s);
        one->upgrade();
        two.upgrade();
        CHECK(said_to(s, "GET /healthz HTTP/1.1\r\n\r\n").empty());
        CHECK(s.wait_for([&] { return s.refused == 1; }));
        CHECK(s.last_refused == "127.0.0.1");
        one.reset();
        CHECK(s.wait_for([&] { return s.over == 1; }));
    }
}

TEST_CASE("who is not established makes room for others while an address has more such than they") {
    // Places for two that are established and for two others.
    echo_server s({.connections = 16, .connections_of_address = 13});
    std::deque<raw_socket> established;
    std::deque<raw_socket> silent;
    const auto refused = [&] { return s.set([&] { return s.refused; }); };
    const auto is_served = [&](const char* from, std::size_t left) {  // connections, once it is gone
        std::optional<raw_socket> one(std::in_place, s, 0, from);
        one->send("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
        const std::string got = one->receive_all();
        one.reset();
        return contains(got, "ok\n") && s.wait_for([&] { return s.server.connections() == left; });
    };
    established.emplace_back(s, 0, "127.0.0.2").open();
    for (int i = 0; i < 7; ++i) {
        silent.emplace_back(s, 0, "127.0.0.2");
        silent.emplace_back(s, 0, "127.0.0.3");
    }
    CHECK_FALSE(is_served("127.0.0.2", 15));  // nobody has more than it
    CHECK(refused() == 1);
    CHECK(is_served("127.0.0.1", 14));
    CHECK(s.wait_for([&] { return s.refused == 2; }));
    CHECK(silent.front().receive_all().empty());  // the oldest went
    CHECK(s.last_refused == "127.0.0.2");
    // However many come, who is established stays.
    for (int i = 0; i < 12; ++i) {
        established.emplace_back(s, 0, "127.0.0.1").open();
    }
    CHECK(established.front().echoes("still here"));
    CHECK(is_served("127.0.0.4", 15));
    // One more would be one too many; what is left is for those that are not.
    established.emplace_back(s, 0, "127.0.0.5").upgrade();
    CHECK(established.back().receive_text() == "hello");
    established.emplace_back(s, 0, "127.0.0.1").upgrade();
    CHECK(established.back().receive_end() == 1013);
    CHECK(s.wait_for([&] { return s.refused == 15; }));
    CHECK(is_served("127.0.0.7", 15));
    // Who is told to go, and does not, keeps nobody out.
    s.controls.front().lock()->end(net::close_normal, "elsewhere");
    CHECK(established.front().receive_end() == net::close_normal);
    established.emplace_back(s, 0, "127.0.0.8").upgrade();
    CHECK(established.back().receive_text() == "hello");
}

TEST_CASE(
    "an idle session makes room for one of an address with fewer, and none that is being answered does") {
    echo_server s({.connections = 16});  // 14 of them for sessions
    std::deque<raw_socket> many;
    std::deque<raw_socket> others;
    for (int i = 0; i < 10; ++i) {
        many.emplace_back(s, 0, "127.0.0.2").open();
    }
    for (int i = 0; i < 4; ++i) {
        others.emplace_back(s, 0, "127.0.0.3").open();
    }
    std::array<bool, 10> has_ended{};
    const auto an_idle_one_ends = [&] {  // of those that are idle for about as long
        std::size_t which = 2;
        const bool is_there = s.wait_for([&] {
            for (which = 2; which < 10 && (has_ended[which] || !many[which].has_something());) {
                ++which;
            }
            return which < 10;
        });
        REQUIRE(is_there);
        has_ended[which] = true;
        return many[which].receive_end() == net::close_try_later;
    };
    REQUIRE(many[0].echoes("not idle"));
    many[1].send_frame(1, "hold");
    REQUIRE(s.wait_for([&] { return s.held == 1; }));
    others.emplace_back(s, 0, "127.0.0.4").upgrade();
    CHECK(others.back().receive_text() == "hello");
    CHECK(an_idle_one_ends());
    CHECK(s.wait_for([&] { return s.refused == 1; }));
    CHECK(s.last_refused == "127.0.0.2");
    s.set([&] { s.lets_go = true; });
    CHECK(contains(many[1].receive_until("hold"), "hold"));
    CHECK(many[1].echoes("still here"));
    // Who has the most pushes out nobody.
    raw_socket one_more(s, 0, "127.0.0.2");
    one_more.upgrade();
    CHECK(one_more.receive_end() == net::close_try_later);
    for (int i = 0; i < 4; ++i) {
        others.emplace_back(s, 0, "127.0.0.4").upgrade();
        CHECK(others.back().receive_text() == "hello");
        CHECK(an_idle_one_ends());
    }
    // Nor does who would then have as many as it has now: both would push each other out for ever.
    for (const char* const has_enough : {"127.0.0.4", "127.0.0.3"}) {
        raw_socket one_too_many(s, 0, has_enough);
        one_too_many.upgrade();
        CHECK(one_too_many.receive_end() == net::close_try_later);
    }
    for (int i = 0; i < 5; ++i) {
        CHECK(others[static_cast<std::size_t>(i)].echoes("still here"));
    }
}

TEST_CASE("a session whose peer does not read what was answered makes room too") {
    constexpr std::size_t length = std::size_t{16} << 20;
    echo_server s({.connections = 8, .write_time = 10min}, "hello", length);  // 7 of them for sessions
    std::deque<raw_socket> many;
    for (int i = 0; i < 7; ++i) {
        many.emplace_back(s, 4096, "127.0.0.2").open().send_frame(2, std::string(length, 'x'));
    }
    for (raw_socket& each : many) {
        REQUIRE(each.receive_more(1) == 1);
    }
    // The second comes while the one that is told to go for the first cannot be told.
    for (const char* const from : {"127.0.0.3", "127.0.0.4"}) {
        many.emplace_back(s, 0, from).upgrade();
        CHECK(many.back().receive_text() == "hello");
    }
    CHECK(s.wait_for([&] { return s.over == 1; }));
}

TEST_CASE("a trusted proxy says whose a connection is, in a header before TLS that others may not send") {
    const auto header = proxy_header_of;
    const std::string& v4 = v4_header;
    const std::string v6 = header(0x21, 0x21,
                                  std::string("\x20\1\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\5", 16) +
                                      std::string(16, '\1') + ports + std::string("\x04\0\x02xy", 5));
    const std::string whose = "GET /whose" + host + "Connection: close\r\n\r\n";
    const auto said_after = [&](const echo_server& s, const std::string& first,
                                const char* from = "127.0.0.9") {
        raw_socket one(s, 0, from);
        one.send(first);
        return one.receive_all();
    };
    echo_server s({.connections_of_address = 2, .proxies = proxies, .handshake_time = 500ms});
    CHECK(contains(said_after(s, v4 + whose), "\r\n10.1.2.3\n"));
    CHECK(contains(said_after(s, v6 + whose), "\r\n2001:db8::5\n"));
    const std::string line = "PROXY TCP4 10.1.2.3 127.0.0.1 4096 8192\r\n";  // version 1
    CHECK(contains(said_after(s, line + whose), "\r\n10.1.2.3\n"));
    CHECK(contains(said_after(s, "PROXY TCP6 2001:DB8::5 ::1 1 2\r\n" + whose), "\r\n2001:db8::5\n"));
    CHECK(contains(said_after(s, header(0x20, 0, "") + whose), "\r\n127.0.0.9\n"));
    CHECK(contains(said_after(s, header(0x20, 0x11, std::string(12, '\1')) + whose), "\r\n127.0.0.9\n"));
    CHECK(contains(said_after(s, header(0x21, 0, std::string(12, '\1')) + whose), "\r\n127.0.0.9\n"));
    CHECK_FALSE(contains(said_after(s, v4 + whose, "127.0.0.8"), "10.1.2.3"));
    CHECK(s.refused == 0);
    int refused = 0;
    for (const std::string& bad : std::vector<std::string>{
             whose, "PROXY TCP6" + line.substr(10), "PROXY TCP4 ::1 ::1 1 2\r\n",
             "PROXY TCP4 10.1.2 10.1.2.3 1 2\r\n", "PROXY TCP4 10.1.2.3 127.0.0.1 4096\r\n",
             "PROXY UNKNOWN\r\n" + whose, "POST" + line.substr(5),
             "PROXY TCP4 10.1.2.3 " + std::string(200, '1') + "\r\n", header(0x22, 0x11, v4.substr(16)),
             header(0x11, 0x11, v4.substr(16)), header(0x21, 0x12, v4.substr(16)),
             header(0x21, 0x11, std::string(11, '\1')), header(0x21, 0x21, std::string(35, '\1')),
             header(0x21, 0x11, std::string(521, '\1')), header(0x20, 0, std::string(521, '\1')),
             "\r\n\r\n" + std::string(12, '\r')}) {
        CHECK(said_after(s, bad + whose).empty());
        CHECK(s.wait_for([&] { return s.refused == refused + 1; }));
        ++refused;
    }
    CHECK(said_after(s, v4.substr(0, 15)).empty());  // it is waited for as for a handshake
    CHECK(said_after(s, v4.substr(0, 27)).empty());
    CHECK(said_after(s, line.substr(0, 30)).empty());
    CHECK(s.wait_for([&] { return s.server.connections() == 0; }));
    // Limits are of the client's address, not of the proxy's.
    std::deque<raw_socket> open;
    for (const std::string& each : {v4, v4, v6, v6}) {
        open.emplace_back(s, 0, "127.0.0.9").send(each + health);
        CHECK(contains(open.back().receive_until("ok\n"), "ok\n"));
    }
    CHECK(said_after(s, v4 + health).empty());
    CHECK(s.wait_for([&] { return s.last_refused == "10.1.2.3"; }));
    const certificate of;
    echo_server with_tls(of.options({.proxies = proxies}));
    for (const std::string& first : {v4, line}) {
        split::soak::raw_connection over_tls({with_tls.server.port(), true}, {.from = "127.0.0.9"});
        for (const char each : first) {  // in as many pieces
            over_tls.send({&each, 1});
        }
        REQUIRE(over_tls.secure());
        over_tls.send(whose);
        CHECK(contains(over_tls.receive_all(), "\r\n10.1.2.3\n"));
    }
    CHECK_FALSE(said_to(with_tls, v4 + hello_of_tls).starts_with('\x16'));  // no handshake
}

TEST_CASE("a handler knows a proxy's id of the connection and the upgrade's traceparent, if they are that") {
    echo_server s({.connections_of_address = 99, .proxies = proxies});
    const auto with = [](const std::string& fields) {
        return proxy_header_of(0x21, 0x11, v4_header.substr(16) + fields);
    };
    const auto field = [](char type, const std::string& value) {
        return std::string{type, static_cast<char>(value.size() >> 8), static_cast<char>(value.size())} +
               value;
    };
    const auto id_of = [&](const std::string& header, const std::string& headers = {}) {
        raw_socket one(s, 0, "127.0.0.9");
        one.send(header);
        one.upgrade(headers);
        static_cast<void>(one.receive_until("hello"));
        return s.set([&] { return s.last_caller.unique_id; });
    };
    const std::string long_one(128, 'x');
    CHECK(id_of(v4_header).empty());
    CHECK(id_of(with(field(5, "0A01:1000_7F000001:2000"))) == "0A01:1000_7F000001:2000");
    CHECK(s.set([&] { return s.last_caller.address; }) == "10.1.2.3");
    CHECK(id_of(with(field(4, "") + field(0x20, "xyz") + field(5, long_one) + field(5, "b"))) == long_one);
    for (const std::string& none :
         {field(5, ""), field(5, long_one + "x"), field(5, "a\"b"), field(5, "a'b"), field(5, "a\\b"),
          field(5, "a\n"), field(5, "\x7f"), field(5, "\xc3\xa4"), field(5, std::string("a\0b", 3)),
          std::string("\5\0\3ab", 5), std::string("\5\0", 2), std::string("\4\xff\xff\5\0\1a", 7)}) {
        CAPTURE(none);
        CHECK(id_of(with(none)).empty());
    }
    const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const auto trace_of = [&](const std::string& headers) {
        static_cast<void>(id_of(v4_header, headers));
        return s.set([&] { return s.last_caller.traceparent; });
    };
    const std::string name = "traceparent: ";
    CHECK(trace_of(name + trace + "\r\n") == trace);
    CHECK(trace_of(name + trace + "\r\n" + name + trace + "\r\n").empty());
    const std::string nothing(32, '0');
    for (const std::string& none :
         {std::string(), "01" + trace.substr(2), trace + "-x", trace.substr(0, 54),
          "00-" + nothing + trace.substr(35), trace.substr(0, 36) + nothing.substr(16) + "-01",
          "00-4BF" + trace.substr(6), trace.substr(0, 54) + "g", trace.substr(0, 52) + "_01",
          trace.substr(0, 35) + "0" + trace.substr(36)}) {
        CAPTURE(none);
        CHECK(trace_of(name + none + "\r\n").empty());
    }
}

TEST_CASE("a proxy's connection takes no place before its header, nor then if its client may not come") {
    echo_server s({.threads = 2, .connections = 4, .proxies = proxies, .handshake_time = 10min});
    s.set([&] { s.over_rate = "10.1.2.3"; });
    std::deque<raw_socket> silent;
    std::deque<raw_socket> waiting;
    for (int i = 0; i < 4; ++i) {
        silent.emplace_back(s, 0, "127.0.0.2");
    }
    for (int i = 0; i < 4; ++i) {  // as many as there are places
        waiting.emplace_back(s, 0, "127.0.0.9");
    }
    raw_socket one_too_many(s, 0, "127.0.0.9");
    CHECK(one_too_many.receive_all().empty());
    CHECK(s.wait_for([&] { return s.refused == 1 && s.last_refused == "127.0.0.9"; }));
    for (raw_socket& each : waiting) {
        if (&each != &waiting.back()) {
            each.send(v4_header + health);
            CHECK(each.receive_all().empty());
        }
    }
    CHECK(s.wait_for([&] { return s.refused == 4 && s.last_refused == "10.1.2.3"; }));
    for (raw_socket& each : silent) {
        each.send(health);
        CHECK(contains(each.receive_until("ok\n"), "ok\n"));
    }
    // Who may come then has a place, and may make room as others do.
    s.set([&] { s.over_rate.clear(); });
    waiting.back().send(v4_header + health);
    CHECK(contains(waiting.back().receive_until("ok\n"), "ok\n"));
    CHECK(silent.front().receive_all().empty());
}

TEST_CASE("a proxy is named by its address or its network") {
    const auto holds = [](const std::string& range, const char* address) {
        return net::contains(net::range_of(range).value(), boost::asio::ip::make_address(address));
    };
    CHECK(holds("10.0.0.1", "10.0.0.1"));
    CHECK(holds("10.0.0.1", "::ffff:10.0.0.1"));
    CHECK_FALSE(holds("10.0.0.1", "10.0.0.2"));
    CHECK(holds("10.0.0.0/8", "10.255.0.2"));
    CHECK_FALSE(holds("10.0.0.0/8", "11.0.0.0"));
    CHECK(holds("0.0.0.0/0", "192.0.2.1"));
    CHECK_FALSE(holds("0.0.0.0/0", "2001:db8::1"));
    CHECK(holds("2001:db8::/32", "2001:db8:1::1"));
    CHECK_FALSE(holds("2001:db8::/32", "2001:db9::1"));
    CHECK(holds("2001:db8::1", "2001:db8::1"));
    const boost::asio::ip::address_v6 link_local = boost::asio::ip::make_address_v6("fe80::1");
    CHECK(net::contains(net::range_of(std::string("fe80::1")).value(),
                        boost::asio::ip::address_v6(link_local.to_bytes(), 2)));
    for (const char* const none : {"", "/8", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x",
                                   "2001:db8::1/32", "::/129", "localhost", "10.0.0", "10.0.0.0/-1"}) {
        CAPTURE(none);
        CHECK_FALSE(net::range_of(std::string(none)));
    }
}

TEST_CASE("draining sends the last words, closes, and still answers HTTP") {
    echo_server s({.handshake_time = 2s});  // the peer never closes its side
    raw_socket one(s);
    one.open();
    CHECK_FALSE(s.server.wait_until_drained(0ms));
    s.server.drain();
    const std::string last = one.receive_until(
        "\x03\xe9"
        "draining");
    CHECK(contains(last, "draining"));
    CHECK(contains(last, "\x03\xe9"));  // 1001
    one.send_frame(8, "\x03\xe9");
    CHECK(s.server.wait_until_drained(20s));
    CHECK(contains(said_to(s, "GET /healthz HTTP/1.1\r\n\r\n"), "ok\n"));
}

TEST_CASE("after random bytes, half frames and killed peers every descriptor is given back") {
    static_cast<void>(raw_socket(echo_server()));  // what Asio opens once
    const std::size_t before = open_descriptors();
    {
        echo_server s;
        std::uint32_t state = 1;
        for (int round = 0; round < 40; ++round) {
            raw_socket one(s);
            if (round % 2 == 0) {
                one.upgrade();
            }
            std::string noise;
            for (int i = 0; i < 50 + round; ++i) {
                state = state * 1'664'525u + 1'013'904'223u;
                noise += static_cast<char>(state >> 24);
            }
            one.send(noise);
        }
        CHECK(s.wait_for([&] { return s.over == 20; }));
    }
    CHECK(open_descriptors() == before);
}
