#pragma once

#include <tensafe/core/error.hpp>

#include <chrono>
#include <optional>
#include <string>

#include "control_message.hpp"

namespace split {

/// The server said no. The session goes on, if there was one.
class refused_error : public tensafe::error {
  public:
    refused_error(const std::string& message, error_code code,
                  std::optional<std::chrono::milliseconds> retry_after = std::nullopt)
        : tensafe::error(message), code_(code), retry_after_(retry_after) {}

    error_code code() const noexcept { return code_; }
    /// When to ask again, if the server said so.
    std::optional<std::chrono::milliseconds> retry_after() const noexcept { return retry_after_; }

  private:
    error_code code_;
    std::optional<std::chrono::milliseconds> retry_after_;
};

/// Too many requests in too short a time; later ones are answered.
class rate_limit_error : public refused_error {
  public:
    using refused_error::refused_error;
};

/// The client's key has had all the answers that it gets of this adapter. Waiting does not help.
class query_limit_error : public refused_error {
  public:
    using refused_error::refused_error;
};

/// After a reconnection the server has another adapter under this name. What was computed with the earlier
/// one does not go with it: begin again, with a new remote_model.
class adapter_changed_error : public tensafe::error {
  public:
    using tensafe::error::error;
};

/// The session was ended by this program, with forget or close. reconnect begins another.
class closed_error : public tensafe::error {
  public:
    using tensafe::error::error;
};

}  // namespace split
