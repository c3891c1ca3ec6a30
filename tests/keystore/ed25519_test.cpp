// The vectors of RFC 8032, section 7.1, keys that must not be trusted, and key files that are none.

#include <tensafe/keystore/ed25519.hpp>

#include <openssl/err.h>

#include <sys/stat.h>

#include "../io/file_builder.hpp"

using namespace tests;
using namespace tensafe::keystore;

static_assert(!std::is_copy_constructible_v<signing_key> &&
              std::is_nothrow_move_constructible_v<signing_key>);
static_assert(!std::is_default_constructible_v<verifying_key>);

namespace {

struct vector_row {
    std::string secret;
    std::string key;
    std::string message;  // hexadecimal, as the others
    std::string signature;
};

const std::vector<vector_row> rfc_8032 = [] {
    std::ifstream file(TENSAFE_TEST_DATA "/keystore/rfc8032.txt");
    std::string comment;
    std::getline(file, comment);
    std::vector<vector_row> rows;
    for (vector_row row; file >> row.secret >> row.key >> row.message >> row.signature;) {
        row.message = row.message == "-" ? "" : row.message;
        rows.push_back(row);
    }
    return rows;
}();

std::vector<std::byte> bytes_of_hex(std::string_view text) {
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        bytes.push_back(from_hex<1>(text.substr(i, 2))[0]);
    }
    return bytes;
}

signing_key key_of(std::size_t row) {
    return signing_key::from_secret(from_hex<32>(rfc_8032[row].secret));
}

// What OpenSSL 3.0 writes for the first vector's key, its public half, another kind of key, and the public
// half of that.
const std::string private_pem =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
    "-----END PRIVATE KEY-----\n";
const std::string public_pem =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
    "-----END PUBLIC KEY-----\n";
const std::string x25519_private_pem =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VuBCIEIDgjDNgBknG310fQIxBY/utqFDQEAR7yZI0/aHbeF/tp\n"
    "-----END PRIVATE KEY-----\n";
const std::string x25519_public_pem =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VuAyEAJ0rWDLBAhLYAWIudvdZtUvzILyGJQ4LowGpFGUnUkz8=\n"
    "-----END PUBLIC KEY-----\n";
const std::string encrypted_pem =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
    "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAh1pTbE1MXT9wICCAAw\n"
    "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEIrWfOWhK7mwRNelJXz4G0YEQEGA\n"
    "jLga6AKvXESd18jmrGDL6NjoyjwnZtAdqXKxh3BsViNrzwD1qgJzPuFkUH+Sbxtp\n"
    "a6tWBK3TO1RN/RVVPmg=\n"
    "-----END ENCRYPTED PRIVATE KEY-----\n";

std::filesystem::path put_private(const temporary_directory& folder, std::string_view text) {
    const auto path = folder.put("key.pem", text);
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    return path;
}

}  // namespace

TEST_CASE("keys and signatures are those of RFC 8032") {
    REQUIRE(rfc_8032.size() == 4);
    for (std::size_t i = 0; i < rfc_8032.size(); ++i) {
        CAPTURE(i);
        const signing_key key = key_of(i);
        const auto message = bytes_of_hex(rfc_8032[i].message);
        CHECK(key.verifying().hex() == rfc_8032[i].key);
        CHECK(hex(key.sign(message)) == rfc_8032[i].signature);
        CHECK(
            verifying_key::from_hex(rfc_8032[i].key).verifies(message, from_hex<64>(rfc_8032[i].signature)));
    }
    CHECK(bytes_of_hex(rfc_8032[3].message).size() == 1023);
}

TEST_CASE("a signature fits its message and its key only") {
    const signing_key key = signing_key::generate();
    const signing_key other = signing_key::generate();
    CHECK_FALSE(key.verifying() == other.verifying());
    const auto message = to_bytes("an adapter");
    const ed25519_signature good = key.sign(message);
    CHECK(key.verifying().verifies(message, good));
    CHECK_FALSE(other.verifying().verifies(message, good));
    CHECK_FALSE(key.verifying().verifies(to_bytes("an adaptes"), good));
    CHECK_FALSE(key.verifying().verifies(to_bytes("an adapter "), good));
    CHECK_FALSE(key.verifying().verifies({}, good));
    for (std::size_t i = 0; i < good.size(); ++i) {
        CAPTURE(i);
        ed25519_signature flipped = good;
        flipped[i] ^= std::byte{0x10};
        CHECK_FALSE(key.verifying().verifies(message, flipped));
    }
    CHECK(key.verifying().verifies(message, good));  // what failed before leaves nothing behind
}

