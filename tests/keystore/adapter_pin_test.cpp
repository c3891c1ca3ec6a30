// The pin of an adapter: what is hashed, what is signed, and the file.

#include <tensafe/keystore/adapter_pin.hpp>

#include "../io/file_builder.hpp"

using namespace tests;
using namespace tensafe::keystore;

namespace {

signing_key fixed_key() {
    return signing_key::from_secret(from_hex<32>(std::string(62, '0') + "07"));
}

/// Of what a lora::model_server might show.
sha256_digest weights_of(std::uint64_t last = ~std::uint64_t{0}) {
    const std::array<std::uint64_t, 4> words{1, 2, 3, last};
    weights_hash hash;
    hash(std::span(words).first(3));
    hash(std::span(words).last(1));
    return hash.finish();
}

adapter_pin fixed_pin(const sha256_digest& weights = weights_of()) {
    return adapter_pin::make(fixed_key(), "legal",
                             {sha256::of(to_bytes("layout")), sha256::of(to_bytes("held")), weights}, 7);
}

adapter_pin parse(std::string_view text) {
    return adapter_pin::parse(text, "\"file\"");
}

}  // namespace

TEST_CASE("a pin's digests, salt, commitment and signature are the documented ones") {
    // By another implementation: hashlib and cryptography of Python, from the bytes that the header names.
    const auto weights = weights_of();
    CHECK(hex(weights) == "4b4d66daeb026ef95c4711456600fedf20814dc70bf337bf1fd1ebc770ed4400");
    CHECK(hex(pin_salt(fixed_key(), "legal", weights)) ==
          "ebee31cc494d429082f543db84c43436c4e1383aa6df4000053b470b13acd1b0");
    const adapter_pin pin = fixed_pin();
    CHECK(hex(pin.layout) == "1dc5ae5b68174891b6aa9850aa05ee0d9ae8a20468d9517259951a2dd9e9c0f0");
    CHECK(hex(pin.held) == "c20dea4d876b5b8fb0a1814b43017030cea6d4ac30b2d9ae71b404d2faba49b5");
    CHECK(hex(pin.commitment) == "a0eb02ec84ede255cfc4dcec2b0459c250bde55d7cf0edc54dcc3ead32846ca6");
    CHECK(hex(pin.signature) ==
          "356643d88766070220cb40baf6a2816f9d233a357fe0c743f92a36daae47dbc0"
          "5122e7e42b5273bf112fb60b28cb3e3950de0ea8a0c8fefc88c6941e52ffbd0c");
    CHECK(pin.marks == sha256_digest{});
}

TEST_CASE("a commitment is of its weights and its salt, and a salt of weights, name and key") {
    const auto weights = weights_of();
    const auto others = weights_of(7);
    CHECK(weights != others);
    const auto salt = pin_salt(fixed_key(), "legal", weights);
    CHECK(commitment_to(weights, salt) == fixed_pin().commitment);  // how it is opened
    CHECK(commitment_to(others, salt) != fixed_pin().commitment);
    for (const auto& other : {pin_salt(fixed_key(), "legal", others), pin_salt(fixed_key(), "lega", weights),
                              pin_salt(signing_key::generate(), "legal", weights)}) {
        CHECK(other != salt);
        CHECK(commitment_to(weights, other) != fixed_pin().commitment);
    }
    CHECK(fixed_pin() == fixed_pin());
    CHECK(fixed_pin(others) != fixed_pin());
}

