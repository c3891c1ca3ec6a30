// What of the server needs no cryptography, one unit since headers of networks are slow: texts, limits,
// counts on disk, the certificate; and the network layer, against a plain socket that breaks the rules.
#include <tensafe/random/seed.hpp>

#include <fcntl.h>
#include <variant>

#include "../../examples/split_inference/base64.hpp"
#include "../../examples/split_inference/client_list.hpp"
#include "../../examples/split_inference/control_message.hpp"
#include "../../examples/split_inference/limits.hpp"
#include "../../examples/split_inference/log.hpp"
#include "../../examples/split_inference/query_counts.hpp"
#include "../../examples/split_inference/soak/raw_connection.hpp"
#include "../../examples/split_inference/tls_certificate.hpp"
#include "split_helpers.hpp"

using namespace tests;

namespace {

using namespace std::chrono_literals;
namespace net = split::net;

template <class Message>
void check_round_trip(const Message& m) {
    const std::string text = to_text(m);
    CAPTURE(text);
    CHECK(std::get<Message>(split::parse_control(text, 1000)) == m);
}

std::size_t open_descriptors() {
    std::size_t open = 0;
    for (int d = 0; d < 4096; ++d) {  // a bare chroot has no /proc
        open += ::fcntl(d, F_GETFD) >= 0 ? 1U : 0U;
    }
    return open;
}

/// A client that sends what it likes.
class raw_socket : public split::soak::raw_connection {
  public:
    explicit raw_socket(const echo_server& to, int receive_buffer = 0, const char* from = nullptr)
        : raw_connection({to.server.port(), false}, {receive_buffer, from}) {}
    void send_frame(unsigned operation, std::string_view data) {
        send(split::soak::whole_frame(operation, data));
    }
};

}  // namespace

