#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/checksum.hpp>
#include <tensafe/wire/header.hpp>
#include <tensafe/wire/identifier.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensafe::wire {

/// Writes a whole message over `to`: header, the body that fill(byte_writer&) writes, checksum. `to` keeps
/// its memory, so that from the second message of a size on nothing is allocated; it is empty after an error.
/// @param h  its body_bytes is the length of the body, and fill must write exactly so many
/// @throws shape_error if fill writes more or less; parameter_error if `what` is no kind; std::bad_alloc;
///         what fill throws
template <class Fill>
void write_message(const header& h, std::vector<std::uint8_t>& to, Fill&& fill) {
    try {
        const auto head = write_header(h);
        if (h.body_bytes > to.max_size() - header_bytes - checksum_bytes) {
            throw shape_error("message: got a body of " + std::to_string(h.body_bytes) +
                              " bytes, which no memory holds");
        }
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

/// Which parameter set, packing and protection a reader wants, and how errors call them.
struct wanted_ids {
    std::uint64_t set = 0;
    std::string (*set_text)() = [] { return std::string("none"); };  ///< of `set`
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
        throw format_error("message: got a " + std::string(name(h.what)) + ", expected a " +
                           std::string(what));
    }
    const std::size_t behind = message.size() - header_bytes;
    if (behind < checksum_bytes || h.body_bytes != behind - checksum_bytes) {
        throw format_error(std::string(what) + ": its header announces a body of " +
                           std::to_string(h.body_bytes) + " bytes and " + std::to_string(checksum_bytes) +
                           " of checksum, got " + std::to_string(behind) + " bytes behind the header");
    }
    if (h.set != ids.set) {
        throw parameter_error(std::string(what) + ": parameter set: got " + set_name(h.set) + ", expected " +
                              ids.set_text());
    }
    if (h.scheme != ids.scheme) {
        throw parameter_error(std::string(what) + ": packing and protection: got " +
                              ids.scheme_text(h.scheme) + ", expected " + ids.scheme_text(ids.scheme));
    }
    const std::span<const std::uint8_t> body = message.subspan(header_bytes, behind - checksum_bytes);
    byte_reader checksum(message.last(checksum_bytes), what);
    if (checksum.number<std::uint32_t>() != crc32c(body)) {
        throw format_error(std::string(what) +
                           ": the checksum of its body is wrong: it was changed on its way");
    }
    return {h, byte_reader(body, what)};
}

/// open_frame for a kind that has a parameter set and no scheme.
template <ckks::parameter_set P>
opened_message open_message(std::span<const std::uint8_t> message, kind wanted) {
    return open_frame(message, wanted, {.set = set_id<P>, .set_text = &set_name<P>});
}

}  // namespace tensafe::wire