TEST_CASE("a pin fits as it was signed, and with no member changed") {
    CHECK(fixed_pin().fits());
    const auto changed = [](auto change) {
        adapter_pin pin = fixed_pin();
        change(pin);
        return pin.fits();
    };
    CHECK_FALSE(changed([](adapter_pin& p) { p.key = signing_key::generate().verifying(); }));
    CHECK_FALSE(changed([](adapter_pin& p) { p.signature[0] ^= std::byte{1}; }));
    CHECK_FALSE(changed([](adapter_pin& p) { p.name = "lega"; }));
    CHECK_FALSE(changed([](adapter_pin& p) { p.layout[31] ^= std::byte{1}; }));
    CHECK_FALSE(changed([](adapter_pin& p) { p.held[0] ^= std::byte{1}; }));
    CHECK_FALSE(changed([](adapter_pin& p) { p.commitment[0] ^= std::byte{1}; }));
    CHECK_FALSE(changed([](adapter_pin& p) { std::swap(p.layout, p.held); }));
    CHECK_FALSE(changed([](adapter_pin& p) { ++p.revision; }));
    CHECK_FALSE(changed([](adapter_pin& p) { p.marks[31] = std::byte{1}; }));
    CHECK_THROWS_AS(adapter_pin::make(fixed_key(), "a\nb", {}), parameter_error);
}

TEST_CASE("a pin's text comes back as the same pin, from a file too") {
    const temporary_directory scratch;
    const auto path = scratch.path() / "pin.json";
    CHECK(parse(fixed_pin().text()) == fixed_pin());
    adapter_pin marked = fixed_pin();  // as a later version may sign it
    marked.marks[0] = std::byte{1};
    marked.signature = fixed_key().sign(marked.signed_bytes());
    CHECK(parse(marked.text()) == marked);
    CHECK(parse(marked.text()).fits());
    io::replace_file(path, to_bytes(fixed_pin().text()));
    CHECK(adapter_pin::read(path) == fixed_pin());
    io::replace_file(path, to_bytes(fixed_pin().text() + std::string(10'000, ' ')));
    CHECK(contains(refusal<format_error>([&] { adapter_pin::read(path); }), "expected at most 10000"));
}

TEST_CASE("a text that is no pin of this version is refused") {
    const std::string good = fixed_pin().text();
    const std::string key = fixed_key().verifying().hex();
    std::vector<refused_text> malformed = {
        {"", "not valid JSON"},
        {"[]", "got an array, expected an object"},
        {good + "{}", "not valid JSON"},
        {replaced(good, "\"version\": 2", "\"version\": 2, \"version\": 2"), "duplicate key \"version\""},
        {replaced(good, "\"version\": 2", "\"version\": 2, \"salt\": 1"),
         "unknown key \"salt\", expected format, version, name, revision, layout, held, commitment, marks, "
         "public_key, signature"},
        {replaced(good, "\"revision\": 7", "\"revision\": -7"), "revision: got "},
        {replaced(good, "tensafe-adapter-pin", "tensafe-adapter-signature"),
         "format: got \"tensafe-adapter-signature\", expected \"tensafe-adapter-pin\""},
        {replaced(good, "\"legal\"", "\"le\\ngal\""), "without control characters"},
        {replaced(good, "\"legal\"", "null"), "name: got \"null\", expected a string"},
        {replaced(good, key, "01" + std::string(62, '0')), "small order"},
    };
    for (const char* member : {"layout", "held", "commitment", "marks", "public_key", "signature"}) {
        const std::string quoted = std::string("\"") + member + "\": ";
        malformed.push_back({replaced(good, quoted, "\"x\": "), "unknown key \"x\""});
        malformed.push_back({replaced(good, quoted + "\"", quoted + "\"00"), member + std::string(": got ")});
    }
    check_refused(malformed, "\"file\"", parse);
    CHECK(contains(refusal<format_error>([&] { parse(replaced(good, "\"name\": \"legal\",", "")); }),
                   "missing key \"name\""));
    // Of a version before, which has neither revision nor marks, and of a later one.
    std::string old = replaced(replaced(good, "\"version\": 2", "\"version\": 1"), "\"revision\": 7,", "");
    old.erase(old.find("\"marks\""), old.find("\"public_key\"") - old.find("\"marks\""));
    for (const std::string& other : {old, replaced(good, "\"version\": 2", "\"version\": 3")}) {
        CHECK(contains(refusal<unsupported_error>([&] { parse(other); }), " of the format, only 2"));
    }
}
