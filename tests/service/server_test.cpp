// What of the server needs no cryptography, one unit since headers of networks are slow: texts, limits,
// counts on disk, the certificate; and the network layer, against a plain socket that breaks the rules.
#include <tensafe/random/seed.hpp>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <latch>
#include <set>
#include <thread>
#include <unistd.h>
#include <variant>

#include "../../service/base64.hpp"
#include "../../service/client_list.hpp"
#include "../../service/control_message.hpp"
#include "../../service/limits.hpp"
#include "../../service/log.hpp"
#include "../../service/net/fair_queue.hpp"
#include "../../service/tls_certificate.hpp"
#include "helpers.hpp"
#include "soak/raw_connection.hpp"

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
    using kind = split::carried_message::kind;
    tensafe::random::seed nonce;
    nonce.bytes[0] = 0xab;
    split::hello h{"kjv", {}, 0x0123456789abcdefu, {}, {}, split::frame_form::json, false};
    h.client[31] = std::byte{1};
    h.signature[0] = std::byte{2};
    h.key_sha256[7] = std::byte{3};
    check_round_trip(split::challenge{nonce, "a \"b\" \xc3\xa9"});
    check_round_trip(h);
    check_round_trip(split::welcome{{}, "kjv", 3, {}});
    check_round_trip(split::welcome{{}, "kjv", 3, {17, 0}, "{\"a\": \"pin\"}\n"});
    const std::vector largest(split::most_limits, ~std::uint64_t{0});  // with the longest name and pin
    check_round_trip(split::welcome{{}, std::string(128, '\\'), largest[0], largest, std::string(1000, '"')});
    check_round_trip(split::resume{{}, h.client, h.signature});
    check_round_trip(split::resumed{{}, 5, 6, largest});
    check_round_trip(split::carried_message{kind::held_adapter, {1, 2, 3, 4}});
    check_round_trip(split::carried_message{kind::request, {1}, ~std::uint64_t{0}, ~std::uint32_t{0}});
    check_round_trip(split::carried_message{kind::reply, {}, 1, 2});
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
    const auto of_limits = [](const std::string& queries_left) {
        return R"({"type":"resumed","session":"00000000000000000000000000000000","next_number":1,"version":1,)"
               R"("queries_left":)" +
               queries_left + "}";
    };
    std::string one_too_many;
    for (std::size_t i = 0; i < split::most_limits; ++i) {
        one_too_many += ",0";
    }
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
               {R"({"type":"resume","protocol":3,"session":"00"})", "\"session\""},
               {R"({"type":"challenge","protocol":3,"nonce":")" + std::string(64, '0') +
                    R"(","parameters":"","adapters":[]})",
                "1 members that it does not have"},
               {R"({"type":"request","number":-1,"group":0,"message":""})", "\"number\""},
               {R"({"type":"request","number":1,"group":4294967296,"message":""})", "\"group\""},
               {R"({"type":"request","number":1.5,"group":0,"message":""})", "\"number\""},
               {R"({"type":"request","number":1,"group":0,"message":"AAAAAAAA"})", "\"message\"", 3},
               {R"({"type":"welcome","session":"00000000000000000000000000000000","adapter":"","version":1,)"
                R"("queries_left":null,"pin":null})",
                "\"pin\""},
               {of_limits("17"), "\"queries_left\""},
               {of_limits("[]"), "\"queries_left\": got 0 numbers, expected 1 to 512, or null"},
               {of_limits("[1,-1]"), "\"queries_left\""},
               {of_limits("[1,null]"), "\"queries_left\""},
               {of_limits("[0" + one_too_many + "]"), "got 513 numbers"},
               {R"({"type":"error","code":"nothing","message":""})", "no error"}};
    for (const auto& each : all) {
        check_refusal<tensafe::format_error>(each.said,
                                             [&] { return split::parse_control(each.text, each.largest); });
    }
    check_refusal<tensafe::unsupported_error>("got protocol 2, expected 3", [] {
        return split::parse_control(R"({"type":"resume","protocol":2,"session":"","resume":""})", 0);
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
    split::rate_limiter paid(10, 2);
    CHECK(paid.take("a", begin) == 0ms);
    paid.pay("a", 11, begin);
    CHECK(paid.take("a", begin) == 1100ms);
    CHECK(paid.take("a", begin + 1s) == 100ms);
    paid.pay("a", -1, begin + 1s);
    CHECK(paid.take("a", begin + 1s) == 0ms);
    split::rate_limiter backwards(10, 1);
    CHECK(backwards.take("a", begin) == 0ms);
    CHECK(backwards.take("a", begin - 1h) == 100ms);
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
    CHECK(made.fingerprint.size() == 64);
    const auto prepare = [&](auto at, const std::vector<std::string>& hosts = {}) {
        return split::prepare_certificate(folder.path(), hosts, at);
    };
    CHECK(mode_of(made.key) == 0600);
    CHECK(entries(folder.path()) == 2);
    const std::string pem = text_of(made.certificate);
    BIO* const bio = ::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
    X509* const certificate = ::PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    CHECK(::X509_check_ca(certificate) == 0);
    CHECK(::X509_get_key_usage(certificate) == KU_DIGITAL_SIGNATURE);
    CHECK(::X509_get_extended_key_usage(certificate) == XKU_SSL_SERVER);
    ::X509_free(certificate);
    ::BIO_free(bio);
    const split::tls_files again = prepare(now + 24h * 364);
    CHECK(again.fingerprint == made.fingerprint);
    CHECK(prepare(now, {"split.example", "localhost", "127.0.0.1", "::1"}).fingerprint == made.fingerprint);
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
    // What a process leaves that dies before the key has its name.
    std::ofstream(third.path() / "certificate_key.pem.new") << "x";
    CHECK(split::prepare_certificate(third.path()).fingerprint.size() == 64);
    for (const char* text : {"", "x"}) {
        const temporary_directory cut;
        std::ofstream(cut.path() / "certificate_key.pem.new") << text;
        std::ofstream(cut.path() / "certificate.pem") << "x";
        CHECK(split::prepare_certificate(cut.path()).fingerprint.size() == 64);
        CHECK(entries(cut.path()) == 2);
    }
}

TEST_CASE(
    "both ends of a TLS connection have one exporter value, each connection another one, and TLS 1.2 without "
    "extended master secret none") {
    const temporary_directory folder;
    const split::tls_files files = split::prepare_certificate(folder.path());
    const auto values = [&](int version, std::uint64_t without) {
        const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
        SSL_CTX_set_max_proto_version(context.get(), version);
        SSL_CTX_set_options(context.get(), without);
        SSL_CTX_use_certificate_file(context.get(), files.certificate.c_str(), SSL_FILETYPE_PEM);
        SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM);
        const std::shared_ptr<SSL> client(SSL_new(context.get()), SSL_free);
        const std::shared_ptr<SSL> server(SSL_new(context.get()), SSL_free);
        BIO* to_server = nullptr;
        BIO* to_client = nullptr;
        REQUIRE(BIO_new_bio_pair(&to_server, 0, &to_client, 0) == 1);
        SSL_set_bio(client.get(), to_server, to_server);
        SSL_set_bio(server.get(), to_client, to_client);
        SSL_set_connect_state(client.get());
        SSL_set_accept_state(server.get());
        int done = 0;
        for (int turn = 0; turn < 10 && done != 2; ++turn) {
            done = SSL_do_handshake(client.get());
            done += SSL_do_handshake(server.get());
        }
        REQUIRE(done == 2);
        return std::pair(net::tls_exporter(client.get()), net::tls_exporter(server.get()));
    };
    std::set<split::exporter_value> all{{}};
    for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION, TLS1_3_VERSION, TLS1_2_VERSION}) {
        const auto [client, server] = values(version, 0);
        CHECK(client == server);
        CHECK(all.insert(client).second);
    }
    CHECK_NOTHROW(values(TLS1_3_VERSION, SSL_OP_NO_EXTENDED_MASTER_SECRET));
    check_refusal<tensafe::unsupported_error>("got TLSv1.2 without extended master secret", [&] {
        values(TLS1_2_VERSION, SSL_OP_NO_EXTENDED_MASTER_SECRET);
    });
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

