#include "s3_adapters.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <curl/curl.h>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "../client_list.hpp"

namespace split {

namespace {

using tensafe::in_quotes;
using tensafe::io_error;
using tensafe::parameter_error;
using tensafe::require;

/// All files of an adapter together: they are held in memory.
constexpr std::size_t largest_adapter = std::size_t{16} << 30;
constexpr std::size_t longest_problem = 4'096;  // what is said in the place of an object

std::string escaped(std::string_view path) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string result;
    for (const char each : path) {
        if (is_plain_name({&each, 1}, 1) || each == '~' || each == '/') {
            result += each;
        } else {
            const auto byte = static_cast<unsigned char>(each);
            (result += '%') += digits[byte / 16];
            result += digits[byte % 16];
        }
    }
    return result;
}

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

bool is_endpoint(std::string_view url) {
    const auto is_at = [&](std::string_view host) {
        const std::string_view rest = url.substr(std::min(host.size(), url.size()));
        return url.starts_with(host) && (rest.empty() || rest[0] == ':' || rest[0] == '/');
    };
    return (url.starts_with("https://") || is_at("http://127.0.0.1") || is_at("http://localhost") ||
            is_at("http://[::1]")) &&
           tensafe::is_printable_utf8(url) && url.find_first_of(" @?#%\\") == url.npos;
}

/// An object, or what a server says in its place.
struct download {
    CURL* from;
    std::size_t largest;
    const std::stop_token& stop;
    std::vector<std::byte> bytes = {};

    long status() const {
        long result = 0;
        curl_easy_getinfo(from, CURLINFO_RESPONSE_CODE, &result);
        return result;
    }
    /// What the server calls its problem; empty, if that is no word.
    std::string code() const {
        constexpr std::string_view tag = "<Code>";
        std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        text.remove_prefix(std::min(text.find(tag), text.size()));
        text.remove_prefix(std::min(tag.size(), text.size()));
        text = text.substr(0, text.find('<'));
        return is_plain_name(text, 64) ? std::string(text) : std::string();
    }

    static std::size_t take(const char* data, std::size_t /*one*/, std::size_t count, void* to) noexcept {
        auto& self = *static_cast<download*>(to);
        const bool is_object = self.status() == 200;
        if (count > (is_object ? self.largest : longest_problem) - self.bytes.size()) {
            return CURL_WRITEFUNC_ERROR;
        }
        try {
            curl_off_t announced = 0;
            if (is_object && self.bytes.empty() &&
                curl_easy_getinfo(self.from, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &announced) == CURLE_OK) {
                self.bytes.reserve(static_cast<std::size_t>(std::max<curl_off_t>(announced, 0)));
            }
            const auto* const begin = reinterpret_cast<const std::byte*>(data);
            self.bytes.insert(self.bytes.end(), begin, begin + count);
        } catch (const std::bad_alloc&) {
            return CURL_WRITEFUNC_ERROR;
        }
        return count;
    }
    static int is_over(void* of, curl_off_t, curl_off_t, curl_off_t, curl_off_t) noexcept {
        return static_cast<download*>(of)->stop.stop_requested() ? 1 : 0;
    }
};

}  // namespace

s3_adapters::s3_adapters(const std::string& root)
    : key_id_(variable("AWS_ACCESS_KEY_ID")),
      secret_(variable("AWS_SECRET_ACCESS_KEY")),
      certificates_(variable("AWS_CA_BUNDLE")) {
    const auto without_slash = [](std::string text) {
        text.resize(text.size() - (text.ends_with('/') ? 1 : 0));
        return text;
    };
    const std::string path = without_slash(root.substr(std::min(root.find("://") + 3, root.size())));
    require<parameter_error>(
        root.starts_with("s3://") && is_path_below(path) && is_plain_name(path.substr(0, path.find('/')), 63),
        {"got --adapter-root ", in_quotes(root), ", expected s3://BUCKET or s3://BUCKET/PREFIX"});
    const std::string given_region = variable("AWS_REGION");
    const std::string region = given_region.empty() ? "us-east-1" : given_region;
    const std::string given = without_slash(variable("AWS_ENDPOINT_URL"));
    const std::string endpoint = given.empty() ? "https://s3." + region + ".amazonaws.com" : given;
    require<parameter_error>(is_plain_name(region, 64),
                             {"AWS_REGION: got ", in_quotes(region), ", expected a name as us-east-1"});
    require<parameter_error>(is_endpoint(endpoint),
                             {"AWS_ENDPOINT_URL: got ", in_quotes(endpoint),
                              ", expected https://HOST or https://HOST:PORT; http:// at this machine alone, "
                              "since who is on the way could change adapters"});
    require<parameter_error>(
        key_id_.empty() == secret_.empty() && variable("AWS_SESSION_TOKEN").empty(),
        {"got one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SESSION_TOKEN, expected a key that "
         "does not expire and its secret, or none"});
    base_ = endpoint + "/" + escaped(path) + "/";
    signature_ = "aws:amz:" + region + ":s3";
}

