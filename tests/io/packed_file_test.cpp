// Files of packed words, good ones and ones that lie: what is refused, with which words, and what stays.

#include <tensafe/core/error.hpp>
#include <tensafe/io/packed_file.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "../wire/golden_message.hpp"
#include "file_builder.hpp"

using tensafe::format_error;
using tensafe::io_error;
using tensafe::shape_error;
using tensafe::io::packed_file_reader;
using tensafe::io::packed_file_writer;
using tensafe::io::sha256;
using tensafe::io::sha256_digest;
using tensafe::test::temporary_directory;
using tensafe::test::to_bytes;

namespace {

using words = std::vector<std::uint64_t>;

constexpr std::size_t head_bytes = 56;
constexpr std::size_t checksum_bytes = 32;

sha256_digest some_key(unsigned char first = 1) {
    sha256_digest key{};
    for (std::size_t i = 0; i < key.size(); ++i) {
        key[i] = static_cast<std::byte>(first + i);
    }
    return key;
}

words some_words(std::size_t count) {
    words result(count);
    for (std::size_t i = 0; i < count; ++i) {
        result[i] = (i + 1) * 0x9e3779b97f4a7c15U;
    }
    return result;
}

void write_file(const std::filesystem::path& path, const words& contents,
                const sha256_digest& key = some_key()) {
    packed_file_writer file(path, key, contents.size());
    file.write(contents);
    file.finish();
}

/// All words, or nothing if there is no file.
std::optional<words> read_file(const std::filesystem::path& path, std::size_t count,
                               const sha256_digest& key = some_key()) {
    auto file = packed_file_reader::open(path, key, count);
    if (!file) {
        return std::nullopt;
    }
    words result(count);
    file->read(result);
    file->finish();
    return result;
}

std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// With the mode that a packed file has.
std::filesystem::path put(const temporary_directory& folder, const std::string& bytes) {
    const auto path = folder.put("file", bytes);
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    return path;
}

/// The same bytes with the right checksum at their end.
std::string resealed(std::string bytes) {
    const auto digest = sha256::of(std::as_bytes(std::span(bytes)).first(bytes.size() - checksum_bytes));
    std::memcpy(bytes.data() + bytes.size() - checksum_bytes, digest.data(), checksum_bytes);
    return bytes;
}

template <class Error, class Action>
void check_refused(Action action, const std::string& piece) {
    std::string message = "nothing was thrown";
    try {
        action();
    } catch (const Error& e) {
        message = e.what();
    }
    CAPTURE(message);
    CHECK(message.find(piece) != std::string::npos);
}

std::size_t files_in(const std::filesystem::path& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("a packed file has the bytes that its format says") {
    const temporary_directory folder;
    const auto path = folder.path() / "file";
    const words contents{0, 1, 0x0123456789abcdefU};
    write_file(path, contents);

    std::string expected = "tensafe packed 1";
    for (int i = 1; i <= 32; ++i) {
        expected += static_cast<char>(i);
    }
    const char numbers[] =
        "\x03\0\0\0\0\0\0\0"
        "\0\0\0\0\0\0\0\0"
        "\x01\0\0\0\0\0\0\0"
        "\xef\xcd\xab\x89\x67\x45\x23\x01";
    expected.append(numbers, sizeof(numbers) - 1);
    REQUIRE(expected.size() == head_bytes + 24);
    const auto digest = sha256::of(to_bytes(expected));
    for (const std::byte b : digest) {
        expected += static_cast<char>(b);
    }
    CHECK(bytes_of(path) == expected);
    CHECK(expected.size() == tensafe::io::packed_file_bytes(contents.size()));
    CHECK_THROWS_AS(tensafe::io::packed_file_bytes((std::size_t{1} << 59) + 1), shape_error);
}

TEST_CASE("the packed file of version 1 is read and written as ever") {
    const temporary_directory folder;
    const auto path = folder.path() / "file";
    const words contents = some_words(5);
    write_file(path, contents);
    const std::string today = bytes_of(path);
    const auto kept = tests::golden("packed_adapter", {today.begin(), today.end()});
    REQUIRE(kept.size() == 128);
    CHECK(std::string(kept.begin(), kept.end()) == today);
    CHECK(read_file(put(folder, {kept.begin(), kept.end()}), 5) == contents);
}

TEST_CASE("words come back as they were written, in pieces of any size and for any length") {
    const temporary_directory folder;
    const auto path = folder.path() / "file";
    // One chunk is 2^15 words: below, at and above it.
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 15) - 1,
                                    std::size_t{1} << 15, (std::size_t{5} << 14) + 3}) {
        CAPTURE(count);
        const words contents = some_words(count);
        packed_file_writer file(path, some_key(), count);
        const std::size_t cut = count / 3;
        file.write(std::span(contents).first(cut));
        file.write(std::span(contents).subspan(cut));
        file.finish();
        CHECK(read_file(path, count) == contents);

        auto reader = packed_file_reader::open(path, some_key(), count);
        REQUIRE(reader);
        words result(count);
        const std::size_t other_cut = count / 2;
        reader->read(std::span(result).first(other_cut));
        reader->read(std::span(result).subspan(other_cut));
        reader->finish();
        CHECK(result == contents);
    }
}

