#include <tensafe/core/error.hpp>
#include <tensafe/wire/slots.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../random_values.hpp"
#include "../refusal.hpp"
#include "golden_message.hpp"
#include "wire_fixture.hpp"
#include "wire_messages.hpp"

namespace wire = tensafe::wire;
using tensafe::format_error;
using tensafe::parameter_error;
using tensafe::shape_error;
using tests::refusal;
using namespace wire_messages;
using wire_fixture::byte_vector;
using wire_fixture::with_number;

namespace {

using plain_slots = lora::replicated_slots<>;
using rescaled_slots = lora::replicated_slots<lora::single_rows, lora::rescaled_replies>;

template <class Packing>
using layout = lora::slot_layout<small, Packing>;
template <class Packing>
using slot_reply = lora::reply<small, Packing, bare>;

// Two ciphertexts of a request, of 512 slots each.
const auto of_600 = layout<plain_slots>::of(3, 600, 1);

template <class Poly>
void fill(Poly& p, std::mt19937_64& generator) {
    tensafe::rns::for_each_limb<typename Poly::basis_type>([&]<int I>() {
        const auto limb = p.template limb<I>();
        std::generate(limb.begin(), limb.end(),
                      [&] { return generator() % Poly::basis_type::template prime<I>; });
    });
}

template <class Layout>
lora::slot_request<small> some_slot_request(const Layout& l, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    lora::slot_request<small> r{l.d, l.stride, {}};
    r.inputs.resize(l.inputs);
    for (auto& input : r.inputs) {
        fill(input.c0, generator);
        for (auto& byte : input.seed.bytes) {
            byte = static_cast<std::uint8_t>(generator());
        }
    }
    return r;
}

template <class Packing>
slot_reply<Packing> some_slot_reply(const layout<Packing>& l, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    slot_reply<Packing> r;
    r.rank = l.rank;
    r.d = l.d;
    r.products.resize(l.outputs);
    for (auto& product : r.products) {
        fill(product.c0, generator);
        fill(product.c1, generator);
        product.scale = Packing::template reply_scale<small>;
    }
    return r;
}

bool same(const lora::slot_request<small>& a, const lora::slot_request<small>& b) {
    return a.d == b.d && a.stride == b.stride &&
           std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(),
                      [](const auto& x, const auto& y) {
                          return x.c0 == y.c0 && x.seed == y.seed && x.scale == y.scale;
                      });
}
template <class Packing>
bool same(const slot_reply<Packing>& a, const slot_reply<Packing>& b) {
    return a.rank == b.rank && a.d == b.d &&
           std::equal(a.products.begin(), a.products.end(), b.products.begin(), b.products.end(),
                      [](const auto& x, const auto& y) {
                          return x.c0 == y.c0 && x.c1 == y.c1 && x.scale == y.scale;
                      });
}

template <class Packing = plain_slots>
byte_vector write_request(const lora::slot_request<small>& r, const wire::envelope& from = {}) {
    return wire::write_slot_request<Packing>(r, from);
}

const auto read_request = [](const byte_vector& message) {
    static_cast<void>(wire::read_slot_request(message, of_600));
};
const auto read_reply = [](const byte_vector& message) {
    static_cast<void>(wire::read_slot_reply(message, of_600));
};

}  // namespace

TEST_CASE("requests and replies of the classic packing come back bit for bit") {
    constexpr std::size_t polynomial = 1024 / 8 * (45 + 44);
    for (const std::size_t d : {1U, 100U, 512U, 513U, 1024U}) {
        const auto l = layout<plain_slots>::of(5, d, 1);
        const auto r = some_slot_request(l, d);
        const byte_vector message = write_request(r, {7, 3});
        CHECK(message.size() == 64 + l.inputs * (32 + polynomial));
        CHECK(message.size() == r.bytes());
        CHECK(same(wire::read_slot_request(message, l), r));
        CHECK(wire::read_header(message).envelope() == wire::envelope{7, 3});
        CHECK(wire::read_header(message).scheme == wire::scheme_id<plain_slots, bare>);

        const auto reply = some_slot_reply(l, d);
        const byte_vector down = wire::write_slot_reply(reply, {7, 3});
        CHECK(down.size() == 64 + l.outputs * (8 + 2 * polynomial));
        CHECK(down.size() == reply.bytes());
        CHECK(same(wire::read_slot_reply(down, l), reply));
        CHECK(wire::read_header(down).scheme == wire::scheme_id<plain_slots, bare>);
    }
    const auto l = layout<rescaled_slots>::of(5, 100, 1);
    const auto reply = some_slot_reply(l, 1);
    const byte_vector down = wire::write_slot_reply(reply);
    CHECK(down.size() == 64 + l.outputs * (8 + 2 * 1024 / 8 * 45));
    CHECK(down.size() == reply.bytes());
    CHECK(same(wire::read_slot_reply(down, l), reply));
}

