#include <tensafe/io/half.hpp>

#include "../test.hpp"

using namespace tests;
using namespace tensafe::io;

namespace {

struct half_format {
    static constexpr int exponent_bits = 5;
    static constexpr int fraction_bits = 10;
    static float widen(std::uint16_t bits) { return float_from_half(bits); }
    static std::uint16_t narrow(double value) { return half_from_double(value); }
};

struct bfloat16_format {
    static constexpr int exponent_bits = 8;
    static constexpr int fraction_bits = 7;
    static float widen(std::uint16_t bits) { return float_from_bfloat16(bits); }
    static std::uint16_t narrow(double value) { return bfloat16_from_double(value); }
};

template <class Format>
constexpr std::uint16_t infinity_bits = ((1 << Format::exponent_bits) - 1) << Format::fraction_bits;

/// The value by the textbook: sign * fraction * 2^exponent. Also past the largest finite pattern, where the
/// formula gives the next power of two: that is where rounding to infinity begins.
template <class Format>
double textbook(int magnitude_bits) {
    const int fraction = magnitude_bits & ((1 << Format::fraction_bits) - 1);
    const int exponent = magnitude_bits >> Format::fraction_bits;
    const int bias = (1 << (Format::exponent_bits - 1)) - 1;
    if (exponent == 0) {
        return std::ldexp(fraction, 1 - bias - Format::fraction_bits);
    }
    return std::ldexp(fraction + (1 << Format::fraction_bits), exponent - bias - Format::fraction_bits);
}

// Loops over all patterns count their failures: a doctest assertion for each would take minutes.

template <class Format>
int widening_mistakes() {
    int mistakes = 0;
    for (int bits = 0; bits < infinity_bits<Format>; ++bits) {
        const float plus = Format::widen(static_cast<std::uint16_t>(bits));
        const float minus = Format::widen(static_cast<std::uint16_t>(bits | 0x8000));
        mistakes += static_cast<double>(plus) != textbook<Format>(bits);
        mistakes += static_cast<double>(minus) != -textbook<Format>(bits);
        mistakes += std::signbit(plus) || !std::signbit(minus);
    }
    return mistakes;
}

template <class Format>
int round_trip_mistakes() {
    int mistakes = 0;
    for (int bits = 0; bits < infinity_bits<Format>; ++bits) {
        for (const int sign : {0, 0x8000}) {
            const auto pattern = static_cast<std::uint16_t>(bits | sign);
            mistakes += Format::narrow(static_cast<double>(Format::widen(pattern))) != pattern;
        }
    }
    return mistakes;
}

/// Between each two neighbours: the middle goes to the even one, one double below and above it to the nearer
/// one.
template <class Format>
int rounding_mistakes() {
    int mistakes = 0;
    for (int lower = 0; lower < infinity_bits<Format>; ++lower) {
        const double middle = (textbook<Format>(lower) + textbook<Format>(lower + 1)) / 2;  // exact in double
        const int even = lower % 2 == 0 ? lower : lower + 1;
        for (const int sign : {0, 0x8000}) {
            const auto narrowed = [&](double magnitude) {
                return Format::narrow(sign == 0 ? magnitude : -magnitude) ^ sign;
            };
            mistakes += narrowed(middle) != even;
            mistakes += narrowed(std::nextafter(middle, 0.0)) != lower;
            mistakes += narrowed(std::nextafter(middle, infinity)) != lower + 1;
        }
    }
    return mistakes;
}

}  // namespace

TEST_CASE_TEMPLATE("every 16-bit pattern widens to its textbook value", Format, half_format,
                   bfloat16_format) {
    CHECK(widening_mistakes<Format>() == 0);
}

TEST_CASE_TEMPLATE("every finite 16-bit value survives a round trip", Format, half_format, bfloat16_format) {
    CHECK(round_trip_mistakes<Format>() == 0);
}

TEST_CASE_TEMPLATE("doubles round to the nearest 16-bit value, ties to even, without rounding twice", Format,
                   half_format, bfloat16_format) {
    CHECK(rounding_mistakes<Format>() == 0);
}

TEST_CASE_TEMPLATE("infinities, NaN and the extremes of double keep their meaning", Format, half_format,
                   bfloat16_format) {
    CHECK(Format::narrow(infinity) == infinity_bits<Format>);
    CHECK(Format::narrow(-infinity) == (infinity_bits<Format> | 0x8000));
    CHECK(Format::narrow(std::numeric_limits<double>::max()) == infinity_bits<Format>);
    CHECK(Format::narrow(std::numeric_limits<double>::denorm_min()) == 0);
    CHECK(Format::narrow(-std::numeric_limits<double>::min()) == 0x8000);
    CHECK(Format::narrow(-0.0) == 0x8000);
    CHECK(std::isnan(Format::widen(Format::narrow(not_a_number))));
    CHECK(std::isnan(Format::widen(Format::narrow(-std::numeric_limits<double>::signaling_NaN()))));
    // A NaN whose payload sits only in bits that are dropped must not become an infinity.
    CHECK(std::isnan(Format::widen(Format::narrow(std::bit_cast<double>(0x7ff0000000000001u)))));
}

TEST_CASE_TEMPLATE("every pattern above infinity is NaN", Format, half_format, bfloat16_format) {
    int mistakes = 0;
    for (int bits = infinity_bits<Format> + 1; bits < 0x8000; ++bits) {
        mistakes += !std::isnan(Format::widen(static_cast<std::uint16_t>(bits)));
        mistakes += !std::isnan(Format::widen(static_cast<std::uint16_t>(bits | 0x8000)));
    }
    CHECK(mistakes == 0);
    CHECK(std::isinf(Format::widen(infinity_bits<Format>)));
}

TEST_CASE("well-known 16-bit values hold at compile time") {
    static_assert(float_from_half(0x3c00) == 1.0f);
    static_assert(float_from_half(0x7bff) == 65504.0f);
    static_assert(float_from_half(0x0001) == 0x1p-24f);
    static_assert(half_from_double(65519.999) == 0x7bff);
    static_assert(half_from_double(65520.0) == 0x7c00);
    static_assert(half_from_double(0x1p-25) == 0x0000);
    static_assert(half_from_double(0x1.8p-25) == 0x0001);
    static_assert(float_from_bfloat16(0x3f80) == 1.0f);
    static_assert(bfloat16_from_double(1.00390625) == 0x3f80);
    static_assert(bfloat16_from_double(3.14159265358979) == 0x4049);
}
