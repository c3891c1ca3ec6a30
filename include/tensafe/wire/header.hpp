#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/checksum.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tensafe::wire {

/// What a message is. There is no kind for a secret key, and none for a hidden state.
enum class kind : std::uint8_t {
    public_key = 1,
    rerandomization_key = 2,
    ciphertext = 3,
    seeded_ciphertext = 4,
    request = 16,
    reply = 17,
    // 18 and 19 were messages of replies that show A.
    model_layout = 20,
    held_adapter = 21
};

/// How messages to people call it: "re-randomization key"; empty for a number that is no kind.
constexpr std::string_view name(kind what) noexcept {
    switch (what) {
        case kind::public_key:
            return "public key";
        case kind::rerandomization_key:
            return "re-randomization key";
        case kind::ciphertext:
            return "ciphertext";
        case kind::seeded_ciphertext:
            return "seeded ciphertext";
        case kind::request:
            return "request";
        case kind::reply:
            return "reply";
        case kind::model_layout:
            return "model layout";
        case kind::held_adapter:
            return "held adapter";
    }
    return "";
}

/// Which request a message belongs to, and to which group of a model. The formats carry both and give them no
/// meaning; 0 where there is none.
struct envelope {
    std::uint64_t number = 0;
    std::uint32_t group = 0;

    friend bool operator==(const envelope&, const envelope&) = default;
};

/// The first bytes of every message, taken apart. docs/wire-format.md has the table.
struct header {
    kind what{};
    std::uint64_t set = 0;     ///< set_id of the parameter set
    std::uint64_t scheme = 0;  ///< packing and protection; 0 for kinds that have none
    std::uint64_t number = 0;
    std::uint32_t group = 0;
    std::uint64_t body_bytes = 0;  ///< between the header and the checksum of the body

    wire::envelope envelope() const noexcept { return {number, group}; }

    friend bool operator==(const header&, const header&) = default;
};

inline constexpr std::array<std::uint8_t, 4> magic{'T', 'S', 'H', 'E'};
/// Of the formats that this library writes, and the only one that it reads.
inline constexpr std::uint8_t version = 1;
inline constexpr std::size_t header_bytes = 48;
/// CRC-32C of the body, behind it.
inline constexpr std::size_t checksum_bytes = 4;

/// The header's bytes, checksum included.
/// @throws parameter_error if `what` is no kind
inline std::array<std::uint8_t, header_bytes> write_header(const header& h) {
    if (name(h.what).empty()) {
        throw parameter_error("write_header: kind: got " + std::to_string(static_cast<unsigned>(h.what)) +
                              ", which is no kind");
    }
    std::array<std::uint8_t, header_bytes> bytes{};
    byte_writer to(bytes, "header");
    to.bytes(magic);
    to.number<std::uint8_t>(version);
    to.number<std::uint8_t>(static_cast<std::uint8_t>(h.what));
    to.number<std::uint16_t>(0);
    to.number<std::uint64_t>(h.set);
    to.number<std::uint64_t>(h.scheme);
    to.number<std::uint64_t>(h.number);
    to.number<std::uint64_t>(h.body_bytes);
    to.number<std::uint32_t>(h.group);
    to.number<std::uint32_t>(
        crc32c(std::span<const std::uint8_t>(bytes).first(header_bytes - checksum_bytes)));
    return bytes;
}

/// The header of a message from outside. Looks at its first 48 bytes only, and checks, in this order, length,
/// magic, version, checksum, kind and the two bytes that must be zero. Whether the message has the length and
/// the set that are needed is not asked here: open_frame does. Never allocates, except for an error.
/// Thread-safe.
/// @throws format_error for bytes that are no header; unsupported_error for another version, naming both
inline header read_header(std::span<const std::uint8_t> message) {
    if (message.size() < header_bytes) {
        throw format_error("message: got " + std::to_string(message.size()) + " bytes, expected at least " +
                           std::to_string(header_bytes) + " for its header");
    }
    byte_reader from(message.first(header_bytes), "message header");
    if (const auto begin = from.bytes(magic.size()); !std::equal(begin.begin(), begin.end(), magic.begin())) {
        throw format_error("message: does not begin with \"TSHE\"");
    }
    // Before the checksum: another version may have another one.
    if (const auto got = from.number<std::uint8_t>(); got != version) {
        throw unsupported_error("message: got version " + std::to_string(got) +
                                " of the wire format, expected version " + std::to_string(version));
    }
    header h;
    const auto what = from.number<std::uint8_t>();
    const auto reserved = from.number<std::uint16_t>();
    h.what = static_cast<kind>(what);
    h.set = from.number<std::uint64_t>();
    h.scheme = from.number<std::uint64_t>();
    h.number = from.number<std::uint64_t>();
    h.body_bytes = from.number<std::uint64_t>();
    h.group = from.number<std::uint32_t>();
    if (from.number<std::uint32_t>() != crc32c(message.first(header_bytes - checksum_bytes))) {
        throw format_error("message: the checksum of its header is wrong: it was changed on its way");
    }
    if (name(h.what).empty()) {
        throw format_error("message: got kind " + std::to_string(what) +
                           ", expected one that docs/wire-format.md names");
    }
    if (reserved != 0) {
        throw format_error("message: bytes 6 and 7 of its header: got " + std::to_string(reserved) +
                           ", expected 0");
    }
    return h;
}

}  // namespace tensafe::wire
