#pragma once

#include <tensafe/io/private_file.hpp>
#include <tensafe/memory/buffer.hpp>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "limits.hpp"

namespace split {

/// Holds a state folder for one server (flock) as long as the result lives.
/// @throws tensafe::io_error, also if another process or object holds it
tensafe::io::owned_descriptor lock_folder(const std::filesystem::path& folder);

/// How many bits of each group of each adapter were asked for: by each client, by each tenant, by all. What
/// query limits stand on.
///
/// Names are kept only as HMAC-SHA-256 under a key of this server, so that a client that is forgotten keeps
/// its count and nobody who has the file alone can tell whose it is. Survives a restart in two files:
/// `usage_key`, made once, and `usage`.
///
/// Nothing is counted beyond what `usage` has as reserved, forced to the device: after a crash the reserved
/// numbers are the counts, a chunk too many at most, none too few. A thread of its own reserves the next
/// chunk when half of the last one is used up; a request that finds nothing left reserves it itself, and
/// waits for the device.
///
/// Only what was asked takes memory: a row for each adapter, and each client and tenant of it, in it a number
/// for each group. A request that failed leaves a zero and what was reserved.
///
/// Thread-safe. Only numbers are looked up and added under the lock that requests share.
class query_counts {
  public:
    /// At most, of all scopes.
    static constexpr std::size_t most_rows = std::size_t{1} << 16;
    /// At most, of all rows.
    static constexpr std::size_t most_numbers = std::size_t{1} << 20;

    /// What is done for a client or group that there is no room for.
    enum class when_full {
        evict,  ///< rows of clients, then of tenants, with the smallest largest numbers make room: these
                ///< begin anew
        refuse
    };

    /// Reads what is there, and holds the folder for itself (lock_folder) as long as this lives.
    /// Removes what a process left that died while it wrote, and goes on with a first start that was not
    /// finished.
    /// @throws tensafe::io_error, also if another process or object holds the folder; format_error for files
    ///         that are not ours or were changed, or one without the other: a count that is lost is a limit
    ///         that is lost, so that nothing is begun anew by itself
    explicit query_counts(std::filesystem::path folder, when_full full = when_full::refuse);

    /// The rows that one client's requests to one adapter count in, by scope.
    using account = std::array<std::string, 3>;
    /// @param client  64 hexadecimal digits
    /// @param tenant  empty: the client is one of its own, and its row is the tenant's too
    account account_of(std::string_view client, std::string_view tenant, std::string_view adapter) const;

    struct outcome {
        enum { counted, limit_reached, no_room } what = counted;
        scope of = scope::client;  ///< the first whose limit was reached
        std::uint64_t bits = 0;    ///< that it would have counted then

        friend bool operator==(const outcome&, const outcome&) = default;
    };

    /// How many bits are reserved at once: a 32nd of the limit, one request at least, 64 where there is no
    /// limit.
    static std::uint64_t chunk(std::uint64_t bits, const std::optional<std::uint64_t>& limit);

    /// Counts the bits in all rows, or in none if one would pass its limit. What is not counted leaves
    /// nothing.
    /// @param counts  false: says whether a limit would be passed, and counts nothing
    /// @throws tensafe::io_error if nothing is reserved any more and no more can be; nothing is counted then
    outcome add(const account& rows, std::size_t group, std::uint64_t bits,
                const of_each_scope<std::uint64_t>& limits, bool counts = true);
    /// Takes them back: they were not answered.
    void take_back(const account& rows, std::size_t group, std::uint64_t bits) noexcept;
    /// What was counted, by scope.
    std::array<std::uint64_t, 3> used(const account& rows, std::size_t group) const;
    std::size_t rows() const;

    /// Writes the counts as they are instead of what is reserved, and reserves nothing ahead any more: for
    /// the end.
    /// @throws tensafe::io_error; what was reserved still is
    void save();

  private:
    struct number {
        std::uint64_t count = 0;
        std::uint64_t reserved = 0;  ///< of it, in the file
    };
    using row = std::map<std::size_t, number>;  // by group
    using place = std::pair<std::string, std::size_t>;

    std::size_t read(std::string_view text);
    bool read_rows(std::string_view text);
    number& at(const std::string& name, std::size_t group);
    bool evict();
    void reserve();
    void reserve_ahead(const std::stop_token& stop);
    void rewrite(bool exact);

    std::filesystem::path folder_;
    tensafe::io::owned_descriptor lock_;
    when_full full_;
    tensafe::memory::secret_buffer<std::byte> key_;

    mutable std::mutex mutex_;
    std::map<std::string, row, std::less<>> counts_;  // by letter of the scope and hex of the hash
    std::size_t numbers_ = 0;
    std::map<place, std::uint64_t> wanted_;  // to be reserved; more than is
    bool has_work_ = false;                  // for the thread
    std::condition_variable_any work_;

    std::mutex disk_;  // before mutex_; of all below
    tensafe::io::owned_descriptor usage_{-1};
    std::size_t length_ = 0;
    std::uint32_t sum_ = 0;
    std::size_t longest_ = 0;  // then it is written anew

    std::jthread ahead_;
};

}  // namespace split
