#include <tensafe/keystore/sha256.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using namespace tensafe::keystore;

// The examples of FIPS 180-2, and what pieces and reuse must not change.

static_assert(std::is_move_constructible_v<sha256> && !std::is_copy_constructible_v<sha256>);

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("bytes become two lower-case digits each, the high one first, and come back") {
    const std::array<std::byte, 4> bytes = {std::byte{0x00}, std::byte{0x0f}, std::byte{0xf0},
                                            std::byte{0xab}};
    CHECK(hex(bytes) == "000ff0ab");
    CHECK(hex({}).empty());
    CHECK(from_hex<4>("000ff0ab") == bytes);

    std::array<std::byte, 256> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = static_cast<std::byte>(i);
    }
    CHECK(from_hex<256>(hex(all)) == all);
}

TEST_CASE("hexadecimal text of another length or with another character is refused without showing it") {
    for (const std::string text : {"", "ab", "abcde", "abcdef", "ABCD", "0xab", "ab c", "abc", "ab:d", "abcg",
                                   "ab\xc3\xa4", "abc/", "abc`"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(from_hex<2>(text), format_error);
    }
    CHECK_THROWS_AS(from_hex<2>(std::string("ab\0d", 4)), format_error);
    CHECK_THROWS_WITH(from_hex<2>("abcX", "key"), "key: character 3 is not a lower-case hexadecimal digit");
    CHECK_THROWS_WITH(from_hex<2>("abc", "key"),
                      "key: got 3 characters, expected 4 lower-case hexadecimal digits");
}

TEST_CASE("SHA-256 gives the digests of FIPS 180-2") {
    CHECK(hex(sha256::of({})) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex(sha256::of(bytes_of("abc"))) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex(sha256::of(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(hex(sha256::of(bytes_of(std::string(1'000'000, 'a')))) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("HMAC-SHA-256 gives the codes of RFC 4231") {
    const std::vector<std::byte> key(20, std::byte{0x0b});
    CHECK(hex(hmac_sha256(key, "Hi There")) ==
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    const std::vector<std::byte> longer(131, std::byte{0xaa});
    CHECK(hex(hmac_sha256(longer, "Test Using Larger Than Block-Size Key - Hash Key First")) ==
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("a message in pieces has the digest of the whole") {
    random_numbers generator(1);
    const auto drawn = generator.bytes(1000);
    const std::string message(drawn.begin(), drawn.end());
    for (int round = 0; round < 50; ++round) {
        sha256 hash;
        for (std::string_view rest = message; !rest.empty();) {
            const std::size_t count = std::min<std::size_t>(rest.size(), generator() % 130);
            hash.update(bytes_of(rest.substr(0, count)));
            rest.remove_prefix(count);
        }
        CHECK(hash.finish() == sha256::of(bytes_of(message)));
    }
}

TEST_CASE("finish begins a new message, and a moved hash goes on where it was") {
    sha256 first;
    CHECK(first.finish() == sha256::of({}));
    first.update(bytes_of("a"));
    sha256 second(std::move(first));
    second.update(bytes_of("bc"));
    CHECK(second.finish() == sha256::of(bytes_of("abc")));
    CHECK(second.finish() == sha256::of({}));
    second.update(bytes_of("abc"));
    CHECK(second.finish() == sha256::of(bytes_of("abc")));
}
