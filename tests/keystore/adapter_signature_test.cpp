// The bytes that are signed and the file that carries the signature.

#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/signed_adapter.hpp>

#include "../io/file_builder.hpp"

using namespace tests;
using namespace tensafe::keystore;

namespace {

signing_key fixed_key() {
    return signing_key::from_secret(from_hex<32>(std::string(62, '0') + "07"));
}

package_digest fixed_package() {
    return package_digest::of(to_bytes("{}"), to_bytes("weights"));
}

adapter_signature parse(std::string_view text) {
    return adapter_signature::parse(text, "\"file\"");
}

std::string message_of(const adapter_signature& signature) {
    return hex(signed_message(fixed_package(), signature.name, signature.revision));
}

}  // namespace

TEST_CASE("the signed bytes are the documented ones") {
    // By another implementation: hashlib.sha256(b"{}") and of b"weights".
    const std::string config = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    const std::string weights = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";
    const std::string domain = hex(to_bytes("tensafe adapter package 1\n"));
    CHECK(hex(signed_message(fixed_package(), "ab", 0x0102030405060708)) ==
          domain + "0200000000000000" + config + "0700000000000000" + weights + "0200000000000000" + "6162" +
              "0807060504030201");
    CHECK(hex(signed_message({}, "", 0)) == domain + std::string(2 * (8 + 32 + 8 + 32 + 8 + 8), '0'));
}

TEST_CASE("a signature fits its package, name and revision only") {
    const package_digest package = fixed_package();
    const adapter_signature good = adapter_signature::make(package, fixed_key(), "legal", 7);
    CHECK(good.key == fixed_key().verifying());
    CHECK(good.fits(package));

    adapter_signature changed = good;
    changed.name = "lega";
    CHECK_FALSE(changed.fits(package));
    changed = good;
    changed.revision = 8;
    CHECK_FALSE(changed.fits(package));
    changed = good;
    changed.key = signing_key::generate().verifying();
    CHECK_FALSE(changed.fits(package));

    package_digest other = package;
    other.config[31] ^= std::byte{1};
    CHECK_FALSE(good.fits(other));
    other = package;
    other.weights[0] ^= std::byte{0x80};
    CHECK_FALSE(good.fits(other));
    other = package;
    ++other.config_bytes;
    CHECK_FALSE(good.fits(other));
    other = package;
    --other.weights_bytes;
    CHECK_FALSE(good.fits(other));
    // The two files in each other's place.
    CHECK_FALSE(good.fits({package.weights_bytes, package.weights, package.config_bytes, package.config}));
}

TEST_CASE("a signature's text comes back as the same signature") {
    for (const std::uint64_t revision : {std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()}) {
        for (const std::string name : {"", "legal", "\"quoted\" \\ and r\xc3\xa4tsel"}) {
            const adapter_signature made =
                adapter_signature::make(fixed_package(), fixed_key(), name, revision);
            const adapter_signature read = parse(made.text());
            CHECK(read.key == made.key);
            CHECK(read.signature == made.signature);
            CHECK(read.name == name);
            CHECK(read.revision == revision);
            CHECK(read.fits(fixed_package()));
        }
    }
}

TEST_CASE("no two names and revisions have the same signed bytes") {
    adapter_signature one = adapter_signature::make(fixed_package(), fixed_key(), std::string(8, 'a'), 1);
    adapter_signature two = one;
    two.name = "";
    two.revision = 0x6161616161616161;
    CHECK(message_of(one) != message_of(two));
    CHECK(message_of(one).size() == message_of(two).size() + 16);
}

