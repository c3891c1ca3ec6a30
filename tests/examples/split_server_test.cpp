// The parts of the server that need no cryptography: text messages, limits, counts on disk, the certificate;
// and the network layer, against a plain socket that does not play by the rules.
#include <tensafe/core/error.hpp>
#include <tensafe/random/seed.hpp>

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include "../../examples/split_inference/base64.hpp"
#include "../../examples/split_inference/control_message.hpp"
#include "../../examples/split_inference/limits.hpp"
#include "../../examples/split_inference/log.hpp"
#include "../../examples/split_inference/net/http_server.hpp"
#include "../../examples/split_inference/query_counts.hpp"
#include "../../examples/split_inference/tls_certificate.hpp"
#include "../io/file_builder.hpp"
#include "../refusal.hpp"

namespace {

using namespace std::chrono_literals;
using tests::refusal;
using bytes = std::vector<std::uint8_t>;
namespace net = split::net;

using scratch_folder = tensafe::test::temporary_directory;

template <class Message>
void check_round_trip(const Message& m) {
    const std::string text = to_text(m);
    CAPTURE(text);
    CHECK(std::get<Message>(split::parse_control(text, 1000)) == m);
}

std::string parse_refusal(const std::string& text, std::size_t largest = 1000) {
    return refusal<tensafe::format_error>([&] { static_cast<void>(split::parse_control(text, largest)); });
}

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Counts its connections, says back what it hears, and sends `greeting` first.
struct recorder {
    std::mutex mutex;
    std::condition_variable changed;
    int begun = 0;
    int over = 0;
    std::size_t heard = 0;
    int asked = 0;
    int refused = 0;
    std::string greeting = "hello";
    bool establishes = true;  ///< of the connections that begin from now on

    template <class Condition>
    bool wait_for(Condition condition, std::chrono::milliseconds time = 20s) {
        std::unique_lock lock(mutex);
        return changed.wait_for(lock, time, condition);
    }
};

class echo final : public net::websocket_handler {
  public:
    explicit echo(recorder& of) : of_(of) {
        const std::lock_guard lock(of_.mutex);
        established_ = of_.establishes;
        ++of_.begun;
        of_.changed.notify_all();
    }
    ~echo() override {
        const std::lock_guard lock(of_.mutex);
        ++of_.over;
        of_.changed.notify_all();
    }
    void start(net::answer& to) override { to.add_text(of_.greeting); }
    void on_text(std::string_view text, net::answer& to) override { to.add_text(text); }
    void on_binary(std::span<const std::uint8_t> data, net::answer& to) override {
        const std::lock_guard lock(of_.mutex);
        of_.heard += data.size();
        to.add(false).bytes.assign(data.begin(), data.end());
    }
    void on_drain(net::answer& to) override {
        to.add_text("draining");
        to.close(net::close_going_away, "draining");
    }
    bool established() const override { return established_; }
    std::size_t largest_frame() const override { return 1000; }