void s3_adapters::check(const std::string& directory) const {
    require<parameter_error>(
        directory.size() <= 512 && is_path_below(directory),
        {"directory: got ", in_quotes(directory),
         ", expected names between single slashes, not \".\" or \"..\", of up to 512 bytes of UTF-8"});
}

tensafe::lora::adapter s3_adapters::read(const std::string& directory,
                                         const tensafe::keystore::signature_policy* must_be,
                                         const std::stop_token& stop) const {
    check(directory);
    static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
    const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> from(curl_easy_init(), curl_easy_cleanup);
    require<io_error>(started == CURLE_OK && from != nullptr, {"cannot start libcurl"});
    const auto set = [&](CURLoption option, auto value) {
        const CURLcode done = (curl_easy_setopt)(from.get(), option, value);
        require<io_error>(done == CURLE_OK,
                          {"libcurl: option ", static_cast<int>(option), ": ", curl_easy_strerror(done)});
    };
    const bool is_secure = base_.starts_with("https:");
    std::array<char, CURL_ERROR_SIZE> problem{};
    set(CURLOPT_PROTOCOLS_STR, is_secure ? "https" : "http");
    if (!is_secure) {
        set(CURLOPT_PROXY, "");
    }
    // Of no body: libcurl 7.88 does not say it itself, but signs what is said.
    const std::string hash = tensafe::keystore::hex(tensafe::keystore::sha256::of({}));
    const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
        curl_slist_append(nullptr, ("x-amz-content-sha256: " + hash).c_str()), curl_slist_free_all);
    if (!key_id_.empty()) {
        require<io_error>(headers != nullptr, {"cannot start libcurl"});
        set(CURLOPT_HTTPHEADER, headers.get());
        set(CURLOPT_AWS_SIGV4, signature_.c_str());
        set(CURLOPT_USERNAME, key_id_.c_str());
        set(CURLOPT_PASSWORD, secret_.c_str());
    }
    if (!certificates_.empty()) {
        set(CURLOPT_CAINFO, certificates_.c_str());
    }
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, 10L);
    set(CURLOPT_LOW_SPEED_LIMIT, 1'000L);  // bytes per second
    set(CURLOPT_LOW_SPEED_TIME, 30L);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &download::is_over);
    set(CURLOPT_WRITEFUNCTION, &download::take);
    set(CURLOPT_ERRORBUFFER, problem.data());
    std::size_t left = largest_adapter;
    const std::string where = base_ + escaped(directory);
    const auto get = [&](const std::string& name,
                         std::size_t largest) -> std::optional<std::vector<std::byte>> {
        download of{from.get(), std::min(largest, left), stop};
        const std::string url = where + "/" + escaped(name);
        set(CURLOPT_URL, url.c_str());
        set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(of.largest));
        set(CURLOPT_WRITEDATA, &of);
        set(CURLOPT_XFERINFODATA, &of);
        const CURLcode done = curl_easy_perform(from.get());
        const long status = of.status();
        const std::string code = status == 200 ? "" : of.code();
        require<tensafe::cancelled_error>(done != CURLE_ABORTED_BY_CALLBACK,
                                          {in_quotes(url), ": was given up"});
        if (done == CURLE_OK && status == 404 && (code.empty() || code == "NoSuchKey")) {
            return std::nullopt;
        }
        require<io_error>(status == 200 || status == 0, {in_quotes(url), ": got the HTTP status ", status,
                                                         code.empty() ? "" : " ", code, ", expected 200"});
        require<io_error>(done != CURLE_WRITE_ERROR && done != CURLE_FILESIZE_EXCEEDED,
                          {in_quotes(url), ": got more than ", of.largest, " bytes, or than memory holds"});
        require<io_error>(done == CURLE_OK,
                          {in_quotes(url), ": ", curl_easy_strerror(done), ": ", in_quotes(problem.data())});
        left -= of.bytes.size();
        return std::move(of.bytes);
    };
    return must_be == nullptr ? tensafe::io::load_peft(where, get)
                              : tensafe::keystore::load_adapter(where, get, *must_be).adapter;
}

}  // namespace split
