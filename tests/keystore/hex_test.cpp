#include <tensafe/core/error.hpp>
#include <tensafe/keystore/hex.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string>

using tensafe::keystore::from_hex;

TEST_CASE("bytes become two lower-case digits each, the high one first, and come back") {
    const std::array<std::byte, 4> bytes = {std::byte{0x00}, std::byte{0x0f}, std::byte{0xf0},
                                            std::byte{0xab}};
    CHECK(tensafe::keystore::hex(bytes) == "000ff0ab");
    CHECK(tensafe::keystore::hex({}).empty());
    CHECK(from_hex<4>("000ff0ab") == bytes);

    std::array<std::byte, 256> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = static_cast<std::byte>(i);
    }
    CHECK(from_hex<256>(tensafe::keystore::hex(all)) == all);
}

TEST_CASE("hexadecimal text of another length or with another character is refused without showing it") {
    for (const std::string text : {"", "ab", "abcde", "abcdef", "ABCD", "0xab", "ab c", "abc", "ab:d", "abcg",
                                   "ab\xc3\xa4", "abc/", "abc`"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(from_hex<2>(text), tensafe::format_error);
    }
    CHECK_THROWS_AS(from_hex<2>(std::string("ab\0d", 4)), tensafe::format_error);
    CHECK_THROWS_WITH(from_hex<2>("abcX", "key"), "key: character 3 is not a lower-case hexadecimal digit");
    CHECK_THROWS_WITH(from_hex<2>("abc", "key"),
                      "key: got 3 characters, expected 4 lower-case hexadecimal digits");
}