TEST_CASE("the other text of a signature, its number S plus the order of the group, does not fit") {
    // The order, 2^252 + 27742317777372353535851937790883648493, with the lowest byte first.
    const auto order = from_hex<32>("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    const auto message = to_bytes("an adapter");
    ed25519_signature signature = key_of(0).sign(message);
    unsigned carry = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
        carry += std::to_integer<unsigned>(signature[32 + i]) + std::to_integer<unsigned>(order[i]);
        signature[32 + i] = static_cast<std::byte>(carry);
        carry >>= 8;
    }
    REQUIRE(carry == 0);
    CHECK_FALSE(key_of(0).verifying().verifies(message, signature));
}

TEST_CASE("points of small order and coordinates that are not reduced are no public keys") {
    // The points whose order divides 8; the top bit is the sign of x.
    const std::string most(60, 'f');
    for (const std::string& y :
         {std::string(64, '0'), "01" + std::string(62, '0'), "ec" + most + "7f",
          std::string("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
          std::string("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")}) {
        CAPTURE(y);
        auto bytes = from_hex<32>(y);
        CHECK_THROWS_AS(verifying_key{bytes}, format_error);
        bytes[31] ^= std::byte{0x80};
        CHECK_THROWS_AS(verifying_key{bytes}, format_error);
    }
    CHECK_THROWS_WITH(verifying_key::from_hex("01" + std::string(62, '0')),
                      ("public key: 01" + std::string(62, '0') +
                       " cannot be trusted: it is a point of small order, for which anybody can sign")
                          .c_str());
    // p = 2^255 - 19 up to 2^255 - 1, with either sign.
    for (unsigned low = 0xed; low <= 0xff; ++low) {
        CAPTURE(low);
        auto bytes = from_hex<32>("00" + most + "7f");
        bytes[0] = static_cast<std::byte>(low);
        CHECK_THROWS_AS(verifying_key{bytes}, format_error);
        bytes[31] = std::byte{0xff};
        CHECK_THROWS_AS(verifying_key{bytes}, format_error);
    }
    // Their neighbours are keys like any other.
    for (const std::string& y : {"eb" + most + "7f", "ed" + most + "7e", "02" + std::string(62, '0'),
                                 "ed" + most.substr(2) + "fe7f"}) {
        CAPTURE(y);
        CHECK(verifying_key::from_hex(y).hex() == y);
    }
}

TEST_CASE("bytes that are no point of the curve verify nothing") {
    const verifying_key key = verifying_key::from_hex("02" + std::string(62, '0'));
    const auto message = to_bytes("an adapter");
    CHECK_FALSE(key.verifies(message, key_of(0).sign(message)));
    CHECK_FALSE(key.verifies(message, ed25519_signature{}));
    ed25519_signature neutral{};  // R the neutral point, S zero: what fits keys of small order
    neutral[0] = std::byte{1};
    CHECK_FALSE(key.verifies(message, neutral));
}

TEST_CASE("a public key's text is 64 lower-case digits") {
    const std::string text(rfc_8032[0].key);
    CHECK(verifying_key::from_hex(text) == key_of(0).verifying());
    CHECK_THROWS_AS(verifying_key::from_hex(text.substr(1)), format_error);
    CHECK_THROWS_AS(verifying_key::from_hex(text + "00"), format_error);
    CHECK_THROWS_AS(verifying_key::from_hex("D7" + text.substr(2)), format_error);
}

TEST_CASE("a key file comes back as the same key, is for its owner alone and is never written over") {
    const temporary_directory folder;
    const auto path = folder.path() / "key.pem";
    const signing_key key = signing_key::generate();
    key.write(path);
    CHECK(signing_key::read(path).verifying() == key.verifying());
    CHECK(signing_key::read(path).sign(to_bytes("x")) == key.sign(to_bytes("x")));
    CHECK(mode_of(path) == 0600);

    CHECK_THROWS_AS(signing_key::generate().write(path), io_error);
    CHECK(signing_key::read(path).verifying() == key.verifying());
    REQUIRE(::chmod(path.c_str(), 0644) == 0);
    CHECK_THROWS_AS(signing_key::read(path), io_error);
}

TEST_CASE("key files of OpenSSL are read, and ours are the same text") {
    const temporary_directory folder;
    CHECK(signing_key::read(put_private(folder, private_pem)).verifying() == key_of(0).verifying());
    CHECK(verifying_key::read(folder.put("public.pem", public_pem)) == key_of(0).verifying());
    CHECK(verifying_key::read(folder.put("public.pem", "comment\n" + public_pem + "more")) ==
          key_of(0).verifying());
    key_of(0).write(folder.path() / "ours.pem");
    const auto ours = tensafe::io::read_private_file(folder.path() / "ours.pem", 1000);
    CHECK(std::string(reinterpret_cast<const char*>(ours.data()), ours.size()) == private_pem);
}

TEST_CASE("key files that hold anything but one Ed25519 key without a passphrase are refused") {
    const temporary_directory folder;
    const auto read_private = [&](std::string_view text) {
        return signing_key::read(put_private(folder, text)).verifying();
    };
    const auto read_public = [&](std::string_view text) {
        return verifying_key::read(folder.put("public.pem", text));
    };
    for (const std::string& text :
         {std::string(), std::string("no key"), public_pem, private_pem + private_pem,
          private_pem.substr(0, 60), std::string("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"),
          std::string("-----BEGIN "), std::string(20'000, '-')}) {
        CAPTURE(text);
        CHECK_THROWS_AS(read_private(text), format_error);
    }
    CHECK_THROWS_AS(read_private(x25519_private_pem), unsupported_error);
    CHECK_THROWS_AS(read_private(encrypted_pem), unsupported_error);

    for (const std::string& text :
         {std::string(), std::string("no key"), private_pem, public_pem + public_pem,
          public_pem.substr(0, 60), std::string(20'000, '-')}) {
        CAPTURE(text);
        CHECK_THROWS_AS(read_public(text), format_error);
    }
    CHECK_THROWS_AS(read_public(x25519_public_pem), unsupported_error);
    // The neutral point in PEM.
    CHECK_THROWS_AS(read_public("-----BEGIN PUBLIC KEY-----\n"
                                "MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
                                "-----END PUBLIC KEY-----\n"),
                    format_error);
    CHECK_THROWS_AS(verifying_key::read(folder.path() / "missing"), io_error);
    CHECK_THROWS_AS(signing_key::read(folder.path() / "missing"), io_error);
    // An error leaves nothing behind that a later call would stumble over.
    CHECK(read_private(private_pem) == key_of(0).verifying());
}

TEST_CASE("reports of the application in OpenSSL's queue stay, and none of ours are added or taken for its") {
    const temporary_directory folder;
    const auto use_all = [&] {
        const signing_key key = signing_key::generate();
        ed25519_signature signature = key.sign(to_bytes("x"));
        CHECK(key.verifying().verifies(to_bytes("x"), signature));
        signature[0] ^= std::byte{1};
        CHECK_FALSE(key.verifying().verifies(to_bytes("x"), signature));
        std::array<std::byte, 32> no_point{};
        no_point[0] = std::byte{2};
        CHECK_FALSE(verifying_key(no_point).verifies(to_bytes("x"), signature));
        CHECK_THROWS_AS(signing_key::read(put_private(folder, private_pem.substr(0, 60))), format_error);
        CHECK_THROWS_AS(signing_key::read(put_private(folder, x25519_private_pem)), unsupported_error);
        CHECK_THROWS_AS(verifying_key::read(folder.put("public.pem", private_pem)), format_error);
        static_cast<void>(sha256::of(to_bytes("x")));
    };
    ERR_clear_error();
    use_all();
    CHECK(ERR_get_error() == 0);
    ERR_raise(ERR_LIB_USER, 7);
    ERR_raise(ERR_LIB_USER, 8);
    use_all();
    {
        const tensafe::keystore::openssl_reports reports;
        CHECK_THROWS_WITH(reports.fail("rest"), "OpenSSL: cannot rest: no reason given");
        ERR_raise(ERR_LIB_USER, 9);
        CHECK_THROWS_WITH(reports.check(0, "rest"), Contains("reason(9)"));
        CHECK_NOTHROW(reports.check(1, "rest"));
    }
    CHECK(ERR_GET_REASON(ERR_get_error()) == 7);
    CHECK(ERR_GET_REASON(ERR_get_error()) == 8);
    CHECK(ERR_get_error() == 0);
}
