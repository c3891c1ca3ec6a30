#pragma once

#include <tensafe/core/portable.hpp>

#include <bit>
#include <cstdint>

namespace tensafe::io {

namespace detail {

/// Rounds a double to the 16-bit format with this split of exponent and fraction, to nearest, ties to even,
/// in a single step: going through float first would round twice and turn near-ties into ties.
template <int ExponentBits, int FractionBits>
constexpr std::uint16_t narrow(double value) noexcept {
    static_assert(ExponentBits + FractionBits == 15, "narrow: sign, exponent and fraction must fill 16 bits");
    constexpr int bias = (1 << (ExponentBits - 1)) - 1;
    constexpr std::uint64_t infinity = ((std::uint64_t{1} << ExponentBits) - 1) << FractionBits;
    constexpr std::uint64_t quiet_nan = infinity | (std::uint64_t{1} << (FractionBits - 1));
    constexpr std::uint64_t double_fraction = (std::uint64_t{1} << 52) - 1;

    const std::uint64_t bits = bit_cast<std::uint64_t>(value);
    const std::uint64_t sign = (bits >> 63) << 15;
    const std::uint64_t fraction = bits & double_fraction;
    const int biased_exponent = static_cast<int>((bits >> 52) & 0x7ff);
    if (biased_exponent == 0x7ff) {
        return static_cast<std::uint16_t>(sign | (fraction == 0 ? infinity : quiet_nan));
    }
    const int exponent = biased_exponent - 1023;
    if (exponent > bias) {
        return static_cast<std::uint16_t>(sign | infinity);
    }
    // Below the smallest normal number the spacing stays that of the smallest exponent: more bits are
    // dropped.
    const int missing = exponent < 1 - bias ? 1 - bias - exponent : 0;
    const int dropped = 52 - FractionBits + missing;
    if (dropped > 53) {
        return static_cast<std::uint16_t>(sign);  // less than half of the smallest subnormal number
    }
    const std::uint64_t significand = fraction | (std::uint64_t{1} << 52);
    const std::uint64_t rest = significand & ((std::uint64_t{1} << dropped) - 1);
    const std::uint64_t tie = std::uint64_t{1} << (dropped - 1);
    std::uint64_t kept = significand >> dropped;
    if (rest > tie || (rest == tie && (kept & 1) != 0)) {
        ++kept;
    }
    // The leading bit of a normal significand adds the last one to the exponent field, and so does the carry
    // of a round-up, from subnormal to normal and from the largest finite number to infinity alike.
    const std::uint64_t lower_exponents =
        missing > 0 ? 0 : static_cast<std::uint64_t>(exponent + bias - 1) << FractionBits;
    return static_cast<std::uint16_t>(sign | (lower_exponents + kept));
}

}  // namespace detail

// IEEE 754 binary16 ("half") and bfloat16 as bit patterns, and what they are worth. Pure functions:
// constexpr, no errors, callable from any thread, independent of the rounding mode.

/// The value of a half, exactly: subnormal numbers, 0 of either sign, infinities and NaN payloads included.
constexpr float float_from_half(std::uint16_t bits) noexcept {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0) {
        const float magnitude =
            static_cast<float>(fraction) * 0x1p-24f;  // exact: ten bits times a power of two
        return sign != 0 ? -magnitude : magnitude;
    }
    const std::uint32_t widened = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
    return bit_cast<float>(sign | (widened << 23) | (fraction << 13));
}

/// The value of a bfloat16, exactly: it is the upper half of a float.
constexpr float float_from_bfloat16(std::uint16_t bits) noexcept {
    return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The value of a float of 8 bits with 4 of exponent and 3 of fraction (F8_E4M3, torch.float8_e4m3fn),
/// exactly: it has no infinities, and a NaN of either sign.
constexpr float float_from_e4m3(std::uint8_t bits) noexcept {
    const auto sign = static_cast<std::uint16_t>((bits & 0x80u) << 8);
    const unsigned magnitude = bits & 0x7fu;
    // A half has the same fields, at the right, and an exponent of 2^8 less.
    return magnitude == 0x7f ? float_from_half(0x7e00)
                             : float_from_half(static_cast<std::uint16_t>(sign | magnitude << 7)) * 256;
}

/// The half nearest to `value`, ties to even; infinity from 65520 on; a quiet NaN for every NaN.
constexpr std::uint16_t half_from_double(double value) noexcept {
    return detail::narrow<5, 10>(value);
}

/// The bfloat16 nearest to `value`, ties to even; infinity where the next power of two would be 2^128; a
/// quiet NaN for every NaN.
constexpr std::uint16_t bfloat16_from_double(double value) noexcept {
    return detail::narrow<8, 7>(value);
}

}  // namespace tensafe::io