TEST_CASE("only the owner may read or write a packed file, whatever stood there before") {
    const temporary_directory folder;
    const auto path = folder.put("file", "old");
    REQUIRE(::chmod(path.c_str(), 0666) == 0);
    const mode_t before = ::umask(0);
    write_file(path, some_words(3));
    ::umask(before);
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
}

TEST_CASE("a writer that does not finish changes nothing and leaves nothing behind") {
    const temporary_directory folder;
    const auto path = folder.put("file", "old");
    {
        packed_file_writer file(path, some_key(), 4);
        file.write(some_words(4));
        CHECK(files_in(folder.path()) == 2);
    }
    CHECK(bytes_of(path) == "old");
    CHECK(files_in(folder.path()) == 1);

    {
        packed_file_writer file(path, some_key(), 4);
        file.write(some_words(3));
        CHECK_THROWS_AS(file.write(some_words(2)), shape_error);
        check_refused<shape_error>([&] { file.finish(); }, "8 bytes of packed words are missing");
    }
    CHECK(bytes_of(path) == "old");
    CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a folder in the file's place, or none to write to, is an error of the writer") {
    const temporary_directory folder;
    const auto path = folder.path() / "file";
    std::filesystem::create_directory(path);
    check_refused<io_error>([&] { write_file(path, some_words(2)); }, "cannot replace");
    CHECK(files_in(folder.path()) == 1);
    check_refused<io_error>([&] { write_file(folder.path() / "none" / "file", some_words(2)); },
                            "cannot create");
}

TEST_CASE("a file that does not exist is no error, and every other thing in its place is one") {
    const temporary_directory folder;
    const auto path = folder.path() / "file";
    CHECK_FALSE(read_file(path, 2).has_value());

    std::filesystem::create_directory(path);
    check_refused<io_error>([&] { read_file(path, 2); }, "not a regular file");
    std::filesystem::remove(path);

    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // nobody writes to it: waiting would hang
    check_refused<io_error>([&] { read_file(path, 2); }, "not a regular file");
    std::filesystem::remove(path);

    write_file(folder.path() / "good", some_words(2));
    std::filesystem::create_symlink(folder.path() / "good", path);
    check_refused<io_error>([&] { read_file(path, 2); }, "cannot open");
    CHECK(read_file(folder.path() / "good", 2) == some_words(2));

    // A link is replaced, not written through.
    write_file(path, some_words(3));
    CHECK(read_file(path, 3) == some_words(3));
    CHECK(read_file(folder.path() / "good", 2) == some_words(2));
}

