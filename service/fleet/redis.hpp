#pragma once

#include <tensafe/core/error.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct redisContext;
struct redisReply;

namespace split {

/// A Redis server: which one, and who we are there.
struct redis_address {
    /// Of the server; of sentinels that know it, if there is a `master`.
    std::vector<std::pair<std::string, std::uint16_t>> hosts;
    std::string master = {};
    bool is_secure = false;  ///< TLS, by the system's certificates
    std::string user = {};
    std::string password = {};  ///< none, if it is empty
    int database = 0;

    /// Reads redis://[USER@]HOST:PORT[/DATABASE], rediss:// for TLS, or
    /// sentinel://[USER@]HOST:PORT,HOST:PORT/MASTER[/DATABASE]. HOST may be IPv6 in brackets.
    /// @throws parameter_error for any other text, unsupported_error for TLS where this build has none
    static redis_address parse(std::string_view text);
};

/// The server cannot be reached, or refuses.
struct redis_error : tensafe::error {
    using tensafe::error::error;
};

/// It answers, but not what was asked: the connection is as good as before.
struct redis_refusal : redis_error {
    using redis_error::redis_error;
};

struct redis_deleter {
    void operator()(redisContext* of) const noexcept;
    void operator()(redisReply* of) const noexcept;
};
using redis_reply = std::unique_ptr<redisReply, redis_deleter>;

/// A connection to one Redis server that takes writes. For one thread at a time; of no use any more after an
/// error.
class redis_connection {
  public:
    /// Connects and logs in; asks the sentinels where, if there are some.
    /// @param limit  of each step
    /// @throws redis_error
    redis_connection(const redis_address& to, std::chrono::milliseconds limit);

    /// @return what is no error
    /// @throws redis_error, for an error of the server too
    redis_reply command(const std::vector<std::string>& words);

  private:
    void open(const std::string& host, std::uint16_t port, bool is_secure, std::chrono::milliseconds limit);
    void find_master(const redis_address& to, std::chrono::milliseconds limit);

    std::unique_ptr<redisContext, redis_deleter> context_;
};

}  // namespace split
