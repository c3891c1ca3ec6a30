#pragma once

#include <tensafe/core/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tensafe::serving {

/// Nothing can be reserved now: the store of several servers is away, or not all of them have told it yet
/// what they counted. Nothing was counted; later it works.
class unavailable_error : public error {
  public:
    unavailable_error(const std::string& message, std::chrono::milliseconds retry_after)
        : error(message), retry_after_(retry_after) {}
    /// The time after which it is worth asking again.
    std::chrono::milliseconds retry_after() const noexcept { return retry_after_; }

  private:
    std::chrono::milliseconds retry_after_;
};

/// A store in which several servers, each with its query_counts, count for one limit: of each row and group
/// it has one number of each server, the bits that this server ever reserved. Their sum is what the limit is
/// held against. A server's number only grows, but for `lower`, so that the larger of two is the later one,
/// and what was said twice counts once.
///
/// Thread-safe. Outlives the query_counts that uses it, of which there is one.
class shared_counts {
  public:
    /// Numbers beyond are not told apart everywhere.
    static constexpr std::uint64_t most_bits = std::uint64_t{1} << 53;

    /// What a server's own file has of a row and group.
    struct entry {
        std::string row;
        std::size_t group = 0;
        std::uint64_t journaled = 0;
        std::uint64_t asked = 0;  ///< the most that was ever wanted: up to it the store has what we know of
    };
    /// Entries in the order of their rows, of whole rows behind this one; none: that was all. Waits until the
    /// file has what was granted before.
    using entries_after = std::function<std::vector<entry>(const std::string& row)>;

    struct claim {
        entry of;
        std::uint64_t least = 0;          ///< that somebody waits for: nothing is granted if it does not fit
        std::uint64_t wanted = 0;         ///< at most this is granted
        std::uint64_t limit = most_bits;  ///< of all servers
    };
    struct grant {
        std::uint64_t granted = 0;  ///< the server's number now
        std::uint64_t others = 0;   ///< the sum of the others'
        /// The number was so much larger than the file knows: counted by a server that lost its file. It
        /// came on top of `least` and `wanted`.
        std::uint64_t lost = 0;
    };

    virtual ~shared_counts() = default;

    /// The key under which all servers name their rows, of 32 bytes.
    virtual std::span<const std::byte> key() const noexcept = 0;
    /// Joins the other servers. From now on the store is told all entries whenever it may have lost some.
    /// @param server  32 hexadecimal digits that no other server has
    /// @throws error if another server that is running has them
    virtual void begin(const std::string& server, entries_after entries) = 0;
    /// Leaves them: no entries are asked for any more. Nothing, if it was called before.
    virtual void end() noexcept = 0;
    /// Reserves for all of them at once, in the store alone: the file comes next.
    /// @throws unavailable_error; up to `wanted` may be reserved then, which the next call finds
    virtual std::vector<grant> reserve(std::span<const claim> claims) = 0;
    /// Lowers this server's numbers to what is journaled, but none that is larger than was asked for.
    /// @throws unavailable_error
    virtual void lower(std::span<const entry> entries) = 0;
    /// Returns how many servers run, as last heard; at least 1.
    virtual std::size_t servers() const noexcept = 0;
    /// Returns whether it can be asked, as far as is known.
    virtual bool is_up() const noexcept = 0;
};

}  // namespace tensafe::serving
