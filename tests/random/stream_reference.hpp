#pragma once

#include <tensafe/random/chacha20_block.hpp>
#include <tensafe/random/seed.hpp>

#include <bit>
#include <string>
#include <string_view>

// docs/design/random-streams.md once more, coefficient by coefficient and as literally as possible. It shares
// chacha20_block with the library, which the RFC's vectors check.

namespace tensafe::testing {

/// The seed 00 01 .. 1f, possibly shifted.
inline random::seed counting_seed(std::uint8_t first = 0) {
    random::seed result;
    for (std::size_t i = 0; i < result.bytes.size(); ++i) {
        result.bytes[i] = static_cast<std::uint8_t>(first + i);
    }
    return result;
}

inline std::uint8_t stream_byte(const random::seed& key, random::stream_domain domain, std::uint32_t lane,
                                std::uint32_t round, std::uint64_t position) {
    std::uint32_t key_words[8] = {};
    for (std::size_t i = 0; i < 32; ++i) {
        key_words[i / 4] |= static_cast<std::uint32_t>(key.bytes[i]) << (8 * (i % 4));
    }
    const std::uint32_t nonce[3] = {static_cast<std::uint32_t>(domain), lane, round};
    std::uint32_t block[16];
    random::chacha20_block(key_words, static_cast<std::uint32_t>(position / 64), nonce, block);
    return static_cast<std::uint8_t>(block[position % 64 / 4] >> (8 * (position % 4)));
}

/// `count` bytes from `position` on, little endian.
inline std::uint64_t stream_word(const random::seed& key, random::stream_domain domain, std::uint32_t lane,
                                 std::uint32_t round, std::uint64_t position, int count = 8) {
    std::uint64_t word = 0;
    for (int i = 0; i < count; ++i) {
        word |= static_cast<std::uint64_t>(
                    stream_byte(key, domain, lane, round, position + static_cast<std::uint64_t>(i)))
                << (8 * i);
    }
    return word;
}

inline std::uint64_t reference_uniform(const random::seed& key, random::stream_domain domain,
                                       std::uint32_t lane, std::uint64_t q, std::size_t k) {
    const int bits = static_cast<int>(std::bit_width(q));
    const int width = (bits + 7) / 8;
    for (std::uint32_t round = 0;; ++round) {
        std::uint64_t value =
            stream_word(key, domain, lane, round, k * static_cast<std::uint64_t>(width), width);
        if (bits < 64) {
            value %= std::uint64_t{1} << bits;
        }
        if (value < q) {
            return value;
        }
    }
}

inline int reference_error(const random::seed& key, random::stream_domain domain, std::uint32_t lane,
                           std::size_t k) {
    int value = 0;
    for (std::size_t i = 0; i < 12; ++i) {
        const std::uint64_t word = stream_word(key, domain, lane, 0, 96 * (k / 64) + 8 * i);
        const int bit = static_cast<int>((word >> (k % 64)) % 2);
        value += (i < 10 ? 2 : 1) * (i < 5 || i == 10 ? bit : -bit);
    }
    return value;
}

/// Coefficient `last_step` of the four of word u.
inline int reference_trit(std::uint64_t u, std::size_t last_step) {
    int trit = 0;
    for (std::size_t step = 0; step <= last_step; ++step) {
        // The upper word of 3 u without a wide product: 3 u = 2 u + u passes 2^64 once or twice.
        const std::uint64_t twice = 2 * u;
        const std::uint64_t thrice = twice + u;
        trit = static_cast<int>(u >> 63) + (thrice < twice ? 1 : 0);
        u = thrice;
    }
    return trit - 1;
}

inline int reference_ternary(const random::seed& key, random::stream_domain domain, std::uint32_t lane,
                             std::size_t k) {
    return reference_trit(stream_word(key, domain, lane, 0, 8 * (k / 4)), k % 4);
}

std::string to_hex(const auto& bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text += digits[byte / 16];
        text += digits[byte % 16];
    }
    return text;
}

/// How many values differ from reference(k), k being the place.
template <class Values, class Reference>
std::size_t different(const Values& values, Reference reference) {
    std::size_t result = 0;
    for (std::size_t k = 0; k < values.size(); ++k) {
        result += values[k] != reference(k) ? 1U : 0U;
    }
    return result;
}

/// The digest D of the vectors.
std::uint64_t digest(const auto& values) {
    std::uint64_t result = 0;
    for (const auto value : values) {
        result = result * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(value);
    }
    return result;
}

}  // namespace tensafe::testing
