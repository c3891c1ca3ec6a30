#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/device/lora/rerandomize.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/random/generator.hpp>

#include "reply_data.hpp"

namespace tests::rerandomize_checks {

/// Splits x into random residues that add up to it.
inline void split(std::mt19937_64& random, word x, word q, std::uint32_t parts, std::vector<word>& to) {
    for (std::uint32_t i = 1; i < parts; ++i) {
        const word part = random() % q;
        to.push_back(part);
        x = (x + q - part) % q;
    }
    to.push_back(x);
}

/// What the host's protect and pack make of random products of two clients, and what the device makes of the
/// same, byte for byte. With `parts`, block sums come in so many pieces; with 0, the zero's sums are in the
/// product's already.
template <class P, class Where>
void check_replies(const Where& where, int subring_log_n, std::uint32_t parts, int flood_bits,
                   std::vector<device::output_place> widths) {
    using basis = typename lora::traced_product<P>::basis;
    constexpr auto limbs = static_cast<std::size_t>(basis::limbs);
    constexpr std::uint32_t tokens = 3;
    const std::size_t n = std::size_t{1} << subring_log_n;
    std::size_t stride = 0;
    const std::vector<device::output_place> places = place(P::degree, std::move(widths), stride);
    const std::size_t products = tokens * places.size();
    INFO("trace to 2^", subring_log_n, ", ", parts, " parts");

    std::mt19937_64 random(static_cast<std::uint64_t>(subring_log_n) + 77);
    random::generator generator;
    const random::seed nonce = generator.next_seed();
    std::vector<word> c0;
    std::vector<word> zero_c0;
    std::vector<word> c1;
    std::vector<std::int8_t> e0;
    std::vector<std::int8_t> e1;
    std::vector<arith::uint128> floods;
    std::vector<std::uint8_t> expected(tokens * stride, 0xA5);
    const std::size_t room = n + 3;  // between the small ones of two products
    const ckks::irwin_hall_smudging flood{flood_bits};

    const ckks::secret_key<P> key(generator);
    ckks::rerandomization_pool<P, lora::request_level<P>> pool(
        nonce, ckks::make_rerandomization_key<lora::request_level<P>>(key, nonce, generator), subring_log_n);
    for (std::size_t p = 0; p < products; ++p) {
        const auto zero = pool.acquire();
        lora::traced_product<P> product{{}, rns::poly<basis, rns::evaluation_form>(memory::uninitialized)};
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr word q = basis::template prime<I>;
            product.c0[I] = memory::buffer<word>(n);
            for (std::size_t k = 0; k < n; ++k) {
                word& x = product.c0[I][k];
                x = k == 0 ? q - 1 : random() % q;
                if (parts == 0) {
                    c0.push_back((x + zero.c0[I][k]) % q);
                } else {
                    split(random, x, q, parts, c0);
                    split(random, zero.c0[I][k], q, 2 * parts, zero_c0);
                }
            }
            for (word& x : product.c1.template limb<I>()) {
                x = random() % q;
            }
        });
        auto coefficients = rns::inverse(rns::poly<basis, rns::evaluation_form>(product.c1));
        rns::for_each_limb<basis>([&]<int I>() {
            const auto limb = coefficients.template limb<I>();
            c1.insert(c1.end(), limb.begin(), limb.end());
        });
        e0.insert(e0.end(), zero.e0.begin(), zero.e0.end());
        e0.resize((p + 1) * room, std::int8_t{100});
        e1.insert(e1.end(), zero.e1.begin(), zero.e1.end());
        const random::seed seed = generator.next_seed();
        floods.resize((p + 1) * room, ~arith::uint128{0});
        flood.sample({seed, tensafe::random::stream_domain::flood, static_cast<std::uint32_t>(p)}, 0,
                     std::span(floods).subspan(p * room, n));