TEST_CASE(
    "of each event a stranger gets one line a second, and the next one has the number of those left out") {
    std::string text;
    split::time_point now{1h};
    const split::log to([&](std::string_view line) { text = line; }, std::chrono::system_clock::now,
                        [&] { return now; });
    const auto line = [&](const char* event, const std::string& address) {
        text.clear();
        to.line(split::log_level::warning, event, {}, address);
        return text;
    };
    CHECK(contains(line("refused", "10.0.0.1"), "\"refused\"}\n"));
    CHECK_FALSE(line("refused", "2001:db8::1").empty());
    for (int i = 0; i < 3; ++i) {
        now += 333ms;
        CHECK(line("refused", "10.0.0.1").empty());
        CHECK(line("refused", "2001:db8::" + std::to_string(i)).empty());  // the same /64
        CHECK_FALSE(line("refused", {}).empty());                          // no stranger's
    }
    CHECK(contains(line("connected", "10.0.0.1"), "\"left_out\":6}"));
    now += 1ms;
    CHECK_FALSE(contains(line("refused", "10.0.0.1"), "left_out"));
    int told = 0;
    for (int i = 0; i < 10'000; ++i) {
        told += line("refused", "2001:db8:0:" + std::to_string(i) + "::").empty() ? 0 : 1;
    }
    CHECK(told > 200);
    CHECK(told <= 257);
    to.line(split::log_level::error, "internal_error", {}, "10.0.0.1");
    CHECK(contains(text, "internal_error"));
}

