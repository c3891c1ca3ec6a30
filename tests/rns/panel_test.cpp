#include <tensafe/arith/prime.hpp>
#include <tensafe/rns/panel.hpp>

#include "../backends.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

using arith::word;
using words = std::vector<word>;

constexpr std::size_t degree = 64;

template <int Bits>
arith::barrett<arith::modulus_class<Bits>> policy_of(word q) {
    return arith::barrett<arith::modulus_class<Bits>>{arith::modulus_class<Bits>(q)};
}

/// What is added to the products of a panel.
enum class added { nothing, addends, factors, both };

/// Weights, ciphertexts, addends and factors of one panel, and what must come out. With both, even outputs
/// have an addend, odd ones a factor.
struct problem {
    template <arith::modulus M>
    problem(arith::barrett<M> policy, rns::panel_shape panel_shape, std::size_t blocks, bool extreme,
            added what)
        : shape(panel_shape), panel(shape.bytes<M>(degree)) {
        const word q = policy.modulus().value();
        random_numbers random(q + shape.inputs * 7 + shape.outputs);
        const auto limb = [&] {
            words values(degree);
            for (word& x : values) {
                x = extreme ? q - 1 : random() % q;
            }
            return values;
        };
        for (std::size_t i = 0; i < shape.inputs + 1; ++i) {  // the last is that of factors
            c0.push_back(limb());
            c1.push_back(limb());
        }
        for (std::size_t g = 0; g < shape.outputs; ++g) {
            const bool with_addend = what == added::addends || (what == added::both && g % 2 == 0);
            const bool with_factor = what == added::factors || (what == added::both && g % 2 == 1);
            addend.push_back(with_addend ? limb() : words());
            factor.push_back(with_factor ? limb() : words());
            expected_c0.push_back(words(blocks));
            expected_c1.push_back(with_addend ? addend[g] : words(degree));
            const auto add_products = [&](std::size_t i, const words& w) {
                for (std::size_t k = 0; k < degree; ++k) {
                    word& sum0 = expected_c0[g][k / (degree / blocks)];
                    sum0 = (sum0 + arith::multiply_mod(c0[i][k], w[k], q)) % q;
                    expected_c1[g][k] = (expected_c1[g][k] + arith::multiply_mod(c1[i][k], w[k], q)) % q;
                }
            };
            for (std::size_t i = 0; i < shape.inputs; ++i) {
                const words w = limb();
                rns::fill_panel(policy, shape, w, i, g, panel);
                add_products(i, w);
            }
            if (with_factor) {
                add_products(shape.inputs, factor[g]);
            }
        }
    }

    rns::panel_shape shape;
    std::vector<std::uint8_t> panel;
    std::vector<words> c0, c1, addend, factor, expected_c0, expected_c1;
};

template <int Bits>
void check(const problem& p, word q, std::size_t blocks, rns::block_range range) {
    std::vector<const word*> c0;
    std::vector<const word*> c1;
    for (std::size_t i = 0; i < p.shape.inputs; ++i) {
        c0.push_back(p.c0[i].data());
        c1.push_back(p.c1[i].data());
    }
    constexpr word untouched = ~word{0};
    std::vector<words> got_c0(p.shape.outputs, words(blocks, untouched));
    std::vector<words> got_c1(p.shape.outputs, words(degree, untouched));
    rns::panel_results results;
    results.blocks = blocks;
    for (std::size_t g = 0; g < p.shape.outputs; ++g) {
        results.c0[g] = got_c0[g].data();
        results.c1[g] = got_c1[g].data();
        results.addend[g] = p.addend[g].empty() ? nullptr : p.addend[g].data();
        results.factor[g] = p.factor[g].empty() ? nullptr : p.factor[g].data();
    }
    results.of_factors = {p.c0.back().data(), p.c1.back().data()};
    rns::multiply_panel(policy_of<Bits>(q), {p.shape, p.panel.data()}, {degree, c0.data(), c1.data()},
                        results, range);
    for (std::size_t g = 0; g < p.shape.outputs; ++g) {
        CAPTURE(g);
        for (std::size_t b = 0; b < blocks; ++b) {
            const bool computed = b >= range.first && b < range.end;
            CHECK(got_c0[g][b] == (computed ? p.expected_c0[g][b] : untouched));
        }
        bool equal = true;
        for (std::size_t k = 0; k < degree; ++k) {
            const std::size_t b = k / (degree / blocks);
            equal &= got_c1[g][k] == (b >= range.first && b < range.end ? p.expected_c1[g][k] : untouched);
        }
        CHECK(equal);
    }
}

template <int Bits>
void check_width() {
    const word q = arith::ntt_prime_below(word{1} << Bits, 6);
    CAPTURE(q);
    for (const std::size_t inputs : {1U, 2U, 3U, 9U}) {
        for (std::size_t outputs = 1; outputs <= rns::panel_outputs; ++outputs) {
            for (const std::size_t blocks : {1U, 4U, 8U, 64U}) {
                INFO("inputs := ", inputs, ", outputs := ", outputs, ", blocks := ", blocks);
                const problem p(policy_of<Bits>(q), {inputs, outputs}, blocks, inputs == 3,
                                inputs == 1   ? added::both
                                : inputs == 2 ? added::nothing
                                : inputs == 3 ? added::factors
                                              : added::addends);
                tests::for_each_backend([&](tensafe::exec::backend) {
                    check<Bits>(p, q, blocks, {0, blocks});
                    check<Bits>(p, q, blocks, {blocks / 4, blocks / 2});
                });
            }
        }
    }
}

}  // namespace

TEST_CASE("a panel gives the sums of products on every back-end") {
    check_width<20>();
    check_width<41>();
    check_width<45>();
    check_width<48>();
    check_width<49>();
    check_width<50>();
    check_width<51>();
    check_width<60>();
    check_width<61>();
}

TEST_CASE("more inputs than sums can take without reduction, all of the largest residues") {
    const auto check_many = [&]<int Bits>(std::size_t inputs) {
        const word q = arith::ntt_prime_below(word{1} << Bits, 6);
        for (const added what : {added::addends, added::factors, added::both}) {
            const problem p(policy_of<Bits>(q), {inputs, 3}, 2, true, what);
            tests::for_each_backend([&](tensafe::exec::backend) { check<Bits>(p, q, 2, {0, 2}); });
        }
    };
    check_many.operator()<45>(2047);
    check_many.operator()<45>(2048);
    check_many.operator()<50>(5000);
    check_many.operator()<60>(1100);
    check_many.operator()<61>(513);
}

TEST_CASE("every word of a panel has one place") {
    const rns::panel_shape shape{3, 2};
    std::vector<int> seen(degree * shape.inputs * shape.outputs);
    for (std::size_t k = 0; k < degree; ++k) {
        for (std::size_t i = 0; i < shape.inputs; ++i) {
            for (std::size_t g = 0; g < shape.outputs; ++g) {
                ++seen.at(shape.index(k, i, g));
            }
        }
    }
    CHECK(seen == std::vector<int>(seen.size(), 1));
}
