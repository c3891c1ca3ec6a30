// The client's network layer: addresses, TLS, and servers that stall, flood and never end.
#include "../../service/net/websocket_client.hpp"

#include <openssl/evp.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <dlfcn.h>
#include <netdb.h>

#include "../../service/base64.hpp"
#include "echo_server.hpp"
#include "peer.hpp"

/// In place of the system's: names of no host, which it knows at once or says nothing of for long.
extern "C" int getaddrinfo(const char* host, const char* service, const ::addrinfo* hints,
                           ::addrinfo** found) {
    const std::string_view name(host != nullptr ? host : "");
    if (name.ends_with(".invalid")) {
        std::this_thread::sleep_for(std::chrono::seconds(name.starts_with("slow") ? 20 : 0));
        return EAI_NONAME;
    }
    static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(host, service, hints, found);
}

namespace {

using namespace split;
namespace asio = boost::asio;
using std::chrono::milliseconds;
using tests::certificate;
using tests::check_refusal;
using tests::echo_server;
using octets = tests::bytes;
using io_result = boost::system::error_code;

/// Takes one connection, and does this with it.
struct one_peer {
    template <class Talk>
    explicit one_peer(Talk talk) : thread([this, talk]() mutable { talk(listening.accept()); }) {}
    std::string url(bool tls = false) const {
        return (tls ? "wss://127.0.0.1:" : "ws://127.0.0.1:") +
               std::to_string(listening.local_endpoint().port());
    }
    asio::io_context context;
    asio::ip::tcp::acceptor listening{context, {asio::ip::address_v4::loopback(), 0}};
    std::jthread thread;
};

auto connect_to(const std::string& url, const websocket_options& how = {}, const wait_options& wait = {}) {
    return connect_websocket(server_address::of(url), how, wait);
}

/// `call` throws a connection_lost whose message has this part.
template <class Call>
void check_lost(std::string_view part, bool is_wrong_server, Call call) {
    check_refusal<connection_lost>(part, [&] {
        try {
            call();
        } catch (const connection_lost& e) {
            CHECK(e.is_wrong_server == is_wrong_server);
            throw;
        }
    });
}

/// Answers the upgrade of a client that connects.
void upgrade(auto& to) {
    std::string request;
    asio::read_until(to, asio::dynamic_buffer(request), "\r\n\r\n");
    const std::string name = "Sec-WebSocket-Key: ";
    const std::string key =
        request.substr(request.find(name) + name.size(), 24) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    octets digest(20);
    ::EVP_Digest(key.data(), key.size(), digest.data(), nullptr, ::EVP_sha1(), nullptr);
    asio::write(to, asio::buffer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                                 "Upgrade\r\nSec-WebSocket-Accept: " +
                                 base64(digest) + "\r\n\r\n"));
}

/// Talks as the server of this certificate, where the client takes it.
void talk_tls(asio::ip::tcp::socket accepted, const certificate& as, auto talk) {
    asio::ssl::context secure(asio::ssl::context::tls_server);
    secure.use_certificate_chain_file(as.files.certificate.string());
    secure.use_private_key_file(as.files.key.string(), asio::ssl::context::pem);
    asio::ssl::stream<asio::ip::tcp::socket> to(std::move(accepted), secure);
    io_result refused;
    if (!to.handshake(asio::ssl::stream_base::server, refused)) {
        talk(to);
    }
}

/// Takes a client's request for a tunnel, and answers it.
std::string answer_connect(asio::ip::tcp::socket& to, const std::string& answer) {
    std::string request;
    io_result gone;
    asio::read_until(to, asio::dynamic_buffer(request), "\r\n\r\n", gone);
    asio::write(to, asio::buffer(answer), gone);
    return request;
}

