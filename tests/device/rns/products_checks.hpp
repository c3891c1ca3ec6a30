#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/rns/products.hpp>

#include "../device_data.hpp"

namespace tests::product_checks {
using words = std::vector<word>;

struct shape {
    std::uint32_t tokens;
    std::uint32_t inputs;
    std::uint32_t outputs;
    std::uint32_t blocks;
    bool with_addend = false;
    bool with_zeros = false;
    bool extreme = false;   ///< all residues as large as can be
    bool in_place = false;  ///< c1 over the addend, or over v
};

template <class Basis>
words random_stack(random_numbers& random, std::size_t polynomials, bool extreme) {
    words stack;
    stack.reserve(polynomials * Basis::degree * static_cast<std::size_t>(Basis::limbs));
    for (std::size_t p = 0; p < polynomials; ++p) {
        for (const word q : Basis::primes) {
            for (std::size_t k = 0; k < Basis::degree; ++k) {
                stack.push_back(extreme ? q - 1 : random() % q);
            }
        }
    }
    return stack;
}

/// Straight from the definition, term by term.
template <class Basis>
struct reference {
    words c0;
    words c1;

    reference(const shape& s, const words& w, const words& x0, const words& x1, const words& addend,
              const words& v, const words& b, const words& a, const std::vector<std::uint32_t>& client_of) {
        constexpr std::size_t n = Basis::degree;
        constexpr auto limbs = static_cast<std::size_t>(Basis::limbs);
        c0.assign(std::size_t{s.tokens} * s.outputs * limbs * s.blocks, 0);
        c1.assign(std::size_t{s.tokens} * s.outputs * limbs * n, 0);
        for (std::size_t t = 0; t < s.tokens; ++t) {
            for (std::size_t o = 0; o < s.outputs; ++o) {
                for (std::size_t i = 0; i < limbs; ++i) {
                    const word q = Basis::primes[i];
                    const std::size_t product = (t * s.outputs + o) * limbs + i;
                    for (std::size_t k = 0; k < n; ++k) {
                        arith::uint128 sum0 = 0;
                        arith::uint128 sum1 = addend.empty() ? 0 : addend[product * n + k];
                        for (std::size_t j = 0; j < s.inputs; ++j) {
                            const word weight = w[((o * s.inputs + j) * limbs + i) * n + k];
                            const std::size_t x = ((t * s.inputs + j) * limbs + i) * n + k;
                            sum0 += arith::mul_wide(weight, x0[x]) % q;
                            sum1 += arith::mul_wide(weight, x1[x]) % q;
                        }
                        if (!v.empty()) {
                            const std::size_t key = (client_of[t] * limbs + i) * n + k;
                            sum0 += arith::mul_wide(v[product * n + k], b[key]) % q;
                            sum1 += arith::mul_wide(v[product * n + k], a[key]) % q;
                        }
                        c1[product * n + k] = static_cast<word>(sum1 % q);
                        word& total = c0[product * s.blocks + k / (n / s.blocks)];
                        total = static_cast<word>((sum0 + total) % q);
                    }
                }
            }
        }
    }
};

template <class Basis, class Where>
void check_shape(const Where& where, const shape& s) {
    INFO(s.tokens, " tokens, ", s.inputs, " inputs, ", s.outputs, " outputs, ", s.blocks, " blocks");
    random_numbers random(s.tokens + 10 * s.inputs + 100 * s.outputs + s.blocks);
    const std::size_t products = std::size_t{s.tokens} * s.outputs;
    const words w = random_stack<Basis>(random, std::size_t{s.outputs} * s.inputs, s.extreme);
    const words x0 = random_stack<Basis>(random, std::size_t{s.tokens} * s.inputs, s.extreme);
    const words x1 = random_stack<Basis>(random, std::size_t{s.tokens} * s.inputs, s.extreme);
    const words addend = random_stack<Basis>(random, s.with_addend ? products : 0, s.extreme);
    const words v = random_stack<Basis>(random, s.with_zeros ? products : 0, s.extreme);
    const words b = random_stack<Basis>(random, 2, s.extreme);
    const words a = random_stack<Basis>(random, 2, s.extreme);
    std::vector<std::uint32_t> client_of(s.tokens);
    for (std::uint32_t t = 0; t < s.tokens; ++t) {
        client_of[t] = (t + 1) % 2;
    }
    const reference<Basis> expected(s, w, x0, x1, addend, v, b, a, client_of);

    const auto device_w = tests::to_device(where, w);
    const auto device_c0 = tests::to_device(where, x0);
    const auto device_c1 = tests::to_device(where, x1);
    auto device_addend = tests::to_device(where, addend);
    auto device_v = tests::to_device(where, v);
    const auto device_b = tests::to_device(where, b);
    const auto device_a = tests::to_device(where, a);
    const auto device_clients = tests::to_device(where, client_of);
    auto sums = tests::poisoned<word>(where, expected.c0.size());
    auto c1 = tests::poisoned<word>(where, expected.c1.size());

    device::product_batch p;
    p.weights = device_w.data();
    p.c0 = device_c0.data();
    p.c1 = device_c1.data();
    p.addend = s.with_addend ? device_addend.data() : nullptr;
    if (s.with_zeros) {
        p.v = device_v.data();
        p.b = device_b.data();
        p.a = device_a.data();
        p.client_of = device_clients.data();
    }
    auto& target = !s.in_place ? c1 : (s.with_addend ? device_addend : device_v);
    p.c0_sums = sums.data();
    p.c1_out = target.data();
    p.tokens = s.tokens;
    p.inputs = s.inputs;
    p.outputs = s.outputs;
    p.blocks = s.blocks;
    device::multiply<Basis>(where, p);
    CHECK(tests::to_host<word>(where, sums) == expected.c0);
    CHECK(tests::to_host<word>(where, target) == expected.c1);
}

/// The widest primes, which overflow first, and narrow ones; degree 128.
using mixed = rns::basis<7, arith::ntt_prime_below(word{1} << 61, 7),
                         arith::ntt_prime_below(word{1} << 30, 7), arith::ntt_prime_below(word{1} << 60, 7)>;

void check_products(const auto& where) {
    check_shape<mixed>(where, {1, 1, 1, 1});
    check_shape<mixed>(where, {1, 3, 9, 2, true});
    check_shape<mixed>(where, {3, 9, 5, 4, false, true});
    check_shape<mixed>(where, {3, 2, 6, 128, true, true});
    check_shape<mixed>(where, {5, 17, 3, 8, true, true, true});
    check_shape<mixed>(where, {1, 8, 2, 1, false, true, true});
    check_shape<mixed>(where, {1, 2, 66, 32});
    check_shape<mixed>(where, {4, 1, 4, 64, false, true, false, true});
    check_shape<mixed>(where, {2, 0, 4, 16, false, true, false, true});
    check_shape<mixed>(where, {2, 3, 9, 2, true, false, false, true});
    // 61 bits hold three products, and the sums go over several steps.
    check_shape<mixed>(where, {2, 1, 3, 1, true, true, true});
    using basis = ckks::private_n4096::basis;
    check_shape<basis>(where, {3, 2, 3, device::product_sums<basis>(3, 3, 4)});
    check_shape<ckks::minimal_n2048::basis>(where, {3, 2, 3, 32, false, true});
}

void check_refusals(const auto& where) {
    device::product_batch p;
    p.blocks = 1;
    CHECK_THROWS_AS(device::multiply<mixed>(where, p), shape_error);
    p.tokens = p.inputs = p.outputs = 1;
    for (const std::uint32_t blocks : {0U, 3U, 256U}) {
        p.blocks = blocks;
        CHECK_THROWS_AS(device::multiply<mixed>(where, p), shape_error);
    }
}

}  // namespace tests::product_checks
