#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>

#include "../random_values.hpp"
#include "golden_message.hpp"
#include "wire_fixture.hpp"
#include "wire_messages.hpp"

using namespace tests;
using namespace wire_messages;
using namespace wire_fixture;

namespace {

template <class Packing, class Protection>
using plan = lora::packing_plan<small, Packing, Protection>;

// Two products; the last has two coefficients of c0.
const auto of_six = plan<tiles, protects>(6, 300, 1);
const auto bare_of_six = plan<tiles, bare>(6, 300, 1);

template <class Plan>
auto reader(const Plan& l) {
    return [&l](const byte_vector& message) { static_cast<void>(wire::read_reply(message, l)); };
}

template <class Packing, class Protection>
void goes_through(const plan<Packing, Protection>& l) {
    const auto r = some_reply(l, l.rank());
    const byte_vector message = wire::write_reply(r, {7, 3});
    CHECK(message.size() == r.bytes());
    const auto cost = lora::cost_of(l);
    CHECK(message.size() == cost.bytes_down);
    CHECK(wire::write_request<Packing, Protection>(some_request(l, 1)).size() == cost.bytes_up);
    CHECK(same(wire::read_reply(message, l), r));
    CHECK(wire::read_header(message) == wire::header{wire::kind::reply, wire::set_id<small>,
                                                     wire::scheme_id<Packing, Protection>, 7, 3,
                                                     message.size() - 52});
}

}  // namespace

TEST_CASE("a reply comes back bit for bit, in as many bytes as it says: two packings, three protections") {
    for (const std::size_t rank : {1U, 4U, 5U, 32U, 33U}) {
        goes_through(plan<tiles, protects>(rank, 300, 1));
        goes_through(plan<tiles, narrow>(rank, 300, 1));
        goes_through(plan<tiles, bare>(rank, 300, 1));
        goes_through(plan<lora::replicated_slots<>, protects>(rank, 300, 1));
    }
}

TEST_CASE("golden replies of version 1 read back, and today's writer gives their bytes") {
    const auto check = [](const char* name, const auto& l) {
        const auto r = some_reply(l, 2026);
        CHECK(same(wire::read_reply(golden(name, wire::write_reply(r, {5, 1})), l), r));
    };
    check("reply_tiles4_protected_n1024_r3_d200", plan<tiles, protects>(3, 200, 1));
    check("reply_tiles4_calibrated5_n1024_r3_d200", plan<tiles, narrow>(3, 200, 1));
    check("reply_tiles4_bare_n1024_r3_d200", plan<tiles, bare>(3, 200, 1));
}

TEST_CASE("a reply to something else is refused and both are named") {
    const byte_vector good = wire::write_reply(some_reply(of_six, 1));
    CHECK_THROWS_WITH_AS(reader(plan<tiles, protects>(7, 300, 1))(good), "reply: rank: got 6, expected 7",
                         shape_error);
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    for (const std::size_t at : {48U, 52U, 56U}) {
        for (const std::uint32_t value : {std::uint32_t{0}, std::uint32_t{7}, most}) {
            CHECK_THROWS_AS(reader(of_six)(with_number<std::uint32_t>(good, at, value)), shape_error);
        }
    }
}

TEST_CASE("an erased c1 and unused bits are refused, in every product, and what was there before stays") {
    const auto before = some_reply(of_six, 1);
    auto into = before;
    for (std::size_t o = 0; o < 2; ++o) {
        auto erased = some_reply(of_six, 2);
        byte_vector message = wire::write_reply(erased);
        const auto c1 = std::search(message.begin(), message.end(), erased.outputs[o].c1.begin(),
                                    erased.outputs[o].c1.end());
        REQUIRE(c1 != message.end());
        std::fill_n(c1, erased.outputs[o].c1.size(), std::uint8_t{0});
        message = sealed(std::move(message));
        CHECK(contains(refusal<format_error>([&] { wire::read_reply(message, of_six, into); }),
                       "the c1 of product " + std::to_string(o) + " is zero"));
        std::fill(erased.outputs[o].c1.begin(), erased.outputs[o].c1.end(), std::uint8_t{0});
        CHECK(contains(refusal<parameter_error>([&] { wire::write_reply(erased); }),
                       "reply: the c1 of product " + std::to_string(o) + " is zero"));
        erased.outputs[o].c1.back() = 0x80;  // one bit of one coefficient is enough
        CHECK(takes(reader(of_six), wire::write_reply(erased)) == 1);
    }
    const int bits = of_six.reply_bits(1);
    REQUIRE(2 * bits % 8 != 0);
    auto padded = some_reply(of_six, 2);
    padded.outputs[1].c0.back() |= static_cast<std::uint8_t>(1U << 2 * bits % 8);
    const byte_vector message = wire::write_reply(padded);
    CHECK_THROWS_WITH_AS(wire::read_reply(message, of_six, into),
                         "reply: the unused bits after c0 of product 1 are not zero", format_error);
    CHECK(same(into, before));
}

