#pragma once

#include <tensafe/core/error.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace split {

/// The connection could not be made, ended, or did not bring what was waited for in time. Another one may
/// work; what was under way is lost.
class connection_lost : public tensafe::io_error {
  public:
    using tensafe::io_error::io_error;
};

/// A WebSocket connection as a client sees it: whole frames, in order. For one thread at a time.
///
/// All calls that wait are bounded in time. After connection_lost the connection is closed, and every further
/// call throws it.
class client_connection {
  public:
    struct frame {
        bool is_text = false;
        std::span<const std::uint8_t> bytes;  ///< valid until the next call of receive

        std::string_view text() const noexcept {
            return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
        }
    };
    /// Bytes on the wire, both ways, since the beginning: with frames, and where there is TLS with that.
    struct traffic {
        std::uint64_t up = 0;
        std::uint64_t down = 0;
    };

    virtual ~client_connection() = default;

    /// Returns when the frame is given to the system.
    /// @throws connection_lost
    virtual void send_text(std::string_view text) = 0;
    virtual void send_binary(std::span<const std::uint8_t> message) = 0;

    /// The next frame.
    /// @param limit  how long to wait for its end
    /// @throws connection_lost if it does not come; format_error if it is longer than this connection takes,
    ///         as it would be again over another one
    virtual frame receive(std::chrono::milliseconds limit) = 0;

    /// Says so to the other side, waits a moment for its answer, and closes. Nothing if it is closed already.
    virtual void close() noexcept = 0;

    virtual traffic bytes() const noexcept = 0;

    /// SHA-256 of the server's certificate, in DER; zeros where there is no TLS.
    virtual std::array<std::byte, 32> certificate_sha256() const { return {}; }
};

}  // namespace split
