#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/wire/request.hpp>

#include "../random_values.hpp"
#include "golden_message.hpp"
#include "wire_fixture.hpp"
#include "wire_messages.hpp"

using namespace tests;
using namespace wire_messages;
using namespace wire_fixture;

namespace {

using tile_plan = lora::packing_plan<small, tiles, protects>;

const tile_plan of_300(6, 300, 1);

// Where the numbers of the body stand.
constexpr std::size_t d_at = 48;
constexpr std::size_t block_at = 52;
constexpr std::size_t one_at = 56;

/// As one for tiles, unless it says what else it was made for.
template <class Packing = tiles, class Protection = protects>
byte_vector write(const lora::request<small>& r, const wire::envelope& from = {}) {
    return wire::write_request<Packing, Protection>(r, from);
}

auto reader(const tile_plan& l) {
    return [&l](const byte_vector& message) { static_cast<void>(wire::read_request(message, l)); };
}

}  // namespace

TEST_CASE("a request comes back bit for bit, in as many bytes as it says, whatever its packing") {
    const auto goes_through =
        []<class Packing, class Protection>(const lora::packing_plan<small, Packing, Protection>& l) {
            const auto r = some_request(l, l.d());
            const byte_vector message = write<Packing, Protection>(r, {7, 3});
            CHECK(message.size() == r.bytes());
            CHECK(same(wire::read_request(message, l), r));
            CHECK(wire::read_header(message) == wire::header{wire::kind::request, wire::set_id<small>,
                                                             wire::scheme_id<Packing, Protection>, 7, 3,
                                                             message.size() - 52});
        };
    for (const std::size_t d : {1U, 255U, 256U, 257U, 300U, 1024U}) {
        goes_through(tile_plan(6, d, 1));
    }
    goes_through(lora::packing_plan<small, tiles, bare>(6, 300, 1));
    goes_through(lora::packing_plan<small, lora::replicated_slots<>, protects>(6, 300, 1));
}

TEST_CASE("a golden request of version 1 reads back, and today's writer gives its bytes") {
    const auto l = tile_plan(6, 200, 1);
    const auto r = some_request(l, 2026);
    const byte_vector kept = golden("request_tiles4_n1024_d200", write(r, {0x0102030405060708, 9}));
    CHECK(same(wire::read_request(kept, l), r));
    CHECK(wire::read_header(kept).envelope() == wire::envelope{0x0102030405060708, 9});
}

TEST_CASE("a request for another layout is refused and both are named") {
    const byte_vector good = write(some_request(of_300, 1));
    const auto message_for = [&](const byte_vector& message, const auto& l) {
        return refusal<shape_error>([&] { wire::read_request(message, l); });
    };
    CHECK(message_for(good, tile_plan(6, 301, 1)) == "request: d: got 300, expected 301");
}

TEST_CASE("shapes that lie are refused before memory is taken for them") {
    const byte_vector good = write(some_request(of_300, 1));
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    const auto refused = [&](std::size_t at, std::uint32_t value) {
        const byte_vector bad = with_number<std::uint32_t>(good, at, value);
        CHECK(contains(refusal<shape_error>([&] { reader(of_300)(bad); }), std::to_string(value)));
    };
    for (const std::size_t at : {d_at, block_at, one_at}) {
        refused(at, 0);
        refused(at, most);
    }
    refused(one_at, 2);
    refused(d_at, 299);

    // One ciphertext too few, one too many: the shape is right, the length is not.
    auto r = some_request(of_300, 1);
    r.inputs.pop_back();
    CHECK_THROWS_AS(reader(of_300)(write(r)), format_error);
    r = some_request(of_300, 1);
    r.inputs.push_back(r.inputs.front());
    CHECK_THROWS_AS(reader(of_300)(write(r)), format_error);
}

TEST_CASE("what no reader takes is not written") {
    auto r = some_request(of_300, 1);
    r.inputs[1].pop_back();
    CHECK_THROWS_WITH_AS(write(r), Contains("got a ciphertext of 11391 bytes, expected 11392"), shape_error);
    r = some_request(of_300, 1);
    if (two_to_32 != 0) {
        r.d = two_to_32;
        CHECK_THROWS_WITH_AS(write(r), Contains("got 4294967296 for d"), parameter_error);
    }
}
