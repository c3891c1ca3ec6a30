#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client_list.hpp"
#include "control_message.hpp"
#include "limits.hpp"
#include "model_store.hpp"
#include "net/connection.hpp"

namespace split {

/// All that the server keeps for one session: from the welcome until bye or forget, for limits::session_life
/// after its connection was lost, session_idle after its last request, and retired_life after its version of
/// the adapter was replaced or removed. No request is among it, and no reply that the client said it has:
/// those are in the buffers of the connection and in the memory of the thread that answers.
///
/// Kept for the client, over all its sessions: query_counts (on disk), the bucket of its request rate and its
/// row in the meter of usage, all in service.hpp.
class session {
  public:
    // Fixed when it opens.
    std::string id;                          ///< 32 hexadecimal digits, drawn at random
    std::string client;                      ///< its Ed25519 public key, 64 digits
    std::string address;                     ///< where it opened, as limited_address
    client_tenant tenant;                    ///< whose limits it counts in too
    group_limits limits;                     ///< what its requests are held against
    frame_form frames = frame_form::binary;  ///< what messages come in
    /// The version of the adapter that it opened with, whatever is loaded later; the client's
    /// re-randomization key, 66 KB; for requests and for blocks, once they came, 131 KB each and
    /// encryptions of zero, 70 KB each: four to work in, and up to limits::pool_of_session;
    /// up to two blocks of tokens of each input, and replies that are not acknowledged.
    std::shared_ptr<session_evaluator> evaluator;

  private:
    friend class session_table;  // reads and writes the rest, under its lock

    std::uint64_t connection_ = 0;                    ///< which one holds it; 0: none
    std::weak_ptr<net::connection_control> control_;  ///< ends that connection
    time_point lost_{};                               ///< when the last connection was lost
    time_point used_{};                               ///< when the last request came, or a connection with it
    std::optional<time_point> retired_;               ///< when its version was seen to be another
};

/// The sessions of a server. Each is held by one connection, or by none for a while after that was lost. A
/// connection is a number that no other one has.
///
/// Thread-safe by one lock, under which nothing is computed; connections are ended outside it.
class session_table {
  public:
    explicit session_table(const limits& allowed) : limits_(allowed) {}

    using control = std::weak_ptr<net::connection_control>;

    /// A new session. A client that has as many as it may have loses the one that is without a connection for
    /// longest. In a full table the address with the most makes room for one with fewer, or loses that, or
    /// what is idle for longest and not being answered.
    /// @param made  client, address, frames and evaluator
    /// @return null if all that it may have are held, or the table is full
    std::shared_ptr<const session> open(session made, std::uint64_t connection, control holder,
                                        time_point now);

    /// Gives a session of this client to another connection; one that still holds it is ended.
    /// @return null for an unknown or expired session or another client's, which is then as it was
    std::shared_ptr<const session> resume(std::string_view id, std::string_view client,
                                          std::uint64_t connection, control holder, time_point now);

    /// Whether this connection has the session, which a request came for.
    bool use(const session& of, std::uint64_t connection, time_point now);
    /// Whether it is not over.
    bool has(const session& of) const;

    /// Runs `step` if nobody has ended the session, and nobody ends it meanwhile. It must be short and ask
    /// this table nothing.
    template <class Step>
    void while_open(const session& of, Step step) const {
        const std::lock_guard lock(mutex_);
        if (sessions_.contains(of.id)) {
            step();
        }
    }

    /// The connection is lost; the session waits for its client.
    void lose(const session& of, std::uint64_t connection, time_point now);
    /// The session is over. Whether this connection had it: else it stays.
    bool end(const session& of, std::uint64_t connection);
    /// All sessions that `condition` holds for are over and their connections are ended, with this reason. It
    /// asks this table nothing. @return how many there were
    std::size_t end_all(const std::function<bool(const session&)>& condition, const std::string& reason);
    /// Ends sessions that waited too long, or whose version is none of these any more for too long.
    /// @return how many
    std::size_t expire(time_point now, const model_store& current);

    std::size_t size() const;
    /// Sessions of each adapter's name and version.
    std::map<std::pair<std::string, std::uint64_t>, std::size_t> count_by_version() const;
    /// Encryptions of zero made ahead, of all sessions.
    std::size_t pool_size() const;
    /// As session_evaluator::held_bytes, of all sessions, or those of one address.
    std::size_t block_bytes(std::string_view address = {}) const;
    /// Whether there is room for more blocks and kept replies of a session of this address: for it and in
    /// all.
    bool has_block_room(std::string_view address) const;
    /// As has_block_room. Where there is none, sessions of the address, or any, give up their kept replies
    /// but the last; then those without a connection all they have, longest lost first.
    bool make_block_room(std::string_view address) const;

  private:
    using pointer = std::shared_ptr<session>;
    using table = std::map<std::string, pointer, std::less<>>;
    using place = table::iterator;

    bool is_over(const session& s, time_point now) const noexcept;
    /// Of the client or, where it has not all that it may, of the table, what makes room for it; the end:
    /// nothing.
    place who_makes_room(const session& newcomer, bool has_all, time_point now);
    static void hang_up(const session& s, std::uint16_t code, const std::string& reason);
    /// The session, if this connection has it; else null.
    pointer held(const session& of, std::uint64_t connection) const;
    /// Takes out all that `condition` holds for, so that they are given back outside the lock.
    template <class Condition>
    std::vector<pointer> take_out(Condition condition);
    std::vector<pointer> all() const;
    bool make_block_room(std::string_view address, std::size_t most) const;

    const limits limits_;
    mutable std::mutex mutex_;
    table sessions_;  // by id
};

}  // namespace split
