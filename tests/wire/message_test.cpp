#include <tensafe/wire/message.hpp>

#include "sample_messages.hpp"

using namespace tests;

namespace {

using wire::kind;
using namespace sample_messages;

using header_array = std::array<std::uint8_t, wire::header_bytes>;

constexpr wire::header fields{kind::reply,        0x1112131415161718, 0x2122232425262728,
                              0x3132333435363738, 0x51525354,         0x4142434445464748};

/// With a checksum that fits.
header_array sealed(header_array bytes) {
    const std::uint32_t checksum = wire::crc32c(std::span<const std::uint8_t>(bytes).first(44));
    std::memcpy(bytes.data() + 44, &checksum, 4);
    return bytes;
}

constexpr std::uint64_t scheme = 0x7777;
const wire::wanted_ids own_ids{.set = wire::set_id<P>, .set_text = &wire::set_name<P>, .scheme = scheme};
constexpr wire::header sample_header{kind::request, wire::set_id<P>, scheme, 9, 5, 20};

bytes counting_body(std::size_t count) {
    bytes body(count);
    std::uint8_t next = 1;
    std::generate(body.begin(), body.end(), [&] { return next++; });
    return body;
}

bytes sample() {
    bytes message;
    wire::write_message(sample_header, message, [](wire::byte_writer& to) { to.bytes(counting_body(20)); });
    return message;
}

/// Why the sample, or what became of it, is not opened.
template <class E = format_error>
std::string why_refused(const bytes& message) {
    return refusal<E>([&] { wire::open_frame(message, kind::request, own_ids); });
}

}  // namespace

TEST_CASE("a header has the bytes of the page") {
    const header_array expected = sealed({'T',  'S',  'H',  'E',  1,    17,   0,    0,     //
                                          0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,  //
                                          0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,  //
                                          0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,  //
                                          0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,  //
                                          0x54, 0x53, 0x52, 0x51});
    CHECK(wire::write_header(fields) == expected);
    CHECK(wire::read_header(expected) == fields);
    CHECK(wire::read_header(expected).envelope() == wire::envelope{0x3132333435363738, 0x51525354});
}

TEST_CASE("each kind has a number and a name of its own, and goes through a header") {
    const std::vector<std::pair<kind, std::string>> kinds = {
        {kind::public_key, "public key"},
        {kind::rerandomization_key, "re-randomization key"},
        {kind::ciphertext, "ciphertext"},
        {kind::seeded_ciphertext, "seeded ciphertext"},
        {kind::relinearization_key, "relinearization key"},
        {kind::galois_keys, "set of Galois keys"},
        {kind::request, "request"},
        {kind::reply, "reply"},

        {kind::model_layout, "model layout"},
        {kind::held_adapter, "held adapter"},
        {kind::block_request, "block request"},
        {kind::block_reply, "block reply"},
        {kind::token_request, "token request"},
        {kind::token_reply, "token reply"}};
    std::set<kind> seen;
    for (const auto& [what, called] : kinds) {
        CHECK(wire::name(what) == called);
        CHECK(seen.insert(what).second);
        wire::header h = fields;
        h.what = what;
        CHECK(wire::read_header(wire::write_header(h)) == h);
    }
    for (unsigned number = 0; number < 256; ++number) {
        const auto what = static_cast<kind>(number);
        CHECK(wire::name(what).empty() == !seen.contains(what));
    }
}

TEST_CASE("a header of no kind is neither written nor read") {
    wire::header h = fields;
    h.what = static_cast<kind>(7);
    CHECK_THROWS_WITH_AS(wire::write_header(h), "write_header: kind: got 7, which is no kind",
                         parameter_error);
    header_array bytes = wire::write_header(fields);
    for (const unsigned number : {0U, 7U, 15U, 26U, 255U}) {
        bytes[5] = static_cast<std::uint8_t>(number);
        CHECK(refusal<format_error>([&] { wire::read_header(sealed(bytes)); }) ==
              "message: got kind " + std::to_string(number) +
                  ", expected one that docs/wire-format.md names");
    }
}

TEST_CASE("other versions are refused by name, whatever else is in the header") {
    for (const int number : {0, 2, 255}) {
        header_array bytes = wire::write_header(fields);
        bytes[4] = static_cast<std::uint8_t>(number);
        const std::string expected =
            "message: got version " + std::to_string(number) + " of the wire format, expected version 1";
        CHECK(refusal<unsupported_error>([&] { wire::read_header(sealed(bytes)); }) == expected);
        bytes[44] ^= 1;  // what stands there is for the other version to say
        CHECK(refusal<unsupported_error>([&] { wire::read_header(bytes); }) == expected);
    }
}

