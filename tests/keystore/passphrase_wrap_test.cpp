#include <tensafe/core/error.hpp>
#include <tensafe/keystore/hex.hpp>
#include <tensafe/keystore/passphrase_wrap.hpp>

#include <doctest/doctest.h>
#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../io/file_builder.hpp"

namespace keystore = tensafe::keystore;
using tensafe::test::to_bytes;

namespace {

using bytes32 = std::array<std::byte, 32>;

constexpr keystore::scrypt_cost cheap{10, 8, 1};

bytes32 salt_of(std::string_view text) {
    bytes32 salt{};
    std::transform(text.begin(), text.end(), salt.begin(), [](char c) { return static_cast<std::byte>(c); });
    return salt;
}

struct wrapped {
    std::array<std::uint8_t, 32> secret{};
    bytes32 sealed{};
    std::array<std::byte, 16> tag{};
};

wrapped wrap(const keystore::passphrase& phrase, const bytes32& salt) {
    wrapped made;
    for (std::size_t i = 0; i < made.secret.size(); ++i) {
        made.secret[i] = static_cast<std::uint8_t>(i + 1);
    }
    keystore::detail::wrap_secret(phrase, salt, cheap, to_bytes("header"), made.secret, made.sealed,
                                  made.tag);
    return made;
}

}  // namespace

TEST_CASE("keys of passphrases are those of another implementation of scrypt") {
    // hashlib.scrypt of Python, on a salt of 32 bytes padded with zeros.
    bytes32 key{};
    keystore::detail::derive_wrap_key(keystore::passphrase("pleaseletmein"), salt_of("SodiumChloride"),
                                      {14, 8, 1}, key);
    CHECK(keystore::hex(key) == "708e73101bafc2427465b15ac71a52f9048f8e31f016e9f5dcac618c6af5902e");
    keystore::detail::derive_wrap_key(keystore::passphrase("pleaseletmein"), salt_of("SodiumChloride"),
                                      {10, 16, 3}, key);
    CHECK(keystore::hex(key) == "7df08d574d0530468f413ece98450c19a20adef87d9b94ef19c343bfe41d0396");
}

TEST_CASE("costs that a hostile file could ask for are not allowed, from 1 MiB to 256 they are") {
    CHECK(keystore::scrypt_cost{}.allowed());
    CHECK(keystore::scrypt_cost{}.memory_bytes() == 128u << 20);
    CHECK(cheap.allowed());
    CHECK(cheap.memory_bytes() == 1u << 20);
    CHECK(keystore::scrypt_cost{18, 8, 2}.allowed());
    CHECK(keystore::scrypt_cost{17, 8, 4}.allowed());
    CHECK(keystore::scrypt_cost{20, 2, 1}.allowed());
    CHECK(keystore::scrypt_cost{15, 64, 1}.allowed());
    CHECK(keystore::scrypt_cost{15, 1, 1}.allowed());
    for (const keystore::scrypt_cost& cost :
         {keystore::scrypt_cost{0, 8, 1}, keystore::scrypt_cost{9, 64, 1}, keystore::scrypt_cost{10, 4, 1},
          keystore::scrypt_cost{21, 1, 1}, keystore::scrypt_cost{63, 8, 1}, keystore::scrypt_cost{64, 8, 1},
          keystore::scrypt_cost{~0u, ~0u, ~0u}, keystore::scrypt_cost{17, 0, 1},
          keystore::scrypt_cost{17, 8, 0}, keystore::scrypt_cost{19, 8, 1}, keystore::scrypt_cost{18, 8, 3},
          keystore::scrypt_cost{17, 8, 5}, keystore::scrypt_cost{16, 1, 1}, keystore::scrypt_cost{20, 1, 1},
          keystore::scrypt_cost{10, 8, 17}, keystore::scrypt_cost{10, 65, 1},
          keystore::scrypt_cost{10, ~0u, 1}}) {
        CAPTURE(cost.text());
        CHECK_FALSE(cost.allowed());
    }
}

TEST_CASE("a wrapped secret opens with its passphrase, salt, cost and header, and with nothing else") {
    const keystore::passphrase phrase("open sesame");
    const bytes32 salt = salt_of("salt");
    const wrapped made = wrap(phrase, salt);
    const auto header = to_bytes("header");
    const auto opens = [&](const keystore::passphrase& with, const bytes32& with_salt,
                           const keystore::scrypt_cost& cost, std::string_view with_header,
                           const wrapped& from) {
        std::array<std::uint8_t, 32> secret;
        secret.fill(0xee);
        const bool open = keystore::detail::unwrap_secret(with, with_salt, cost, to_bytes(with_header),
                                                          from.sealed, from.tag, secret);
        CHECK(secret == (open ? made.secret : std::array<std::uint8_t, 32>{}));  // nothing half open
        return open;
    };
    CHECK(std::as_bytes(std::span(made.secret)).front() != made.sealed.front());
    CHECK(opens(phrase, salt, cheap, "header", made));
    CHECK_FALSE(opens(keystore::passphrase("open sesamf"), salt, cheap, "header", made));
    CHECK_FALSE(opens(keystore::passphrase("open sesame "), salt, cheap, "header", made));
    CHECK_FALSE(opens(phrase, salt_of("sals"), cheap, "header", made));
    CHECK_FALSE(opens(phrase, salt, {11, 8, 1}, "header", made));
    CHECK_FALSE(opens(phrase, salt, {10, 9, 1}, "header", made));
    CHECK_FALSE(opens(phrase, salt, {10, 8, 2}, "header", made));
    CHECK_FALSE(opens(phrase, salt, cheap, "headers", made));
    CHECK_FALSE(opens(phrase, salt, cheap, "", made));
    wrapped changed = made;
    changed.sealed[31] ^= std::byte{1};
    CHECK_FALSE(opens(phrase, salt, cheap, "header", changed));
    changed = made;
    changed.tag[0] ^= std::byte{1};
    CHECK_FALSE(opens(phrase, salt, cheap, "header", changed));
    CHECK(ERR_peek_error() == 0);  // a wrong passphrase leaves no report in OpenSSL's queue
}