  private:
    recorder& of_;
    bool established_ = false;
};

struct served {
    explicit served(net::http_server_options options = {})
        : server(with_path(std::move(options)), handlers()) {
        server.run();
    }
    static net::http_server_options with_path(net::http_server_options options) {
        options.websocket_path = "/v1/split";
        return options;
    }
    net::http_server_handlers handlers() {
        return {[this](const net::http_request& r) {
                    const std::lock_guard lock(what.mutex);
                    net::http_response page{200, "page " + std::to_string(++what.asked) + "\n"};
                    if (r.target == "/an_hour") {
                        page.good_for = 1h;
                    } else if (r.target == "/a_moment") {
                        page.good_for = 1ms;
                    }
                    return r.target == "/healthz"      ? net::http_response{200, "ok\n"}
                           : page.good_for.count() > 0 ? page
                                                       : net::http_response{404, "no\n"};
                },
                [this](const std::string&, std::shared_ptr<net::connection_control>) {
                    return std::make_unique<echo>(what);
                },
                [this](const std::string& address) {
                    const std::lock_guard lock(what.mutex);
                    CHECK(address == "127.0.0.1");
                    ++what.refused;
                }};
    }
    recorder what;
    net::http_server server;
};

/// A client that sends what it likes.
class raw_socket {
  public:
    explicit raw_socket(std::uint16_t port, int receive_buffer = 0)
        : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        REQUIRE(socket_ >= 0);
        if (receive_buffer > 0) {
            ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
        }
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_port = htons(port);
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) == 0);
    }
    raw_socket(const raw_socket&) = delete;
    raw_socket& operator=(const raw_socket&) = delete;
    ~raw_socket() { ::close(socket_); }

    void send(std::string_view data) const {
        while (!data.empty()) {
            const ssize_t sent = ::send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return;  // the server has had enough: what it answers tells
            }
            data.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    /// What comes until `end` is in it, or the connection ends.
    std::string receive_until(std::string_view end) const {
        std::string all;
        char next = 0;
        while (all.find(end) == all.npos && wait() && ::recv(socket_, &next, 1, 0) == 1) {
            all += next;
        }
        return all;
    }
    /// All that comes until the connection ends; nothing if it does not end.
    std::optional<std::string> receive_all() const {
        std::string all;
        char data[4096];
        for (;;) {
            if (!wait()) {
                return std::nullopt;
            }
            const ssize_t got = ::recv(socket_, data, sizeof(data), 0);
            if (got <= 0) {
                return all;
            }
            all.append(data, static_cast<std::size_t>(got));
        }
    }
    /// Whether the other side, as far as this one knows, still takes something.
    bool can_send() const { return ::send(socket_, "x", 1, MSG_NOSIGNAL) == 1; }
    /// At most so many bytes, at least one; nothing if the connection ends.
    std::size_t receive_some(std::vector<char>& to) const {
        const ssize_t got = wait() ? ::recv(socket_, to.data(), to.size(), 0) : 0;
        return got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    void upgrade() const {
        send(
            "GET /v1/split HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
        REQUIRE(receive_until("\r\n\r\n").find(" 101 ") != std::string::npos);
    }
    /// A masked frame; its mask is zero.
    void send_frame(unsigned char kind, std::string_view data) const {
        std::string frame{static_cast<char>(0x80 | kind), static_cast<char>(0x80 | data.size())};
        send(frame.append(4, '\0').append(data));
    }

  private:
    bool wait() const {
        pollfd one{socket_, POLLIN, 0};
        return ::poll(&one, 1, 20'000) == 1;
    }
    int socket_;
};

}  // namespace

TEST_CASE("base64 writes the vectors of RFC 4648 and reads nothing but what it writes") {
    const auto encoded = [](std::string_view text) { return split::base64(bytes(text.begin(), text.end())); };
    CHECK(encoded("") == "");
    CHECK(encoded("f") == "Zg==");
    CHECK(encoded("fo") == "Zm8=");
    CHECK(encoded("foo") == "Zm9v");
    CHECK(encoded("foobar") == "Zm9vYmFy");
    bytes all;
    for (int i = 0; i < 256; ++i) {
        all.push_back(static_cast<std::uint8_t>(i));
        CHECK(split::from_base64(split::base64(all)) == all);
    }
    for (const char* text :
         {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm 9", "Zm9-", "Zm9v\n"}) {
        CAPTURE(text);
        CHECK(refusal<tensafe::format_error>([&] { static_cast<void>(split::from_base64(text)); }) !=
              "nothing was thrown");
    }
}

TEST_CASE("every control message is what its text says") {
    tensafe::random::seed nonce;
    nonce.bytes[0] = 0xab;
    split::hello h{"kjv", {}, 0x0123456789abcdefu, {}, split::frame_form::json, false};
    h.client[31] = std::byte{1};
    h.signature[0] = std::byte{2};
    check_round_trip(split::challenge{nonce, "private", {{"a \"b\"", 3}, {"\xc3\xa9", ~std::uint64_t{0}}}});
    check_round_trip(h);
    check_round_trip(split::welcome{{}, {}, "kjv", 3, std::nullopt});
    check_round_trip(split::welcome{{}, {}, "kjv", 3, 17});
    check_round_trip(split::resume{});
    check_round_trip(split::resumed{{}, {}, 5, 6, 7});
    check_round_trip(split::carried_message{split::carried_message::kind::held_adapter, {1, 2, 3, 4}});
    check_round_trip(split::json_request{~std::uint64_t{0}, ~std::uint32_t{0}, {1}});
    check_round_trip(split::json_reply{1, 2, {}});
    check_round_trip(split::forget{});
    check_round_trip(split::forgotten{});
    check_round_trip(split::bye{});
    check_round_trip(split::draining{});
    for (std::size_t code = 0; code < split::error_codes; ++code) {
        check_round_trip(split::refusal{static_cast<split::error_code>(code), "x", std::nullopt, 5});
        check_round_trip(split::refusal{static_cast<split::error_code>(code), "x", 5, std::nullopt});
    }
    CHECK(to_text(h).find("\"set\":\"0123456789abcdef\"") != std::string::npos);
}

TEST_CASE("a control message with anything more, less or other is refused, and the message says what") {
    CHECK(parse_refusal("[]").find("expected an object") != std::string::npos);
    CHECK(parse_refusal("{}").find("\"type\" is missing") != std::string::npos);
    CHECK(parse_refusal(R"({"type":"nothing"})").find("which no message has") != std::string::npos);
    CHECK(parse_refusal(R"({"type":"bye","more":1})").find("members") != std::string::npos);
    CHECK(parse_refusal(R"({"type":"bye","type":"bye"})").find("duplicate") != std::string::npos);
    CHECK(parse_refusal(R"({"type":"bye"} )" + std::string(split::longest_control_text, ' '), 0)
              .find("bytes") != std::string::npos);
    CHECK(parse_refusal(R"({"type":"bye"} )" + std::string(split::longest_control_text, ' '), 1 << 20)
              .find("bytes") != std::string::npos);
    CHECK(parse_refusal(R"({"type":"resume","protocol":1,"session":"00"})").find("\"session\"") !=
          std::string::npos);
    CHECK(parse_refusal(R"({"type":"request","number":-1,"group":0,"message":""})").find("\"number\"") !=
          std::string::npos);
    CHECK(
        parse_refusal(R"({"type":"request","number":1,"group":4294967296,"message":""})").find("\"group\"") !=
        std::string::npos);
    CHECK(parse_refusal(R"({"type":"request","number":1.5,"group":0,"message":""})").find("\"number\"") !=
          std::string::npos);
    CHECK(parse_refusal(R"({"type":"request","number":1,"group":0,"message":"AAAAAAAA"})", 3)
              .find("\"message\"") != std::string::npos);
    CHECK(parse_refusal(R"({"type":"error","code":"nothing","message":""})").find("no error") !=
          std::string::npos);
    const std::string other = refusal<tensafe::unsupported_error>([] {
        static_cast<void>(
            split::parse_control(R"({"type":"resume","protocol":2,"session":"","resume":""})", 0));
    });
    CHECK(other.find("got protocol 2, expected 1") != std::string::npos);
}

TEST_CASE("a bucket lets so many through at once, refills with time, and unknown names cannot fill memory") {
    split::rate_limiter limiter(10, 2, 3);
    const split::time_point begin{std::chrono::hours(1)};
    CHECK(limiter.take("a", begin) == 0ms);
    CHECK(limiter.take("a", begin) == 0ms);
    CHECK(limiter.take("a", begin) == 100ms);
    CHECK(limiter.take("b", begin) == 0ms);
    CHECK(limiter.take("a", begin + 40ms) == 60ms);
    CHECK(limiter.take("a", begin + 100ms) == 0ms);
    CHECK(limiter.take("a", begin + 100ms) == 100ms);
    CHECK(limiter.take("c", begin + 100ms) == 0ms);
    CHECK(limiter.take("d", begin + 100ms) == 0ms);  // b is full again and makes room
    CHECK(limiter.names() == 3);
    CHECK(limiter.take("e", begin + 100ms) == 0ms);  // these share
    CHECK(limiter.take("f", begin + 100ms) == 0ms);
    CHECK(limiter.take("g", begin + 100ms) == 100ms);
    CHECK(limiter.names() == 3);
    limiter.sweep(begin + 100ms);
    CHECK(limiter.names() == 3);
    limiter.sweep(begin + 1h);
    CHECK(limiter.names() == 0);
    split::rate_limiter backwards(10, 1);
    CHECK(backwards.take("a", begin) == 0ms);
    CHECK(backwards.take("a", begin - 1h) == 100ms);
}

TEST_CASE("the default query limit is a quarter of the shortest hidden state") {
    split::limits allowed;
    CHECK(allowed.queries_for(2048) == 512);
    CHECK(allowed.queries_for(3) == 1);
    allowed.queries = 7;
    CHECK(allowed.queries_for(2048) == 7);
    allowed.unlimited_queries = true;
    CHECK_FALSE(allowed.queries_for(2048));
}

TEST_CASE("query counts come back from their file, which names nobody, and a damaged one is refused") {
    const scratch_folder folder;
    using outcome = split::query_counts::outcome;
    {
        split::query_counts counts(folder.path());
        CHECK_FALSE(counts.save());
        CHECK(counts.add("alice", "kjv", 1, 2) == outcome::counted);
        CHECK(counts.add("alice", "kjv", 1, 2) == outcome::counted);
        CHECK(counts.add("alice", "kjv", 1, 2) == outcome::limit_reached);
        CHECK(counts.add("alice", "kjv", 0, 2) == outcome::counted);
        CHECK(counts.add("bob", "kjv", 1, 2) == outcome::counted);
        counts.take_back("bob", "kjv", 1);
        CHECK(counts.most_of("bob", "kjv") == 0);
        CHECK(counts.save());
    }
    std::ifstream file(folder.path() / "usage");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    CHECK(text.find("alice") == std::string::npos);
    CHECK(text.find("kjv") == std::string::npos);
    CHECK(split::query_counts(folder.path()).most_of("alice", "kjv") == 2);
    const auto write = [&](const std::string& changed) { std::ofstream(folder.path() / "usage") << changed; };
    const auto read = [&] { static_cast<void>(split::query_counts(folder.path())); };
    for (const std::string& changed :
         {text.substr(1), text.substr(0, text.size() - 1), text + text.substr(text.find('\n') + 1),
          text + "x\n", std::string(), text.substr(0, text.size() - 1) + " -1\n",
          text.substr(0, text.size() - 1) + " \n"}) {
        write(changed);
        CAPTURE(changed);
        CHECK(refusal<tensafe::format_error>(read).find("usage") != std::string::npos);
    }
    write(text);
    REQUIRE(::chmod((folder.path() / "usage_key").c_str(), 0644) == 0);
    CHECK(refusal<tensafe::io_error>(read).find("0600") != std::string::npos);
}

TEST_CASE("a certificate is made once, used again, and refused when it is expired or half of it is gone") {
    const scratch_folder folder;
    const auto now = std::chrono::system_clock::now();
    const split::tls_files made = split::prepare_certificate(folder.path(), {"split.example"}, now);
    CHECK(made.made);
    CHECK(made.fingerprint.size() == 64);
    struct stat status {};
    REQUIRE(::stat(made.key.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    const split::tls_files again = split::prepare_certificate(folder.path(), {}, now + 24h * 364);
    CHECK_FALSE(again.made);
    CHECK(again.fingerprint == made.fingerprint);
    CHECK_NOTHROW(static_cast<void>(
        split::prepare_certificate(folder.path(), {"split.example", "localhost", "127.0.0.1", "::1"}, now)));
    for (const char* host : {"other.example", "127.0.0.2"}) {
        const std::string said = refusal<tensafe::format_error>(
            [&] { static_cast<void>(split::prepare_certificate(folder.path(), {host}, now)); });
        CHECK(said.find("is not for --host \"" + std::string(host)) != std::string::npos);
        CHECK(said.find(". Remove") != std::string::npos);
    }
    const auto prepare = [&](auto at) {
        static_cast<void>(split::prepare_certificate(folder.path(), {}, at));
    };
    CHECK(refusal<tensafe::format_error>([&] { prepare(now + 24h * 366); }).find("expired. Remove") !=
          std::string::npos);
    const scratch_folder other;
    const split::tls_files foreign = split::prepare_certificate(other.path());
    CHECK(foreign.fingerprint != made.fingerprint);
    std::filesystem::copy_file(foreign.certificate, made.certificate,
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(refusal<tensafe::format_error>([&] { prepare(now); }).find("is not the key of") !=
          std::string::npos);
    std::filesystem::remove(made.certificate);
    CHECK(refusal<tensafe::format_error>([&] { prepare(now); }).find("is missing") != std::string::npos);
    const scratch_folder third;
    CHECK(refusal<tensafe::parameter_error>([&] {
              static_cast<void>(split::prepare_certificate(third.path(), {"a,DNS:b"}));
          }).find("a,DNS:b") != std::string::npos);
    CHECK(std::filesystem::is_empty(third.path()));
}

TEST_CASE("a log line is one JSON object, whatever its fields hold") {
    std::string lines;
    const split::log to([&](std::string_view line) { lines += line; },
                        [] { return std::chrono::system_clock::from_time_t(0) + 7ms; });
    to.line(split::log_level::warning, "refused",
            {{"name", "a\"\n\xff"}, {"count", std::uint64_t{3}}, {"ms", 0.5}});
    CHECK(lines ==
          "{\"time\":\"1970-01-01T00:00:00.007Z\",\"level\":\"warning\",\"event\":\"refused\",\"name\":"
          "\"a\\\"\\n\\ufffd\","
          "\"count\":3,\"ms\":0.5}\n");
    split::log([](std::string_view) { throw 1; }).line(split::log_level::info, "lost");
}

TEST_CASE("HTTP requests are answered, also several on one connection, and too long ones are refused") {
    served s;
    const raw_socket one(s.server.port());
    for (int i = 0; i < 2; ++i) {
        one.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK(one.receive_until("ok\n").find("HTTP/1.1 200 OK") == 0);
    }
    one.send("GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    CHECK(one.receive_all().value_or("").find(" 404 ") != std::string::npos);
    const raw_socket two(s.server.port());
    two.send("GET /" + std::string(200'000, 'a') + " HTTP/1.1\r\n\r\n");
    CHECK(two.receive_all().value_or("").find(" 431 ") != std::string::npos);
    std::this_thread::sleep_for(100ms);
    CHECK(two.can_send());  // with the rest unread, a close would have taken back the answer
    const raw_socket three(s.server.port());
    three.send("PUT /x HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n");
    CHECK(three.receive_all().value_or("").find(" 413 ") != std::string::npos);
    const raw_socket four(s.server.port());
    four.send(std::string("\x16\x03\x01\x00\xff\x00\x01 random bytes \x00\xfe", 24) + "\r\n\r\n");
    CHECK(four.receive_all());
    CHECK(s.what.begun == 0);
}

TEST_CASE("HEAD brings what GET would, but for the body") {
    served s;
    const raw_socket one(s.server.port());
    one.send("HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(one.receive_until("\r\n\r\n").find("Content-Length: 3\r\n") != std::string::npos);
    CHECK(one.receive_until("ok\n").find("HTTP/1.1 200 OK") == 0);
}

TEST_CASE("a page that is good for some time is made once in it") {
    served s;
    const raw_socket one(s.server.port());
    const auto get = [&](const std::string& target) {
        one.send("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
        static_cast<void>(one.receive_until("\r\n\r\n"));
        return one.receive_until("\n");
    };
    CHECK(get("/an_hour") == "page 1\n");
    CHECK(get("/an_hour") == "page 1\n");
    CHECK(get("/a_moment") == "page 2\n");
    std::this_thread::sleep_for(5ms);
    CHECK(get("/a_moment") == "page 3\n");
    CHECK(get("/an_hour") == "page 4\n");  // one is kept
}

TEST_CASE("who asks now and then does not keep a connection for ever") {
    net::http_server_options options;
    options.idle_time = 500ms;
    served s(options);
    const raw_socket one(s.server.port());
    int answers = 0;
    for (; answers < 100; ++answers) {
        one.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        if (one.receive_until("ok\n").empty()) {
            break;
        }
        std::this_thread::sleep_for(50ms);
    }
    CHECK(answers < 100);
}

TEST_CASE("a WebSocket carries frames both ways, and its end ends the handler") {
    served s;
    {
        const raw_socket one(s.server.port());
        one.upgrade();
        CHECK(one.receive_until("hello").size() == 7);
        one.send_frame(1, "text");
        CHECK(one.receive_until("text").size() == 6);
        one.send_frame(2, "bytes");
        CHECK(one.receive_until("bytes") == std::string("\x82\x05") + "bytes");
    }
    CHECK(s.what.wait_for([&] { return s.what.over == 1; }));
}

TEST_CASE("a frame that announces 4 GB or 2^63 bytes ends the connection before memory is taken") {
    for (const std::string_view length :
         {std::string_view("\0\0\0\1\0\0\0\0", 8), std::string_view("\x7f\xff\xff\xff\xff\xff\xff\xff", 8),
          std::string_view("\x80\0\0\0\0\0\0\0", 8), std::string_view("\0\0\0\0\0\0\3\xe9", 8)}) {
        served s;
        {
            const raw_socket one(s.server.port());
            one.upgrade();
            static_cast<void>(one.receive_until("hello"));
            one.send(std::string("\x82\xff") + std::string(length) + std::string(4, '\0') + "some of it");
            CHECK(one.receive_all());
        }
        CHECK(s.what.wait_for([&] { return s.what.over == 1; }));
        CHECK(s.what.heard == 0);
    }
}

TEST_CASE("half an HTTP request is ended") {
    net::http_server_options options;
    options.handshake_time = 100ms;
    served s(options);
    const raw_socket half(s.server.port());
    half.send("GET /v1/split HT");
    CHECK(half.receive_all());
}

TEST_CASE("who is silent and answers no ping is gone") {
    net::http_server_options options;
    options.idle_time = 200ms;
    served s(options);
    const raw_socket silent(s.server.port());
    silent.upgrade();
    CHECK(s.what.wait_for([&] { return s.what.begun == 1; }));
    CHECK(s.what.wait_for([&] { return s.what.over == 1; }));
}

TEST_CASE("who is alive but never gets anywhere is gone, and others stay") {
    net::http_server_options options;
    options.handshake_time = 2s;
    served s(options);
    const raw_socket good(s.server.port());
    good.upgrade();
    static_cast<void>(good.receive_until("hello"));
    s.what.establishes = false;
    const raw_socket idler(s.server.port());
    idler.upgrade();
    for (int i = 0; i < 200 && !s.what.wait_for([&] { return s.what.over > 0; }, 50ms); ++i) {
        idler.send_frame(10, "");  // a pong
    }
    CHECK(s.what.over == 1);
    good.send_frame(1, "still here");
    CHECK(good.receive_until("still here").find("still here") != std::string::npos);
}

TEST_CASE("who begins a frame and sends it byte by byte is gone") {
    net::http_server_options options;
    options.frame_time = 200ms;
    served s(options);
    const raw_socket slow(s.server.port());
    slow.upgrade();
    slow.send(std::string("\x82\xfe\x03\xe8", 4) + std::string(4, '\0'));  // 1000 bytes are to come
    for (int i = 0; i < 300 && !s.what.wait_for([&] { return s.what.over > 0; }, 20ms); ++i) {
        slow.send("x");
    }
    CHECK(s.what.over == 1);
    CHECK(s.what.heard == 0);
}

TEST_CASE("half a TLS handshake is ended, and so is one that is none") {
    const scratch_folder folder;
    const split::tls_files files = split::prepare_certificate(folder.path());
    net::http_server_options options;
    options.secure = {files.certificate, files.key};
    options.handshake_time = 100ms;
    served s(options);
    const raw_socket half(s.server.port());
    half.send(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
    CHECK(half.receive_all());
    const raw_socket plain(s.server.port());
    plain.send("GET /healthz HTTP/1.1\r\n\r\n");
    const auto got = plain.receive_all();
    REQUIRE(got);
    CHECK(got->find("ok") == std::string::npos);
}

TEST_CASE("a peer that does not take what is sent to it is cut off") {
    net::http_server_options options;
    options.write_time = 100ms;
    served s(options);
    s.what.greeting.assign(std::size_t{32} << 20, 'x');
    const raw_socket slow(s.server.port(), 4096);
    slow.upgrade();
    CHECK(s.what.wait_for([&] { return s.what.over == 1; }));
}

TEST_CASE("a peer that takes a long frame slowly gets all of it") {
    net::http_server_options options;
    options.write_time = 1s;
    options.idle_time = 500ms;  // it says nothing meanwhile
    served s(options);
    s.what.greeting.assign(std::size_t{24} << 20, 'x');
    const raw_socket slow(s.server.port(), 1 << 16);
    slow.upgrade();
    std::vector<char> some(1 << 16);
    std::size_t got = 0;
    for (std::size_t pause = 0; got < s.what.greeting.size();) {
        const std::size_t n = slow.receive_some(some);
        if (n == 0) {
            break;
        }
        got += n;
        if (got >= pause) {
            std::this_thread::sleep_for(50ms);
            pause = got + (std::size_t{1} << 19);
        }
    }
    CHECK(got >= s.what.greeting.size());
}

TEST_CASE("connections beyond the limits are closed, in all and of one address") {
    for (const bool in_all : {true, false}) {
        net::http_server_options options;
        (in_all ? options.connections : options.connections_of_address) = 2;
        served s(options);
        auto one = std::make_unique<raw_socket>(s.server.port());
        const raw_socket two(s.server.port());
        one->upgrade();
        two.upgrade();
        const raw_socket three(s.server.port());
        three.send("GET /healthz HTTP/1.1\r\n\r\n");
        const auto got = three.receive_all();
        REQUIRE(got);
        CHECK(got->empty());
        CHECK(s.what.wait_for([&] { return s.what.refused == 1; }));
        one.reset();
        CHECK(s.what.wait_for([&] { return s.what.over == 1; }));
    }
}

TEST_CASE("draining sends the last words, closes, and still answers HTTP") {
    net::http_server_options options;
    options.handshake_time = 2s;  // the peer never closes its side
    served s(options);
    const raw_socket one(s.server.port());
    one.upgrade();
    static_cast<void>(one.receive_until("hello"));
    CHECK_FALSE(s.server.wait_until_drained(0ms));
    s.server.drain();
    const std::string last = one.receive_until(
        "\x03\xe9"
        "draining");
    CHECK(last.find("draining") != std::string::npos);
    CHECK(last.find("\x03\xe9") != std::string::npos);  // 1001
    one.send_frame(8, "\x03\xe9");
    CHECK(s.server.wait_until_drained(20s));
    const raw_socket two(s.server.port());
    two.send("GET /healthz HTTP/1.1\r\n\r\n");
    CHECK(two.receive_all().value_or("").find("ok\n") != std::string::npos);
}

TEST_CASE("after random bytes, half frames and killed peers every descriptor is given back") {
    const std::size_t before = open_descriptors();
    {
        served s;
        std::uint32_t state = 1;
        for (int round = 0; round < 40; ++round) {
            const raw_socket one(s.server.port());
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
        CHECK(s.what.wait_for([&] { return s.what.over == 20; }));
    }
    CHECK(open_descriptors() == before);
}
