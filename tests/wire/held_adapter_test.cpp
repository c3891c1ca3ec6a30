#include <tensafe/wire/held_adapter.hpp>

#include "../random_values.hpp"
#include "golden_message.hpp"
#include "wire_fixture.hpp"

using namespace tests;
using namespace wire_fixture;

namespace {

/// A matrix whose entries are eighths: the same on every machine.
lora::matrix eighths(std::size_t rows, std::size_t columns) {
    lora::matrix m(rows, columns);
    for (std::size_t i = 0; i < m.values.size(); ++i) {
        m.values[i] = static_cast<float>(i % 31) / 8 - 2;
    }
    return m;
}

/// B of one site, and a whole one.
lora::adapter held() {
    lora::adapter a;
    a.sites.push_back({"layers.0.q", {}, eighths(5, 3), 2.0});
    a.sites.push_back({"layers.0.head.ü", eighths(2, 4), eighths(3, 2), -0.125});
    a.sites[0].b.values[1] = -0.0F;
    a.sites[0].b.values[2] = std::numeric_limits<float>::denorm_min();
    a.sites[0].b.values[3] = std::numeric_limits<float>::max();
    return a;
}

bool same_bits(const lora::matrix& a, const lora::matrix& b) {
    return a.rows == b.rows && a.columns == b.columns && a.values.size() == b.values.size() &&
           (a.values.empty() || std::memcmp(a.values.data(), b.values.data(), a.values.size() * 4) == 0);
}
bool same(const lora::adapter& a, const lora::adapter& b) {
    return std::equal(
        a.sites.begin(), a.sites.end(), b.sites.begin(), b.sites.end(), [](const auto& x, const auto& y) {
            return x.name == y.name && x.scale == y.scale && same_bits(x.a, y.a) && same_bits(x.b, y.b);
        });
}

const auto read_held = [](const byte_vector& message) {
    static_cast<void>(wire::read_held_adapter(message));
};

// Where the numbers of the body stand: of the first site its name, scale, shapes of A and B, and B.
constexpr std::size_t sites_at = 48;
constexpr std::size_t name_at = 52;
constexpr std::size_t scale_at = name_at + 4 + 10;
constexpr std::size_t a_at = scale_at + 8;
constexpr std::size_t b_at = a_at + 8;
constexpr std::size_t values_at = b_at + 8;

}  // namespace

TEST_CASE("a held adapter comes back bit for bit, and an empty one too") {
    const byte_vector message = wire::write_whole_adapter(held(), {1, 2});
    CHECK(message.size() == 52 + 4 + (4 + 10 + 8 + 16 + 15 * 4) + (4 + 16 + 8 + 16 + (8 + 6) * 4));
    CHECK(same(wire::read_held_adapter(message), held()));
    const wire::header h = wire::read_header(message);
    CHECK(h.what == wire::kind::held_adapter);
    CHECK(h.set == 0);
    CHECK(h.scheme == 0);
    CHECK(h.envelope() == wire::envelope{1, 2});
    CHECK(wire::read_held_adapter(wire::write_whole_adapter({})).sites.empty());
}

TEST_CASE("a golden held adapter of version 1 reads back, and today's writer gives its bytes") {
    const byte_vector kept = golden("held_adapter", wire::write_whole_adapter(held(), {5, 0}));
    CHECK(same(wire::read_held_adapter(kept), held()));
}

TEST_CASE("an A of a served site, and in mode blind B too, is not written for clients") {
    lora::model_layout served;
    served.groups.push_back({"in", 4, 1, {{"layers.0.q", 3, 5, 2.0}}});
    CHECK(wire::write_held_adapter(held(), served) == wire::write_whole_adapter(held()));
    lora::adapter leaks = held();
    leaks.sites[0].a = eighths(3, 4);
    CHECK_THROWS_WITH_AS(wire::write_held_adapter(leaks, served),
                         Contains("site \"layers.0.q\" has an A, which the server keeps to itself"),
                         parameter_error);
    served.mode = lora::mode::blind;
    CHECK_THROWS_WITH_AS(
        wire::write_held_adapter(held(), served),
        Contains("site \"layers.0.q\" is there in mode blind, which the server keeps to itself"),
        parameter_error);
    lora::adapter unserved = held();
    unserved.sites.erase(unserved.sites.begin());
    CHECK(wire::write_held_adapter(unserved, served) == wire::write_whole_adapter(unserved));
    CHECK(same(wire::read_held_adapter(wire::write_whole_adapter(leaks)), leaks));
}

