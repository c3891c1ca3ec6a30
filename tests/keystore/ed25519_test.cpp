// The vectors of RFC 8032, section 7.1, keys that must not be trusted, and key files that are none.

#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/openssl.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <openssl/err.h>

#include <sys/stat.h>

#include "../io/file_builder.hpp"
#include "../test.hpp"

using namespace tests;
using namespace tensafe::keystore;

static_assert(!std::is_copy_constructible_v<signing_key> &&
              std::is_nothrow_move_constructible_v<signing_key>);
static_assert(!std::is_default_constructible_v<verifying_key>);

namespace {

struct vector_row {
    std::string_view secret;
    std::string_view key;
    std::string_view message;  // hexadecimal, as the others
    std::string_view signature;
};

const std::vector<vector_row> rfc_8032 = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f"
     "0"
     "595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2ea"
     "e"
     "b4302aeeb00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e"
     "9"
     "716ed28dc027beceea1ec40a"},
    {"f5e5767cf153319517630f226876b86c8160cc583bc013744c6bf255f5cc0ee5",
     "278117fc144c72340f67d0f2316e8386ceffbf2b2428c9c51fef7c597f1d426e",
     "08b8b2b733424243760fe426a4b54908632110a66c2f6591eabd3345e3e4eb98fa6e264bf09efe12ee50f8f54e9f77b1"
     "e355f6c50544e23fb1433ddf73be84d879de7c0046dc4996d9e773f4bc9efe5738829adb26c81b37c93a1b270b20329d"
     "658675fc6ea534e0810a4432826bf58c941efb65d57a338bbd2e26640f89ffbc1a858efcb8550ee3a5e1998bd177e93a"
     "7363c344fe6b199ee5d02e82d522c4feba15452f80288a821a579116ec6dad2b3b310da903401aa62100ab5d1a36553e"
     "06203b33890cc9b832f79ef80560ccb9a39ce767967ed628c6ad573cb116dbefefd75499da96bd68a8a97b928a8bbc10"
     "3b6621fcde2beca1231d206be6cd9ec7aff6f6c94fcd7204ed3455c68c83f4a41da4af2b74ef5c53f1d8ac70bdcb7ed1"
     "85ce81bd84359d44254d95629e9855a94a7c1958d1f8ada5d0532ed8a5aa3fb2d17ba70eb6248e594e1a2297acbbb39d"
     "502f1a8c6eb6f1ce22b3de1a1f40cc24554119a831a9aad6079cad88425de6bde1a9187ebb6092cf67bf2b13fd65f270"
     "88d78b7e883c8759d2c4f5c65adb7553878ad575f9fad878e80a0c9ba63bcbcc2732e69485bbc9c90bfbd62481d9089b"
     "eccf80cfe2df16a2cf65bd92dd597b0707e0917af48bbb75fed413d238f5555a7a569d80c3414a8d0859dc65a46128ba"
     "b27af87a71314f318c782b23ebfe808b82b0ce26401d2e22f04d83d1255dc51addd3b75a2b1ae0784504df543af8969b"
     "e3ea7082ff7fc9888c144da2af58429ec96031dbcad3dad9af0dcbaaaf268cb8fcffead94f3c7ca495e056a9b47acdb7"
     "51fb73e666c6c655ade8297297d07ad1ba5e43f1bca32301651339e22904cc8c42f58c30c04aafdb038dda0847dd988d"
     "cda6f3bfd15c4b4c4525004aa06eeff8ca61783aacec57fb3d1f92b0fe2fd1a85f6724517b65e614ad6808d6f6ee34df"
     "f7310fdc82aebfd904b01e1dc54b2927094b2db68d6f903b68401adebf5a7e08d78ff4ef5d63653a65040cf9bfd4aca7"
     "984a74d37145986780fc0b16ac451649de6188a7dbdf191f64b5fc5e2ab47b57f7f7276cd419c17a3ca8e1b939ae49e4"
     "88acba6b965610b5480109c8b17b80e1b7b750dfc7598d5d5011fd2dcc5600a32ef5b52a1ecc820e308aa342721aac09"
     "43bf6686b64b2579376504ccc493d97e6aed3fb0f9cd71a43dd497f01f17c0e2cb3797aa2a2f256656168e6c496afc5f"
     "b93246f6b1116398a346f1a641f3b041e989f7914f90cc2c7fff357876e506b50d334ba77c225bc307ba537152f3f161"
     "0e4eafe595f6d9d90d11faa933a15ef1369546868a7f3a45a96768d40fd9d03412c091c6315cf4fde7cb68606937380d"
     "b2eaaa707b4c4185c32eddcdd306705e4dc1ffc872eeee475a64dfac86aba41c0618983f8741c5ef68d3a101e8a3b8ca"
     "c60c905c15fc910840b94c00a0b9d0",
     "0aab4c900501b3e24d7cdf4663326a3a87df5e4843b2cbdb67cbf6e460fec350aa5371b1508f9f4528ecea23c436d94b5e8fcd4"
     "f"
     "681e30a6ac00a9704a188a03"}};

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
    const auto ours = tensafe::keystore::read_private_file(folder.path() / "ours.pem", 1000);
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
        static_cast<void>(tensafe::keystore::sha256::of(to_bytes("x")));
    };
    ERR_clear_error();
    use_all();
    CHECK(ERR_get_error() == 0);
    ERR_raise(ERR_LIB_USER, 7);
    ERR_raise(ERR_LIB_USER, 8);
    use_all();
    {
        const tensafe::keystore::detail::openssl_reports reports;
        CHECK_THROWS_WITH(reports.fail("rest"), "OpenSSL: cannot rest: no reason given");
        ERR_raise(ERR_LIB_USER, 9);
        CHECK_THROWS_WITH(reports.check(0, "rest"), Contains("reason(9)"));
        CHECK_NOTHROW(reports.check(1, "rest"));
    }
    CHECK(ERR_GET_REASON(ERR_get_error()) == 7);
    CHECK(ERR_GET_REASON(ERR_get_error()) == 8);
    CHECK(ERR_get_error() == 0);
}
