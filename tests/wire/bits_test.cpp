#include <tensafe/wire/bits.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using tensafe::format_error;
using tensafe::parameter_error;
using tensafe::shape_error;
using tensafe::wire::pack_bits;
using tensafe::wire::packed_bytes;
using tensafe::wire::unpack_bits;

constexpr std::size_t counts[] = {0, 1, 2, 3, 5, 7, 8, 9, 31, 64, 65, 200};

template <class T>
constexpr T low_bits(T value, int bits) {
    return bits == std::numeric_limits<T>::digits ? value : static_cast<T>(value & ((T{1} << bits) - 1));
}

/// The definition, bit by bit.
template <class T>
std::vector<std::uint8_t> reference(const std::vector<T>& values, int bits) {
    const auto width = static_cast<std::size_t>(bits);
    std::vector<std::uint8_t> out((values.size() * width + 7) / 8);
    for (std::size_t j = 0; j < values.size() * width; ++j) {
        const auto bit = static_cast<unsigned>(values[j / width] >> (j % width)) & 1U;
        out[j / 8] = static_cast<std::uint8_t>(out[j / 8] | bit << (j % 8));
    }
    return out;
}

template <class T>
std::vector<T> random_values(std::size_t count, int bits, std::mt19937_64& random) {
    std::vector<T> values(count);
    for (T& value : values) {
        value = low_bits(static_cast<T>(random()), bits);
    }
    return values;
}

static_assert(packed_bytes(0, 64) == 0);
static_assert(packed_bytes(3, 3) == 2);
static_assert(packed_bytes(8, 3) == 3);
static_assert(packed_bytes(std::size_t{1} << 60, 64) == std::size_t{1} << 63);

}  // namespace

TEST_CASE_TEMPLATE("packing agrees with the definition for every width", T, std::uint32_t, std::uint64_t) {
    std::mt19937_64 random(1);
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        for (const std::size_t count : counts) {
            CAPTURE(bits);
            CAPTURE(count);
            const std::vector<T> values = random_values<T>(count, bits, random);
            // Beside the output nothing is written.
            std::vector<std::uint8_t> bytes(packed_bytes(count, bits) + 2, 0xa5);
            pack_bits(values, bits, std::span(bytes).subspan(1, bytes.size() - 2));
            CHECK(bytes.front() == 0xa5);
            CHECK(bytes.back() == 0xa5);
            CHECK(std::vector<std::uint8_t>(bytes.begin() + 1, bytes.end() - 1) == reference(values, bits));

            std::vector<T> back(count + 2, 77);
            unpack_bits(std::span<const std::uint8_t>(bytes).subspan(1, bytes.size() - 2), bits,
                        std::span(back).subspan(1, count));
            CHECK(back.front() == 77);
            CHECK(back.back() == 77);
            CHECK(std::vector<T>(back.begin() + 1, back.end() - 1) == values);
        }
    }
}

TEST_CASE_TEMPLATE("values of all ones touch no neighbour", T, std::uint32_t, std::uint64_t) {
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        CAPTURE(bits);
        std::vector<T> values(67);
        for (std::size_t k = 0; k < values.size(); k += 2) {
            values[k] = low_bits(std::numeric_limits<T>::max(), bits);
        }
        std::vector<std::uint8_t> bytes(packed_bytes(values.size(), bits));
        pack_bits(values, bits, bytes);
        std::vector<T> back(values.size());
        unpack_bits(bytes, bits, back);
        CHECK(back == values);
    }
}

TEST_CASE_TEMPLATE("bits above the width are ignored", T, std::uint32_t, std::uint64_t) {
    std::mt19937_64 random(2);
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        CAPTURE(bits);
        const std::vector<T> values = random_values<T>(50, std::numeric_limits<T>::digits, random);
        std::vector<T> cut(values.size());
        std::transform(values.begin(), values.end(), cut.begin(), [&](T v) { return low_bits(v, bits); });
        std::vector<std::uint8_t> bytes(packed_bytes(values.size(), bits));
        pack_bits(values, bits, bytes);
        CHECK(bytes == reference(cut, bits));
    }
}

TEST_CASE_TEMPLATE("each dirty bit of the padding is refused and nothing is written", T, std::uint32_t,
                   std::uint64_t) {
    std::mt19937_64 random(3);
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        for (const std::size_t count : counts) {
            const std::vector<T> values = random_values<T>(count, bits, random);
            const std::vector<std::uint8_t> clean = reference(values, bits);
            for (std::size_t bit = count * static_cast<std::size_t>(bits); bit < 8 * clean.size(); ++bit) {
                CAPTURE(bits);
                CAPTURE(count);
                CAPTURE(bit);
                std::vector<std::uint8_t> dirty = clean;
                dirty.back() = static_cast<std::uint8_t>(dirty.back() | 1U << (bit % 8));
                std::vector<T> back(count, 77);
                CHECK_THROWS_WITH_AS(unpack_bits(dirty, bits, back),
                                     "unpack_bits: the unused bits of the last byte are not zero",
                                     format_error);
                CHECK(back == std::vector<T>(count, 77));
            }
        }
    }
}

TEST_CASE("wrong sizes and widths are named") {
    std::vector<std::uint32_t> narrow(5);
    std::vector<std::uint64_t> wide(5);
    std::vector<std::uint8_t> bytes(3);
    CHECK_THROWS_WITH_AS(pack_bits(narrow, 3, bytes),
                         "pack_bits: got 3 bytes, wanted 2 for 5 values of 3 bits", shape_error);
    CHECK_THROWS_WITH_AS(unpack_bits(bytes, 6, wide),
                         "unpack_bits: got 3 bytes, wanted 4 for 5 values of 6 bits", shape_error);
    CHECK_THROWS_AS(unpack_bits({}, 6, wide), shape_error);
    CHECK_THROWS_AS(unpack_bits(bytes, 6, std::span<std::uint32_t>{}), shape_error);
    for (const int bits : {-1, 0, 33}) {
        CHECK_THROWS_AS(pack_bits(narrow, bits, bytes), parameter_error);
        CHECK_THROWS_AS(unpack_bits(bytes, bits, narrow), parameter_error);
    }
    for (const int bits : {-1, 0, 65}) {
        CHECK_THROWS_AS(pack_bits(wide, bits, bytes), parameter_error);
    }
    CHECK_THROWS_WITH_AS(unpack_bits(bytes, 65, wide), "unpack_bits: bits: got 65, wanted 1 to 64",
                         parameter_error);
}

TEST_CASE("the order of bits is little endian") {
    const std::vector<std::uint32_t> values{1, 2, 3};
    std::vector<std::uint8_t> bytes(2);
    pack_bits(values, 4, bytes);
    CHECK(bytes == std::vector<std::uint8_t>{0x21, 0x03});
}
