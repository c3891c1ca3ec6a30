#pragma once

#include <chrono>
#include <string>

namespace split::net {

/// A request that is no WebSocket upgrade.
struct http_request {
    std::string method;         ///< "GET", ...
    std::string target;         ///< as it was sent: "/healthz"
    std::string authorization;  ///< the header's value; empty if there is none
    std::string body;
    std::string address;  ///< of the peer
};

struct http_response {
    unsigned status = 200;
    std::string body;
    std::string content_type = "text/plain; charset=utf-8";
    /// How long it may be given to whoever reads the same target, in place of a fresh one.
    std::chrono::milliseconds good_for{0};
};

}  // namespace split::net
