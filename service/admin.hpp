#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/connection.hpp"
#include "service.hpp"

namespace split {

/// What is asked over HTTP: /healthz by anybody, /admin/ with the token of a file, /metrics with that or its
/// own.
///
/// Thread-safe.
class admin {
  public:
    /// @param of    outlives this
    /// @param state where `admin_token` and `metrics_token` are, made if not there: 64 hexadecimal digits,
    ///              mode 0600
    /// @param from  what adapters are loaded from; never null
    /// @param token_stays_secret  whether nobody on the way sees what is sent: TLS, or this machine alone. If
    ///                            not, both are refused
    /// @param drain  begins to end the program, and returns at once
    /// @throws tensafe::io_error or format_error for a token file that is not ours
    admin(
        service& of, const std::filesystem::path& state, std::shared_ptr<const adapter_source> from,
        bool token_stays_secret = true, std::function<void()> drain = [] {});
    admin(const admin&) = delete;
    admin& operator=(const admin&) = delete;

    net::http_response answer(const net::http_request& request);

  private:
    bool is_allowed(const net::http_request& request) const;
    net::http_response administer(const net::http_request& request);
    net::http_response list() const;
    net::http_response begin_load(const std::string& name, const std::string& body);
    net::http_response remove(const std::string& name);
    net::http_response give_back(const std::string& name, const net::http_request& request);

    service& of_;
    const std::shared_ptr<const adapter_source> from_;
    const bool token_stays_secret_;
    const std::function<void()> drain_;
    std::atomic<bool> drained_ = false;
    std::string token_digest_;
    std::string metrics_digest_;
};

}  // namespace split
