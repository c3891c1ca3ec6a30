#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/message.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

// What the bodies of LoRA messages share.

namespace tensafe::wire::detail {

/// Bytes of a message without its body.
inline constexpr std::size_t frame_bytes = header_bytes + checksum_bytes;

/// The three numbers with which requests and replies begin.
using shape_numbers = std::array<std::uint32_t, 3>;

/// A count as messages have it.
/// @throws parameter_error if it passes 32 bits
inline std::uint32_t count_field(const char* who, const char* what, std::size_t value) {
    if (value > std::numeric_limits<std::uint32_t>::max()) {
        throw parameter_error(std::string(who) + ": got " + std::to_string(value) + " for " + what +
                              ", expected a number below 2^32");
    }
    return static_cast<std::uint32_t>(value);
}

inline void write_shape(byte_writer& body, const shape_numbers& shape) {
    for (const std::uint32_t x : shape) {
        body.number<std::uint32_t>(x);
    }
}
inline shape_numbers read_shape(byte_reader& body) {
    shape_numbers shape{};
    for (std::uint32_t& x : shape) {
        x = body.number<std::uint32_t>();
    }
    return shape;
}

/// Refuses a limb of c1 that is zero where that of c0 is not: everybody could then read the product. That of
/// a zero matrix is zero in both, honestly.
template <class Error>
void check_hidden_limb(const char* who, int index, std::span<const arith::word> c0,
                       std::span<const arith::word> c1) {
    const auto zero = [](std::span<const arith::word> words) {
        return std::all_of(words.begin(), words.end(), [](arith::word x) { return x == 0; });
    };
    if (zero(c1) && !zero(c0)) {  // ends at the first word of an honest c1
        throw Error(std::string(who) + ": limb " + std::to_string(index) +
                    ": c1 is zero and c0 is not: everybody could read the product");
    }
}

/// A name: its length (4 bytes), its bytes.
inline std::size_t name_bytes(std::string_view name) noexcept {
    return sizeof(std::uint32_t) + name.size();
}
inline void write_name(byte_writer& body, std::string_view name) {
    body.number<std::uint32_t>(static_cast<std::uint32_t>(name.size()));
    body.bytes({reinterpret_cast<const std::uint8_t*>(name.data()), name.size()});
}
/// @throws format_error if the length is not that of a name, or the bytes end before: no memory is taken
inline std::string read_name(byte_reader& body, const char* of_what) {
    const auto length = body.number<std::uint32_t>();
    if (length == 0 || length > lora::model_layout::longest_name) {
        throw format_error(std::string(body.what()) + ": got a name of " + std::to_string(length) +
                           " bytes for " + of_what + ", expected 1 to " +
                           std::to_string(lora::model_layout::longest_name));
    }
    const auto bytes = body.bytes(length);
    return std::string(bytes.begin(), bytes.end());
}

}  // namespace tensafe::wire::detail