TEST_CASE("the two bytes that count unanswered requests must be zero in what is no request") {
    for (const std::size_t at : {6U, 7U}) {
        header_array bytes = wire::write_header(fields);
        bytes[at] = 1;
        CHECK(refusal<format_error>([&] { wire::read_header(sealed(bytes)); }) ==
              "message: bytes 6 and 7 of the header of a reply: got " + std::string(at == 6 ? "1" : "256") +
                  ", expected 0");
    }
}

TEST_CASE("a request says how many before it have no reply yet") {
    wire::header h = fields;
    h.what = kind::token_request;
    h.unanswered = 0x0201;
    const header_array bytes = wire::write_header(h);
    CHECK(bytes[6] == 1);
    CHECK(bytes[7] == 2);
    CHECK(wire::read_header(bytes) == h);
    CHECK(wire::read_header(bytes).envelope() == wire::envelope{h.number, h.group, 0});
    h.what = kind::token_reply;
    CHECK_THROWS_AS(wire::write_header(h), parameter_error);
}

TEST_CASE("a message is its header, its body and their checksums") {
    const bytes message = sample();
    REQUIRE(message.size() == 72);
    const auto head = wire::write_header(sample_header);
    CHECK(std::equal(head.begin(), head.end(), message.begin()));
    const bytes body = counting_body(20);
    CHECK(std::equal(body.begin(), body.end(), message.begin() + 48));
    const std::uint32_t checksum = wire::crc32c(body);
    for (unsigned k = 0; k < 4; ++k) {
        CHECK(message[68 + k] == ((checksum >> (8 * k)) & 255));
    }

    wire::opened_message opened = wire::open_frame(message, kind::request, own_ids);
    CHECK(opened.header == sample_header);
    CHECK(opened.body.left() == 20);
    CHECK(opened.body.what() == "request");
    const auto read = opened.body.bytes(20);
    CHECK(std::equal(read.begin(), read.end(), body.begin()));
    CHECK(read.data() == message.data() + 48);
}

TEST_CASE("the memory of an earlier message is used again") {
    bytes message = sample();
    message.reserve(500);
    const std::uint8_t* const at = message.data();
    for (const std::uint64_t count : {20U, 400U, 0U, 20U}) {
        wire::header h = sample_header;
        h.body_bytes = count;
        wire::write_message(h, message, [&](wire::byte_writer& to) { to.bytes(counting_body(to.left())); });
        CHECK(message.size() == 52 + count);
        CHECK(message.data() == at);
        CHECK(wire::open_frame(message, kind::request, own_ids).body.left() == count);
    }
    CHECK(message == sample());
}

TEST_CASE("a body that is longer or shorter than announced is not written") {
    bytes message = sample();
    CHECK(refusal<shape_error>([&] {
              wire::write_message(sample_header, message,
                                  [](wire::byte_writer& to) { to.bytes(counting_body(19)); });
          }) == "request: 1 bytes were not written");
    CHECK(message.empty());
    message = sample();
    CHECK(refusal<shape_error>([&] {
              wire::write_message(sample_header, message,
                                  [](wire::byte_writer& to) { to.bytes(counting_body(21)); });
          }) == "request: got 21 bytes to write, expected at most 20");
    CHECK(message.empty());
}

TEST_CASE("a body that no memory holds is not written") {
    bytes message = sample();
    for (const std::uint64_t count : {std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max(),
                                      std::uint64_t{std::numeric_limits<std::uint64_t>::max() - 51}}) {
        wire::header h = sample_header;
        h.body_bytes = count;
        CHECK(refusal<shape_error>([&] { wire::write_message(h, message, [](wire::byte_writer&) {}); }) ==
              "message: got a body of " + std::to_string(count) + " bytes, which no memory holds");
        CHECK(message.empty());
    }
    wire::header h = sample_header;
    h.what = static_cast<kind>(200);
    CHECK_THROWS_WITH_AS(wire::write_message(h, message, [](wire::byte_writer&) {}),
                         "write_header: kind: got 200, which is no kind", parameter_error);
}

TEST_CASE("a message with any bit flipped is refused") {
    const bytes good = sample();
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
        bytes message = good;
        message[bit / 8] = static_cast<std::uint8_t>(message[bit / 8] ^ 1U << (bit % 8));
        CAPTURE(bit);
        const std::string why = why_refused<tensafe::error>(message);
        const std::string expected = bit / 8 < 4    ? "does not begin"
                                     : bit / 8 == 4 ? "version"
                                     : bit / 8 < 48 ? "checksum of its header"
                                                    : "checksum of its body";
        CHECK(contains(why, expected));
        if (bit / 8 < wire::header_bytes) {
            CHECK(refusal<tensafe::error>([&] { wire::read_header(message); }) == why);
        }
    }
}

