#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/rns/crt.hpp>
#include <tensafe/rns/integer_rows.hpp>
#include <tensafe/rns/limb.hpp>
#include <tensafe/rns/panel.hpp>
#include <tensafe/rns/switch_modulus.hpp>

#include "sampling.hpp"

namespace tests {

using words = std::vector<arith::word>;

/// Secret residues.
inline words residues_below(arith::word q, std::size_t count) {
    words result(count);
    arith::word x = 1;
    for (arith::word& r : result) {
        x = x * 6364136223846793005U + 1442695040888963407U;
        r = (x >> 3) % q;
    }
    make_secret(result);
    return result;
}

/// Loops over one limb, on secrets: 77 residues leave a part of a vector over, but 96 are blocks.
template <arith::word Q>
bool limb_operations() {
    constexpr auto modulus = rns::modulus_of<Q>(Q);
    constexpr auto barrett = rns::variable_arithmetic<Q>;
    constexpr auto shoup = rns::fixed_arithmetic<Q>;
    namespace limb = rns::limb;
    bool reached = true;
    const auto with_result = [&](std::size_t count, auto f) {
        words out = residues_below(Q, count);
        f(std::span<arith::word>(out));
        reached &= all_secret(out);
    };
    const words a = residues_below(Q, 77);
    const words b = residues_below(Q, 77);
    const words c = residues_below(Q, 77);
    const auto factor = shoup.prepare(12345);
    with_result(77, [&](auto out) { limb::add(modulus, out, a, b); });
    with_result(77, [&](auto out) { limb::subtract(modulus, out, a, b); });
    with_result(77, [&](auto out) { limb::multiply(barrett, out, a, b); });
    with_result(77, [&](auto out) { limb::multiply_add(barrett, out, a, b, c); });
    with_result(77, [&](auto out) { limb::subtract_product(barrett, out, a, b, c); });
    with_result(77, [&](auto out) { limb::reduce_shifted(shoup, out, a, 3); });
    with_result(77, [&](auto out) { limb::scale_difference(shoup, out, a, b, factor); });
    with_result(77, [&](auto out) { limb::add_constant(modulus, out, a, 3); });
    with_result(77, [&](auto out) { limb::scale(shoup, out, a, factor); });
    with_result(48, [&](auto out) {
        ntt::multiply_interleaved(barrett, a.data(), 5, b.data(), out.data(), 2, 3, 4);
    });
    const auto& subring = rns::shared_subring_plan<12, Q>(3);
    with_result(64, [&](auto out) {
        ntt::transpose(a.data(), 9, 8, 8, out.data(), 8);
        ntt::forward_interleaved(subring, 1, out.data(), 8, out.data(), out.data(), 8);
        ntt::inverse_interleaved(subring, out.data(), 8, out.data());
    });
    for (const std::size_t blocks :
         {std::size_t{96}, std::size_t{24}, std::size_t{12}, std::size_t{3}, std::size_t{1}}) {
        const words long_a = residues_below(Q, 96);
        const words long_b = residues_below(Q, 96);
        const words long_c = residues_below(Q, 96);
        with_result(blocks, [&](auto out) { limb::block_sums(barrett, out, long_a, long_b, long_c); });
        with_result(blocks, [&](auto out) { limb::add_block_sums(barrett, out, long_a, long_b); });
    }
    std::vector<std::uint32_t> integers(64, limb::integer_offset + 3);
    make_secret(integers);
    with_result(8, [&](auto out) {
        limb::multiply_integer_rows(integers.data(), 8, 8,
                                    limb::row_products<rns::modulus_of<Q>>{barrett, a.data(), out.data()});
    });
    with_result(64, [&](auto out) { limb::scale_integers(shoup, out, &integers[56], factor); });
    std::vector<std::int8_t> small(77, -1);
    make_secret(small);
    with_result(77, [&](auto out) { limb::add_small(modulus, out, small); });
    with_result(77, [&](auto out) { limb::set_small(modulus, out, small); });
    std::vector<double> reals(77, -0x1.8p100);
    make_secret(reals);
    with_result(77, [&](auto out) { limb::round_reals(shoup, out, reals); });
    std::array<bool, 1> below{limb::all_below(Q, a)};
    return reached && all_secret(below);
}

/// Transforms of all sizes up to 2^12, so that every kind of pass is among them.
template <arith::word Q>
bool transforms() {
    bool reached = true;
    for (int log_n = 1; log_n <= 12; ++log_n) {
        const ntt::plan<arith::shoup<rns::modulus_of<Q>>> plan(rns::fixed_arithmetic<Q>, log_n);
        words x = residues_below(Q, plan.degree());
        ntt::forward(plan, std::span<arith::word>(x));
        reached &= all_secret(x);
        x = residues_below(Q, plan.degree());
        ntt::inverse(plan, std::span<arith::word>(x));
        reached &= all_secret(x);
    }
    return reached;
}

/// Eight short polynomials at once, and the products of blocks of tokens: five rows, and eight of integers.
template <arith::word Q>
bool block_operations() {
    constexpr std::size_t lanes = ntt::interleaved;
    constexpr std::size_t d = 77;
    bool reached = true;
    for (int log_n = 1; log_n <= 6; ++log_n) {
        const ntt::plan<arith::shoup<rns::modulus_of<Q>>> plan(rns::fixed_arithmetic<Q>, log_n);
        words x = residues_below(Q, lanes * plan.degree());
        ntt::forward_interleaved(plan, 1, x.data(), lanes, x.data(), x.data(), lanes);
        reached &= all_secret(x);
        x = residues_below(Q, lanes * plan.degree());
        ntt::inverse_interleaved(plan, x.data(), lanes, x.data());
        reached &= all_secret(x);
    }
    const words rows = residues_below(Q, 5 * d);
    const words columns = residues_below(Q, d * lanes);
    words products(5 * lanes);
    ntt::multiply_interleaved(rns::variable_arithmetic<Q>, rows.data(), d, columns.data(), products.data(), 1,
                              5, d);
    reached &= all_secret(products);
    words transposed(columns.size());
    ntt::transpose(columns.data(), lanes, d, lanes, transposed.data(), d);
    reached &= all_secret(transposed);

    std::vector<std::uint32_t> integers(d * lanes, rns::limb::integer_offset - 7);
    make_secret(integers);
    words token = residues_below(Q, d);
    make_public(token);
    words sums(lanes);
    rns::limb::multiply_integer_rows(
        integers.data(), d, lanes,
        rns::limb::row_products<rns::modulus_of<Q>>{rns::variable_arithmetic<Q>, token.data(), sums.data()});
    reached &= all_secret(sums);
    words scaled(d * lanes);
    rns::limb::scale_integers(rns::fixed_arithmetic<Q>, std::span<arith::word>(scaled),
                              &integers[(d - 1) * lanes], rns::fixed_arithmetic<Q>.prepare(3));
    return reached && all_secret(scaled);
}

template <arith::word Q>
bool flood_operations() {
    const ckks::irwin_hall_smudging flood{70};
    std::vector<arith::uint128> sums(77);
    flood.sample({secret_seed(), random::stream_domain::flood, 0}, 0, sums);
    words residues(77);
    flood.add_to(rns::variable_arithmetic<Q>, std::span<arith::word>(residues), sums);
    return all_secret(sums) && all_secret(residues);
}

/// Products with secret weights, and with secret addends.
template <arith::word Q>
bool panel_operations() {
    constexpr std::size_t degree = 64;
    bool reached = true;
    for (const std::size_t outputs : {std::size_t{1}, std::size_t{3}, std::size_t{4}}) {
        for (const std::size_t blocks : {std::size_t{4}, std::size_t{64}}) {
            const rns::panel_shape shape{2, outputs};
            using modulus = typename decltype(rns::variable_arithmetic<Q>)::modulus_type;
            std::vector<std::uint8_t> weights(shape.bytes<modulus>(degree));
            for (std::size_t g = 0; g < outputs; ++g) {
                for (std::size_t i = 0; i < shape.inputs; ++i) {
                    rns::fill_panel(rns::variable_arithmetic<Q>, shape, residues_below(Q, degree), i, g,
                                    weights);
                }
            }
            const words c0 = residues_below(Q, degree);
            const words c1 = residues_below(Q, degree);
            const std::array<const arith::word*, 2> first{c0.data(), c1.data()};
            const std::array<const arith::word*, 2> second{c1.data(), c0.data()};
            words out0(outputs * blocks);
            words out1(outputs * degree);
            rns::panel_results results{.blocks = blocks, .of_factors = {c0.data(), c1.data()}};
            for (std::size_t g = 0; g < outputs; ++g) {
                results.c0[g] = out0.data() + g * blocks;
                results.c1[g] = out1.data() + g * degree;
                results.addend[g] = g == 1 ? c1.data() : nullptr;
                results.factor[g] = g == 2 ? c1.data() : nullptr;
            }
            rns::multiply_panel(rns::variable_arithmetic<Q>, {shape, weights.data()},
                                {degree, first.data(), second.data()}, results, {0, blocks});
            reached &= all_secret(out0) && all_secret(out1);
        }
    }
    return reached;
}

template <class Basis>
bool reconstruction() {
    std::vector<words> limbs;
    std::array<std::span<const arith::word>, static_cast<std::size_t>(Basis::limbs)> residues;
    for (std::size_t i = 0; i < residues.size(); ++i) {
        limbs.push_back(residues_below(Basis::primes[i], 77));
    }
    std::copy(limbs.begin(), limbs.end(), residues.begin());
    std::vector<double> reals(77);
    rns::to_doubles<Basis>(residues, reals);
    std::vector<std::uint32_t> switched(77);
    rns::switch_modulus<Basis>(residues, 24, switched);
    return all_secret(reals) && all_secret(switched);
}

/// What is unpacked comes from outside and is public.
template <class Word>
bool packing(int bits) {
    std::vector<Word> values(200, 7);
    make_secret(values);
    std::vector<std::uint8_t> bytes(memory::packed_bytes(values.size(), bits));
    memory::pack_bits(std::span<const Word>(values), bits, bytes);
    return all_secret(bytes);
}

/// Each width of primes has code of its own: products of 52 bits, of 52 bits with reductions, of 64 bits.
inline void check_arithmetic(program& p) {
    using short_chain = ckks::parameters<12, ckks::limb_bits<45, 45>, 30, ckks::insecure_for_tests>::basis;
    using long_chain = ckks::parameters<12, ckks::limb_bits<60, 50>, 30, ckks::insecure_for_tests>::basis;
    using middle_chain = ckks::parameters<12, ckks::limb_bits<49>, 30, ckks::insecure_for_tests>::basis;
    constexpr arith::word q45 = short_chain::prime<0>;
    constexpr arith::word q49 = middle_chain::prime<0>;
    constexpr arith::word q60 = long_chain::prime<0>;
    constexpr arith::word q50 = long_chain::prime<1>;
    p.check("ntt of 45 bits", transforms<q45>);
    p.check("ntt of 49 bits", transforms<q49>);
    p.check("ntt of 50 bits", transforms<q50>);
    p.check("ntt of 60 bits", transforms<q60>);
    p.check("limb of 45 bits", limb_operations<q45>);
    p.check("limb of 60 bits", limb_operations<q60>);
    p.check("products of blocks of 45 bits", block_operations<q45>);
    p.check("products of blocks of 60 bits", block_operations<q60>);
    p.check("flood of 45 bits", flood_operations<q45>);
    p.check("flood of 60 bits", flood_operations<q60>);
    p.check("multiply_panel of 45 bits", panel_operations<q45>);
    p.check("multiply_panel of 60 bits", panel_operations<q60>);
    p.check("to_doubles and switch_modulus of 45 bits", reconstruction<short_chain>);
    p.check("to_doubles and switch_modulus of 60 and 50 bits", reconstruction<long_chain>);
    p.check("pack_bits of residues", [] { return packing<std::uint64_t>(45) && packing<std::uint64_t>(60); });
    p.check("pack_bits of replies", [] { return packing<std::uint32_t>(24) && packing<std::uint32_t>(5); });
}

}  // namespace tests
