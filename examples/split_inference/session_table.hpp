#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "control_message.hpp"
#include "limits.hpp"
#include "net/connection.hpp"

namespace split {

class session_evaluator;

/// A client's session: who it is, and what is kept for it. What changes is the table's.
struct session {
    std::string id;      ///< 32 digits
    std::string client;  ///< the public key, 64 digits
    frame_form frames = frame_form::binary;
    std::shared_ptr<session_evaluator> work;
};

/// The sessions of a server. Each is held by one connection, or by none for a while after that was lost. A
/// connection is a number that no other one has.
///
/// Thread-safe by one lock, under which nothing is computed; connections are ended outside it.
class session_table {
  public:
    explicit session_table(const limits& allowed) : limits_(allowed) {}

    struct opened {
        std::shared_ptr<const session> of;
        resume_token token{};
        std::uint64_t next_number = 1;
    };
    using control = std::shared_ptr<net::connection_control>;

    /// A new session. A client that has as many as it may have loses the one that is without a connection for
    /// longest.
    /// @return nothing if all that it may have are held, or the table is full
    std::optional<opened> open(session made, std::uint64_t connection, control holder, time_point now);

    /// Gives a session to another connection; one that still holds it is ended. The token is compared in
    /// constant time and is good once.
    /// @return nothing for an unknown or expired session or another token; the session is then as it was
    std::optional<opened> resume(const session_id& id, const resume_token& token, std::uint64_t connection,
                                 control holder, time_point now);

    enum class number_state { fresh, replayed, not_held };
    /// Whether a request of this number may come on this connection.
    number_state look(const session& of, std::uint64_t connection, std::uint64_t number) const;
    /// The same, and from now on only larger ones may.
    number_state accept(const session& of, std::uint64_t connection, std::uint64_t number);

    /// Whether this connection has the session.
    bool holds(const session& of, std::uint64_t connection) const;
    /// Runs `step` if nobody has ended the session, and nobody ends it meanwhile. It must be short and ask
    /// this table nothing.
    template <class Step>
    void while_open(const session& of, Step step) const {
        const std::lock_guard lock(mutex_);
        if (entries_.contains(of.id)) {
            step();
        }
    }

    /// The connection is lost; the session waits for its client.
    void lose(const session& of, std::uint64_t connection, time_point now);
    /// The session is over.
    void end(const session& of, std::uint64_t connection);
    /// All sessions of a client are over and their connections are ended, but for this one.
    /// @return how many there were
    std::size_t forget(std::string_view client, std::uint64_t but_for = 0);
    /// Drops sessions that waited too long. @return how many
    std::size_t expire(time_point now);

    std::size_t size() const;
    /// Sessions of each adapter's name and version.
    std::map<std::pair<std::string, std::uint64_t>, std::size_t> count_by_version() const;
    std::size_t pool_size() const;

  private:
    struct entry {
        std::shared_ptr<const session> of;
        resume_token token{};
        std::uint64_t next_number = 1;
        std::uint64_t connection = 0;  ///< 0: none
        control holder;
        time_point lost{};
    };
    using entries = std::map<std::string, entry, std::less<>>;

    bool is_over(const entry& e, time_point now) const noexcept;
    /// The client's oldest session without a connection.
    entries::iterator oldest_lost_of(std::string_view client, bool anybody);
    number_state state_of(const session& of, std::uint64_t connection, std::uint64_t number) const;

    const limits limits_;
    mutable std::mutex mutex_;
    entries entries_;
};

}  // namespace split
