#include <tensafe/keystore/mark_key.hpp>

#include <nlohmann/json.hpp>

#include "../io/file_builder.hpp"

using namespace tests;
using namespace tensafe::keystore;

namespace {

std::string hex_of(const random::seed& seed) {
    return hex(std::as_bytes(std::span(seed.bytes)));
}

}  // namespace

TEST_CASE("seeds of marks and the commitment are those of a program in another language, from a key's file") {
    std::ifstream answers(TENSAFE_TEST_DATA "/marks/answers.json");
    const auto known = nlohmann::json::parse(answers);
    const temporary_directory folder;
    for (const char* const end : {"", "\n"}) {
        const auto file = folder.path() / ("key" + std::to_string(std::strlen(end)));
        io::create_private_file(file, to_bytes(known["key"].get<std::string>() + end));
        const mark_key key = mark_key::read(file);
        CHECK(hex(key.commitment()) == known["commitment"].get<std::string>());
        REQUIRE(known["seeds"].size() == 5);
        for (const auto& each : known["seeds"]) {
            CHECK(hex_of(key.seed_of(each["adapter"].get<std::string>(),
                                     each["tenant"].get<std::string>())) == each["seed"].get<std::string>());
        }
    }
}

TEST_CASE("seeds of marks depend on the secret key, on both names, and on where one ends") {
    std::array<std::byte, 32> bytes{};
    const mark_key one(bytes);
    std::set<std::string> seeds{hex_of(one.seed_of("qwen", "acme")), hex_of(one.seed_of("qwen", "other")),
                                hex_of(one.seed_of("qwena", "cme")), hex_of(one.seed_of("acme", "qwen"))};
    bytes[31] = std::byte{1};
    seeds.insert(hex_of(mark_key(bytes).seed_of("qwen", "acme")));
    // The commitment is public: as a key it gives others.
    const std::string message("tensafe mark 1\n\4\0\0\0\0\0\0\0qwen\4\0\0\0\0\0\0\0acme", 39);
    CHECK(hex(hmac_sha256(std::array<std::byte, 32>{}, message)) == hex_of(one.seed_of("qwen", "acme")));
    seeds.insert(hex(hmac_sha256(one.commitment(), message)));
    CHECK(seeds.size() == 6);
    CHECK(one.commitment() != mark_key(bytes).commitment());
}

TEST_CASE("a file that is no key of marks is refused without showing what it holds") {
    const temporary_directory folder;
    const auto file = folder.path() / "key";
    CHECK_THROWS_WITH_AS(mark_key::read(file), Contains("cannot open"), io_error);
    for (const std::string& text : {std::string(), std::string(63, 'a'), std::string(66, 'a'),
                                    std::string(64, 'X'), std::string(64, 'a') + " "}) {
        std::filesystem::remove(file);
        io::create_private_file(file, to_bytes(text));
        const std::string said = refusal<format_error>([&] { static_cast<void>(mark_key::read(file)); });
        CHECK(contains(said, "key\": "));
        CHECK_FALSE(contains(said, "aaaa"));
        CHECK_FALSE(contains(said, "XXXX"));
    }
    std::filesystem::permissions(file, std::filesystem::perms::group_read,
                                 std::filesystem::perm_options::add);
    CHECK_THROWS_WITH_AS(mark_key::read(file), Contains("expected 0600"), io_error);
}
