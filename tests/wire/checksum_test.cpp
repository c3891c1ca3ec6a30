#include <tensafe/wire/checksum.hpp>

#include "../backends.hpp"
#include "../guarded_pages.hpp"

using namespace tests;

namespace {

using tensafe::wire::crc32c;
using bytes = std::vector<std::uint8_t>;

/// The definition: division by the polynomial, a bit at a time.
std::uint32_t reference(std::span<const std::uint8_t> message) {
    std::uint32_t remainder = 0xFFFFFFFF;
    for (const std::uint8_t byte : message) {
        for (int bit = 0; bit < 8; ++bit) {
            const bool top = ((remainder ^ (std::uint32_t{byte} >> bit)) & 1) != 0;
            remainder = (remainder >> 1) ^ (top ? 0x82F63B78U : 0U);
        }
    }
    return ~remainder;
}

bytes random_bytes(std::size_t count, std::uint32_t seed) {
    return random_numbers(seed).bytes(count);
}

}  // namespace

TEST_CASE("the checksums are those that RFC 3720 lists") {
    bytes ascending(32);
    std::iota(ascending.begin(), ascending.end(), std::uint8_t{0});
    const bytes descending(ascending.rbegin(), ascending.rend());
    constexpr std::string_view digits = "123456789";
    for_each_backend([&](auto) {
        CHECK(crc32c(bytes(32, 0)) == 0x8A9136AA);
        CHECK(crc32c(bytes(32, 0xFF)) == 0x62A8AB43);
        CHECK(crc32c(ascending) == 0x46DD794E);
        CHECK(crc32c(descending) == 0x113FDB5C);
        CHECK(crc32c(bytes(digits.begin(), digits.end())) == 0xE3069283);
        CHECK(crc32c({}) == 0);
    });
}

TEST_CASE("every back-end divides by the polynomial, at all lengths to 300 and all offsets in a word") {
    const bytes data = random_bytes(308, 1);
    for (std::size_t offset = 0; offset < 8; ++offset) {
        for (std::size_t length = 0; length <= 300; ++length) {
            const auto part = std::span(data).subspan(offset, length);
            const std::uint32_t expected = reference(part);
            for_each_backend([&](auto) {
                if (crc32c(part) != expected) {
                    FAIL_CHECK("offset " << offset << ", length " << length);
                }
            });
        }
    }
}

TEST_CASE("long messages agree too, around the lengths where streams begin") {
    const bytes data = random_bytes(20'000, 2);
    for (const std::size_t length :
         {1023U, 1024U, 3071U, 3072U, 3073U, 4096U, 6143U, 6144U, 9217U, 19'999U}) {
        for (const std::size_t offset : {0U, 1U}) {
            const auto part = std::span(data).subspan(offset, length);
            INFO("offset := ", offset, ", length := ", length);
            for_each_backend([&](auto) { CHECK(crc32c(part) == reference(part)); });
        }
    }
}

TEST_CASE("a checksum goes on where another one ended") {
    const bytes data = random_bytes(7000, 3);
    const std::uint32_t whole = reference(data);
    for_each_backend([&](auto) {
        for (const std::size_t cut : {0U, 1U, 7U, 8U, 100U, 3072U, 3500U, 6999U, 7000U}) {
            CAPTURE(cut);
            CHECK(crc32c(std::span(data).subspan(cut), crc32c(std::span(data).first(cut))) == whole);
        }
    });
}

TEST_CASE("nothing beside the bytes is read") {
    const guarded_pages memory;
    for (const std::size_t length : {0U, 1U, 7U, 8U, 9U, 63U, 3072U, 3079U}) {
        for (const bool at_end : {false, true}) {
            const auto part = memory.place<std::uint8_t>(length, at_end);
            const bytes data = random_bytes(length, 4);
            std::copy(data.begin(), data.end(), part.begin());
            for_each_backend([&](auto) { CHECK(crc32c(part) == reference(data)); });
        }
    }
}
