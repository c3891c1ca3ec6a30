// Adapters in object storage that answers as it likes. tests/service/object_storage has a server that
// verifies signatures.
#include "../../../service/fleet/s3_adapters.hpp"

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "../../io/file_builder.hpp"

using namespace tests;
using namespace std::chrono_literals;
using tensafe::io_error;
using tensafe::parameter_error;

namespace {

using variables = std::map<std::string, std::string>;

/// With these variables of the environment and no others that matter.
split::s3_adapters opened(const std::string& root, const variables& of = {}) {
    for (const char* const name : {"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID",
                                   "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"}) {
        static_cast<void>(::unsetenv(name));
    }
    for (const auto& [name, value] : of) {
        static_cast<void>(::setenv(name.c_str(), value.c_str(), 1));
    }
    return split::s3_adapters(root);
}

std::string answer_of(const std::string& status, const std::string& body, const std::string& headers = {}) {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
           "\r\n" + body;
}
std::string problem(const std::string& status, const std::string& code) {
    return answer_of(status,
                     "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>m</Message></Error>");
}

/// A server of one connection after the other, which gives each request the answer of its target, and then
/// closes.
class storage {
  public:
    std::map<std::string, std::string> answers;
    std::size_t repeated = 0;           ///< so many times a chunk follows each answer
    std::atomic<std::size_t> sent = 0;  ///< of these, for the last request
    bool is_silent = false;

    storage() {
        acceptor_.non_blocking(true);
        thread_ = std::jthread([this](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
                boost::system::error_code none;
                boost::asio::ip::tcp::socket with(context_);
                acceptor_.accept(with, none);
                if (none) {
                    std::this_thread::sleep_for(1ms);
                } else {
                    with.non_blocking(false);
                    talk(with, stop);
                }
            }
        });
    }