TEST_CASE("golden messages of version 1 read back, and today's writer gives their bytes") {
    const auto l = layout<rescaled_slots>::of(1, 300, 1);
    const auto request = some_slot_request(l, 2026);
    const byte_vector up = write_request<rescaled_slots>(request, {5, 1});
    CHECK(tests::golden("slot_request_single_rescaled_n1024_d300", up) == up);
    CHECK(same(wire::read_slot_request(tests::golden("slot_request_single_rescaled_n1024_d300", up), l),
               request));
    const auto reply = some_slot_reply(l, 2026);
    const byte_vector down = wire::write_slot_reply(reply, {5, 1});
    CHECK(tests::golden("slot_reply_single_rescaled_n1024_r1_d300", down) == down);
    CHECK(same(wire::read_slot_reply(tests::golden("slot_reply_single_rescaled_n1024_r1_d300", down), l),
               reply));
}

TEST_CASE("a message of the classic packing that is cut, lengthened or changed by one bit is refused") {
    const byte_vector up = write_request(some_slot_request(of_600, 1));
    wire_fixture::every_truncation_is_refused(up, read_request);
    wire_fixture::every_flipped_bit_is_refused(up, read_request);
    const byte_vector down = wire::write_slot_reply(some_slot_reply(of_600, 1));
    wire_fixture::every_truncation_is_refused(down, read_reply);
    wire_fixture::every_flipped_bit_is_refused(down, read_reply);
}

TEST_CASE("a message for another layout of the classic packing is refused and both are named") {
    const byte_vector up = write_request(some_slot_request(of_600, 1));
    const byte_vector down = wire::write_slot_reply(some_slot_reply(of_600, 1));
    const auto other = layout<plain_slots>::of(3, 100, 1);
    CHECK(refusal<shape_error>([&] { static_cast<void>(wire::read_slot_request(up, other)); }) ==
          "read_slot_request: got a request of 600 entries with stride 1 in 2 ciphertexts, expected 100 "
          "entries "
          "with stride 2 in 1 ciphertexts");
    CHECK(
        refusal<shape_error>([&] { static_cast<void>(wire::read_slot_reply(down, other)); }) ==
        "read_slot_reply: got a reply for a 3 x 600 matrix in 2 ciphertexts, expected a 3 x 100 matrix in 1 "
        "ciphertexts");
    for (const std::size_t at : {48U, 52U, 56U}) {
        for (const std::uint32_t value : {std::uint32_t{0}, std::numeric_limits<std::uint32_t>::max()}) {
            CHECK_THROWS_AS(read_request(with_number(up, at, value)), shape_error);
            CHECK_THROWS_AS(read_reply(with_number(down, at, value)), shape_error);
        }
    }
    const auto rescaled = layout<rescaled_slots>::of(3, 600, 1);
    const std::string message =
        refusal<parameter_error>([&] { static_cast<void>(wire::read_slot_reply(down, rescaled)); });
    CHECK(contains(message, "got replicated_slots 2 unrescaled, reveals_adapter_rows"));
    CHECK(contains(message, "expected replicated_slots 1 rescaled, reveals_adapter_rows"));
    const std::string request =
        refusal<parameter_error>([&] { static_cast<void>(wire::read_slot_request(up, rescaled)); });
    CHECK(contains(request, "slot request: packing and protection: got replicated_slots 2 unrescaled"));
    CHECK(contains(request, "expected replicated_slots 1 rescaled"));
    CHECK(refusal<format_error>([&] { read_reply(up); }) ==
          "message: got a slot request, expected a slot reply");
    layout<plain_slots> wrong = of_600;
    wrong.inputs = 1;
    CHECK_THROWS_AS(static_cast<void>(wire::read_slot_request(up, wrong)), parameter_error);
}

