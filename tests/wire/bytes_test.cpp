#include <tensafe/wire/bytes.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using tensafe::wire::byte_reader;
using tensafe::wire::byte_writer;
using bytes = std::vector<std::uint8_t>;

}  // namespace

TEST_CASE("numbers are written with the lowest byte first") {
    bytes data(23, 0xEE);
    byte_writer to(data, "test");
    to.number<std::uint8_t>(0x01);
    to.number<std::uint16_t>(0x0302);
    to.number<std::uint32_t>(0x07060504);
    to.number<std::uint64_t>(0x0F0E0D0C0B0A0908);
    to.number<double>(1.0);
    to.finish();
    CHECK(data == bytes{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F});

    byte_reader from(data, "test");
    CHECK(from.number<std::uint8_t>() == 0x01);
    CHECK(from.number<std::uint16_t>() == 0x0302);
    CHECK(from.number<std::uint32_t>() == 0x07060504);
    CHECK(from.number<std::uint64_t>() == 0x0F0E0D0C0B0A0908);
    CHECK(from.left() == 8);
    CHECK(from.number<double>() == 1.0);
    CHECK(from.left() == 0);
    CHECK(refusal<format_error>([&] { from.finish(); }) == "nothing was thrown");
}

TEST_CASE("bytes come back as they were") {
    bytes data(5);
    byte_writer to(data, "test");
    to.bytes(bytes{9, 8});
    const auto taken = to.take(2);
    taken[0] = 7;
    taken[1] = 6;
    CHECK(to.left() == 1);
    to.bytes(bytes{});
    to.bytes(bytes{5});
    CHECK(data == bytes{9, 8, 7, 6, 5});

    byte_reader from(data, "test");
    CHECK(from.bytes(2).data() == data.data());
    CHECK(from.array<3>() == std::array<std::uint8_t, 3>{7, 6, 5});
}

TEST_CASE("a writer never passes the end") {
    bytes data(6, 0xEE);
    byte_writer to({data.data(), 4}, "the message");
    to.number<std::uint8_t>(1);
    CHECK_THROWS_WITH_AS(to.number<std::uint32_t>(0), "the message: got 4 bytes to write, expected at most 3",
                         shape_error);
    CHECK_THROWS_WITH_AS(to.bytes(bytes(4)), "the message: got 4 bytes to write, expected at most 3",
                         shape_error);
    CHECK(refusal<shape_error>([&] { to.take(std::numeric_limits<std::size_t>::max()); }) !=
          "nothing was thrown");
    CHECK_THROWS_WITH_AS(to.finish(), "the message: 3 bytes were not written", shape_error);
    // A refused write changes nothing and can be followed by one that fits.
    CHECK(data == bytes{1, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE});
    to.bytes(bytes{2, 3, 4});
    to.finish();
    CHECK(data == bytes{1, 2, 3, 4, 0xEE, 0xEE});
}

TEST_CASE("a reader never passes the end, whatever it is asked for") {
    const bytes data{1, 2, 3};
    byte_reader from(data, "the body");
    CHECK_THROWS_WITH_AS(from.number<std::uint32_t>(), "the body: got 3 more bytes, expected 4",
                         format_error);
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    const std::string expected = "the body: got 3 more bytes, expected " + std::to_string(most);
    CHECK_THROWS_WITH_AS(from.bytes(most), expected.c_str(), format_error);
    CHECK_THROWS_WITH_AS(from.array<4>(), "the body: got 3 more bytes, expected 4", format_error);
    CHECK_THROWS_WITH_AS(from.expect(2), "the body: got 3 more bytes, expected 2", format_error);
    CHECK_THROWS_WITH_AS(from.expect(4), "the body: got 3 more bytes, expected 4", format_error);
    CHECK(from.left() == 3);
    from.expect(3);
    CHECK(from.number<std::uint16_t>() == 0x0201);
    CHECK_THROWS_WITH_AS(from.finish(), "the body: got 1 bytes too many at the end", format_error);
}

TEST_CASE("a reader of nothing has nothing") {
    byte_reader from({}, "nothing");
    from.finish();
    CHECK(from.bytes(0).empty());
    CHECK_THROWS_WITH_AS(from.number<std::uint8_t>(), "nothing: got 0 more bytes, expected 1", format_error);
}
