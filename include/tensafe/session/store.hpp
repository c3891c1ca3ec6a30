#pragma once

#include <tensafe/core/error.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace tensafe::session {

/// The reason why a server refuses a request, as far as it changes what a client does next.
enum class refusal {
    replayed,       ///< the number or the position was used, and its reply is not kept
    unknown_block,  ///< the block is used up, given up, or was never there
    block_limit,    ///< no room for another block: hidden states can go alone
    query_limit,    ///< the client has had all the answers that it gets
    rate_limit,     ///< too many requests in too short a time
    other
};

/// A refusal of the server. The session goes on, and nothing was answered or counted.
class refused_error : public error {
  public:
    refused_error(const std::string& message, refusal why,
                  std::optional<std::chrono::milliseconds> retry_after = std::nullopt)
        : error(message), why_(why), retry_after_(retry_after) {}

    refusal why() const noexcept { return why_; }
    /// The time to wait before asking again, if the server said so.
    std::optional<std::chrono::milliseconds> retry_after() const noexcept { return retry_after_; }

  private:
    refusal why_;
    std::optional<std::chrono::milliseconds> retry_after_;
};

/// Counts what a server_session answers, and says whether it may: whoever implements it decides whose counts
/// these are and whether they survive a crash. Called by the threads that answer.
class store {
  public:
    virtual ~store() = default;

    /// Counts a hidden state of this group before it is answered, and returns when the count is safe.
    /// @throws refused_error, or whatever the server's caller understands: then nothing is answered
    virtual void add(std::size_t group) = 0;
    /// Takes back the count of one add, whose hidden state is not answered after all.
    virtual void take_back(std::size_t group) noexcept = 0;
    /// Admits a block of this group before it is prepared, which shows nothing of A yet and is not counted.
    /// @throws as add if no hidden state would be answered now, or for want of memory
    virtual void admit_block(std::size_t group) = 0;
};

}  // namespace tensafe::session
