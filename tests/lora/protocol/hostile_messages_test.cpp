#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

TEST_CASE("malformed requests are refused") {
    sides<small> with = sides_for<tiles<4>>();
    const tiles<4> s(random_matrix(6, 300, 1));
    const request<small> good = with.client.encrypt(s.plan(), random_state(300, 1)).request;
    const auto refused = [&](auto change) {
        request<small> r = good;
        change(r);
        CHECK_THROWS_AS(s.apply(r, with.pool), shape_error);
    };
    refused([](auto& r) { r.d = 299; });
    refused([](auto& r) { r.block = 255; });
    refused([](auto& r) { r.block = 0; });
    refused([](auto& r) { r.inputs.clear(); });
    refused([](auto& r) { r.inputs.pop_back(); });
    refused([](auto& r) { r.inputs.push_back(r.inputs[0]); });
    refused([](auto& r) { r.inputs[1].clear(); });
    refused([](auto& r) { r.inputs[1].pop_back(); });
    refused([](auto& r) { r.inputs[1].push_back(0); });
    refused([](auto& r) { r = {}; });

    // The first 48 bits one: no residue of 45 or 44 bits is all ones.
    const std::size_t first_limb = tensafe::memory::packed_bytes(small::degree, 45);
    for (const auto& [at, limb] :
         {std::pair<std::size_t, const char*>{0, "limb 0"}, {first_limb, "limb 1"}}) {
        request<small> r = good;
        std::fill_n(r.inputs[1].begin() + static_cast<std::ptrdiff_t>(at), 6, std::uint8_t{255});
        CHECK(contains(refusal<format_error>([&] { s.apply(r, with.pool); }), limb));
    }
    // The prime itself, and one less.
    const auto first_residue = [&](tensafe::arith::word value) {
        request<small> r = good;
        for (std::size_t i = 0; i < 5; ++i) {
            r.inputs[0][i] = static_cast<std::uint8_t>(value >> (8 * i));
        }
        r.inputs[0][5] = static_cast<std::uint8_t>((r.inputs[0][5] & 0xE0U) | (value >> 40));
        return r;
    };
    constexpr tensafe::arith::word q = small::basis::prime<0>;
    CHECK_THROWS_AS(s.apply(first_residue(q), with.pool), format_error);
    CHECK_NOTHROW(s.apply(first_residue(q - 1), with.pool));
}

TEST_CASE("malformed replies are refused, and any bytes of the right number decrypt to numbers") {
    sides<small> with = sides_for<tiles<4>>();
    const matrix a = random_matrix(6, 300, 1);
    const tiles<4> s(a);
    const auto q = with.client.encrypt(s.plan(), random_state(300, 1));
    const auto good = s.apply(q.request, with.pool);
    const auto open = [&](const auto& layout, const auto& reply) {
        return with.client.decrypt(packing_plan(layout), reply, q);
    };
    const auto refused = [&](auto change) {
        auto r = good;
        change(r);
        CHECK_THROWS_AS(open(s.layout(), r), shape_error);
    };
    refused([](auto& r) { r.rank = 5; });
    refused([](auto& r) { r.d = 301; });
    refused([](auto& r) { r.outputs.clear(); });
    refused([](auto& r) { r.outputs.push_back(r.outputs[0]); });
    refused([](auto& r) { r.outputs[1].c0.pop_back(); });
    refused([](auto& r) { r.outputs[1].c0.push_back(0); });
    refused([](auto& r) { r.outputs[0].c0.clear(); });
    refused([](auto& r) { r.outputs[1].c1.pop_back(); });
    refused([](auto& r) { r.outputs[0].c1.push_back(0); });
    refused([](auto& r) { std::swap(r.outputs[0], r.outputs[1]); });
    refused([](auto& r) { r = {}; });

    // The last output has two coefficients, whose bits do not fill their bytes.
    REQUIRE(2 * s.layout().budget().reply_bits % 8 != 0);
    auto padded = good;
    padded.outputs[1].c0.back() |= 0x80U;
    CHECK_THROWS_AS(open(s.layout(), padded), format_error);

    random_numbers generator(1);
    auto noise = good;
    noise.outputs[1].c0.back() = 0;
    for (auto* bytes : {&noise.outputs[0].c0, &noise.outputs[0].c1, &noise.outputs[1].c1}) {
        for (std::uint8_t& byte : *bytes) {
            byte = static_cast<std::uint8_t>(generator());
        }
    }
    for (const double x : open(s.layout(), noise)) {
        CHECK(std::isfinite(x));
    }
}

TEST_CASE("malformed bare replies are refused") {
    sides<small> with = sides_for<bare>();
    const bare s(random_matrix(6, 300, 1));
    const auto q = with.client.encrypt(s.plan(), random_state(300, 1));
    auto reply = s.apply(q.request);
    CHECK(reply.bytes() == 64 + 2 * (23 + 22 + 1024 / 8 * (45 + 44)));
    reply.outputs[1].c0[1] = tensafe::memory::buffer<tensafe::arith::word>(5);
    CHECK_THROWS_WITH_AS(with.client.decrypt(s.plan(), reply, q),
                         Contains("got a product of 5 coefficients, expected 4"), shape_error);
    reply.outputs.pop_back();
    CHECK_THROWS_AS(with.client.decrypt(s.plan(), reply, q), shape_error);
}

TEST_CASE("zeros that are traced to another degree are refused") {
    sides<small> with(3);
    const tiles<4> s(random_matrix(6, 300, 1));
    const auto q = with.client.encrypt(s.plan(), random_state(300, 1));
    const std::string message = refusal<parameter_error>([&] { s.apply(q.request, with.pool); });
    CHECK(contains(message, "traced to degree 2^3, expected 2^2"));
}

TEST_CASE("another client's key, or zeros for another client, open nothing") {
    sides<small> with = sides_for<tiles<4>>();
    sides<small> other = sides_for<tiles<4>>();
    const matrix a = random_matrix(6, 300, 1);
    const tiles<4> s(a);
    const std::vector<float> h = random_state(300, 1);
    const auto q = with.client.encrypt(s.plan(), h);
    const double unit = deviation(s.layout(), norm(h));
    const auto reply = s.apply(q.request, with.pool);
    CHECK(largest_difference(other.client.decrypt(s.plan(), reply, q), product(a, h)) > 1000 * unit);
    const auto wrong_zeros = s.apply(q.request, other.pool);
    CHECK(largest_difference(with.client.decrypt(s.plan(), wrong_zeros, q), product(a, h)) > 1000 * unit);
}