        const auto hidden =
            lora::rerandomize<P>(std::move(product), zero, flood, seed, static_cast<std::uint32_t>(p));
        const device::output_place& o = places[p % places.size()];
        output bytes;
        std::vector<std::uint32_t> switched(P::degree);
        lora::serialize<P>(hidden, o.wanted, static_cast<int>(o.bits), switched, bytes);
        const auto reply = expected.begin() + static_cast<std::ptrdiff_t>(p / places.size() * stride);
        std::copy(bytes.c0.begin(), bytes.c0.end(), reply + static_cast<std::ptrdiff_t>(o.c0_offset));
        std::copy(bytes.c1.begin(), bytes.c1.end(), reply + static_cast<std::ptrdiff_t>(o.c1_offset));
    }

    REQUIRE(c1.size() == products * limbs * P::degree);
    const auto device_c0 = tests::to_device(where, c0);
    const auto device_zeros = tests::to_device(where, zero_c0);
    const auto device_c1 = tests::to_device(where, c1);
    const auto device_e0 = tests::to_device(where, e0);
    const auto device_e1 = tests::to_device(where, e1);
    const auto device_floods = tests::to_device(where, floods);
    const auto device_places = tests::to_device(where, places);
    auto replies = tests::poisoned<std::uint8_t>(where, tokens * stride);
    device::rerandomization hiding;
    hiding.c0_sums = device_c0.data();
    if (parts != 0) {
        hiding.c0_parts = parts;
        hiding.zero_sums = device_zeros.data();
        hiding.zero_parts = 2 * parts;
    }
    hiding.e0 = device_e0.data();
    hiding.floods = device_floods.data();
    hiding.e0_stride = hiding.flood_stride = static_cast<std::uint32_t>(room);
    hiding.c1 = device_c1.data();
    hiding.e1 = device_e1.data();
    hiding.places = device_places.data();
    hiding.tokens = tokens;
    hiding.outputs = static_cast<std::uint32_t>(places.size());
    hiding.replies = replies.data();
    hiding.stride = stride;
    const device::trace_tables<basis, typename Where::space> plan(where, subring_log_n);
    device::rerandomize_c0<basis>(where, plan, flood, hiding);
    device::rerandomize_c1<basis>(where, hiding);
    CHECK(tests::to_host<std::uint8_t>(where, replies) == expected);
}

void check_private(const auto& where) {
    check_replies<ckks::private_n4096>(where, 2, 4, 70, {{20, 4, 0, 0}, {13, 2, 0, 0}});
}

void check_shapes(const auto& where) {
    check_replies<ckks::minimal_n2048>(where, 2, 0, 12, {{17, 3, 0, 0}});
    check_replies<ckks::minimal_n2048>(where, 5, 1, 20, {{16, 32, 0, 0}, {7, 29, 0, 0}});
    check_replies<ckks::minimal_n2048>(where, 6, 1, 30, {{32, 64, 0, 0}, {1, 63, 0, 0}});
    check_replies<ckks::minimal_n2048>(where, 0, 2, 1, {{31, 1, 0, 0}});
    // Floods wider than Q and than a word.
    using two_limbs = ckks::parameters<10, ckks::limb_bits<60, 25>, 20, ckks::insecure_for_tests>;
    check_replies<two_limbs>(where, 6, 1, 118, {{23, 64, 0, 0}});
}

template <class Where>
void check_refusals(const Where& where) {
    using basis = ckks::minimal_n2048::basis;
    using plan = device::trace_tables<basis, typename Where::space>;
    CHECK_THROWS_AS(plan(where, -1), parameter_error);
    CHECK_THROWS_AS(plan(where, 7), parameter_error);
    const plan two(where, 2);
    device::rerandomization p;
    CHECK_THROWS_AS(device::rerandomize_c0<basis>(where, two, ckks::irwin_hall_smudging{5}, p), shape_error);
    CHECK_THROWS_AS(device::rerandomize_c1<basis>(where, p), shape_error);
    p.tokens = p.outputs = 1;
    p.e0_stride = 4;
    p.flood_stride = 3;
    CHECK_THROWS_AS(device::rerandomize_c0<basis>(where, two, ckks::irwin_hall_smudging{5}, p), shape_error);
    p.flood_stride = 4;
    CHECK_THROWS_AS(device::rerandomize_c0<basis>(where, two, ckks::irwin_hall_smudging{0}, p),
                    parameter_error);
    p.stride = 8;
    CHECK_THROWS_AS(device::rerandomize_c1<basis>(where, p), shape_error);
}

}  // namespace tests::rerandomize_checks
