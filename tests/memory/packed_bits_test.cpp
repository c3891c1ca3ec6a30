#include <tensafe/memory/packed_bits.hpp>

#include "../backends.hpp"
#include "../guarded_pages.hpp"

namespace {

using namespace tensafe;
using namespace tensafe::memory;

/// 0 to 70, the least counts of the vectors and their neighbours, and many.
std::vector<std::size_t> counts() {
    std::vector<std::size_t> result(71);
    std::iota(result.begin(), result.end(), std::size_t{0});
    result.insert(result.end(), {127, 128, 129, 200, 4096});
    return result;
}

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
std::vector<T> random_values(std::size_t count, int bits, tests::random_numbers& random) {
    return random.many(count, [&] { return low_bits(static_cast<T>(random()), bits); });
}

static_assert(packed_bytes(0, 64) == 0);
static_assert(packed_bytes(3, 3) == 2);
static_assert(packed_bytes(8, 3) == 3);
static_assert(packed_bytes(std::size_t{1} << (std::numeric_limits<std::size_t>::digits - 4), 64) ==
              std::size_t{1} << (std::numeric_limits<std::size_t>::digits - 1));

}  // namespace

TEST_CASE_TEMPLATE("packing agrees with the definition for every width and back-end", T, std::uint32_t,
                   std::uint64_t) {
    tests::random_numbers random(1);
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        for (const std::size_t count : counts()) {
            const std::vector<T> values = random_values<T>(count, bits, random);
            const std::vector<std::uint8_t> packed = reference(values, bits);
            tests::for_each_backend([&](auto) {
                INFO("bits := ", bits, ", count := ", count);
                // Beside the output nothing is written.
                std::vector<std::uint8_t> bytes(packed_bytes(count, bits) + 2, 0xa5);
                pack_bits(values, bits, std::span(bytes).subspan(1, bytes.size() - 2));
                CHECK(bytes.front() == 0xa5);
                CHECK(bytes.back() == 0xa5);
                CHECK(std::equal(packed.begin(), packed.end(), bytes.begin() + 1));

                std::vector<T> back(count + 2, 77);
                unpack_bits(std::span<const std::uint8_t>(bytes).subspan(1, bytes.size() - 2), bits,
                            std::span(back).subspan(1, count));
                CHECK(back.front() == 77);
                CHECK(back.back() == 77);
                CHECK(std::equal(values.begin(), values.end(), back.begin() + 1));
            });
        }
    }
}

TEST_CASE_TEMPLATE("nothing outside the spans is touched, not even read", T, std::uint32_t, std::uint64_t) {
    tests::random_numbers random(4);
    const tests::guarded_pages values_memory;
    const tests::guarded_pages bytes_memory;
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        for (const std::size_t count : {1U, 7U, 8U, 16U, 17U, 24U, 31U, 64U, 128U, 131U, 200U}) {
            const std::vector<T> values = random_values<T>(count, bits, random);
            const std::size_t size = packed_bytes(count, bits);
            tests::for_each_backend([&](auto) {
                for (const bool at_end : {false, true}) {
                    const std::span<T> words = values_memory.template place<T>(count, at_end);
                    const std::span<std::uint8_t> bytes = bytes_memory.place<std::uint8_t>(size, at_end);
                    std::copy(values.begin(), values.end(), words.begin());
                    pack_bits(std::span<const T>(words), bits, bytes);
                    std::fill(words.begin(), words.end(), T{0});
                    unpack_bits(std::span<const std::uint8_t>(bytes), bits, words);
                    CHECK(std::equal(values.begin(), values.end(), words.begin()));
                }
            });
        }
    }
}

TEST_CASE("values not below a prime are found wherever they are, and all values are written") {
    tests::random_numbers random(5);
    for (int bits = 2; bits <= 64; ++bits) {
        const std::uint64_t top = ~std::uint64_t{0} >> (64 - bits);
        for (const std::uint64_t q : {std::uint64_t{1}, top / 2 + 2, top - 1, top}) {
            for (const std::size_t count : {1U, 9U, 40U, 131U}) {
                std::vector<std::uint64_t> values(count);
                std::generate(values.begin(), values.end(), [&] { return random() % q; });
                values.front() = q - 1;
                values.back() = q - 1;
                const std::size_t bad_at = random() % count;
                for (const bool bad : {false, true}) {
                    if (bad) {
                        values[bad_at] = random() % 2 == 0 ? q : top;
                    }
                    const std::vector<std::uint8_t> bytes = reference(values, bits);
                    tests::for_each_backend([&](auto) {
                        INFO("bits := ", bits, ", q := ", q, ", count := ", count, ", bad_at := ", bad_at);
                        std::vector<std::uint64_t> back(count, 77);
                        CHECK(unpack_bits_below(bytes, bits, q, back) == !bad);
                        CHECK(back == values);
                    });
                }
            }
        }
    }
    CHECK(unpack_bits_below({}, 7, 0, {}));
}

