#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/checksum.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::wire {

/// The kind of a message. There is none for a secret key, and none for a hidden state.
enum class kind : std::uint8_t {
    public_key = 1,
    rerandomization_key = 2,
    ciphertext = 3,
    seeded_ciphertext = 4,
    relinearization_key = 5,
    galois_keys = 6,
    request = 16,
    reply = 17,
    // 18 and 19 were messages of replies that show A.
    model_layout = 20,
    held_adapter = 21,
    block_request = 22,
    block_reply = 23,
    token_request = 24,
    token_reply = 25
};

/// The name of a kind in messages to people: "re-randomization key"; empty for a number that is no kind.
constexpr std::string_view name(kind what) noexcept {
    constexpr std::array<std::pair<kind, std::string_view>, 14> names{
        {{kind::public_key, "public key"},
         {kind::rerandomization_key, "re-randomization key"},
         {kind::ciphertext, "ciphertext"},
         {kind::seeded_ciphertext, "seeded ciphertext"},
         {kind::relinearization_key, "relinearization key"},
         {kind::galois_keys, "set of Galois keys"},
         {kind::request, "request"},
         {kind::reply, "reply"},
         {kind::model_layout, "model layout"},
         {kind::held_adapter, "held adapter"},
         {kind::block_request, "block request"},
         {kind::block_reply, "block reply"},
         {kind::token_request, "token request"},
         {kind::token_reply, "token reply"}}};
    for (const auto& [each, name] : names) {
        if (each == what) {
            return name;
        }
    }
    return "";
}

/// The number and the group of the request that a message belongs to: 0 where there is none. A request also
/// acknowledges replies: those to all numbers below number - unanswered have arrived. Messages that are no
/// requests have 0 there. session/ gives these numbers their meaning.
struct envelope {
    std::uint64_t number = 0;
    std::uint32_t group = 0;
    std::uint16_t unanswered = 0;

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
    std::uint16_t unanswered = 0;  ///< envelope::unanswered

    /// The envelope of a reply to this message.
    wire::envelope envelope() const noexcept { return {number, group, 0}; }

    friend bool operator==(const header&, const header&) = default;
};

/// Whether a client asks for an answer with a message of this kind.
constexpr bool is_request(kind what) noexcept {
    return what == kind::request || what == kind::block_request || what == kind::token_request;
}

inline constexpr std::array<std::uint8_t, 4> magic{'T', 'S', 'H', 'E'};
/// The version of the formats that this library writes, and the only one that it reads.
inline constexpr std::uint8_t version = 1;
inline constexpr std::size_t header_bytes = 48;
/// The bytes of the body's CRC-32C, which stands behind it.
inline constexpr std::size_t checksum_bytes = 4;

/// Writes a header; its checksum is included.
/// @throws parameter_error if `what` is no kind, or counts unanswered requests and is none itself
inline std::array<std::uint8_t, header_bytes> write_header(const header& h) {
    require<parameter_error>(!name(h.what).empty(), {"write_header: kind: got ",
                                                     static_cast<unsigned>(h.what), ", which is no kind"});
    require<parameter_error>(
        h.unanswered == 0 || is_request(h.what),
        {"write_header: a ", name(h.what), ": got ", h.unanswered, " unanswered requests, expected 0"});
    std::array<std::uint8_t, header_bytes> bytes{};
    byte_writer to(bytes, "header");
    to.bytes(magic);
    to.number<std::uint8_t>(version);
    to.number<std::uint8_t>(static_cast<std::uint8_t>(h.what));
    to.number<std::uint16_t>(h.unanswered);
    to.number<std::uint64_t>(h.set);
    to.number<std::uint64_t>(h.scheme);
    to.number<std::uint64_t>(h.number);
    to.number<std::uint64_t>(h.body_bytes);
    to.number<std::uint32_t>(h.group);
    to.number<std::uint32_t>(
        crc32c(std::span<const std::uint8_t>(bytes).first(header_bytes - checksum_bytes)));
    return bytes;
}

/// Reads the header of a message from outside. Looks at its first 48 bytes only, and checks, in this order,
/// length, magic, version, checksum, kind and bytes 6 and 7, which are 0 but in requests; the rest is for
/// open_frame. Never allocates, except for an error. Thread-safe.
/// @throws format_error for bytes that are no header; unsupported_error for another version, naming both
inline header read_header(std::span<const std::uint8_t> message) {
    require<format_error>(
        message.size() >= header_bytes,
        {"message: got ", message.size(), " bytes, expected at least ", header_bytes, " for its header"});
    byte_reader from(message.first(header_bytes), "message header");
    if (const auto begin = from.bytes(magic.size()); !std::equal(begin.begin(), begin.end(), magic.begin())) {
        throw format_error("message: does not begin with \"TSHE\"");
    }
    // Before the checksum: another version may have another one.
    if (const auto got = from.number<std::uint8_t>(); got != version) {
        throw unsupported_error(
            {"message: got version ", got, " of the wire format, expected version ", version});
    }
    header h;
    const auto what = from.number<std::uint8_t>();
    h.what = static_cast<kind>(what);
    h.unanswered = from.number<std::uint16_t>();
    h.set = from.number<std::uint64_t>();
    h.scheme = from.number<std::uint64_t>();
    h.number = from.number<std::uint64_t>();
    h.body_bytes = from.number<std::uint64_t>();
    h.group = from.number<std::uint32_t>();
    require<format_error>(
        from.number<std::uint32_t>() == crc32c(message.first(header_bytes - checksum_bytes)),
        {"message: the checksum of its header is wrong: it was changed on its way"});
    require<format_error>(!name(h.what).empty(),
                          {"message: got kind ", what, ", expected one that docs/wire-format.md names"});
    require<format_error>(
        h.unanswered == 0 || is_request(h.what),
        {"message: bytes 6 and 7 of the header of a ", name(h.what), ": got ", h.unanswered, ", expected 0"});
    return h;
}

