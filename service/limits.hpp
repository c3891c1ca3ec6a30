#pragma once

#include <tensafe/serving/query_limits.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace split {

using time_point = std::chrono::steady_clock::time_point;
/// What the service takes the time from, so that a test can set it.
using clock_function = std::function<time_point()>;

using tensafe::serving::of_each_scope;
using tensafe::serving::scope;
inline constexpr std::array<const char*, 3> share_options{"--client-share", "--tenant-share",
                                                          "--adapter-share"};

/// What replies may tell of the A of an input, as a part of its bits; nothing: there is no limit.
using share_limit = std::optional<double>;

inline constexpr const char* expected_share = "expected a number above 0, at most 1000, or none";
/// Reads a share as options and lists have it. Nothing: it is not what is expected.
std::optional<share_limit> share_of(std::string_view text);
std::string text_of_share(const share_limit& share);

/// How much a client may ask for. docs/service.md says what each is for.
struct limits {
    /// What may be read of the A of each group: bits of answers over the entropy of A.
    of_each_scope<double> shares{0.25, 0.5, 1.0};
    double requests_per_second = 5'000;  ///< of one client; as many at once
    double work_per_second = 1'000;      ///< of one client, in ms of computing; as much at once
    double handshakes_per_second = 20;   ///< of one address, or of the first 64 bits of one of IPv6
    double handshakes_at_once = 200;
    std::size_t sessions = 1'000;
    std::size_t sessions_of_client = 4;
    std::chrono::milliseconds session_life = std::chrono::minutes(2);   ///< after its connection is lost
    std::chrono::milliseconds session_idle = std::chrono::minutes(10);  ///< without a request, whatever else
    /// Of a session after its version of the adapter was replaced or removed.
    std::chrono::milliseconds retired_life = std::chrono::minutes(5);
    std::size_t largest_message = std::size_t{2} << 20;  ///< bytes
    int refused_in_a_row = 64;                           ///< then the connection closes
    /// Encryptions of zero that are made ahead, of 70 KB: for each kind of request of a session, and for all
    /// together.
    std::size_t pool_of_session = 16;
    std::size_t pooled = 1'024;
    std::size_t tokens_ahead = 38;  ///< of a block, as many as protect A; 1: there are no blocks
    bool column_scales = false;     ///< as in lora::model_options
    /// For blocks that are not used up, and replies kept to be sent again, of all sessions; a sixteenth of it
    /// for those of one address.
    std::size_t block_bytes = std::size_t{256} << 20;
    /// Of packed A's with a tenant's marks each, where there is a key of marks; 0: marks are in B alone.
    std::size_t mark_bytes = 0;
    std::size_t block_bytes_of_address() const noexcept { return block_bytes / 16; }
    /// Of replies that are sent again, to one address; in a minute as much again.
    std::size_t repeated_bytes = std::size_t{64} << 20;
};

/// Pays what was taken here from buckets of a limit into those that several servers have together.
/// @param taken  by name; less than nothing was given back
/// @return what each lacks now, all servers together
/// @throws tensafe::error while they cannot be asked
using shared_buckets = std::function<std::vector<double>(
    std::string_view limit, double per_second, std::span<const std::pair<std::string, double>> taken)>;

/// Token buckets by name: each lets `at_once` through at once, and `per_second` for ever. Remembers so many
/// names at most; those beyond it share one bucket, so that a crowd of names cannot take memory.
/// Thread-safe by one lock.
class rate_limiter {
  public:
    /// @param per_second  above 0
    rate_limiter(double per_second, double at_once, std::size_t most_names = 10'000);

    /// Takes one from the bucket of this name.
    /// @return zero if there was one; else nothing is taken, and this is how long to wait for it, at least
    ///         1 ms
    std::chrono::milliseconds take(std::string_view name, time_point now);

    /// Takes more, for what was let through and is over: the bucket may end below zero. Less than nothing is
    /// given back, until the bucket is full.
    void pay(std::string_view name, double more, time_point now);

    /// Pays what was taken since the last call, and takes what others took. Less than a sixteenth of a limit
    /// is not paid, at once nor as a rate: usual clients cost the store nothing. What cannot be paid now is
    /// not paid later.
    /// @throws as shared_buckets
    void share(const shared_buckets& buckets, std::string_view limit, time_point now);

    /// Drops the names whose bucket is full: they are as names that never came. Cost: a walk through all.
    void sweep(time_point now);
    std::size_t names() const;

  private:
    struct bucket {
        double left;
        time_point at;
        double untold = 0;  ///< that was taken
    };
    void refill(bucket& b, time_point now) const noexcept;
    void drop_full(time_point now);
    /// Refilled.
    bucket& bucket_of(std::string_view name, time_point now);

    const double per_second_;
    const double at_once_;
    const std::size_t most_names_;
    mutable std::mutex mutex_;
    std::map<std::string, bucket, std::less<>> buckets_;
    bucket shared_;
    std::optional<time_point> swept_;
    time_point shared_at_{};  ///< never: it is this server's alone
};

/// Of IPv4 or IPv6, without brackets and interface.
bool is_address(const std::string& text);

/// What limits of an address count under: an IPv4 address itself, also within IPv6, of another IPv6 one the
/// first 64 bits, which is what one customer has at least; any other text itself.
std::string limited_address(const std::string& address);

}  // namespace split