TEST_CASE("names that could pretend to be something else are not signed") {
    const auto make = [](std::string_view name) {
        return adapter_signature::make(fixed_package(), fixed_key(), name);
    };
    for (const std::string name : {"a\nb", "\x1b[2J", "\x7f", "\xff", "\xc3",
                                   "a\xc2\x85"
                                   "b",
                                   "\xc2\x9b"
                                   "2J",
                                   "\xed\xa0\x80"}) {
        CAPTURE(name);
        CHECK_THROWS_AS(make(name), parameter_error);
    }
    CHECK_THROWS_AS(make(std::string("a\0b", 3)), parameter_error);
    CHECK_THROWS_AS(make(std::string(129, 'a')), parameter_error);
    CHECK(make(std::string(128, 'a')).fits(fixed_package()));
    adapter_signature later = make("good");
    later.name = "a\nb";
    CHECK_THROWS_AS(later.text(), parameter_error);
}

TEST_CASE("a text that is no signature of this version is refused") {
    const std::string good = adapter_signature::make(fixed_package(), fixed_key(), "legal", 7).text();
    const std::string key = fixed_key().verifying().hex();
    REQUIRE(parse(good).fits(fixed_package()));
    const std::vector<refused_text> malformed = {
        {"", "not valid JSON"},
        {"[]", "got an array, expected an object"},
        {"7", "got \"7\", expected an object"},
        {good.substr(0, good.size() / 2), "not valid JSON"},
        {good + "{}", "not valid JSON"},
        {good + std::string(1, '\0'), "zero byte"},
        {replaced(good, "\"revision\": 7,", "\"revision\": 7, \"revision\": 8,"),
         "duplicate key \"revision\""},
        {replaced(good, "\"revision\": 7,", "\"revision\": 7, \"created\": \"today\","),
         "unknown key \"created\""},
        {replaced(good, "\"revision\": 7,", ""), "missing key \"revision\""},
        {replaced(good, "\"name\": \"legal\",", ""), "missing key \"name\""},
        {replaced(good, "\"version\": 1,", ""), "missing key \"version\""},
        {replaced(good, "tensafe-adapter-signature", "something-else"), "format: got \"something-else\""},
        {replaced(good, "\"revision\": 7", "\"revision\": -7"),
         "revision: got \"-7\", expected a whole number"},
        {replaced(good, "\"revision\": 7", "\"revision\": 7.0"),
         "revision: got \"7.0\", expected a whole number"},
        {replaced(good, "\"revision\": 7", "\"revision\": \"7\""),
         "expected a whole number from 0 to 2^64 - 1"},
        {replaced(good, "\"revision\": 7", "\"revision\": 18446744073709551616"),
         "revision: got \"18446744073709551616\", expected a whole number"},
        {replaced(good, "\"name\": \"legal\"", "\"name\": 7"), "name: got \"7\", expected a string"},
        {replaced(good, "\"name\": \"legal\"", "\"name\": null"), "name: got \"null\", expected a string"},
        {replaced(good, "\"legal\"", "\"le\\ngal\""), "without control characters"},
        {replaced(good, "\"legal\"", "\"le\\u0000gal\""), "without control characters"},
        {replaced(good, "\"legal\"", "\"le\xc2\x85gal\""), "without control characters"},
        {replaced(good, "\"legal\"", "\"le\\u009bgal\""), "without control characters"},
        {replaced(good, "\"legal\"", '"' + std::string(129, 'a') + '"'), "at most 128 bytes"},
        {replaced(good, "\"legal\"", "\"\xff\""), "not valid JSON"},
        {replaced(good, key, key.substr(2)), "public_key: got 62 characters"},
        {replaced(good, key, key + "00"), "public_key: got 66 characters"},
        {replaced(good, key, "X" + key.substr(1)), "public_key: character 0 is not"},
        {replaced(good, key, "01" + std::string(62, '0')), "small order"},
        {replaced(good, "\"signature\": \"", "\"signature\": \"00"), "signature: got 130 characters"},
        {replaced(good, "\"signature\": \"", "\"signature\": \"A"), "signature: got 129 characters"},
    };
    check_refused(malformed, "\"file\"", parse);
    CHECK_THROWS_AS(parse(replaced(good, "\"version\": 1", "\"version\": 2")), unsupported_error);
}
