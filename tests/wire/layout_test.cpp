#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/wire/layout.hpp>

#include "../random_values.hpp"
#include "golden_message.hpp"
#include "wire_fixture.hpp"

using namespace tests;
using namespace wire_fixture;

namespace {

using P = tests::small;

lora::model_layout some_layout() {
    lora::model_layout l;
    l.tokens_ahead = 128;
    l.groups.push_back(
        {"layers.0.attn_in", 2048, 1.5, {{"layers.0.q", 32, 2048, 2.0}, {"layers.0.k", 8, 256, -0.25}}});
    l.groups.push_back({"layers.0.grüße", 7, 0, {{"layers.0.ü", 1, 1, 0}}});
    return l;
}

lora::model_layout blind_layout() {
    lora::model_layout l;
    l.mode = lora::mode::blind;
    l.groups.push_back({"in", 300, 0x1p-20, {{"q", 4, 60, 0x1p-256}, {"k", 4, 61, 0x1p256}}});
    return l;
}

using tiles = lora::coefficient_tiles<4>;
using protects = lora::protects_adapter_rows<>;

template <class Packing = tiles, class Protection = protects>
byte_vector write(const lora::model_layout& l, const wire::envelope& from = {}) {
    return wire::write_model_layout<P, Packing, Protection>(l, from);
}
template <class Packing = tiles, class Protection = protects>
lora::model_layout read(const byte_vector& message) {
    return wire::read_model_layout<P, Packing, Protection>(message);
}

const auto read_layout = [](const byte_vector& message) { static_cast<void>(read(message)); };

// Where the numbers of the body of some_layout() stand.
constexpr std::size_t mode_at = 48;
constexpr std::size_t groups_at = 56;
constexpr std::size_t input_at = 60;               // its length, 16, and its bytes
constexpr std::size_t d_at = input_at + 4 + 16;    // d, row_norm, number of sites
constexpr std::size_t site_at = d_at + 4 + 8 + 4;  // length of "layers.0.q"
constexpr std::size_t rank_at = site_at + 4 + 10;  // rank, d_out, scale

}  // namespace

TEST_CASE("a model layout comes back equal, in both modes, and an empty one too") {
    lora::model_layout scaled = some_layout();
    scaled.groups[1].column_exponents = {-120, -1, 0, 1, 2, 3, 120};
    for (const auto& l : {some_layout(), blind_layout(), scaled, lora::model_layout{}}) {
        const byte_vector message = write(l, {1, 2});
        CHECK(read(message) == l);
        CHECK(wire::read_header(message) == wire::header{wire::kind::model_layout, wire::set_id<P>,
                                                         wire::scheme_id<tiles, protects>, 1, 2,
                                                         message.size() - 52});
    }
}

TEST_CASE("golden model layouts of version 1 read back, and today's writer gives their bytes") {
    const auto check = [](const char* name, const lora::model_layout& l) {
        CHECK(read(golden(name, write(l, {5, 0}))) == l);
    };
    check("model_layout_client_held_b", some_layout());
    check("model_layout_blind", blind_layout());
}