TEST_CASE("counts and shapes that lie are refused, and no memory is taken for what they announce") {
    const byte_vector good = wire::write_whole_adapter(held());
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    constexpr std::uint32_t largest_dimension = tensafe::lora::detail::largest_dimension;
    REQUIRE(get<std::uint32_t>(good, sites_at) == 2);
    REQUIRE(get<std::uint32_t>(good, name_at) == 10);
    REQUIRE(get<double>(good, scale_at) == 2.0);
    REQUIRE(get<std::uint32_t>(good, b_at) == 5);
    for (const std::uint32_t sites : {std::uint32_t{1}, std::uint32_t{3}, most}) {
        CHECK_THROWS_AS(read_held(with_number(good, sites_at, sites)), format_error);
    }
    CHECK_THROWS_AS(read_held(with_number<std::uint32_t>(good, name_at, 0)), format_error);
    CHECK_THROWS_AS(read_held(with_number(good, name_at, most)), format_error);
    for (const std::size_t at : {b_at, b_at + 4}) {
        CHECK_THROWS_AS(read_held(with_number<std::uint32_t>(good, at, 0)), shape_error);
        CHECK_THROWS_AS(read_held(with_number(good, at, largest_dimension + 1)), shape_error);
        CHECK_THROWS_AS(read_held(with_number(good, at, most)), shape_error);
        CHECK_THROWS_WITH_AS(read_held(with_number(good, at, largest_dimension)),
                             Contains("more bytes, expected "), format_error);
    }
    byte_vector largest = with_number(good, b_at, largest_dimension);
    largest = with_number(largest, b_at + 4, largest_dimension);
    const std::string expected = std::to_string(4 * std::uint64_t{largest_dimension} * largest_dimension);
    CHECK_THROWS_WITH_AS(read_held(largest), Contains(expected.c_str()), format_error);
    // An A that does not fit B: 2 x 1, 0 x 3, 3 x 0.
    byte_vector misfit = with_number<std::uint32_t>(good, a_at, 2);
    CHECK_THROWS_AS(read_held(with_number<std::uint32_t>(misfit, a_at + 4, 1)), shape_error);
    CHECK_THROWS_AS(read_held(with_number<std::uint32_t>(good, a_at, 3)), shape_error);
    CHECK_THROWS_AS(read_held(with_number<std::uint32_t>(good, a_at + 4, 3)), shape_error);
}

TEST_CASE("what is no number, and names that cannot be, are refused by reader and writer") {
    const byte_vector good = wire::write_whole_adapter(held());
    for (const float x : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        CHECK_THROWS_WITH_AS(
            read_held(with_number(good, values_at + 4 * 7, x)),
            Contains("read_held_adapter: site \"layers.0.q\": B[2][1] is not a finite number"),
            encoding_error);
        lora::adapter bad = held();
        bad.sites[1].a.values[5] = x;
        CHECK_THROWS_WITH_AS(wire::write_whole_adapter(bad), Contains("A[1][1] is not a finite number"),
                             encoding_error);
    }
    CHECK_THROWS_AS(read_held(with_number(good, scale_at, not_a_number)), parameter_error);
    CHECK_THROWS_AS(read_held(with_number(good, name_at + 4, std::uint8_t{27})), parameter_error);

    const auto refused = [](auto change) {
        lora::adapter bad = held();
        change(bad);
        CHECK_THROWS_AS(wire::write_whole_adapter(bad), tensafe::error);
    };
    refused([](auto& a) { a.sites[1].name = a.sites[0].name; });
    refused([](auto& a) { a.sites[1].name.clear(); });
    refused([](auto& a) { a.sites[1].name.assign(4097, 'x'); });
    refused([](auto& a) { a.sites[1].scale = infinity; });
    refused([](auto& a) { a.sites[1].b.values.pop_back(); });
    refused([](auto& a) { a.sites[1].a.values.pop_back(); });
    refused([](auto& a) { a.sites[0].a.values.push_back(1); });
    refused([](auto& a) { a.sites[1].b = {}; });

    byte_vector twice =
        wire::write_whole_adapter({{{"p", {}, eighths(1, 1), 1}, {"q", {}, eighths(1, 1), 1}}});
    const auto q = std::find(twice.begin() + 48, twice.end(), 'q');
    *q = 'p';
    CHECK_THROWS_WITH_AS(read_held(sealed(twice)), Contains("the name occurs twice"), parameter_error);
}
