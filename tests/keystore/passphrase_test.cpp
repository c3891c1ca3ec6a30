#include <tensafe/core/error.hpp>
#include <tensafe/keystore/passphrase.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "../io/file_builder.hpp"
#include "../refusal.hpp"

namespace keystore = tensafe::keystore;
using tensafe::test::temporary_directory;
using tensafe::test::to_bytes;
using tests::refusal;

namespace {

/// What a passphrase file with this text says.
std::string read(const std::string& text) {
    const temporary_directory folder;
    keystore::create_private_file(folder.path() / "phrase", to_bytes(text));
    return std::string(keystore::passphrase::read(folder.path() / "phrase").text());
}

}  // namespace

TEST_CASE("a passphrase keeps its bytes, and one that was moved from is none") {
    CHECK(keystore::passphrase().empty());
    keystore::passphrase phrase(std::string_view("with a \0 in it", 14));
    CHECK_FALSE(phrase.empty());
    CHECK(phrase.text() == std::string_view("with a \0 in it", 14));
    const keystore::passphrase taken = std::move(phrase);
    CHECK(taken.text().size() == 14);
    CHECK(phrase.empty());  // NOLINT: this is what is tested
}

TEST_CASE("an empty text and one beyond 1024 bytes are no passphrases") {
    CHECK(refusal<tensafe::parameter_error>([] { keystore::passphrase{std::string_view()}; }) ==
          "passphrase: got 0 bytes, expected 1 to 1024");
    CHECK_NOTHROW(keystore::passphrase(std::string(1024, 'x')));
    CHECK_THROWS_AS(keystore::passphrase(std::string(1025, 'x')), tensafe::parameter_error);
}

TEST_CASE("a passphrase file is one line, and its end belongs to nobody") {
    CHECK(read("open sesame\n") == "open sesame");
    CHECK(read("open sesame\r\n") == "open sesame");
    CHECK(read("open sesame") == "open sesame");
    CHECK(read(" open sesame ") == " open sesame ");
    CHECK(read("open sesame\r") == "open sesame\r");
    CHECK(read(std::string(1024, 'x') + "\r\n") == std::string(1024, 'x'));
    for (const char* text : {"", "\n", "\r\n", "one\ntwo", "one\n\n"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(read(text), tensafe::format_error);
    }
    for (const std::size_t length : {1025u, 1026u, 1027u}) {
        CHECK_THROWS_AS(read(std::string(length, 'x')), tensafe::format_error);
    }
}

TEST_CASE("a passphrase file that others may read is refused, and its text is in no message") {
    const temporary_directory folder;
    const auto path = folder.put("phrase", "open sesame\n");
    std::filesystem::permissions(path, std::filesystem::perms(0644));
    const std::string message =
        refusal<tensafe::io_error>([&] { static_cast<void>(keystore::passphrase::read(path)); });
    CHECK(message.find("others than its owner have access") != message.npos);
    const std::string lines = refusal<tensafe::format_error>([] { read("open\nsesame\n"); });
    CHECK(lines.find("expected one line of 1 to 1024 bytes") != lines.npos);
    CHECK(lines.find("sesame") == lines.npos);
}