TEST_CASE("a log whose reader stands still stops nobody, and says how many lines were lost") {
    std::array<int, 2> ends{};  // open to the end of the process: the log's thread stands in one
    REQUIRE(::pipe(ends.data()) == 0);
    std::optional<split::log> log(split::log::to_descriptor(ends[1]));
    constexpr std::uint64_t most = 1'000;
    const auto fill = [&] {
        for (std::uint64_t i = 0; i < most; ++i) {
            log->line(split::log_level::info, "line", {{"text", std::string(4'000, 'x')}});
        }
    };
    const auto number_after = [](const std::string& text, const std::string& name) {
        return std::stoull(text.substr(text.find("\"" + name + "\":") + name.size() + 3));
    };
    fill();
    std::string before;
    std::string after;  // from the count of the lost ones on
    for (std::uint64_t i = 0; i < most && (!contains(after, "}\n{") || !after.ends_with('\n')); ++i) {
        log->line(split::log_level::info, "line", {{"number", i}});
        std::array<char, 4096> part{};
        const ssize_t got = ::read(ends[0], part.data(), part.size());
        REQUIRE(got > 0);
        (after.empty() ? before : after).append(part.data(), static_cast<std::size_t>(got));
        if (const std::size_t place = before.find("lines_lost"); place != before.npos) {
            after = before.substr(before.rfind('\n', place) + 1);
            before.resize(before.size() - after.size());
        }
    }
    REQUIRE(!after.empty());
    const auto arrived = static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
    CHECK(arrived + number_after(after, "count") == most + number_after(after, "number"));
    fill();
    const auto began = std::chrono::steady_clock::now();
    log.reset();
    CHECK(std::chrono::steady_clock::now() - began < 10s);
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
    for (const auto& [request, part] : std::initializer_list<std::pair<std::string, std::string>>{
             {"GET /healthz" + to + five, " 400 "},
             {"GET /v1/split" + to + upgrade + five, " 400 "},
             {"GET /v1/split" + to + "\r\n", " 426 "},
             {"GET /v1/split" + to + "\r\n", "Upgrade: websocket"},
             {"PUT /keep" + to + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", " 411 "},
             {"GET /v1/split" + to + upgrade + "Transfer-Encoding: gzip\r\n\r\n", " 411 "},
             {"GET /healthz" + to + "Authorization: a\r\nauthorization: a\r\n\r\n", " 400 "}}) {
        const std::string said = answer(request);
        CAPTURE(said);
        CHECK(contains(said, part));
    }
}

TEST_CASE("HEAD brings what GET would, but for the body") {
    echo_server s;
    raw_socket one(s);
    one.send("HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(contains(one.receive_until("\r\n\r\n"), "Content-Length: 3\r\n"));
    CHECK(one.receive_until("ok\n").find("HTTP/1.1 200 OK") == 0);
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

TEST_CASE("what comes waits for one piece of the work for later, not for one of each connection") {
    echo_server s({.threads = 1}, "hello", 1000, true);
    std::vector<std::unique_ptr<raw_socket>> all;
    for (int i = 0; i < 12; ++i) {
        all.push_back(std::make_unique<raw_socket>(s));
        all.back()->upgrade();
        static_cast<void>(all.back()->receive_until("hello"));
    }
    REQUIRE(s.wait_for([&] { return s.pieces > 1000; }));  // all have begun
    {
        const std::lock_guard lock(s.mutex);
        s.stops_work = true;
    }
    int before = 0;
    REQUIRE(s.wait_for([&] {
        before = s.pieces;
        return s.stopped == 1;
    }));
    all.front()->send_frame(1, "text");
    REQUIRE(s.wait_for([&] { return all.front()->is_delivered(); }));
    {
        const std::lock_guard lock(s.mutex);
        s.stops_work = false;
        s.changed.notify_all();
    }
    CHECK(contains(all.front()->receive_until("text"), "text"));
    {
        const std::lock_guard lock(s.mutex);
        CHECK(s.pieces_when_heard - before <= 2);  // the one that was stopped, and one more
    }
    CHECK(s.wait_for([&] { return s.pieces > before + 100; }));  // and it goes on
}

TEST_CASE("while frames are answered, a thread serves other connections") {
    echo_server s({.threads = 2});
    std::vector<std::unique_ptr<raw_socket>> slow;
    for (int i = 1; i <= 2; ++i) {  // one for each thread
        slow.push_back(std::make_unique<raw_socket>(s));
        slow.back()->upgrade();
        slow.back()->send_frame(1, "hold");
        REQUIRE(s.wait_for([&] { return s.held == i; }));
    }
    raw_socket of_first_thread(s);
    raw_socket other(s);
    other.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(contains(other.receive_until("ok\n"), "200 OK"));
    {
        const std::lock_guard lock(s.mutex);
        s.lets_go = true;
    }
    s.changed.notify_all();
    for (const auto& each : slow) {
        CHECK(contains(each->receive_until("hold"), "hold"));
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
    const auto hold = [&] {
        is_first.count_down();
        begins.wait();
        ends.count_down();
    };
    const std::jthread asks([&] { queue.run("", hold); });
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
    const auto is_served = [&](const char* from, std::size_t left) {  // connections, once it is gone
        std::optional<raw_socket> one(std::in_place, s, 0, from);
        one->send("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
        const std::string got = one->receive_all();
        one.reset();
        return contains(got, "ok\n") && s.wait_for([&] { return s.server.connections() == left; });
    };
    established.emplace_back(s, 0, "127.0.0.2").upgrade();
    static_cast<void>(established.back().receive_until("hello"));
    for (int i = 0; i < 7; ++i) {
        silent.emplace_back(s, 0, "127.0.0.2");
        silent.emplace_back(s, 0, "127.0.0.3");
    }
    CHECK_FALSE(is_served("127.0.0.2", 15));  // nobody has more than it
    CHECK(refused() == 1);
    CHECK(is_served("127.0.0.1", 14));
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
    CHECK(is_served("127.0.0.4", 15));
    // One more would be one too many; what is left is for those that are not.
    established.emplace_back(s, 0, "127.0.0.5").upgrade();
    CHECK(established.back().receive_text() == "hello");
    established.emplace_back(s, 0, "127.0.0.6").upgrade();
    CHECK(established.back().receive_end() == 1013);
    CHECK(refused() == 15);
    CHECK(is_served("127.0.0.7", 15));
    // Who is told to go, and does not, keeps nobody out.
    s.controls.front().lock()->end(net::close_normal, "elsewhere");
    CHECK(established.front().receive_end() == net::close_normal);
    established.emplace_back(s, 0, "127.0.0.8").upgrade();
    CHECK(established.back().receive_text() == "hello");
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
