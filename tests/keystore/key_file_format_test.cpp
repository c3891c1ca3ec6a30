#include <tensafe/keystore/key_file_format.hpp>

#include "../test.hpp"

using namespace tests;
using namespace tensafe::keystore;

namespace {

using file_bytes = std::array<std::byte, 176>;

// Made by a program of its own, with Python's hashlib and its package cryptography: key ids a0..af,
// generation 7, 2023-11-14, the seed 01..20, for private_n4096.
constexpr std::string_view plain_file =
    "54534b4601000000f00bb75ae8e95368a0a1a2a3a4a5a6a7a8a9aaabacadaeaf070000000000000000f1536500000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2000000000000000000000000000000000"
    "79da0e8316c67ccf449f1a16cac4e1b70a62d83d801cc947a9e1147c257de1af";
constexpr std::string_view wrapped_file =
    "54534b4601010000f00bb75ae8e95368a0a1a2a3a4a5a6a7a8a9aaabacadaeaf070000000000000000f1536500000000"
    "0a00000008000000010000000000000003080d12171c21262b30353a3f44494e53585d62676c71767b80858a8f94999e"
    "8e7d65d2f9c691b6b725386ab15c21c8391921ba05eaa360e533e77f63dfff5b67682842278dd4bb831321b81495147d"
    "3e8254747564c0f32ca728a8575f6cff82ae8d51b7e0cd2f7426f5253f6df480";
constexpr std::string_view its_passphrase = "correct horse battery staple \xc3\xa4";

constexpr std::uint64_t private_n4096_id = 0x6853'E9E8'5AB7'0BF0U;

file_bytes bytes_of(std::string_view text) {
    return from_hex<176>(text);
}

key_info parse(std::span<const std::byte> bytes) {
    return keystore::detail::parse_key_file(bytes, "KEY");
}

std::string unlock(std::span<const std::byte> bytes, const passphrase& phrase = {}) {
    tensafe::random::seed seed;
    keystore::detail::read_key_seed(bytes, parse(bytes), phrase, "KEY", seed);
    return hex(std::as_bytes(std::span(seed.bytes)));
}

const std::string the_seed = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20";

/// With another byte somewhere, and the checksum that fits it.
file_bytes with(file_bytes bytes, std::size_t at, std::byte value) {
    bytes[at] = value;
    const auto digest = sha256::of(std::span(bytes).first(144));
    std::copy(digest.begin(), digest.end(), bytes.begin() + 144);
    return bytes;
}

}  // namespace