TEST_CASE("a bare residue that is not below its prime is refused, and names limb and prime") {
    auto r = some_reply(bare_of_six, 1);
    const auto refused = [&](const char* text) {
        const byte_vector message = wire::write_reply(r);
        return contains(refusal<format_error>([&] { reader(bare_of_six)(message); }), text);
    };
    r.outputs[1].c0[1][2] = small::basis::prime<1>;
    CHECK(refused("reply: c0, limb 1: got a residue "));
    r = some_reply(bare_of_six, 1);
    r.outputs[0].c1.limb<0>()[1023] = small::basis::prime<0>;
    CHECK(refused("reply: c1, limb 0: got a residue "));
    r.outputs[0].c1.limb<0>()[1023] = small::basis::prime<0> - 1;
    CHECK(takes(reader(bare_of_six), wire::write_reply(r)) == 1);
}

TEST_CASE("a bare c1 of zeros is refused where it shows the product, and is that of a zero matrix else") {
    for (std::size_t o = 0; o < 2; ++o) {
        auto r = some_reply(bare_of_six, 1);
        byte_vector message = wire::write_reply(r);
        // Limb 1 of c1, of 44 bits a residue, is the last of a product.
        constexpr std::size_t limb_bytes = 1024 / 8 * 44;
        const std::size_t product = (message.size() - 64) / 2;
        std::fill_n(message.begin() + static_cast<std::ptrdiff_t>(60 + (o + 1) * product - limb_bytes),
                    limb_bytes, std::uint8_t{0});
        message = sealed(std::move(message));
        CHECK_THROWS_WITH_AS(reader(bare_of_six)(message),
                             "reply: limb 1: c1 is zero and c0 is not: everybody could read the product",
                             format_error);
        const auto c1 = r.outputs[o].c1.limb<1>();
        std::fill(c1.begin(), c1.end(), word{0});
        CHECK_THROWS_AS(wire::write_reply(r), parameter_error);
        auto& c0 = r.outputs[o].c0[1];
        std::fill(c0.begin(), c0.end(), word{0});
        CHECK(same(wire::read_reply(wire::write_reply(r), bare_of_six), r));
    }
}

TEST_CASE("what no reader takes is not written") {
    auto r = some_reply(bare_of_six, 1);
    r.outputs[1].c0[1] = tensafe::memory::buffer<word>(5);
    CHECK_THROWS_WITH_AS(wire::write_reply(r), Contains("got a limb of 5 coefficients, expected 4"),
                         shape_error);
    r = some_reply(bare_of_six, 1);
    static_cast<void>(std::move(r.outputs[0].c1).take());
    CHECK_THROWS_AS(wire::write_reply(r), shape_error);
    auto wide = some_reply(of_six, 1);
    wide.rank = two_to_32;
    if (two_to_32 != 0) {
        CHECK_THROWS_AS(wire::write_reply(wide), parameter_error);
    }
}

TEST_CASE("a reply is read into one of another shape") {
    const auto large = plan<tiles, bare>(12, 300, 1);
    auto r = some_reply(large, 1);
    const auto expected = some_reply(bare_of_six, 2);
    wire::read_reply(wire::write_reply(expected), bare_of_six, r);
    CHECK(same(r, expected));
    wire::read_reply(wire::write_reply(some_reply(large, 3)), large, r);
    CHECK(same(r, some_reply(large, 3)));
}
