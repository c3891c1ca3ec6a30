#include <tensafe/wire/header.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../refusal.hpp"

namespace {

namespace wire = tensafe::wire;
using tensafe::format_error;
using tensafe::unsupported_error;
using tests::refusal;
using wire::kind;

using header_array = std::array<std::uint8_t, wire::header_bytes>;

constexpr wire::header sample{kind::reply,        0x1112131415161718, 0x2122232425262728,
                              0x3132333435363738, 0x51525354,         0x4142434445464748};

/// With a checksum that fits.
header_array sealed(header_array bytes) {
    const std::uint32_t checksum = wire::crc32c(std::span<const std::uint8_t>(bytes).first(44));
    std::memcpy(bytes.data() + 44, &checksum, 4);
    return bytes;
}

}  // namespace

TEST_CASE("a header has the bytes of the page") {
    const header_array wanted = sealed({'T',  'S',  'H',  'E',  1,    17,   0,    0,     //
                                        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,  //
                                        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,  //
                                        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,  //
                                        0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,  //
                                        0x54, 0x53, 0x52, 0x51});
    CHECK(wire::write_header(sample) == wanted);
    CHECK(wire::read_header(wanted) == sample);
    CHECK(wire::read_header(wanted).envelope() == wire::envelope{0x3132333435363738, 0x51525354});
}

TEST_CASE("what follows the header is not looked at") {
    const header_array bytes = wire::write_header(sample);
    std::vector<std::uint8_t> message(bytes.begin(), bytes.end());
    message.resize(60, 0xAB);
    CHECK(wire::read_header(message) == sample);
}

TEST_CASE("each kind has a number and a name of its own, and goes through a header") {
    const std::vector<std::pair<kind, std::string>> kinds = {
        {kind::public_key, "public key"},     {kind::rerandomization_key, "re-randomization key"},
        {kind::ciphertext, "ciphertext"},     {kind::seeded_ciphertext, "seeded ciphertext"},
        {kind::request, "request"},           {kind::reply, "reply"},
        {kind::model_layout, "model layout"}, {kind::held_adapter, "held adapter"}};
    std::set<kind> seen;
    for (const auto& [what, called] : kinds) {
        CHECK(wire::name(what) == called);
        CHECK(seen.insert(what).second);
        wire::header h = sample;
        h.what = what;
        CHECK(wire::read_header(wire::write_header(h)) == h);
    }
    for (unsigned number = 0; number < 256; ++number) {
        const auto what = static_cast<kind>(number);
        CHECK(wire::name(what).empty() == !seen.contains(what));
    }
}

TEST_CASE("a header of no kind is neither written nor read") {
    wire::header h = sample;
    h.what = static_cast<kind>(5);
    CHECK(refusal<tensafe::parameter_error>([&] { static_cast<void>(wire::write_header(h)); }) ==
          "write_header: kind: got 5, which is no kind");
    header_array bytes = wire::write_header(sample);
    for (const unsigned number : {0U, 5U, 15U, 22U, 255U}) {
        bytes[5] = static_cast<std::uint8_t>(number);
        CHECK(refusal<format_error>([&] { wire::read_header(sealed(bytes)); }) ==
              "message: got kind " + std::to_string(number) +
                  ", expected one that docs/wire-format.md names");
    }
}

TEST_CASE("a header that is cut anywhere is refused") {
    const header_array bytes = wire::write_header(sample);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        CHECK(refusal<format_error>([&] { wire::read_header(std::span(bytes).first(length)); }) ==
              "message: got " + std::to_string(length) + " bytes, expected at least 48 for its header");
    }
}

TEST_CASE("a header with any bit flipped is refused") {
    for (std::size_t bit = 0; bit < 8 * wire::header_bytes; ++bit) {
        header_array bytes = wire::write_header(sample);
        bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ 1U << (bit % 8));
        CAPTURE(bit);
        const std::string why = refusal<tensafe::error>([&] { wire::read_header(bytes); });
        const std::size_t byte = bit / 8;
        CHECK(why.find(byte < 4    ? "does not begin with \"TSHE\""
                       : byte == 4 ? "got version "
                                   : "the checksum of its header is wrong") != std::string::npos);
    }
}

TEST_CASE("other versions are refused by name, whatever else is in the header") {
    for (const int number : {0, 2, 255}) {
        header_array bytes = wire::write_header(sample);
        bytes[4] = static_cast<std::uint8_t>(number);
        const std::string wanted =
            "message: got version " + std::to_string(number) + " of the wire format, expected version 1";
        CHECK(refusal<unsupported_error>([&] { wire::read_header(sealed(bytes)); }) == wanted);
        bytes[44] ^= 1;  // what stands there is for the other version to say
        CHECK(refusal<unsupported_error>([&] { wire::read_header(bytes); }) == wanted);
    }
}

TEST_CASE("the two bytes that are for later must be zero") {
    for (const std::size_t at : {6U, 7U}) {
        header_array bytes = wire::write_header(sample);
        bytes[at] = 1;
        CHECK(refusal<format_error>([&] { wire::read_header(sealed(bytes)); }) ==
              "message: bytes 6 and 7 of its header: got " + std::string(at == 6 ? "1" : "256") +
                  ", expected 0");
    }
}

TEST_CASE("an announced body of 2^63 bytes is a number and nothing more") {
    wire::header h = sample;
    h.body_bytes = std::uint64_t{1} << 63;
    CHECK(wire::read_header(wire::write_header(h)).body_bytes == std::uint64_t{1} << 63);
}