TEST_CASE("a residue that is not below its prime and a scale that is not the packing's are refused") {
    auto r = some_slot_request(of_600, 1);
    r.inputs[1].c0.limb<1>()[7] = small::basis::prime<1>;
    CHECK(contains(refusal<format_error>([&] { read_request(write_request(r)); }),
                   "slot request: c0, limb 1: got a residue"));
    auto reply = some_slot_reply(of_600, 1);
    reply.products[1].c1.limb<0>()[7] = small::basis::prime<0>;
    CHECK(contains(refusal<format_error>([&] { read_reply(wire::write_slot_reply(reply)); }),
                   "slot reply: c1, limb 0: got a residue"));

    const byte_vector down = wire::write_slot_reply(some_slot_reply(of_600, 1));
    for (const double scale :
         {0.0, -0x1p60, 0x1p59, 0x1p60 * (1 + 1e-11), std::numeric_limits<double>::infinity(),
          std::numeric_limits<double>::quiet_NaN()}) {
        CHECK_THROWS_AS(read_reply(with_number(down, 60, scale)), parameter_error);
    }
    const double rounded = 0x1p60 * (1 + 0x1p-50);
    CHECK(wire::read_slot_reply(with_number(down, 60, rounded), of_600).products[0].scale == rounded);
}

TEST_CASE("a c1 of zeros is refused where it shows the product, and is that of a zero matrix else") {
    auto r = some_slot_reply(of_600, 1);
    byte_vector message = wire::write_slot_reply(r);
    constexpr std::size_t limb_bytes = 1024 / 8 * 44;  // limb 1 of the last c1 ends the body
    std::fill_n(message.end() - 4 - limb_bytes, limb_bytes, std::uint8_t{0});
    message = wire_fixture::sealed(std::move(message));
    CHECK(refusal<format_error>([&] { read_reply(message); }) ==
          "read_slot_reply: limb 1: c1 is zero and c0 is not: everybody could read the product");
    const auto clear = [](auto limb) { std::fill(limb.begin(), limb.end(), word{0}); };
    clear(r.products[1].c1.limb<1>());
    CHECK_THROWS_AS(static_cast<void>(wire::write_slot_reply(r)), parameter_error);
    clear(r.products[1].c0.limb<1>());
    CHECK(same(wire::read_slot_reply(wire::write_slot_reply(r), of_600), r));
}

TEST_CASE("what no reader takes is not written, and what was moved from is filled again") {
    auto r = some_slot_request(of_600, 1);
    const byte_vector up = write_request(r);
    r.inputs[1].scale = 3;
    CHECK_THROWS_AS(static_cast<void>(write_request(r)), parameter_error);
    static_cast<void>(std::move(r.inputs[0].c0).take());
    r.inputs[1].scale = small::scale;
    CHECK_THROWS_AS(static_cast<void>(write_request(r)), shape_error);
    wire::read_slot_request(up, of_600, r);
    CHECK(same(r, some_slot_request(of_600, 1)));
    auto reply = some_slot_reply(of_600, 1);
    reply.products[0].scale = 1;
    CHECK_THROWS_AS(static_cast<void>(wire::write_slot_reply(reply)), parameter_error);
}

TEST_CASE("random bodies of the classic packing with right checksums are refused or have the right shape") {
    const byte_vector up = write_request(some_slot_request(of_600, 1));
    CHECK(wire_fixture::read_random_bodies(up, 1, 150, [](const byte_vector& message) {
              const auto r = wire::read_slot_request(message, of_600);
              REQUIRE((r.d == 600 && r.stride == 1 && r.inputs.size() == 2));
          }) > 0);
    const byte_vector down = wire::write_slot_reply(some_slot_reply(of_600, 1));
    CHECK(wire_fixture::read_random_bodies(down, 1, 150, [](const byte_vector& message) {
              const auto r = wire::read_slot_reply(message, of_600);
              REQUIRE((r.rank == 3 && r.d == 600 && r.products.size() == 2));
          }) > 0);
}
