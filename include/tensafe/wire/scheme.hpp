#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/portable.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/lora/packing/token_blocks.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/set_id.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensafe::wire {

/// The packing's part of a scheme id, one specialisation for each packing: `number`, for no two packings the
/// same, and `detail`, below 256. Both are for ever: messages carry them.
template <class Packing>
struct packing_code;

template <int Rows>
struct packing_code<lora::coefficient_tiles<Rows>> {
    static_assert(lora::coefficient_tiles<Rows>::rows == Rows);  // completes the tag, which checks the number
    static constexpr std::uint8_t number = 1;
    static constexpr std::uint8_t detail =
        static_cast<std::uint8_t>(std::countr_zero(static_cast<unsigned>(Rows)));
};
template <>
struct packing_code<lora::token_blocks> {
    static constexpr std::uint8_t number = 4;  // 2 was another way to send batches
    static constexpr std::uint8_t detail = 0;
};
template <class Rows, class Replies>
struct packing_code<lora::replicated_slots<Rows, Replies>> {
    static_assert(Rows::rows_per_slot == 1 || Rows::rows_per_slot == 2,
                  "packing_code: a slot has room for one row or two");
    static constexpr std::uint8_t number = 3;
    static constexpr std::uint8_t detail = static_cast<std::uint8_t>(
        Rows::rows_per_slot + (lora::replicated_slots<Rows, Replies>::rescales ? 16 : 0));
};

/// The rules that give the numbers of a lora::reply_budget (widths, norms of integers, ranges) from a
/// parameter set, a scheme and a shape. Both ends compute them; none travels. Raise it whenever the same
/// arguments give another budget: tests/wire/scheme_test.cpp asks for that.
inline constexpr std::uint8_t budget_rules = 1;

/// The identifier of packing and protection in messages: byte 0 the packing, byte 1 its detail, byte 2 the
/// range (0: reveals_adapter_rows; 1: worst-case; 3 to 64: the factor of average-case), byte 3 budget_rules,
/// bytes 4 to 7 the precision as an IEEE single; byte 0 the lowest. Two ends that agree about this, the
/// parameter set and the shape read each other's replies. Against accidents, not attackers.
template <class Packing, lora::reply_protection Protection>
inline constexpr std::uint64_t scheme_id = [] {
    std::uint64_t range = Protection::protects ? 1 : 0;
    if constexpr (Protection::range::can_overflow) {
        static_assert(Protection::range::factor >= 3 && Protection::range::factor <= 64,
                      "scheme_id: the range factor must be in [3, 64]: other numbers mean something else");
        range = static_cast<std::uint64_t>(Protection::range::factor);
    }
    const auto precision = bit_cast<std::uint32_t>(static_cast<float>(Protection::precision::relative_error));
    return std::uint64_t{packing_code<Packing>::number} | std::uint64_t{packing_code<Packing>::detail} << 8 |
           range << 16 | std::uint64_t{budget_rules} << 24 | std::uint64_t{precision} << 32;
}();

namespace detail {

/// A packing in words; empty for one that this release does not know.
inline std::string packing_text(unsigned number, unsigned detail) {
    constexpr unsigned rescaled = 16;
    const unsigned rows = detail & ~rescaled;
    if (number == 1 && detail <= 17) {
        return "coefficient_tiles " + std::to_string(1U << detail);
    }
    if (number == 3 && (rows == 1 || rows == 2)) {
        return text_of({"replicated_slots ", rows, rows == detail ? " unrescaled" : " rescaled"});
    }
    return number == 4 && detail == 0 ? "token_blocks" : "";
}

}  // namespace detail

/// A scheme id in words, for messages to people: "coefficient_tiles 4, protects_adapter_rows, worst-case,
/// precision 0.00012 (scheme id 0x...)".
inline std::string scheme_name(std::uint64_t id) {
    const auto byte = [&](int k) { return static_cast<unsigned>(id >> (8 * k) & 255); };
    const std::string suffix = " (scheme id " + identifier_text(id) + ")";
    const std::string packing = detail::packing_text(byte(0), byte(1));
    const unsigned range = byte(2);
    if (packing.empty() || range == 2 || range > 64 || byte(3) != budget_rules) {
        return "an unknown packing and protection" + suffix;
    }
    return packing + (range == 0 ? ", reveals_adapter_rows" : ", protects_adapter_rows") +
           (range < 2 ? ", worst-case" : ", average-case " + std::to_string(range)) + ", precision " +
           shortest_text(bit_cast<float>(static_cast<std::uint32_t>(id >> 32))) + suffix;
}

namespace detail {

/// One of the numbers with which requests and replies begin, and what errors call it.
struct named_number {
    std::string_view name;
    std::size_t value;
};

/// Writes a message that has a scheme over `to`: the numbers, and what fill(byte_writer&) writes.
/// @throws as write_message; parameter_error for a number that passes 32 bits
template <ckks::parameter_set P, class Packing, class Protection, class Fill>
void write_scheme(kind what, const envelope& from, std::size_t bytes,
                  std::initializer_list<named_number> shape, std::vector<std::uint8_t>& to, Fill fill) {
    constexpr std::uint64_t scheme = scheme_id<Packing, Protection>;
    const header head{what, set_id<P>, scheme, from.number, from.group, bytes - frame_bytes, from.unanswered};
    write_message(head, to, [&](byte_writer& body) {
        for (const auto& [number, value] : shape) {
            body.number<std::uint32_t>(count_field(name(what), number, value));
        }
        fill(body);
    });
}

/// Opens a message that has a scheme like open_frame, up to behind the numbers, which must be these.
/// @throws as open_frame; shape_error for another number
template <ckks::parameter_set P, class Packing, class Protection>
byte_reader open_scheme(std::span<const std::uint8_t> message, kind expected,
                        std::initializer_list<named_number> shape = {}) {
    byte_reader body =
        open_frame(message, expected, {set_id<P>, &set_name<P>, scheme_id<Packing, Protection>, &scheme_name})
            .body;
    for (const auto& [number, value] : shape) {
        const auto got = body.number<std::uint32_t>();
        require<shape_error>(got == value, {body.what(), ": ", number, ": got ", got, ", expected ", value});
    }
    return body;
}

/// Copies the next bytes over `to`, whose memory is used again.
inline void take_bytes(byte_reader& body, std::size_t count, std::vector<std::uint8_t>& to) {
    const auto bytes = body.bytes(count);
    to.assign(bytes.begin(), bytes.end());
}

}  // namespace detail

}  // namespace tensafe::wire
