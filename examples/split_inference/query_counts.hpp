#pragma once

#include <tensafe/keystore/private_file.hpp>
#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace split {

/// How many hidden states each client asked about each group of each adapter: what query limits stand on.
///
/// Names are kept only as HMAC-SHA-256 under a key of this server, so that a client that is forgotten keeps
/// its count and nobody who has the file alone can tell whose it is. Survives a restart in two files:
/// `usage_key`, made once, and `usage`. What was counted after the last `save` is lost with the process.
///
/// Only what was asked takes memory: a row for each client and adapter, in it a number for each group.
///
/// Thread-safe by one lock; `save` writes outside it.
class query_counts {
  public:
    /// At most, of all clients and adapters.
    static constexpr std::size_t most_rows = std::size_t{1} << 16;
    /// At most, of all rows.
    static constexpr std::size_t most_numbers = std::size_t{1} << 20;

    /// What is done for a client or group that there is no room for.
    enum class when_full {
        evict,  ///< the rows with the smallest largest numbers make room: their clients begin anew
        refuse
    };

    /// Reads what is there, and holds the folder for itself (flock) as long as this lives.
    /// @throws tensafe::io_error, also if another process or object holds the folder; format_error for files
    ///         that are not ours or were changed, or one without the other: a count that is lost is a limit
    ///         that is lost, so that nothing is begun anew by itself
    explicit query_counts(std::filesystem::path folder, when_full full = when_full::refuse);

    enum class outcome { counted, limit_reached, no_room };

    /// Counts one, unless `limit` are counted already. What is not counted leaves nothing.
    outcome add(std::string_view client, std::string_view adapter, std::size_t group,
                std::optional<std::uint64_t> limit);
    /// Takes it back: it was not answered.
    void take_back(std::string_view client, std::string_view adapter, std::size_t group);
    /// What was counted of the group that was asked most.
    std::uint64_t most_of(std::string_view client, std::string_view adapter) const;
    /// Clients and adapters that are counted.
    std::size_t rows() const;

    /// Writes the counts if they changed since the last time.
    /// @return whether they had
    /// @throws tensafe::io_error; they still count as changed
    bool save();

  private:
    using row = std::map<std::size_t, std::uint64_t>;  // by group; none is empty or has a zero

    std::string name_of(std::string_view client, std::string_view adapter) const;
    void read(std::string_view text);
    std::string text() const;
    void evict();

    std::filesystem::path folder_;
    tensafe::keystore::detail::owned_descriptor lock_;
    when_full full_;
    tensafe::memory::secret_buffer<std::byte> key_;
    mutable std::mutex mutex_;
    std::map<std::string, row, std::less<>> counts_;  // by hex of the hash
    std::size_t numbers_ = 0;
    std::uint64_t changes_ = 0;
    std::uint64_t saved_ = 0;
    std::mutex saving_;
};

}  // namespace split