TEST_CASE("key files of another program are read, with and without a passphrase") {
    const file_bytes plain = bytes_of(plain_file);
    const key_info info = parse(plain);
    CHECK(hex(info.id) == "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf");
    CHECK(info.generation == 7);
    CHECK(info.set == private_n4096_id);
    CHECK(info.created.time_since_epoch() == std::chrono::seconds(1'700'000'000));
    CHECK_FALSE(info.wrapped);
    CHECK(info.cost == scrypt_cost{});
    CHECK(unlock(plain) == the_seed);

    const file_bytes wrapped = bytes_of(wrapped_file);
    key_info same = parse(wrapped);
    CHECK(same.wrapped);
    CHECK(same.cost == scrypt_cost{10, 8, 1});
    CHECK(unlock(wrapped, passphrase(its_passphrase)) == the_seed);
    same.wrapped = false;
    same.cost = {};
    CHECK(same == info);
}

TEST_CASE("a key file without a passphrase is written byte for byte as the other program writes it") {
    const key_info info = parse(bytes_of(plain_file));
    tensafe::random::seed seed;
    for (std::size_t i = 0; i < seed.bytes.size(); ++i) {
        seed.bytes[i] = static_cast<std::uint8_t>(i + 1);
    }
    file_bytes made{};
    keystore::detail::write_key_file_bytes(info, seed, {}, {}, made);
    CHECK(hex(made) == plain_file);

    // Wrapped, all but salt, secret, tag and digest are the same, and no two files have a salt in common.
    const passphrase phrase(its_passphrase);
    file_bytes wrapped{};
    file_bytes again{};
    keystore::detail::write_key_file_bytes(info, seed, phrase, {10, 8, 1}, wrapped);
    keystore::detail::write_key_file_bytes(info, seed, phrase, {10, 8, 1}, again);
    CHECK(hex(wrapped).substr(0, 128) == wrapped_file.substr(0, 128));
    CHECK(unlock(wrapped, phrase) == the_seed);
    for (const auto& [begin, size] : {std::pair{64u, 32u}, {96u, 32u}, {128u, 16u}, {144u, 32u}}) {
        CHECK_FALSE(
            std::equal(wrapped.begin() + begin, wrapped.begin() + begin + size, again.begin() + begin));
    }
    CHECK_FALSE(contains(hex(wrapped), the_seed.substr(0, 16)));
}

TEST_CASE("a key file of another length, version or beginning is refused, and the message says which") {
    const file_bytes plain = bytes_of(plain_file);
    for (std::size_t size = 0; size < plain.size(); ++size) {
        CAPTURE(size);
        CHECK_THROWS_AS(parse(std::span(plain).first(size)), format_error);
    }
    std::vector<std::byte> longer(plain.begin(), plain.end());
    longer.push_back(std::byte{0});
    CHECK_THROWS_WITH_AS(parse(longer), "KEY: got 177 bytes, expected the 176 of a key file", format_error);
    CHECK_THROWS_WITH_AS(parse(std::span(plain).first(3)),
                         "KEY: is no key file: got 3 bytes, expected some that begin with \"TSKF\"",
                         format_error);
    for (const unsigned version : {0u, 2u, 255u}) {
        longer[4] = static_cast<std::byte>(version);  // of another length too, perhaps
        CHECK(refusal<unsupported_error>([&] { parse(longer); }) ==
              "KEY: not supported: a key file of version " + std::to_string(version) +
                  ", expected version 1");
    }
    CHECK_THROWS_WITH_AS(parse(with(plain, 0, std::byte{'t'})), Contains("no key file"), format_error);
}

TEST_CASE("every flipped bit of a key file is noticed") {
    const passphrase phrase(its_passphrase);
    for (const std::string_view text : {plain_file, wrapped_file}) {
        file_bytes bytes = bytes_of(text);
        for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
            CAPTURE(bit);
            bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
            CHECK_THROWS_AS(parse(bytes), tensafe::error);
            bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
        }
        CHECK_NOTHROW(parse(bytes));
    }
    file_bytes torn = bytes_of(plain_file);
    std::fill(torn.begin() + 100, torn.end(), std::byte{0});
    CHECK_THROWS_WITH_AS(
        parse(torn),
        "KEY: its checksum does not fit: the file was changed or is only in part what was written",
        format_error);
}

TEST_CASE("with a passphrase nobody else can change what a key file says, fitting checksum or not") {
    const file_bytes wrapped = bytes_of(wrapped_file);
    const passphrase phrase(its_passphrase);
    for (std::size_t at = 0; at < 144; ++at) {
        CAPTURE(at);
        const file_bytes changed = with(wrapped, at, wrapped[at] ^ std::byte{1});
        CHECK_THROWS_AS(unlock(changed, phrase), tensafe::error);
    }
    // Generation, secret, tag: no way to tell from a wrong passphrase.
    for (const std::size_t at : {32u, 100u, 130u}) {
        CHECK_THROWS_WITH_AS(unlock(with(wrapped, at, wrapped[at] ^ std::byte{1}), phrase),
                             "KEY: wrong passphrase, or somebody changed the file and its checksum",
                             passphrase_error);
    }
}

TEST_CASE("fields that no writer writes are refused although the checksum fits") {
    const file_bytes plain = bytes_of(plain_file);
    for (const std::size_t at : {6u, 7u, 48u, 55u, 59u, 60u, 63u, 64u, 95u, 128u, 143u}) {
        CAPTURE(at);
        CHECK_THROWS_WITH_AS(parse(with(plain, at, std::byte{1})), Contains("must be zeros and are not"),
                             format_error);
    }
    const file_bytes wrapped = bytes_of(wrapped_file);
    for (const std::size_t at : {6u, 7u, 60u, 63u}) {
        CAPTURE(at);
        CHECK_THROWS_AS(parse(with(wrapped, at, std::byte{1})), format_error);
    }
    CHECK_THROWS_WITH_AS(parse(with(plain, 5, std::byte{2})), Contains("wrap 2"), unsupported_error);
    CHECK_THROWS_WITH_AS(parse(with(plain, 32, std::byte{0})), "KEY: got generation 0, expected at least 1",
                         format_error);
    CHECK_THROWS_AS(parse(with(plain, 47, std::byte{1})), format_error);
    const auto last =
        with(with(with(with(with(plain, 40, std::byte{0x7f}), 41, std::byte{0x41}), 42, std::byte{0xf4}), 43,
                  std::byte{0xff}),
             44, std::byte{0x3a});
    CHECK(parse(last).created.time_since_epoch() == std::chrono::seconds(253'402'300'799));
    CHECK_THROWS_AS(parse(with(last, 40, std::byte{0x80})), format_error);

    file_bytes zeros = plain;
    std::fill_n(zeros.begin() + 96, 32, std::byte{0});
    CHECK_THROWS_WITH_AS(unlock(with(zeros, 0, zeros[0])),
                         "KEY: its seed is all zeros: no key was ever written there", format_error);
}

TEST_CASE("a key file that asks for more memory or work than we give is refused before any is taken") {
    const file_bytes wrapped = bytes_of(wrapped_file);
    struct change {
        std::size_t at;
        std::byte value;
    };
    for (const change& c : {change{48, std::byte{40}},
                            {48, std::byte{63}},
                            {48, std::byte{9}},
                            {51, std::byte{128}},
                            {55, std::byte{255}},
                            {52, std::byte{0}},
                            {58, std::byte{1}}}) {
        CAPTURE(c.at);
        const std::string message = refusal<unsupported_error>([&] { parse(with(wrapped, c.at, c.value)); });
        CHECK(message.find("KEY: not supported: scrypt with N = 2^") == 0);
        CHECK(contains(message, "expected 1 to 256 MiB"));
    }
}

TEST_CASE("a wrong, a missing and an unwanted passphrase are told apart") {
    const file_bytes wrapped = bytes_of(wrapped_file);
    CHECK_THROWS_WITH_AS(unlock(wrapped, passphrase("Correct horse")), Contains("wrong passphrase"),
                         passphrase_error);
    CHECK_THROWS_WITH_AS(unlock(wrapped), "KEY: the key is wrapped with a passphrase, and none was given",
                         passphrase_error);
    CHECK_THROWS_WITH_AS(unlock(bytes_of(plain_file), passphrase(its_passphrase)),
                         Contains("a passphrase was given, but the key is not wrapped with one"),
                         passphrase_error);
}

TEST_CASE("random bytes behind a good beginning and checksum are a key file or an error, at no great cost") {
    random_numbers random(8);
    int accepted = 0;
    for (int round = 0; round < 4000; ++round) {
        file_bytes bytes = bytes_of(round % 2 == 0 ? plain_file : wrapped_file);
        for (int changes = 1 + round % 4; changes > 0; --changes) {
            bytes[5 + random() % 139] = static_cast<std::byte>(random());
        }
        bytes = with(bytes, 4, std::byte{1});
        try {
            const key_info info = parse(bytes);
            CHECK(info.cost.allowed());
            CHECK(info.generation > 0);
            ++accepted;
        } catch (const tensafe::error&) {
        }
    }
    CHECK(accepted > 200);  // those with another secret or id
    CHECK(accepted < 3800);
}
