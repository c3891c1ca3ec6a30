#pragma once

#include <tensafe/random/seed.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "params.hpp"

namespace split {

// The JSON objects of text frames, in the order of docs/service.md. Plain values; parse_control and
// to_text turn them into text and back.

using key_bytes = std::array<std::byte, 32>;
using session_id = std::array<std::byte, 16>;
using exporter_value = std::array<std::byte, 32>;  ///< net::connection_control::channel_binding

/// Why something was refused. The names are those of the texts.
enum class error_code {
    malformed,
    parameter_mismatch,
    unsupported_version,
    unknown_adapter,
    not_authorised,
    query_limit,
    rate_limit,
    replayed,
    resume_failed,
    unknown_block,
    block_limit,
    too_large,
    draining,
    loading,
    unavailable,
    internal,
};
inline constexpr std::size_t error_codes = 16;

const char* to_string(error_code code) noexcept;

/// server -> client, first on a connection: the server's half of the randomness.
struct challenge {
    tensafe::random::seed nonce;  ///< drawn for this connection
    std::string parameters;       ///< wire::set_name, for people
    bool operator==(const challenge&) const = default;
};

/// What messages come in: binary frames, or base64 in JSON.
enum class frame_form { binary, json };

/// client -> server: who asks for which adapter. The re-randomization key comes in the next frame.
struct hello {
    std::string adapter;
    key_bytes client{};                      ///< Ed25519 public key
    std::uint64_t set = 0;                   ///< wire::set_id of the client's parameter set
    std::array<std::byte, 32> key_sha256{};  ///< of the re-randomization key's message
    std::array<std::byte, 64> signature{};   ///< of `text_to_sign`, by the client's key
    frame_form frames = frame_form::binary;
    bool held = true;  ///< whether the client wants what it has to hold of the adapter
    bool operator==(const hello&) const = default;
};

/// server -> client: the session is there. The layout, and what the client holds if asked for, come next.
struct welcome {
    session_id session{};
    std::string adapter;
    std::uint64_t version = 0;
    /// Hidden states of each group that the client's own limits have left, or one number for all; empty: no
    /// limit.
    std::vector<std::uint64_t> queries_left{};
    std::string pin = {};  ///< text of a keystore::adapter_pin; empty, and no member: there is none
    bool operator==(const welcome&) const = default;
};

/// client -> server, instead of hello: a session whose connection was lost.
struct resume {
    session_id session{};
    key_bytes client{};                     ///< whose it is
    std::array<std::byte, 64> signature{};  ///< of `text_to_sign`, by the client's key
    bool operator==(const resume&) const = default;
};

struct resumed {
    session_id session{};
    std::uint64_t next_number = 1;  ///< the smallest that a request may have
    std::uint64_t version = 0;
    std::vector<std::uint64_t> queries_left{};  ///< as of welcome
    bool operator==(const resumed&) const = default;
};

/// The one message of a JSON frame {"type": ..., "message": base64}, where type is the name of `what`.
struct carried_message {
    /// A request and a reply are of any kind that wire::kind has of them.
    enum class kind { rerandomization_key, model_layout, held_adapter, request, reply };
    kind what = kind::rerandomization_key;
    std::vector<std::uint8_t> message = {};
    // Of a request and a reply, which have them as members too: those of the message.
    std::uint64_t number = 0;
    std::uint32_t group = 0;
    bool operator==(const carried_message&) const = default;
};

/// server -> client: {"type": "error", ...}.
struct refusal {
    error_code code = error_code::internal;
    std::string message = {};
    std::optional<std::uint64_t> number = {};  ///< of the request that it answers
    std::optional<std::uint64_t> retry_after_ms = {};
    bool operator==(const refusal&) const = default;
};

/// Only its type is said.
struct bare_message {
    bool operator==(const bare_message&) const = default;
};
/// client -> server: drop what is known of this client; and the answer.
struct forget : bare_message {};
struct forgotten : bare_message {};
/// client -> server: the session ends.
struct bye : bare_message {};
/// server -> client: the server stops; the connection closes.
struct draining : bare_message {};

using control_message = std::variant<challenge, hello, welcome, resume, resumed, carried_message, refusal,
                                     forget, forgotten, bye, draining>;

/// The "type" of its text.
const char* type_of(const control_message& m);

/// The longest text without a base64 member, in bytes.
inline constexpr std::size_t longest_control_text = 16 * 1024;
/// Numbers of queries_left: of more groups there is one for all, the least.
inline constexpr std::size_t most_limits = 512;

/// The longest text that carries a message of so many bytes.
constexpr std::size_t longest_carrying_text(std::size_t message_bytes) noexcept {
    return (message_bytes + 2) / 3 * 4 + 256;
}

/// Reads a text frame, treated as untrusted: one object, known members of the right types only, all of them,
/// no member twice. A text without a base64 member is at most longest_control_text long.
/// @param largest_message  bytes of a message in base64, at most; 0: none may come
/// @throws tensafe::format_error for anything else, naming the member; before memory is taken for a text that
///         is too long. tensafe::unsupported_error for another protocol, naming both
control_message parse_control(std::string_view text, std::size_t largest_message);

std::string to_text(control_message m);

/// As to_text of a carried_message, without a copy of it.
std::string carried_text(carried_message::kind what, std::span<const std::uint8_t> message,
                         std::uint64_t number = 0, std::uint32_t group = 0);

/// The challenge's nonce has two uses, each with a seed of its own that a random::generator makes of it: the
/// first is signed, the second goes into the re-randomization key.
struct derived_nonces {
    explicit derived_nonces(const tensafe::random::seed& nonce);
    tensafe::random::seed signed_one;
    tensafe::random::seed of_rerandomization_key;
};

/// What hello::signature signs: "tensafe split inference 3\n", the connection's exporter value,
/// derived_nonces(nonce).signed_one, the set's number (8 bytes, little endian), key_sha256, the adapter's
/// name. So it is good on one connection, and nobody who passes it on to another one can use it there.
std::vector<std::byte> text_to_sign(const exporter_value& exporter, const tensafe::random::seed& nonce,
                                    const hello& m);
/// And resume::signature: "tensafe split inference 3 resume\n", the first two as in hello, the session.
std::vector<std::byte> text_to_sign(const exporter_value& exporter, const tensafe::random::seed& nonce,
                                    const resume& m);

}  // namespace split
