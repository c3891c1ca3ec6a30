#pragma once

#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace split {

/// How many hidden states each client asked about each group of each adapter: what query limits stand on.
///
/// Names are kept only as HMAC-SHA-256 under a key of this server, so that a client that is forgotten keeps
/// its count and nobody who has the file alone can tell whose it is. Survives a restart in two files:
/// `key`, made once, and `counts`. What was counted after the last `save` is lost with the process.
///
/// Thread-safe by one lock; `save` writes outside it.
class query_counts {
  public:
    /// Numbers that are kept, at most, of all clients, adapters and groups: 8 bytes each, and 20 in the
    /// file.
    static constexpr std::size_t most_numbers = std::size_t{1} << 20;
    /// Of each client and adapter.
    static constexpr std::size_t most_groups = 4'096;

    /// Reads what is there.
    /// @throws tensafe::io_error, format_error for files that are not ours or were changed: a count that is
    ///         lost is a limit that is lost, so that nothing is begun anew by itself
    explicit query_counts(std::filesystem::path folder);

    enum class outcome { counted, limit_reached, no_room };

    /// Counts one, unless `limit` are counted already.
    outcome add(std::string_view client, std::string_view adapter, std::size_t group, std::size_t groups,
                std::optional<std::uint64_t> limit);
    /// Takes it back: it was not answered.
    void take_back(std::string_view client, std::string_view adapter, std::size_t group);
    /// What was counted of the group that was asked most.
    std::uint64_t most_of(std::string_view client, std::string_view adapter) const;

    /// Writes the counts if they changed since the last time.
    /// @return whether they had
    /// @throws tensafe::io_error; they still count as changed
    bool save();

  private:
    std::string name_of(std::string_view client, std::string_view adapter) const;
    void read(std::string_view text);
    std::string text() const;

    std::filesystem::path folder_;
    tensafe::memory::secret_buffer<std::byte> key_;
    mutable std::mutex mutex_;
    std::map<std::string, std::vector<std::uint64_t>, std::less<>> counts_;  // by hex of the hash
    std::size_t numbers_ = 0;
    std::uint64_t changes_ = 0;
    std::uint64_t saved_ = 0;
    std::mutex saving_;
};

}  // namespace split