/// Writes a whole message over `to`: header, the body that fill(byte_writer&) writes, checksum. `to` keeps
/// its memory, so that from the second message of a size on nothing is allocated; it is empty after an error.
/// @param h  its body_bytes is the length of the body, and fill must write exactly so many
/// @throws shape_error if fill writes more or less; parameter_error if `what` is no kind; std::bad_alloc;
///         what fill throws
template <class Fill>
void write_message(const header& h, std::vector<std::uint8_t>& to, Fill&& fill) {
    try {
        const auto head = write_header(h);
        require<shape_error>(h.body_bytes <= to.max_size() - header_bytes - checksum_bytes,
                             {"message: got a body of ", h.body_bytes, " bytes, which no memory holds"});
        const auto body_bytes = static_cast<std::size_t>(h.body_bytes);
        to.resize(header_bytes + body_bytes + checksum_bytes);
        std::copy(head.begin(), head.end(), to.begin());
        const std::span<std::uint8_t> body = std::span(to).subspan(header_bytes, body_bytes);
        byte_writer writer(body, name(h.what));
        fill(writer);
        writer.finish();
        byte_writer(std::span(to).last(checksum_bytes), "checksum").number<std::uint32_t>(crc32c(body));
    } catch (...) {
        to.clear();
        throw;
    }
}

/// A message whose frame was checked: what is in the body is still to be read, and not to be trusted.
struct opened_message {
    wire::header header;
    byte_reader body;  ///< looks at the message's bytes, which must stay
};

/// The parameter set, packing and protection that a reader wants, and how errors call them.
struct wanted_ids {
    std::uint64_t set = 0;
    std::string (*set_text)() = [] { return std::string("none"); };  ///< `set` in words
    std::uint64_t scheme = 0;
    std::string (*scheme_text)(std::uint64_t) = [](std::uint64_t id) {  ///< of any scheme
        return "scheme id " + identifier_text(id);
    };
};

/// Opens a message from outside that must be of this kind, set and scheme. Checks, in this order, what
/// read_header does, the kind, that the body has the announced length and nothing follows it, set, scheme,
/// and the checksum of the body: after it, what is in the body is what somebody wrote. Never allocates,
/// except for an error. Thread-safe.
/// @throws format_error for malformed bytes and another kind (naming both); parameter_error for another set
///         or scheme (naming both); unsupported_error for another version
inline opened_message open_frame(std::span<const std::uint8_t> message, kind wanted, const wanted_ids& ids) {
    const header h = read_header(message);
    const std::string_view what = name(wanted);
    if (h.what != wanted) {
        throw format_error({"message: got a ", name(h.what), ", expected a ", what});
    }
    const std::size_t behind = message.size() - header_bytes;
    require<format_error>(behind >= checksum_bytes && h.body_bytes == behind - checksum_bytes,
                          {what, ": its header announces a body of ", h.body_bytes, " bytes and ",
                           checksum_bytes, " of checksum, got ", behind, " bytes behind the header"});
    if (h.set != ids.set) {
        throw parameter_error(
            {what, ": parameter set: got ", set_name(h.set), ", expected ", ids.set_text()});
    }
    if (h.scheme != ids.scheme) {
        throw parameter_error({what, ": packing and protection: got ", ids.scheme_text(h.scheme),
                               ", expected ", ids.scheme_text(ids.scheme)});
    }
    const std::span<const std::uint8_t> body = message.subspan(header_bytes, behind - checksum_bytes);
    byte_reader checksum(message.last(checksum_bytes), what);
    require<format_error>(checksum.number<std::uint32_t>() == crc32c(body),
                          {what, ": the checksum of its body is wrong: it was changed on its way"});
    return {h, byte_reader(body, what)};
}

// What the bodies of LoRA messages share.
namespace detail {

/// The bytes of a message without its body.
inline constexpr std::size_t frame_bytes = header_bytes + checksum_bytes;

/// A count in 32 bits, as messages have it.
/// @throws parameter_error if it does not fit
inline std::uint32_t count_field(std::string_view who, std::string_view what, std::size_t value) {
    require<parameter_error>(value <= std::numeric_limits<std::uint32_t>::max(),
                             {who, ": got ", value, " for ", what, ", expected a number below 2^32"});
    return static_cast<std::uint32_t>(value);
}

/// The bytes of a name in a message: its length (4 bytes), its bytes.
inline std::size_t name_bytes(std::string_view name) noexcept {
    return sizeof(std::uint32_t) + name.size();
}
inline void write_name(byte_writer& body, std::string_view name) {
    body.number<std::uint32_t>(static_cast<std::uint32_t>(name.size()));
    body.bytes({reinterpret_cast<const std::uint8_t*>(name.data()), name.size()});
}
/// Reads a name.  @throws format_error, before memory is taken, for a bad length or if the bytes end before
inline std::string read_name(byte_reader& body, const char* of_what, std::size_t longest) {
    const auto length = body.number<std::uint32_t>();
    require<format_error>(
        length != 0 && length <= longest,
        {body.what(), ": got a name of ", length, " bytes for ", of_what, ", expected 1 to ", longest});
    const auto bytes = body.bytes(length);
    return std::string(bytes.begin(), bytes.end());
}

}  // namespace detail

/// Opens a message of a kind that has a parameter set and no scheme, as open_frame does.
template <ckks::parameter_set P>
opened_message open_message(std::span<const std::uint8_t> message, kind wanted) {
    return open_frame(message, wanted, {.set = set_id<P>, .set_text = &set_name<P>});
}

}  // namespace tensafe::wire
