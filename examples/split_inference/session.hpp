#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "control_message.hpp"
#include "limits.hpp"
#include "net/connection.hpp"

namespace split {

class session_evaluator;

/// All that the server keeps for one session: from the welcome until bye or forget, and for
/// limits::session_life after its connection was lost. No request and no reply is among it: those are in the
/// buffers of the connection and in the memory of the thread that answers.
///
/// Kept for the client, over all its sessions: query_counts (on disk), the bucket of its request rate and its
/// row in the meter of usage, all in service.hpp.
class session {
  public:
    // Fixed when it opens.
    std::string id;                          ///< 32 hexadecimal digits, drawn at random
    std::string client;                      ///< its Ed25519 public key, 64 digits
    frame_form frames = frame_form::binary;  ///< what messages come in
    /// The version of the adapter that it opened with, whatever is loaded later; the client's
    /// re-randomization key, 130 KB; up to limits::pool_of_session encryptions of zero, 70 KB each.
    std::shared_ptr<session_evaluator> evaluator;

  private:
    friend class session_table;  // reads and writes the rest, under its lock

    std::uint64_t next_number_ = 1;  ///< the smallest that a request may have: none is answered twice
    std::uint64_t connection_ = 0;   ///< which one holds it; 0: none
    std::shared_ptr<net::connection_control> control_;  ///< ends that connection
    time_point lost_{};                                 ///< when the last connection was lost
};

}  // namespace split
