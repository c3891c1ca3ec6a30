#pragma once

#include <tensafe/keystore/private_file.hpp>
#include <tensafe/memory/buffer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "limits.hpp"

namespace split {

/// How many bits of each group of each adapter were asked for: by each client, by each tenant, by all. What
/// query limits stand on.
///
/// Names are kept only as HMAC-SHA-256 under a key of this server, so that a client that is forgotten keeps
/// its count and nobody who has the file alone can tell whose it is. Survives a restart in two files:
/// `usage_key`, made once, and `usage`. What was counted after the last `save` is lost with the process.
///
/// Only what was asked takes memory: a row for each adapter, and each client and tenant of it, in it a number
/// for each group.
///
/// Thread-safe by one lock; `save` writes outside it.
class query_counts {
  public:
    /// At most, of all scopes.
    static constexpr std::size_t most_rows = std::size_t{1} << 16;
    /// At most, of all rows.
    static constexpr std::size_t most_numbers = std::size_t{1} << 20;

    /// What is done for a client or group that there is no room for.
    enum class when_full {
        evict,  ///< rows of clients with the smallest largest numbers make room: these begin anew
        refuse
    };

    /// Reads what is there, and holds the folder for itself (flock) as long as this lives.
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

    /// Counts the bits in all rows, or in none if one would pass its limit. What is not counted leaves
    /// nothing.
    outcome add(const account& rows, std::size_t group, std::uint64_t bits,
                const of_each_scope<std::uint64_t>& limits);
    /// Takes them back: they were not answered.
    void take_back(const account& rows, std::size_t group, std::uint64_t bits);
    /// What was counted, by scope.
    std::array<std::uint64_t, 3> used(const account& rows, std::size_t group) const;
    std::size_t rows() const;

    /// Writes the counts if they changed since the last time.
    /// @return whether they had
    /// @throws tensafe::io_error; they still count as changed
    bool save();

  private:
    using row = std::map<std::size_t, std::uint64_t>;  // by group; none is empty or has a zero

    void read(std::string_view text);
    std::string text() const;
    std::uint64_t count_of(const std::string& name, std::size_t group) const;
    bool evict();

    std::filesystem::path folder_;
    tensafe::keystore::detail::owned_descriptor lock_;
    when_full full_;
    tensafe::memory::secret_buffer<std::byte> key_;
    mutable std::mutex mutex_;
    std::map<std::string, row, std::less<>> counts_;  // by letter of the scope and hex of the hash
    std::size_t numbers_ = 0;
    std::uint64_t changes_ = 0;
    std::uint64_t saved_ = 0;
    std::mutex saving_;
};

}  // namespace split