TEST_CASE("base64 writes the vectors of RFC 4648 and reads nothing but what it writes") {
    for (const auto& [text, code] : std::map<std::string, std::string>{
             {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}}) {
        CHECK(split::base64(bytes(text.begin(), text.end())) == code);
    }
    bytes all;
    for (int i = 0; i < 256; ++i) {
        all.push_back(static_cast<std::uint8_t>(i));
        CHECK(split::from_base64(split::base64(all)) == all);
    }
    for (const char* text :
         {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm 9", "Zm9-", "Zm9v\n"}) {
        CAPTURE(text);
        CHECK(refusal<tensafe::format_error>([&] { return split::from_base64(text); }) !=
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
    check_round_trip(split::welcome{{}, {}, "kjv", 3, 17, "{\"a\": \"pin\"}\n"});
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
    CHECK(contains(to_text(h), "\"set\":\"0123456789abcdef\""));
}

TEST_CASE("a control message with anything more, less or other is refused, and the message says what") {
    const std::string long_bye = R"({"type":"bye"} )" + std::string(split::longest_control_text, ' ');
    const struct {
        std::string text, said;
        std::size_t largest = 1000;
    } all[] = {{"[]", "expected an object"},
               {"{}", "\"type\" is missing"},
               {R"({"type":"nothing"})", "which no message has"},
               {R"({"type":"bye","more":1})", "members"},
               {R"({"type":"bye","type":"bye"})", "duplicate"},
               {long_bye, "bytes", 0},
               {long_bye, "bytes", 1 << 20},
               {R"({"type":"resume","protocol":2,"session":"00"})", "\"session\""},
               {R"({"type":"request","number":-1,"group":0,"message":""})", "\"number\""},
               {R"({"type":"request","number":1,"group":4294967296,"message":""})", "\"group\""},
               {R"({"type":"request","number":1.5,"group":0,"message":""})", "\"number\""},
               {R"({"type":"request","number":1,"group":0,"message":"AAAAAAAA"})", "\"message\"", 3},
               {R"({"type":"welcome","session":"00000000000000000000000000000000","resume":")" +
                    std::string(64, '0') + R"(","adapter":"","version":1,"queries_left":null,"pin":null})",
                "\"pin\""},
               {R"({"type":"error","code":"nothing","message":""})", "no error"}};
    for (const auto& each : all) {
        check_refusal<tensafe::format_error>(each.said,
                                             [&] { return split::parse_control(each.text, each.largest); });
    }
    check_refusal<tensafe::unsupported_error>("got protocol 1, expected 2", [] {
        return split::parse_control(R"({"type":"resume","protocol":1,"session":"","resume":""})", 0);
    });
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

TEST_CASE("query counts come back from their file, which names nobody, with a key of their own") {
    const temporary_directory folder;
    using outcome = split::query_counts::outcome;
    using bits = std::array<std::uint64_t, 3>;
    {
        split::query_counts counts(folder.path());
        CHECK_FALSE(counts.save());
        const auto alice = counts.account_of("alice", "acme", "kjv");
        const auto bob = counts.account_of("bob", "acme", "kjv");
        CHECK(counts.add(alice, 0, 10, {9, {}, {}}) ==
              outcome{outcome::limit_reached, split::scope::client, 10});
        CHECK(counts.rows() == 0);  // what was not counted leaves no row
        CHECK(counts.add(alice, 4'000'000'000, 10, {}) == outcome{});
        counts.take_back(alice, 4'000'000'000, 10);
        CHECK(counts.rows() == 0);
        CHECK(counts.add(alice, 1, 10, {15, 25, 25}) == outcome{});
        CHECK(counts.add(alice, 1, 10, {15, 25, 25}) ==
              outcome{outcome::limit_reached, split::scope::client, 20});
        CHECK(counts.add(bob, 1, 10, {15, 25, 25}) == outcome{});
        CHECK(counts.add(bob, 1, 10, {25, 25, 25}) ==
              outcome{outcome::limit_reached, split::scope::tenant, 30});
        CHECK(counts.add(bob, 1, 10, {std::nullopt, {}, 25}) ==
              outcome{outcome::limit_reached, split::scope::adapter, 30});
        CHECK(counts.used(bob, 1) == bits{10, 20, 20});
        counts.take_back(bob, 1, 10);
        CHECK(counts.used(bob, 1) == bits{0, 10, 10});
        CHECK(counts.save());
    }
    const std::string text = text_of(folder.path() / "usage");
    for (const char* name : {"alice", "acme", "kjv"}) {
        CHECK_FALSE(contains(text, name));
    }
    {
        split::query_counts counts(folder.path());
        CHECK(counts.rows() == 3);
        CHECK(counts.used(counts.account_of("alice", "acme", "kjv"), 1) == bits{10, 10, 10});
        // A client that has the name of a tenant is another.
        CHECK(counts.used(counts.account_of("acme", "", "kjv"), 1) == bits{0, 0, 10});
    }
    REQUIRE(::chmod((folder.path() / "usage_key").c_str(), 0644) == 0);
    check_refusal<tensafe::io_error>("0600", [&] { split::query_counts(folder.path()); });
}

TEST_CASE("a list of clients is read strictly, and errors name the line") {
    const temporary_directory folder;
    const auto path = folder.path() / "clients";
    const auto read = [&](const std::string& text) {
        std::ofstream(path) << text;
        return split::read_client_list(path);
    };
    const std::string a(64, 'a');
    const std::string b(64, 'b');
    CHECK(read("# keys\n\n" + a + "\n" + b + " acme-1") == split::client_list{{a, ""}, {b, "acme-1"}});
    for (const auto& [line, problem] : std::initializer_list<std::pair<std::string, std::string>>{
             {std::string(64, 'A'), "AAAA\", expected 64 lower-case"},
             {a.substr(1), "expected 64"},
             {a + "\r", "\\u000d\", expected 64"},
             {" " + a, "got the key \"\", expected 64"},
             {a + " ", "got the tenant \"\", expected 1 to 64"},
             {a + " b c", "got the tenant \"b c\", expected"},
             {a + " " + a + "b", "expected 1 to 64 letters"},
             {b + " other", "bbbb\" again, expected each once"}}) {
        const std::string text = b + " acme\n" + line + "\n";
        for (const std::string& part : {problem, std::string("clients\": line 2: got ")}) {
            check_refusal<tensafe::format_error>(part, [&] { read(text); });
        }
    }
    check_refusal<tensafe::io_error>("regular", [&] { split::read_client_list(folder.path()); });
}

TEST_CASE("a certificate is made once, used again, and refused when it is expired or half of it is gone") {
    const temporary_directory folder;
    const auto now = std::chrono::system_clock::now();
    const split::tls_files made = split::prepare_certificate(folder.path(), {"split.example"}, now);
    CHECK(made.made);
    CHECK(made.fingerprint.size() == 64);
    const auto prepare = [&](auto at, const std::vector<std::string>& hosts = {}) {
        return split::prepare_certificate(folder.path(), hosts, at);
    };
    CHECK(mode_of(made.key) == 0600);
    const split::tls_files again = prepare(now + 24h * 364);
    CHECK_FALSE(again.made);
    CHECK(again.fingerprint == made.fingerprint);
    CHECK_FALSE(prepare(now, {"split.example", "localhost", "127.0.0.1", "::1"}).made);
    for (const char* host : {"other.example", "127.0.0.2"}) {
        for (const std::string& part :
             {"is not for --host \"" + std::string(host), std::string(". Remove")}) {
            check_refusal<tensafe::format_error>(part, [&] { prepare(now, {host}); });
        }
    }
    check_refusal<tensafe::format_error>("expired. Remove", [&] { prepare(now + 24h * 366); });
    const temporary_directory other;
    const split::tls_files foreign = split::prepare_certificate(other.path());
    CHECK(foreign.fingerprint != made.fingerprint);
    std::filesystem::copy_file(foreign.certificate, made.certificate,
                               std::filesystem::copy_options::overwrite_existing);
    check_refusal<tensafe::format_error>("is not the key of", [&] { prepare(now); });
    std::filesystem::remove(made.certificate);
    check_refusal<tensafe::format_error>("is missing", [&] { prepare(now); });
    const temporary_directory third;
    check_refusal<tensafe::parameter_error>(
        "a,DNS:b", [&] { return split::prepare_certificate(third.path(), {"a,DNS:b"}); });
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
    echo_server s;
    raw_socket one(s);
    for (int i = 0; i < 2; ++i) {
        one.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK(one.receive_until("ok\n").find("HTTP/1.1 200 OK") == 0);
    }
    one.send("GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    CHECK(contains(one.receive_all(), " 404 "));
    raw_socket two(s);
    two.send("GET /" + std::string(200'000, 'a') + " HTTP/1.1\r\n\r\n");
    CHECK(contains(two.receive_all(), " 431 "));
    std::this_thread::sleep_for(100ms);
    CHECK(two.send("x"));  // with the rest unread, a close would have taken back the answer
    raw_socket three(s);
    three.send("PUT /x HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n");
    CHECK(contains(three.receive_all(), " 413 "));
    raw_socket four(s);
    four.send(std::string("\x16\x03\x01\x00\xff\x00\x01 random bytes \x00\xfe", 24) + "\r\n\r\n");
    CHECK_NOTHROW(four.receive_all());
    CHECK(s.begun == 0);
}

TEST_CASE("a body is read when it is wanted, and what is wrong with a header is said before that") {
    echo_server s;
    const auto answer = [&](const std::string& request) {
        raw_socket one(s);
        one.send(request);
        return one.receive_all();
    };
    const std::string to = " HTTP/1.1\r\nHost: x\r\n";
    const std::string five = "Content-Length: 5\r\n\r\n";
    // Where the body was read, the connection goes on.
    const std::string both =
        answer("PUT /keep" + to + five + "12345" + "GET /healthz" + to + "Connection: close\r\n\r\n");
    CHECK(contains(both, "\r\n\r\n12345HTTP/1.1 200 "));
    CHECK(contains(both, "\r\n\r\nok\n"));
    const std::string unwanted = answer("PUT /other" + to + five);  // and nothing of the five
    CHECK(contains(unwanted, " 404 "));
    CHECK(contains(unwanted, "Connection: close"));
    CHECK(contains(answer("PUT /other" + to + "Expect: 100-continue\r\n" + five), "HTTP/1.1 404 "));
    raw_socket waits(s);
    waits.send("PUT /keep" + to + "Expect: 100-continue\r\n" + five);
    CHECK(waits.receive_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    waits.send("12345");
    CHECK(contains(waits.receive_until("12345"), " 200 "));
    const std::string upgrade =
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
    for (const auto& [request, status] : std::initializer_list<std::pair<std::string, std::string>>{
             {"GET /healthz" + to + five, " 413 "},
             {"GET /v1/split" + to + upgrade + five, " 413 "},
             {"PUT /keep" + to + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", " 411 "},
             {"GET /v1/split" + to + upgrade + "Transfer-Encoding: gzip\r\n\r\n", " 411 "},
             {"GET /healthz" + to + "Authorization: a\r\nauthorization: a\r\n\r\n", " 400 "}}) {
        const std::string said = answer(request);
        CAPTURE(said);
        CHECK(contains(said, status));
    }
}

TEST_CASE("HEAD brings what GET would, but for the body") {
    echo_server s;
    raw_socket one(s);
    one.send("HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(contains(one.receive_until("\r\n\r\n"), "Content-Length: 3\r\n"));
    CHECK(one.receive_until("ok\n").find("HTTP/1.1 200 OK") == 0);
}

TEST_CASE("a page that is good for some time is made once in it") {
    echo_server s;
    raw_socket one(s);
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
    echo_server s({.idle_time = 500ms});
    raw_socket one(s);
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
    echo_server s;
    {
        raw_socket one(s);
        one.upgrade();
        CHECK(one.receive_until("hello").size() == 7);
        one.send_frame(1, "text");
        CHECK(one.receive_until("text").size() == 6);
        one.send_frame(2, "bytes");
        CHECK(one.receive_until("bytes") == std::string("\x82\x05") + "bytes");
    }
    CHECK(s.wait_for([&] { return s.over == 1; }));
}

TEST_CASE("a frame that announces 4 GB or 2^63 bytes ends the connection before memory is taken") {
    for (const std::string_view length :
         {std::string_view("\0\0\0\1\0\0\0\0", 8), std::string_view("\x7f\xff\xff\xff\xff\xff\xff\xff", 8),
          std::string_view("\x80\0\0\0\0\0\0\0", 8), std::string_view("\0\0\0\0\0\0\3\xe9", 8)}) {
        echo_server s;
        {
            raw_socket one(s);
            one.upgrade();
            static_cast<void>(one.receive_until("hello"));
            one.send(std::string("\x82\xff") + std::string(length) + std::string(4, '\0') + "some of it");
            CHECK_NOTHROW(one.receive_all());
        }
        CHECK(s.wait_for([&] { return s.over == 1; }));
        CHECK(s.heard == 0);
    }
}

TEST_CASE("half an HTTP request is ended") {
    echo_server s({.handshake_time = 100ms});
    raw_socket half(s);
    half.send("GET /v1/split HT");
    CHECK_NOTHROW(half.receive_all());
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
    good.upgrade();
    static_cast<void>(good.receive_until("hello"));
    s.establishes = false;
    raw_socket idler(s);
    idler.upgrade();
    for (int i = 0; i < 200 && !s.wait_for([&] { return s.over > 0; }, 50ms); ++i) {
        idler.send_frame(10, "");  // a pong
    }
    CHECK(s.over == 1);
    good.send_frame(1, "still here");
    CHECK(contains(good.receive_until("still here"), "still here"));
}

TEST_CASE("who begins a frame and sends it byte by byte is gone") {
    echo_server s({.frame_time = 200ms});
    raw_socket slow(s);
    slow.upgrade();
    slow.send(std::string("\x82\xfe\x03\xe8", 4) + std::string(4, '\0'));  // 1000 bytes are to come
    for (int i = 0; i < 300 && !s.wait_for([&] { return s.over > 0; }, 20ms); ++i) {
        slow.send("x");
    }
    CHECK(s.over == 1);
    CHECK(s.heard == 0);
}

TEST_CASE("half a TLS handshake is ended, and so is one that is none") {
    const temporary_directory folder;
    const split::tls_files files = split::prepare_certificate(folder.path());
    net::http_server_options options;
    options.secure = {files.certificate, files.key};
    options.handshake_time = 100ms;
    echo_server s(options);
    raw_socket half(s);
    half.send(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
    CHECK_NOTHROW(half.receive_all());
    raw_socket plain(s);
    plain.send("GET /healthz HTTP/1.1\r\n\r\n");
    CHECK_FALSE(contains(plain.receive_all(), "ok"));
}

TEST_CASE("of TLS 1.2 the suites with AEAD are spoken, and no others") {
    const temporary_directory folder;
    const split::tls_files files = split::prepare_certificate(folder.path());
    net::http_server_options options;
    options.secure = {files.certificate, files.key};
    echo_server s(options);
    const auto agrees = [&](const char* suites) {
        split::soak::raw_connection one({s.server.port(), true}, {.suites = suites});
        return one.secure();
    };
    CHECK(agrees(nullptr));
    CHECK(agrees("ECDHE-ECDSA-AES128-GCM-SHA256"));
    CHECK(agrees("ECDHE-ECDSA-CHACHA20-POLY1305"));
    CHECK_FALSE(agrees("ECDHE-ECDSA-AES128-SHA256"));
    CHECK_FALSE(agrees("ECDHE-ECDSA-AES256-SHA"));
}

TEST_CASE("a peer that does not take what is sent to it is cut off") {
    echo_server s({.write_time = 100ms});
    s.greeting.assign(std::size_t{32} << 20, 'x');
    raw_socket slow(s, 4096);
    slow.upgrade();
    CHECK(s.wait_for([&] { return s.over == 1; }));
}

TEST_CASE("a peer that takes a long frame slowly gets all of it") {
    echo_server s({.idle_time = 500ms, .write_time = 1s});  // it says nothing meanwhile
    s.greeting.assign(std::size_t{24} << 20, 'x');
    raw_socket slow(s, 1 << 16);
    slow.upgrade();
    std::size_t got = 0;
    for (std::size_t pause = 0; got < s.greeting.size();) {
        const std::size_t n = slow.receive_more(raw_socket::patience);
        if (n == 0) {
            break;
        }
        got += n;
        if (got >= pause) {
            std::this_thread::sleep_for(50ms);
            pause = got + (std::size_t{1} << 19);
        }
    }
    CHECK(got >= s.greeting.size());
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
        raw_socket three(s);
        three.send("GET /healthz HTTP/1.1\r\n\r\n");
        CHECK(three.receive_all().empty());
        CHECK(s.wait_for([&] { return s.refused == 1; }));
        CHECK(s.last_refused == "127.0.0.1");
        one.reset();
        CHECK(s.wait_for([&] { return s.over == 1; }));
    }
}

TEST_CASE("who is not established makes room for others while an address has more such than they") {
    net::http_server_options options;
    options.connections = 16;  // two for those that are established, two for others
    options.connections_of_address = 12;
    echo_server s(options);
    std::deque<raw_socket> established;
    std::deque<raw_socket> silent;
    const auto refused = [&] {
        const std::lock_guard lock(s.mutex);
        return s.refused;
    };
    const auto is_served = [&](const char* from) {
        raw_socket one(s, 0, from);
        one.send("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
        return contains(one.receive_all(), "ok\n");
    };
    established.emplace_back(s, 0, "127.0.0.2").upgrade();
    static_cast<void>(established.back().receive_until("hello"));
    for (int i = 0; i < 7; ++i) {
        silent.emplace_back(s, 0, "127.0.0.2");
        silent.emplace_back(s, 0, "127.0.0.3");
    }
    CHECK_FALSE(is_served("127.0.0.2"));  // nobody has more than it
    CHECK(refused() == 1);
    CHECK(is_served("127.0.0.1"));
    CHECK(refused() == 2);
    CHECK(silent.front().receive_all().empty());  // the oldest went
    CHECK(s.last_refused == "127.0.0.2");
    // However many come, who is established stays.
    for (int i = 0; i < 12; ++i) {
        established.emplace_back(s, 0, "127.0.0.1").upgrade();
        static_cast<void>(established.back().receive_until("hello"));
    }
    established.front().send_frame(1, "still here");
    CHECK(contains(established.front().receive_until("still here"), "still here"));
    CHECK(is_served("127.0.0.4"));
    // One more would be one too many; what is left is for those that are not.
    established.emplace_back(s, 0, "127.0.0.5").upgrade();
    CHECK(established.back().receive_frame()->data == "hello");
    established.emplace_back(s, 0, "127.0.0.6").upgrade();
    CHECK(established.back().receive_end() == 1013);
    CHECK(is_served("127.0.0.7"));
}

TEST_CASE("draining sends the last words, closes, and still answers HTTP") {
    echo_server s({.handshake_time = 2s});  // the peer never closes its side
    raw_socket one(s);
    one.upgrade();
    static_cast<void>(one.receive_until("hello"));
    CHECK_FALSE(s.server.wait_until_drained(0ms));
    s.server.drain();
    const std::string last = one.receive_until(
        "\x03\xe9"
        "draining");
    CHECK(contains(last, "draining"));
    CHECK(contains(last, "\x03\xe9"));  // 1001
    one.send_frame(8, "\x03\xe9");
    CHECK(s.server.wait_until_drained(20s));
    raw_socket two(s);
    two.send("GET /healthz HTTP/1.1\r\n\r\n");
    CHECK(contains(two.receive_all(), "ok\n"));
}

TEST_CASE("after random bytes, half frames and killed peers every descriptor is given back") {
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