TEST_CASE("a file that others may write, own or keep from being read is not used") {
    const temporary_directory folder;
    const auto path = folder.path() / "file";
    write_file(path, some_words(2));
    for (const mode_t mode : {mode_t{0620}, mode_t{0602}}) {
        REQUIRE(::chmod(path.c_str(), mode) == 0);
        check_refused<io_error>([&] { read_file(path, 2); }, "may write it");
    }
    REQUIRE(::chmod(path.c_str(), 0644) == 0);
    CHECK(read_file(path, 2) == some_words(2));
    if (::geteuid() == 0) {
        if (::chown(path.c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
            REQUIRE((errno == EINVAL || errno == EPERM));
            MESSAGE("skipped: this user namespace has no second user");
            return;
        }
        check_refused<io_error>([&] { read_file(path, 2); }, "another user owns it");
    } else {  // root reads whatever the mode says
        REQUIRE(::chmod(path.c_str(), 0) == 0);
        check_refused<io_error>([&] { read_file(path, 2); }, "cannot open");
    }
}

TEST_CASE("a file of any other length is refused, cut at every byte or longer") {
    const temporary_directory folder;
    write_file(folder.path() / "good", some_words(5));
    const std::string good = bytes_of(folder.path() / "good");
    REQUIRE(good.size() == head_bytes + 40 + checksum_bytes);
    for (std::size_t length = 0; length < good.size(); ++length) {
        CAPTURE(length);
        const auto path = put(folder, good.substr(0, length));
        check_refused<format_error>([&] { read_file(path, 5); },
                                    "got " + std::to_string(length) + " bytes, wanted 128");
    }
    const auto path = put(folder, good + "x");
    check_refused<format_error>([&] { read_file(path, 5); }, "got 129 bytes, wanted 128");
}

TEST_CASE("a flip of any bit of a file is refused, and the message says of which part") {
    const temporary_directory folder;
    write_file(folder.path() / "good", some_words(3));
    const std::string good = bytes_of(folder.path() / "good");
    for (std::size_t i = 0; i < good.size(); ++i) {
        CAPTURE(i);
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
        const auto path = put(folder, bad);
        check_refused<format_error>([&] { read_file(path, 3); }, i < 16   ? "does not begin with"
                                                                 : i < 48 ? "another adapter"
                                                                 : i < 56 ? "does not announce 3 words"
                                                                          : "checksum");
    }
}

TEST_CASE("a right checksum does not help a file with another key, version or number of words") {
    const temporary_directory folder;
    write_file(folder.path() / "good", some_words(3));
    const std::string good = bytes_of(folder.path() / "good");
    CHECK(resealed(good) == good);
    const auto refused = [&](std::string bad, const std::string& piece) {
        const auto path = put(folder, resealed(std::move(bad)));
        check_refused<format_error>([&] { read_file(path, 3); }, piece);
    };
    std::string bad = good;
    bad[15] = '2';
    refused(bad, "tensafe packed 1");
    write_file(folder.path() / "other", some_words(3), some_key(2));
    refused(bytes_of(folder.path() / "other"), "another adapter");
    // Numbers of words that would be an allocation of everything, or overflow: the length says otherwise.
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{1} << 60,
                                      std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
        bad = good;
        std::memcpy(bad.data() + 48, &count, sizeof(count));
        refused(bad, "does not announce 3 words");
    }
}

TEST_CASE("a reader gives no more words than there are, and is not content with fewer") {
    const temporary_directory folder;
    const auto path = folder.path() / "file";
    write_file(path, some_words(3));
    auto file = packed_file_reader::open(path, some_key(), 3);
    REQUIRE(file);
    words two(2);
    file->read(two);
    check_refused<format_error>([&] { file->read(two); }, "has 8 more bytes");
    check_refused<format_error>([&] { file->finish(); }, "8 bytes of packed words too many");
}

TEST_CASE("a file that shrinks under a reader is an error") {
    const temporary_directory folder;
    const auto path = folder.path() / "file";
    write_file(path, some_words(3));
    auto file = packed_file_reader::open(path, some_key(), 3);
    REQUIRE(file);
    REQUIRE(::truncate(path.c_str(), head_bytes + 8) == 0);
    words result(3);
    check_refused<io_error>([&] { file->read(result); }, "became shorter");
}