TEST_CASE("a message that is cut anywhere, or goes on, is refused") {
    const bytes good = sample();
    for (std::size_t length = 0; length < good.size(); ++length) {
        const bytes message(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
        CHECK(why_refused(message) ==
              (length < 48
                   ? "message: got " + std::to_string(length) + " bytes, expected at least 48 for its header"
                   : "request: its header announces a body of 20 bytes and 4 of checksum, got " +
                         std::to_string(length - 48) + " bytes behind the header"));
        if (length < wire::header_bytes) {
            CHECK(refusal<format_error>([&] { wire::read_header(message); }) == why_refused(message));
        }
    }
    bytes message = good;
    message.push_back(0);
    CHECK(
        why_refused(message) ==
        "request: its header announces a body of 20 bytes and 4 of checksum, got 25 bytes behind the header");
}

TEST_CASE("announced lengths that are absurd are refused, whatever they wrap around to") {
    for (const std::uint64_t announced :
         {std::uint64_t{0}, std::uint64_t{19}, std::uint64_t{21}, std::uint64_t{24}, std::uint64_t{72},
          std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + 20, std::uint64_t{1} << 63,
          (std::uint64_t{1} << 63) + 20, std::numeric_limits<std::uint64_t>::max(),
          std::numeric_limits<std::uint64_t>::max() - 3}) {
        bytes message = sample();
        put(message, 32, announced);
        CHECK(why_refused(resealed(message)) ==
              "request: its header announces a body of " + std::to_string(announced) +
                  " bytes and 4 of checksum, got 24 bytes behind the header");
    }
    // Three bytes of a checksum, and a length that would be right modulo 2^64.
    bytes message = sample();
    put(message, 32, std::numeric_limits<std::uint64_t>::max());
    message = resealed(message);
    message.resize(51);
    CHECK(contains(why_refused(message), "got 3 bytes behind the header"));
}

TEST_CASE("a message of another parameter set is refused, and both sets are named") {
    const std::string own = wire::set_name<P>();
    const std::string other = wire::set_name<other_scale>();
    CHECK(refusal<parameter_error>([] { wire::open_message<other_scale>(sample(), kind::request); }) ==
          "request: parameter set: got an unknown parameter set (id " +
              wire::identifier_text(wire::set_id<P>) + "), expected " + other);
    bytes message = sample();
    put(message, 8, wire::set_id<ckks::private_n4096>);
    CHECK(why_refused<parameter_error>(resealed(message)) ==
          "request: parameter set: got private_n4096 (N = 4096, primes of 45 and 44 bits, scale 2^40, id "
          "0x6853e9e85ab70bf0), expected " +
              own);
}

TEST_CASE("a message of another packing or protection is refused") {
    CHECK_THROWS_WITH_AS(
        wire::open_message<P>(sample(), kind::request),
        "request: packing and protection: got scheme id 0x0000000000007777, expected scheme id "
        "0x0000000000000000",
        parameter_error);
    wire::wanted_ids other = own_ids;
    other.scheme = 0x10;
    other.scheme_text = [](std::uint64_t id) { return "<" + std::to_string(id) + ">"; };
    CHECK_THROWS_WITH_AS(wire::open_frame(sample(), kind::request, other),
                         "request: packing and protection: got <30583>, expected <16>", parameter_error);
}

TEST_CASE("what is checked first is told first") {
    // Each has all faults of those behind it.
    bytes message = sample();
    message[70] ^= 1;
    CHECK(why_refused(message) == "request: the checksum of its body is wrong: it was changed on its way");
    const auto with_header = [&](std::size_t at, auto value) {
        put(message, at, value);
        put(message, 44, wire::crc32c(std::span<const std::uint8_t>(message).first(44)));
    };
    with_header(16, std::uint64_t{1});
    CHECK(contains(why_refused<parameter_error>(message), "packing and protection"));
    with_header(8, std::uint64_t{1});
    CHECK(contains(why_refused<parameter_error>(message), "parameter set"));
    with_header(32, std::uint64_t{1});
    CHECK(contains(why_refused(message), "announces a body of 1 bytes"));
    with_header(5, std::uint8_t{17});
    CHECK(why_refused(message) == "message: got a reply, expected a request");
    with_header(6, std::uint16_t{1});
    CHECK(contains(why_refused(message), "bytes 6 and 7"));
    with_header(5, std::uint8_t{99});
    CHECK(contains(why_refused(message), "got kind 99"));
    message[44] ^= 1;
    CHECK(contains(why_refused(message), "checksum of its header"));
    message[4] = 3;
    CHECK(contains(why_refused<unsupported_error>(message), "got version 3"));
    message[0] = 't';
    CHECK(why_refused(message) == "message: does not begin with \"TSHE\"");
}