/// A client of localhost:9, where nobody is, through the proxy.
auto connect_through(const one_peer& proxy, const certificate& trusted,
                     milliseconds limit = milliseconds(20'000)) {
    return connect_to("wss://localhost:9",
                      {.trusted_certificates = trusted.files.certificate,
                       .proxy = http_proxy{server_address::of(proxy.url()), "dTpzZWNyZXQ="}},
                      {limit});
}

constexpr const char* proxy_variables[] = {"https_proxy", "HTTPS_PROXY", "all_proxy",
                                           "ALL_PROXY",   "no_proxy",    "NO_PROXY"};

/// The proxy to a server where the environment has these variables of it, and no others.
std::string proxy_to(const std::string& url, const std::map<std::string, std::string>& environment) {
    for (const char* name : proxy_variables) {
        ::unsetenv(name);
    }
    for (const auto& [name, value] : environment) {
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    const auto proxy = http_proxy::of_environment(server_address::of(url));
    return proxy ? proxy->at.host_and_port() + " " + proxy->credentials : "none";
}

}  // namespace

TEST_CASE("server addresses are taken apart, and others refused") {
    const auto parts = [](std::string_view url) {
        const auto a = server_address::of(url);
        return (a.tls ? "tls " : "clear ") + a.host + " " + a.port + " " + a.text();
    };
    CHECK(parts("wss://localhost:8443") == "tls localhost 8443 wss://localhost:8443");
    CHECK(parts("ws://127.0.0.1:80/") == "clear 127.0.0.1 80 ws://127.0.0.1:80");
    CHECK(parts("wss://[::1]:9") == "tls ::1 9 wss://[::1]:9");
    CHECK(parts("wss://a.example") == "tls a.example 443 wss://a.example:443");
    for (const char* bad :
         {"", "localhost:1", "https://a:1", "wss://", "wss://:1", "wss://a:0", "wss://a:65536", "wss://a:1x",
          "wss://a:", "wss://[::1", "wss://a b:1", "wss://a/b:1", "wss://[::1]9"}) {
        CAPTURE(bad);
        check_refusal<tensafe::parameter_error>("expected wss://host:port", [&] { server_address::of(bad); });
    }
    check_refusal<tensafe::parameter_error>("the port from 1 to 65535",
                                            [] { server_address::of("ws://a:99999"); });
    check_refusal<tensafe::parameter_error>("write wss://", [] { server_address::of("https://a:1"); });
}

TEST_CASE("a traceparent goes with the upgrade if there is one, and is none but what it should be") {
    echo_server echo;
    const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (const std::string& each : {std::string(), trace}) {
        CHECK(connect_to(echo.url(), {.traceparent = each})->receive().text() == "hello");
        CHECK(echo.set([&] { return echo.last_caller.traceparent; }) == each);
    }
    check_refusal<tensafe::parameter_error>(
        "traceparent: got \"01-", [&] { connect_to(echo.url(), {.traceparent = "01" + trace.substr(2)}); });
}

TEST_CASE("only the certificate that was given is trusted, and only for its host") {
    const certificate ours;
    const certificate others;
    const auto connect = [&](const std::string& host, const std::filesystem::path& trusted) {
        const echo_server echo(ours.options({.address = host, .websocket_path = "/elsewhere"}));
        connect_to("wss://" + host + ":" + std::to_string(echo.server.port()),
                   {.trusted_certificates = trusted});
    };
    // The right one gets as far as the WebSocket, which this server has elsewhere.
    const auto& right = ours.files.certificate;
    check_refusal<connection_lost>("open a WebSocket", [&] { connect("127.0.0.1", right); });
    check_refusal<tensafe::signature_error>("is not trusted: self",
                                            [&] { connect("127.0.0.1", others.files.certificate); });
    // This machine too, but the certificate does not say so.
    check_refusal<tensafe::signature_error>("its certificate is not for \"127.0.0.2\"",
                                            [&] { connect("127.0.0.2", right); });
    for (const char* part : {"none.pem", "--trust", "No such file"}) {
        check_refusal<tensafe::io_error>(part,
                                         [&] { connect("127.0.0.1", ours.folder.path() / "none.pem"); });
    }
}

TEST_CASE("a frame beyond the limit is an error that no other connection would mend") {
    const echo_server echo({}, std::string(1001, 'x'));
    const auto client = connect_to(echo.url(), {.largest_frame = 1000});
    check_refusal<tensafe::format_error>("got a frame of more than 1000 bytes", [&] { client->receive(); });
}

TEST_CASE("frames of any length come back whole, with TLS and without, and each TLS connection is known") {
    const certificate of;
    for (const bool tls : {false, true}) {
        echo_server echo(tls ? of.options() : net::http_server_options{}, "", std::size_t{4} << 20);
        const websocket_options trust{.trusted_certificates = of.files.certificate,
                                      // limits hold all the same
                                      .busy_wait = std::chrono::seconds(tls ? 0 : 3'600)};
        const auto connection = connect_to(echo.url(tls), trust);
        CHECK((connection->tls_exporter() != exporter_value{}) == tls);
        CHECK((connection->tls_exporter() != connect_to(echo.url(tls), trust)->tls_exporter()) == tls);
        for (const std::size_t length : {0U, 1U, 125U, 126U, 16'383U, 65'536U, 98'765U, 3'000'000U}) {
            CAPTURE(length);
            octets sent(length);
            for (std::size_t i = 0; i < length; ++i) {
                sent[i] = static_cast<std::uint8_t>(i * i >> 8);
            }
            const auto before = connection->bytes();
            connection->send_binary(sent);
            const auto got = connection->receive();
            CHECK_FALSE(got.is_text);
            CHECK(std::ranges::equal(got.bytes, sent));
            CHECK(connection->bytes().up >= before.up + length);
            CHECK(connection->bytes().down >= before.down + length);
        }
        connection->send_text("text");
        CHECK(connection->receive().text() == "text");
        connection->begin("a test", milliseconds(10));
        check_refusal<connection_lost>("cannot receive: a test took longer than 0.01 s (--step-seconds, ",
                                       [&] { return connection->receive(); });
        check_refusal<connection_lost>("the connection is closed", [&] { connection->send_text("more"); });
    }
}

TEST_CASE(
    "a server that sends a byte at a time, or pongs without end, holds a step no longer than its limit") {
    for (const bool floods : {false, true}) {
        std::string pongs;
        while (pongs.size() < 2000) {
            pongs.append("\x8a\0", 2);
        }
        const one_peer server([&](auto to) {
            upgrade(to);
            io_result gone;
            const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
            for (std::size_t i = 0; !gone && std::chrono::steady_clock::now() < end; ++i) {
                asio::write(to, asio::buffer(floods ? pongs : std::string(1, "\x81\1x"[i % 3])), gone);
                std::this_thread::sleep_for(milliseconds(floods ? 0 : 5));
            }
        });
        const auto client = connect_to(server.url());
        client->begin("a test", milliseconds(300));
        check_refusal<connection_lost>("a test took longer than 0.3 s", [&] {
            for (;;) {
                client->receive();
            }
        });
    }
}

TEST_CASE("a client that sends much while its peer reads nothing before it has sent as much does not stop") {
    const certificate of;
    constexpr std::size_t down = std::size_t{5} << 20;
    constexpr std::size_t up = std::size_t{12} << 20;  // more than the buffers of a system
    for (const bool tls : {false, true}) {
        std::size_t heard = 0;
        const auto talk = [&](auto& to) {
            upgrade(to);
            octets frame(10 + down, 7);
            frame[0] = 0x82;
            frame[1] = 127;
            for (std::size_t i = 0; i < 8; ++i) {
                frame[2 + i] = static_cast<std::uint8_t>(down >> (56 - 8 * i));
            }
            io_result gone;
            asio::write(to, asio::buffer(frame), gone);
            while (!gone) {
                heard += to.read_some(asio::buffer(frame), gone);
            }
        };
        one_peer server([&](asio::ip::tcp::socket accepted) {
            if (!tls) {
                return talk(accepted);
            }
            talk_tls(std::move(accepted), of, talk);
        });
        {
            const auto client = connect_to(server.url(tls), {.trusted_certificates = of.files.certificate},
                                           {milliseconds(20'000)});
            const octets message(std::size_t{1} << 20);
            for (std::size_t sent = 0; sent < up; sent += message.size()) {
                client->send_binary(message);
            }
            const auto got = client->receive();
            CHECK(got.bytes.size() == down);
            CHECK(std::ranges::count(got.bytes, 7) == static_cast<std::ptrdiff_t>(down));
            CHECK(client->bytes().down > down);
        }
        server.thread.join();
        CHECK(heard >= up);
    }
}

TEST_CASE("connections that cannot be made are lost ones, within the limit, and say where") {
    const auto connect = [](const std::string& url) { connect_to(url, {}, {milliseconds(1000)}); };
    check_refusal<tensafe::parameter_error>("--trust", [&] { connect("wss://127.0.0.1:1"); });
    const certificate of;
    const echo_server with_tls(of.options());
    const echo_server elsewhere({.websocket_path = "/elsewhere"});
    // It listens, and takes nobody.
    const net::http_server silent({}, {});
    for (const auto& [url, part] : {std::pair<std::string, const char*>(
                                        "ws://127.0.0.1:1",
                                        "ws://127.0.0.1:1: cannot connect: Connection refused (does the "
                                        "server run, and is this its port?)"),
                                    {"ws://127.0.0.1:" + std::to_string(silent.port()),
                                     "connecting and logging in took longer than 1 s"}}) {
        check_lost(part, false, [to = url, &connect] { connect(to); });
    }
    // No time helps.
    const one_peer ssh([](auto to) { asio::write(to, asio::buffer("SSH-2.0-OpenSSH_9\r\n", 19)); });
    for (const auto& [url, part] : {std::pair<std::string, const char*>(with_tls.url(), "a port with TLS?"),
                                    {elsewhere.url(), "got \"HTTP/1.1 404 Not Found\", expected an upgrade"},
                                    {ssh.url(), "cannot open a WebSocket"},
                                    {"ws://nobody.invalid:1", "cannot find the host"}}) {
        check_lost(part, true, [to = url, &connect] { connect(to); });
    }
    const one_peer clear(
        [](auto to) { asio::write(to, asio::buffer("HTTP/1.1 400 Bad Request\r\n\r\n", 28)); });
    check_lost("a port without TLS?", true,
               [&] { connect_to(clear.url(true), {.trusted_certificates = of.files.certificate}); });
}

TEST_CASE("a server that is not ready, or a cut handshake, may be another one later") {
    for (const std::string answer : {"HTTP/1.1 503 Service Unavailable", "HTTP/1.1 429 Too Many Requests"}) {
        const one_peer busy([&](auto to) { answer_connect(to, answer + "\r\nContent-Length: 0\r\n\r\n"); });
        check_lost("got \"" + answer + "\", expected an upgrade", false, [&] { connect_to(busy.url()); });
    }
    const certificate of;
    const one_peer proxy([](auto) {});  // with nobody behind it
    check_lost("cannot agree on TLS", false,
               [&] { connect_to(proxy.url(true), {.trusted_certificates = of.files.certificate}); });
}

TEST_CASE("wherever a client waits, what poll throws ends it, long before the limit") {
    const certificate of;
    const net::http_server silent({}, {});  // it listens, and takes nobody
    const one_peer silent_websocket([](auto to) {
        upgrade(to);
        io_result gone;
        to.wait(asio::ip::tcp::socket::wait_read, gone);
    });
    // It says something all the time, which is no message.
    const one_peer pongs([](auto to) {
        upgrade(to);
        for (io_result gone; !gone; std::this_thread::sleep_for(milliseconds(5))) {
            asio::write(to, asio::buffer("\x8a\0", 2), gone);
        }
    });
    const std::string port = std::to_string(silent.port());
    for (const std::string& url : {std::string("ws://slow.invalid:1"), "ws://127.0.0.1:" + port,
                                   "wss://127.0.0.1:" + port, silent_websocket.url(), pongs.url()}) {
        CAPTURE(url);
        int polls = 0;
        const auto throw_third = [&] {
            if (++polls == 3) {
                throw tensafe::cancelled_error("enough");
            }
        };
        check_refusal<tensafe::cancelled_error>("enough", [&, to = url] {
            const auto made = connect_to(to, {.trusted_certificates = of.files.certificate},
                                         {std::chrono::hours(1), throw_third});
            made->receive();
        });
    }
}

TEST_CASE("an answer to the upgrade that does not end is not read for ever") {
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    for (const char* header : {"Transfer-Encoding: chunked\r\n\r\n1;x=", "Transfer-Encoding: chunked\r\n\r\n",
                               "Content-Length: 8000000\r\n\r\n"}) {
        const one_peer server([&](auto to) {
            io_result gone;
            asio::write(to, asio::buffer(ok + header), gone);
            for (int i = 0; i < 500 && !gone; ++i) {
                asio::write(to, asio::buffer(std::string(16'384, '1')), gone);
            }
        });
        check_refusal<connection_lost>("got \"HTTP/1.1 200 OK\" and more than 65536 bytes, expected",
                                       [&] { connect_to(server.url()); });
    }
}

TEST_CASE("TLS goes through a proxy to the server, and a proxy that ends it is refused, by its name") {
    const certificate ours;
    const certificate others;
    for (const certificate* const shown : {&ours, &others}) {
        std::string asked;
        one_peer proxy([&](asio::ip::tcp::socket accepted) {
            // A tunnel has no body, whatever is said of one.
            asked = answer_connect(accepted, "HTTP/1.1 200 Connected\r\nContent-Length: 5\r\n\r\n");
            talk_tls(std::move(accepted), *shown, [](auto& to) {
                upgrade(to);
                asio::write(to, asio::buffer("\x81\5hello", 7));
            });
        });
        if (shown == &ours) {
            CHECK(connect_through(proxy, ours)->receive().text() == "hello");
        } else {
            check_refusal<tensafe::signature_error>("wss://localhost:9 through the proxy " +
                                                        server_address::of(proxy.url()).host_and_port() +
                                                        ": its certificate is not trusted",
                                                    [&] { connect_through(proxy, ours); });
        }
        proxy.thread.join();
        CHECK(asked ==
              "CONNECT localhost:9 HTTP/1.1\r\nHost: localhost:9\r\n"
              "Proxy-Authorization: Basic dTpzZWNyZXQ=\r\n\r\n");
    }
    const one_peer proxy([&](asio::ip::tcp::socket accepted) {
        answer_connect(accepted, "HTTP/1.1 200 Connected\r\n\r\n");
        talk_tls(std::move(accepted), others, [](auto&) {});
    });
    check_refusal<tensafe::signature_error>(
        "a proxy or middlebox that ends TLS must let this server's through",
        [&] { connect_through(proxy, ours); });
}

TEST_CASE("a proxy that opens no tunnel is an error within the limit, which does not show the password") {
    const certificate ours;
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    for (const auto& [answer, part] :
         {std::pair<std::string, const char*>(
              "HTTP/1.1 407 Who\r\n\r\n", "got \"HTTP/1.1 407 Who\", expected a status of 2xx: HTTPS_PROXY"),
          {"HTTP/1.1 403 Forbidden\r\n\r\n", "or NO_PROXY name the host"},
          {"SSH-2.0\r\n\r\n", "got \"SSH-2.0\", expected"},
          {ok + std::string(20'000, 'x'), "got \"HTTP/1.1 200 OK\" and a header without an end"},
          {ok, "cannot open a tunnel: the other side closed"},
          {"", "connecting and logging in took longer than 1 s"}}) {
        const one_peer proxy([&, said = answer](asio::ip::tcp::socket accepted) {
            answer_connect(accepted, said);
            io_result gone;
            if (said.empty()) {
                accepted.wait(asio::ip::tcp::socket::wait_read, gone);  // until the client has gone
            }
        });
        const std::string message =
            tests::refusal<connection_lost>([&] { connect_through(proxy, ours, milliseconds(1'000)); });
        CAPTURE(message);
        CHECK(tests::contains(message, part));
        CHECK(message.starts_with("wss://localhost:9 through the proxy 127.0.0.1:"));
        CHECK_FALSE(tests::contains(message, "dTpz"));
    }
}

TEST_CASE("the environment names the proxy as it does for curl") {
    const auto to_a = [](const std::map<std::string, std::string>& environment) {
        return proxy_to("wss://a.Example", environment);
    };
    CHECK(to_a({}) == "none");
    CHECK(to_a({{"http_proxy", "p:1"}}) == "none");
    ::unsetenv("http_proxy");
    CHECK(to_a({{"HTTPS_PROXY", "http://p:1"}, {"https_proxy", "http://q:2"}}) == "q:2 ");
    CHECK(to_a({{"HTTPS_PROXY", "http://p:1"}, {"https_proxy", ""}, {"all_proxy", "r:3"}}) == "p:1 ");
    CHECK(to_a({{"ALL_PROXY", "r"}}) == "r:80 ");
    CHECK(to_a({{"https_proxy", "HTTP://u:p%40@w@[::1]:8/"}}) == "[::1]:8 dTpwQEB3");  // u:p@@w
    for (const char* without : {"*", "b,a.example", ".example", "b example", "EXAMPLE"}) {
        CAPTURE(without);
        CHECK(to_a({{"https_proxy", "p:1"}, {"NO_PROXY", without}}) == "none");
    }
    for (const char* without : {"ample", "b.a.example", "a", "xa.example"}) {
        CAPTURE(without);
        CHECK(to_a({{"https_proxy", "p:1"}, {"NO_PROXY", without}}) == "p:1 ");
    }
    CHECK(to_a({{"https_proxy", "p:1"}, {"NO_PROXY", "*"}, {"no_proxy", "b"}}) == "p:1 ");
    CHECK(proxy_to("wss://localhost", {{"https_proxy", "p:1"}}) == "p:1 ");
    CHECK(proxy_to("wss://127.0.0.1", {{"https_proxy", "p:1"}, {"no_proxy", "127.0.0.1"}}) == "none");
    CHECK(proxy_to("ws://a.example", {{"https_proxy", "p:1"}}) == "none");
    for (const auto& [value, part] :
         {std::pair("socks5://u:secret@p:1",
                    "got the scheme \"socks5\", expected http://[user:password@]host"),
          {"https://u:secret@p", "got the scheme \"https\", expected"},
          {"http://u:secret@p:1/x", "names no proxy, expected"},
          {"http://u:secret%4@p:1", "names no proxy, expected"},
          {"u:secret#p:1", "names no proxy, expected"},
          {"http://u:secret@p:65536", "the port from 1 to 65535"}}) {
        const std::string message = tests::refusal<tensafe::parameter_error>([&, v = value] {
            to_a({{"https_proxy", v}});
        });
        CAPTURE(message);
        CHECK(tests::contains(message, part));
        CHECK_FALSE(tests::contains(message, "secret"));
    }
    proxy_to("ws://a.example", {});  // leaves none
}