    variables here() const {
        return {
            {"AWS_ENDPOINT_URL", "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port())}};
    }
    std::vector<std::string> requests() {
        const std::lock_guard lock(mutex_);
        return requests_;
    }

  private:
    void talk(boost::asio::ip::tcp::socket& with, const std::stop_token& stop) {
        boost::system::error_code none;
        boost::asio::streambuf heard;
        boost::asio::read_until(with, heard, "\r\n\r\n", none);
        const std::string request(static_cast<const char*>(heard.data().data()), heard.size());
        {
            const std::lock_guard lock(mutex_);
            requests_.push_back(request);
        }
        while (is_silent && !stop.stop_requested()) {
            std::this_thread::sleep_for(1ms);
        }
        const std::size_t begin = request.find(' ') + 1;
        const auto found = answers.find(request.substr(begin, request.find(' ', begin) - begin));
        const std::string answer =
            found == answers.end() ? problem("404 Not Found", "NoSuchKey") : found->second;
        boost::asio::write(with, boost::asio::buffer(answer), none);
        for (sent = 0; sent < repeated && !none; ++sent) {
            boost::asio::write(with, boost::asio::buffer("1\r\nx\r\n", 6), none);
        }
    }

    boost::asio::io_context context_;
    boost::asio::ip::tcp::acceptor acceptor_{context_, {boost::asio::ip::make_address("127.0.0.1"), 0}};
    std::mutex mutex_;
    std::vector<std::string> requests_;
    std::jthread thread_;
};

struct with_storage {
    storage there;
    /// What is said of an adapter whose configuration is this answer.
    std::string said(const std::string& answer) {
        there.answers["/models/a/q/adapter_config.json"] = answer;
        return refusal<io_error>(
            [&] { static_cast<void>(opened("s3://models/a", there.here()).read("q", nullptr, {})); });
    }
};

}  // namespace

TEST_CASE("buckets, endpoints and keys that are none are refused, and secrets are not told") {
    for (const char* const root : {"s3://models", "s3://models/", "s3://my.models-2/a/b c/"}) {
        CHECK_NOTHROW(opened(root));
    }
    for (const char* const root :
         {"s3://", "s3:///a", "s3://a b", "s3://models//a", "s3://models/../a", "s3://m?x", "s4://m"}) {
        CHECK(contains(refusal<parameter_error>([&] { opened(root); }), "expected s3://BUCKET"));
    }
    const auto refused = [](const variables& of) {
        return refusal<parameter_error>([&] { opened("s3://models", of); });
    };
    for (const char* const url : {"https://s3.example.org", "https://s3.example.org:9000/a/",
                                  "http://127.0.0.1:9000", "http://localhost", "http://[::1]:9000/"}) {
        CHECK_NOTHROW(opened("s3://models", {{"AWS_ENDPOINT_URL", url}}));
    }
    for (const char* const url :
         {"http://10.0.0.1:9000", "http://localhost.example.org", "http://127.0.0.1@example.org",
          "https://a:b@example.org", "https://example.org?a", "ftp://example.org", "example.org"}) {
        CHECK(contains(refused({{"AWS_ENDPOINT_URL", url}}), "AWS_ENDPOINT_URL: got "));
    }
    CHECK(contains(refused({{"AWS_REGION", "eu west"}}), "AWS_REGION: got \"eu west\""));
    for (const auto& half :
         {variables{{"AWS_ACCESS_KEY_ID", "KEY"}}, variables{{"AWS_SECRET_ACCESS_KEY", "whisper"}},
          variables{{"AWS_ACCESS_KEY_ID", "KEY"},
                    {"AWS_SECRET_ACCESS_KEY", "whisper"},
                    {"AWS_SESSION_TOKEN", "t"}}}) {
        CHECK(contains(refused(half), "expected a key that does not expire and its secret"));
        CHECK_FALSE(contains(refused(half), "whisper"));
    }
}

TEST_CASE_FIXTURE(with_storage,
                  "directories that are not below the prefix are refused before anybody is asked") {
    const auto source = opened("s3://models/a", there.here());
    CHECK_NOTHROW(source.check("b/c d=e\u00e9"));
    for (const std::string& bad : std::initializer_list<std::string>{
             "", "/", "/b", "b/", "b//c", "..", "b/../c", "./b", "b\nc", "b\x80", std::string(513, 'b')}) {
        CHECK(contains(refusal<parameter_error>([&] { source.check(bad); }), "directory: got "));
        CHECK(contains(refusal<parameter_error>([&] { static_cast<void>(source.read(bad, nullptr, {})); }),
                       "directory: got "));
    }
    CHECK(there.requests().empty());
}

TEST_CASE_FIXTURE(with_storage,
                  "an adapter is read by the names of its files, and signed for if there is a key") {
    const std::filesystem::path folder = std::filesystem::path(TENSAFE_TEST_DATA) / "qwen_rank32";
    const std::string stem = "/models/a%20%2B/v%3D1%25%3F/";
    for (const char* const name : {"adapter_config.json", "adapter_model.safetensors"}) {
        there.answers[stem + name] = answer_of("200 OK", text_of(folder / name));
    }
    CHECK_FALSE(opened("s3://models/a +", there.here()).read("v=1%?", nullptr, {}).sites.empty());
    variables with_key = there.here();
    with_key.insert(
        {{"AWS_ACCESS_KEY_ID", "KEYID"}, {"AWS_SECRET_ACCESS_KEY", "whisper"}, {"AWS_REGION", "eu-west-3"}});
    CHECK_FALSE(opened("s3://models/a +", with_key).read("v=1%?", nullptr, {}).sites.empty());
    const auto asked = there.requests();
    REQUIRE(asked.size() == 4);
    for (std::size_t i = 0; i < asked.size(); ++i) {
        CHECK(asked[i].starts_with("GET " + stem +
                                   (i % 2 == 0 ? "adapter_config.json " : "adapter_model.safetensors ")));
        CHECK(contains(asked[i], "Authorization: AWS4-HMAC-SHA256 Credential=KEYID/") == (i >= 2));
        CHECK(contains(asked[i],
                       "/eu-west-3/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date") ==
              (i >= 2));
        CHECK_FALSE(contains(asked[i], "whisper"));
    }
}

TEST_CASE_FIXTURE(with_storage, "an adapter that must be signed is, or it is refused") {
    const temporary_directory folder;
    std::filesystem::copy(std::filesystem::path(TENSAFE_TEST_DATA) / "qwen_rank32", folder.path(),
                          std::filesystem::copy_options::recursive);
    const auto key = tensafe::keystore::signing_key::generate();
    tensafe::keystore::sign_adapter(folder.path(), key, "q");
    const tensafe::keystore::signature_policy policy{.trusted = {key.verifying()}, .name = "q"};
    const auto source = opened("s3://models", there.here());
    const auto put = [&](const std::string& name, const std::string& more = {}) {
        there.answers["/models/q/" + name] = answer_of("200 OK", text_of(folder.path() / name) + more);
    };
    const auto refused = [&] {
        return refusal<tensafe::signature_error>([&] { static_cast<void>(source.read("q", &policy, {})); });
    };
    put("adapter_config.json");
    put("adapter_model.safetensors");
    CHECK_FALSE(source.read("q", nullptr, {}).sites.empty());
    CHECK(contains(refused(), "is not signed"));
    put("adapter_signature.json");
    CHECK_FALSE(source.read("q", &policy, {}).sites.empty());
    put("adapter_config.json", " ");
    CHECK(contains(refused(), "does not fit"));
}

TEST_CASE_FIXTURE(with_storage,
                  "an answer that is not the whole object is an error that says where and what") {
    const std::string url = "/models/a/q/adapter_config.json\": ";
    for (const auto& each : std::map<std::string, std::string>{
             {problem("404 Not Found", "NoSuchKey"), "is not there"},
             {answer_of("404 Not Found", ""), "is not there"},
             {problem("404 Not Found", "NoSuchBucket"), "got the HTTP status 404 NoSuchBucket, expected 200"},
             {problem("403 Forbidden", "AccessDenied"), "got the HTTP status 403 AccessDenied, expected 200"},
             {problem("500 Oops", "\x1b[2J"), "got the HTTP status 500, expected 200"},
             {answer_of("503 Oops", std::string(1'000'000, 'x')), "got the HTTP status 503, expected 200"},
             {answer_of("204 No Content", ""), "got the HTTP status 204, expected 200"},
             {answer_of("307 Elsewhere", "", "Location: /models/a/q/adapter_model.safetensors\r\n"),
              "got the HTTP status 307, expected 200"},
             {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"peft", "Transferred a partial file"},
             {answer_of("200 OK", std::string(1'000'001, ' ')), "got more than 1000000 bytes"},
             {"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\n", "got more than 1000000 bytes"},
             {"SSH-2.0-OpenSSH\r\n\r\n", "Unsupported protocol"},
             {"", "Server returned nothing"}}) {
        const std::string is_said = said(each.first);
        INFO("answer := ", each.first.substr(0, 200), ", said := ", is_said);
        CHECK(contains(is_said, each.second));
        CHECK(contains(is_said, url));
        CHECK_FALSE(contains(is_said, "\x1b"));
    }
    CHECK(there.requests().size() == 13);  // nothing was followed or tried again
}

TEST_CASE_FIXTURE(with_storage, "bodies without an end end at what may be read") {
    there.repeated = 2'000'000;
    CHECK(contains(said("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
                   "got more than 1000000 bytes"));
    CHECK(contains(said("HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n"),
                   "got the HTTP status 404, expected 200"));
    CHECK(there.sent < there.repeated);
}

TEST_CASE_FIXTURE(with_storage, "whoever stops waits for no storage") {
    there.is_silent = true;
    std::stop_source stop;
    const std::jthread stopping([&] {
        while (there.requests().empty()) {
            std::this_thread::sleep_for(1ms);
        }
        stop.request_stop();
    });
    CHECK_THROWS_AS(
        static_cast<void>(opened("s3://models/a", there.here()).read("q", nullptr, stop.get_token())),
        tensafe::cancelled_error);
}