TEST_CASE("counts and lengths that lie are refused, and no memory is taken for what they announce") {
    const byte_vector good = write(some_layout());
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    const auto refused = [&](std::size_t at, std::uint32_t value) {
        return refusal<format_error>([&] { read_layout(with_number(good, at, value)); });
    };
    REQUIRE(get<std::uint32_t>(good, groups_at) == 2);
    REQUIRE(get<std::uint32_t>(good, input_at) == 16);
    REQUIRE(get<std::uint32_t>(good, d_at) == 2048);
    REQUIRE(get<std::uint32_t>(good, site_at) == 10);
    REQUIRE(get<std::uint32_t>(good, rank_at) == 32);
    CHECK(contains(refused(mode_at, 4), "got mode number 4, expected 0 (client_held_b) or 1 (blind), and 2"));
    lora::model_layout scaled = some_layout();
    scaled.groups.pop_back();
    scaled.groups[0].column_exponents.resize(2048);
    const byte_vector columns = write(scaled);
    const std::size_t count_at = columns.size() - 4 - 2048 - 4;
    REQUIRE(get<std::uint32_t>(columns, count_at) == 2048);
    CHECK_THROWS_AS(read_layout(with_number(columns, count_at, most)), format_error);
    CHECK_THROWS_AS(read_layout(with_number<std::uint32_t>(columns, count_at, 2047)), format_error);
    CHECK_THROWS_WITH_AS(read_layout(with_number<std::uint32_t>(columns, d_at, 2047)),
                         Contains("has 2048 column exponents, expected 2047 or none"), shape_error);
    // An object has one message: no scaled columns are not announced.
    CHECK(contains(
        refusal<format_error>([&] { read_layout(with_number<std::uint32_t>(write({}), mode_at, 3)); }),
        "got mode number 3 and no scaled columns, expected their exponents in a group"));
    CHECK(contains(refused(groups_at, 1), "bytes too many at the end"));
    CHECK(contains(refused(groups_at, 3), "got 0 more bytes, expected 4"));
    CHECK(contains(refused(groups_at, most), "got 0 more bytes, expected 4"));
    CHECK(contains(refused(input_at, 0), "got a name of 0 bytes for an input, expected 1 to 4096"));
    CHECK(contains(refused(input_at, 4097), "got a name of 4097 bytes for an input"));
    CHECK(contains(refused(input_at, 4096), "more bytes, expected 4096"));
    CHECK(contains(refused(site_at, most), "got a name of 4294967295 bytes for a site"));
    CHECK_THROWS_WITH_AS(read_layout(with_number(good, d_at + 12, most)),
                         Contains("sites or more, expected at most 1048576"), shape_error);
    CHECK_THROWS_AS(read_layout(with_number<std::uint32_t>(good, d_at + 12, 1U << 20)), format_error);
    CHECK_THROWS_AS(read_layout(with_number<std::uint32_t>(good, d_at + 12, 3)), tensafe::error);
}

TEST_CASE("a layout that no model server has is refused, by reader and writer") {
    const byte_vector good = write(some_layout());
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    CHECK_THROWS_AS(read_layout(with_number<std::uint32_t>(good, d_at, 0)), shape_error);
    CHECK_THROWS_AS(read_layout(with_number(good, d_at, most)), shape_error);
    CHECK_THROWS_AS(read_layout(with_number(good, rank_at, most)), shape_error);
    CHECK_THROWS_AS(read_layout(with_number(good, rank_at + 4, std::uint32_t{0})), shape_error);
    CHECK_THROWS_AS(read_layout(with_number<std::uint32_t>(good, d_at + 12, 0)), tensafe::error);
    for (const double x : {not_a_number, infinity}) {
        CHECK_THROWS_AS(read_layout(with_number(good, d_at + 4, x)), parameter_error);
        CHECK_THROWS_AS(read_layout(with_number(good, rank_at + 8, x)), parameter_error);
    }
    CHECK_THROWS_AS(read_layout(with_number(good, d_at + 4, -1.0)), parameter_error);
    // A control character, and half a character, in a name.
    CHECK_THROWS_AS(read_layout(with_number(good, site_at + 4, std::uint8_t{7})), parameter_error);
    CHECK_THROWS_AS(read_layout(with_number(good, input_at + 4, std::uint8_t{0xC3})), parameter_error);
    // The name of the other site: k becomes q.
    const std::size_t second = rank_at + 16 + 4 + 9;
    REQUIRE(good[second] == 'k');
    CHECK_THROWS_WITH_AS(read_layout(with_number(good, second, std::uint8_t{'q'})),
                         Contains("is there twice"), parameter_error);
    // Scales that are fine for client_held_b.
    CHECK_THROWS_AS(read_layout(with_number<std::uint32_t>(good, mode_at, 1)), parameter_error);

    auto bad = some_layout();
    bad.groups[0].sites.clear();
    CHECK_THROWS_AS(write(bad), shape_error);
    bad = some_layout();
    if (two_to_32 != 0) {
        bad.tokens_ahead = two_to_32;
        CHECK_THROWS_AS(write(bad), parameter_error);
    }
}
