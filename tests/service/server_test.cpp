// What of the server needs neither cryptography nor a network: texts, the list of clients, the certificate,
// the log.
#include <tensafe/keystore/signed_adapter.hpp>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "../../service/base64.hpp"
#include "../../service/client_list.hpp"
#include "../../service/control_message.hpp"
#include "../../service/limits.hpp"
#include "../../service/log.hpp"
#include "../../service/net/tls_exporter.hpp"
#include "../../service/tls_certificate.hpp"
#include "peer.hpp"

using namespace tests;

namespace {

using namespace std::chrono_literals;

template <class Message>
void check_round_trip(const Message& m) {
    const std::string text = to_text(m);
    CAPTURE(text);
    CHECK(std::get<Message>(split::parse_control(text, 1000)) == m);
}

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

TEST_CASE("a list of clients is read strictly, and errors name the line") {
    const temporary_directory folder;
    const auto path = folder.path() / "clients";
    bool has_marks = true;
    const auto read = [&](const std::string& text) {
        std::ofstream(path) << text;
        return split::read_client_list(path, has_marks);
    };
    const std::string a(64, 'a');
    const std::string b(64, 'b');
    const std::string c(64, 'c');
    CHECK(read("# keys\n\n" + a + "\n" + b + " acme-1") == split::client_list{{a, {}}, {b, {"acme-1"}}});
    const split::client_tenant half{"acme", split::share_limit(0.5)};
    for (const char* const other : {"", " 0.5", " 5e-1"}) {  // once is enough, on any line
        CHECK(read(a + " acme" + other + "\n" + b + " acme 0.5\n" + c + " other") ==
              split::client_list{{a, half}, {b, half}, {c, {"other"}}});
    }
    const split::client_tenant lifted{"acme", split::share_limit()};
    CHECK(read(a + " acme none\n" + b + " other 1000") ==
          split::client_list{{a, lifted}, {b, {"other", split::share_limit(1000)}}});
    for (const auto& [line, problem] : std::initializer_list<std::pair<std::string, std::string>>{
             {std::string(64, 'A'), "AAAA\", expected 64 lower-case"},
             {a.substr(1), "expected 64"},
             {a + "\r", "\\u000d\", expected 64"},
             {" " + a, "got the key \"\", expected 64"},
             {a + " ", "got the tenant \"\", expected 1 to 64"},
             {a + "  b", "got the tenant \"\", expected 1 to 64"},
             {a + " b\tc", "got the tenant \"b\\u0009c\", expected"},
             {a + " b ", "got the share \"\" of the tenant \"b\", expected a number above 0"},
             {a + " b 0", "got the share \"0\" of the tenant \"b\", expected a number above 0"},
             {a + " b 1000.1", "got the share \"1000.1\" of the tenant"},
             {a + " b nan", "got the share \"nan\" of the tenant"},
             {a + " b None", "got the share \"None\" of the tenant"},
             {a + " b 0.5 c", "got the share \"0.5 c\" of the tenant"},
             {a + " acme 0.4", "\"0.4\" of the tenant \"acme\", expected 0.25, as an earlier line"},
             {a + " acme none", "\"none\" of the tenant \"acme\", expected 0.25, as an earlier line"},
             {a + " " + a + "b", "expected 1 to 64 letters"},
             {a + " " + a, "which are no key and no share"},
             {a + " 0.5", "got the tenant \"0.5\""},
             {a + " none", "got the tenant \"none\""},
             {b + " other", "bbbb\" again, expected each once"}}) {
        const std::string text = b + " acme 0.25\n" + line + "\n";
        for (const std::string& part : {problem, std::string("clients\": line 2: got ")}) {
            check_refusal<tensafe::format_error>(part, [&] { read(text); });
        }
    }
    check_refusal<tensafe::format_error>(
        "line 2: got the share \"0.25\" of the tenant \"acme\", expected none",
        [&] { read(a + " acme none\n" + b + " acme 0.25"); });
    has_marks = false;
    CHECK(read(a + " acme") == split::client_list{{a, {"acme"}}});
    check_refusal<tensafe::format_error>(
        "line 2: got the share \"0.1\" of the tenant \"acme\", expected --mark-key",
        [&] { read(b + "\n" + a + " acme 0.1"); });
    check_refusal<tensafe::io_error>("regular", [&] { split::read_client_list(folder.path(), true); });
}

TEST_CASE("a certificate is made once, used again, and refused when it is expired or half of it is gone") {
    const temporary_directory folder;
    const auto now = std::chrono::system_clock::now();
    const split::tls_files made = split::prepare_certificate(folder.path(), {"split.example"}, now);
    CHECK(made.fingerprint.size() == 64);
    CHECK(made.not_after == std::chrono::system_clock::to_time_t(now) + 365 * 24 * 3600);
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
             {"is not for --host \"" + std::string(host), std::string(". Copy both from another server")}) {
            check_refusal<tensafe::format_error>(part, [&] { prepare(now, {host}); });
        }
    }
    check_refusal<tensafe::format_error>("expired. Copy both from another server",
                                         [&] { prepare(now + 24h * 366); });
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
        return std::pair(split::net::tls_exporter(client.get()), split::net::tls_exporter(server.get()));
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
    CHECK(log->lost() >= number_after(after, "count"));  // more may be lost since
    fill();
    const auto began = std::chrono::steady_clock::now();
    log.reset();
    CHECK(std::chrono::steady_clock::now() - began < 10s);
}

TEST_CASE("with signers a server reads adapters alone that one of them signed under their name") {
    using tensafe::keystore::signing_key;
    const temporary_directory folder;
    std::filesystem::copy(std::filesystem::path(TENSAFE_TEST_DATA) / "qwen_rank32", folder.path(),
                          std::filesystem::copy_options::recursive);
    const signing_key first = signing_key::generate();
    const signing_key second = signing_key::generate();
    server anybodys;
    server s({}, [&](auto& options) { options.signers = {first.verifying(), second.verifying()}; });
    const auto reads = [&](const char* name) {
        const auto from = split::any_folder();
        return s.of->read_adapter(name, *from, folder.path()).sites.size() ==
               anybodys.of->read_adapter(name, *from, folder.path()).sites.size();
    };
    const auto refuses = [&](const char* name) {
        return refusal<tensafe::signature_error>([&] { reads(name); });
    };
    CHECK(contains(refuses("qwen"), "is not signed"));
    sign_adapter(folder.path(), second, "qwen");
    CHECK(reads("qwen"));
    CHECK(contains(refuses("other"), "is signed under the name \"qwen\""));
    sign_adapter(folder.path(), signing_key::generate(), "qwen");
    CHECK(contains(refuses("qwen"), "which is not among the 2"));
    sign_adapter(folder.path(), first, "qwen");
    std::ofstream(folder.path() / "adapter_config.json", std::ios::app) << "\n";
    CHECK(contains(refuses("qwen"), "does not fit"));
}