TEST_CASE_TEMPLATE("values of all ones touch no neighbour", T, std::uint32_t, std::uint64_t) {
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        CAPTURE(bits);
        std::vector<T> values(167);
        for (std::size_t k = 0; k < values.size(); k += 2) {
            values[k] = low_bits(std::numeric_limits<T>::max(), bits);
        }
        tests::for_each_backend([&](auto) {
            std::vector<std::uint8_t> bytes(packed_bytes(values.size(), bits));
            pack_bits(values, bits, bytes);
            std::vector<T> back(values.size());
            unpack_bits(bytes, bits, back);
            CHECK(back == values);
        });
    }
}

TEST_CASE_TEMPLATE("bits above the width are ignored", T, std::uint32_t, std::uint64_t) {
    tests::random_numbers random(2);
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        CAPTURE(bits);
        const std::vector<T> values = random_values<T>(150, std::numeric_limits<T>::digits, random);
        std::vector<T> cut(values.size());
        std::transform(values.begin(), values.end(), cut.begin(), [&](T v) { return low_bits(v, bits); });
        const std::vector<std::uint8_t> expected = reference(cut, bits);
        tests::for_each_backend([&](auto) {
            std::vector<std::uint8_t> bytes(packed_bytes(values.size(), bits));
            pack_bits(values, bits, bytes);
            CHECK(bytes == expected);
        });
    }
}

TEST_CASE_TEMPLATE("each dirty bit of the padding is refused and nothing is written", T, std::uint32_t,
                   std::uint64_t) {
    tests::random_numbers random(3);
    for (int bits = 1; bits <= std::numeric_limits<T>::digits; ++bits) {
        for (const std::size_t count : {1U, 3U, 7U, 9U, 31U, 65U, 131U}) {
            const std::vector<T> values = random_values<T>(count, bits, random);
            const std::vector<std::uint8_t> clean = reference(values, bits);
            for (std::size_t bit = count * static_cast<std::size_t>(bits); bit < 8 * clean.size(); ++bit) {
                INFO("bits := ", bits, ", count := ", count, ", bit := ", bit);
                std::vector<std::uint8_t> dirty = clean;
                dirty.back() = static_cast<std::uint8_t>(dirty.back() | 1U << (bit % 8));
                tests::for_each_backend([&](auto) {
                    std::vector<T> back(count, 77);
                    CHECK_THROWS_WITH_AS(unpack_bits(dirty, bits, back),
                                         "unpack_bits: the unused bits of the last byte are not zero",
                                         format_error);
                    CHECK(back == std::vector<T>(count, 77));
                });
            }
        }
    }
}

TEST_CASE("wrong sizes and widths are named") {
    std::vector<std::uint32_t> narrow(5);
    std::vector<std::uint64_t> wide(5);
    std::vector<std::uint8_t> bytes(3);
    CHECK_THROWS_WITH_AS(pack_bits(narrow, 3, bytes),
                         "pack_bits: got 3 bytes, expected 2 for 5 values of 3 bits", shape_error);
    CHECK_THROWS_WITH_AS(unpack_bits(bytes, 6, wide),
                         "unpack_bits: got 3 bytes, expected 4 for 5 values of 6 bits", shape_error);
    CHECK_THROWS_AS(unpack_bits({}, 6, wide), shape_error);
    CHECK_THROWS_AS(unpack_bits(bytes, 6, std::span<std::uint32_t>{}), shape_error);
    for (const int bits : {-1, 0, 33}) {
        CHECK_THROWS_AS(pack_bits(narrow, bits, bytes), parameter_error);
        CHECK_THROWS_AS(unpack_bits(bytes, bits, narrow), parameter_error);
    }
    for (const int bits : {-1, 0, 65}) {
        CHECK_THROWS_AS(pack_bits(wide, bits, bytes), parameter_error);
    }
    CHECK_THROWS_WITH_AS(unpack_bits(bytes, 65, wide), "unpack_bits: bits: got 65, expected 1 to 64",
                         parameter_error);
}

TEST_CASE("the order of bits is little endian") {
    const std::vector<std::uint32_t> values{1, 2, 3};
    std::vector<std::uint8_t> bytes(2);
    pack_bits(values, 4, bytes);
    CHECK(bytes == std::vector<std::uint8_t>{0x21, 0x03});
}
