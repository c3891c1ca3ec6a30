#pragma once

#include <tensafe/memory/buffer.hpp>
#include <tensafe/serving/shared_counts.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "../log.hpp"
#include "redis.hpp"

namespace split {

struct redis_counts_options {
    redis_address store;
    tensafe::memory::secret_buffer<std::byte> key;  ///< of the fleet, 32 bytes
    /// Rows of clients are forgotten a day, and of tenants 30 days, after something was reserved in them: for
    /// servers where anybody may come.
    bool rows_expire = false;
    log to;
    std::chrono::milliseconds step_limit{1'000};  ///< for the store to answer
    std::chrono::milliseconds renewal{1'000};     ///< how often a server says that it runs
    std::chrono::milliseconds lease{10'000};      ///< how long that holds
    std::chrono::milliseconds settling{2'000};  ///< before a new history is granted anything: all have looked
};

/// Counts of several servers in Redis. A thread says every second that this server runs, and tells all
/// entries to a store that may have lost some: its history is another one then. As long as a server that runs
/// has not done so, nobody is granted anything.
///
/// While the store is away it is this thread alone that waits for it: reservations fail at once.
///
/// The keys begin with "tensafe:" and a hash of the fleet's key. `history` is made anew by who finds none;
/// `servers` has for each what it calls itself since its start, until when it counts as running, and the
/// history that it told its entries to. Of each row and group there is a hash of all servers' numbers.
class redis_counts final : public tensafe::serving::shared_counts {
  public:
    explicit redis_counts(redis_counts_options options);
    ~redis_counts() override { end(); }

    std::span<const std::byte> key() const noexcept override {
        return {options_.key.data(), options_.key.size()};
    }
    /// Also where there is no store yet. Waits for the lease of a server that died with this name.
    void begin(const std::string& server, entries_after entries) override;
    void end() noexcept override;
    std::vector<grant> reserve(std::span<const claim> claims) override;
    void lower(std::span<const entry> entries) override;
    std::size_t servers() const noexcept override { return servers_; }
    bool is_up() const noexcept override { return is_up_; }

    /// This server's name, as of begin.
    const std::string& server() const noexcept { return id_; }
    /// Runs a script over the same connection, behind what all have in common: see redis_counts.cpp.
    /// @param keys  without what all keys begin with
    /// @return its texts
    /// @throws unavailable_error
    std::vector<std::string> ask(const std::string& script, const std::vector<std::string>& keys,
                                 const std::vector<std::string>& values);

  private:
    void attend(const std::stop_token& stop);
    void renew();
    std::string renew_lease();
    void replay();
    std::uint64_t tell(std::span<const entry> entries, bool lowers);
    redis_reply call(std::string_view script, const std::vector<std::string>& keys,
                     const std::vector<std::string>& values);
    std::string key_of(const entry& of) const;
    std::string life_of(const entry& of) const;
    void lost(const char* why, bool wakes = false);

    redis_counts_options options_;
    std::string prefix_;
    std::string id_;
    std::string boot_;  ///< drawn at the start
    entries_after entries_;
    std::atomic<bool> is_up_{false};
    std::atomic<std::size_t> servers_{1};

    std::mutex call_;  // of all below
    std::optional<redis_connection> connection_;
    std::string history_;  ///< that all entries were told to; empty: to none, or not to all yet
    std::string last_history_;
    std::uint64_t beat_ = 0;           ///< the store counts renewals
    std::vector<std::string> others_;  ///< that run: each, and what it calls itself
    std::string taken_until_;          ///< by another server with this name
    std::string problem_;              ///< that was logged

    std::mutex wait_;
    bool is_woken_ = false;
    std::condition_variable_any wake_;
    std::jthread thread_;
};

}  // namespace split
