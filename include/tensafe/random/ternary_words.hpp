#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tensafe::random::detail {

/// Coefficients of a word: its first base-3 digits, less one.
inline constexpr std::size_t word_trits = 4;

/// Coefficients of the words [first, words), each 8 bytes, little endian.
inline void ternary_portable(const std::uint8_t* bytes, std::size_t first, std::size_t words,
                             std::int8_t* out) noexcept {
    for (std::size_t i = first; i < words; ++i) {
        arith::word fraction;
        std::memcpy(&fraction, bytes + i * sizeof fraction, sizeof fraction);
        for (std::size_t trit = 0; trit < word_trits; ++trit) {
            const arith::uint128 product = arith::mul_wide(fraction, 3);
            out[i * word_trits + trit] =
                static_cast<std::int8_t>(static_cast<int>(arith::high_word(product)) - 1);
            fraction = arith::low_word(product);
        }
    }
}

}  // namespace tensafe::random::detail
