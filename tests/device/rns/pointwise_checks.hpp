#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/rns/pointwise.hpp>

#include "../device_data.hpp"

namespace tests {

/// Several blocks for each limb, and the widest and narrowest primes that a chain may have.
using long_basis = rns::basis<12, arith::ntt_prime_below(word{1} << 61, 12),
                              arith::ntt_prime_below(word{1} << 40, 12), 40961>;
/// Less than one block.
using short_basis = rns::basis<4, 97, arith::ntt_prime_below(word{1} << 60, 4)>;

template <class Basis, class Form>
using host_polys = std::vector<rns::poly<Basis, Form>>;

/// Random residues; every seventh is 0, every eleventh q - 1.
template <class Basis, class Form>
host_polys<Basis, Form> random_polys(std::size_t count, std::uint64_t seed) {
    random_numbers generator(seed);
    return generator.many(count, [&] { return generator.poly<rns::poly<Basis, Form>>(); });
}

template <class Where, class Basis, class Form>
device::poly_stack<Basis, Form, typename Where::space> stack_of(const Where& where,
                                                                const host_polys<Basis, Form>& polys) {
    device::poly_stack<Basis, Form, typename Where::space> result(polys.size(), memory::uninitialized);
    for (std::size_t p = 0; p < polys.size(); ++p) {
        device::upload(where, polys[p], result, p);
    }
    where.wait();
    return result;
}

template <class Where, class Basis, class Form, class R>
void check_stack(const Where& where, const device::poly_stack<Basis, Form, typename Where::space, R>& stack,
                 const host_polys<Basis, Form>& expected) {
    REQUIRE(stack.count() == expected.size());
    for (std::size_t p = 0; p < expected.size(); ++p) {
        CAPTURE(p);
        CHECK(device::download(where, stack, p) == expected[p]);
    }
}

/// In-place operations of stacks, the second one shorter: polynomial p goes with p modulo its count.
template <class Basis, class Where>
void check_stack_operations(const Where& where) {
    const auto a = random_polys<Basis, rns::evaluation_form>(6, 1);
    const auto b = random_polys<Basis, rns::evaluation_form>(3, 2);
    const auto c = random_polys<Basis, rns::evaluation_form>(6, 3);
    const auto on_device_b = stack_of(where, b);
    const auto check = [&](auto on_host, auto on_device) {
        auto expected = a;
        for (std::size_t p = 0; p < expected.size(); ++p) {
            on_host(expected[p], p);
        }
        auto stack = stack_of(where, a);
        on_device(stack);
        check_stack(where, stack, expected);
    };
    check([&](auto& x, std::size_t p) { rns::add(x, b[p % 3]); },
          [&](auto& x) { device::add(where, x, on_device_b); });
    check([&](auto& x, std::size_t p) { rns::subtract(x, b[p % 3]); },
          [&](auto& x) { device::subtract(where, x, on_device_b); });
    check([&](auto& x, std::size_t p) { rns::multiply(x, x, b[p % 3]); },
          [&](auto& x) { device::multiply(where, x, on_device_b); });
    check([&](auto& x, std::size_t p) { rns::multiply_accumulate(x, c[p], b[p % 3]); },
          [&](auto& x) { device::multiply_accumulate(where, x, stack_of(where, c), on_device_b); });
    check(
        [&](auto& x, std::size_t) {
            rns::poly<Basis, rns::evaluation_form> zero;
            rns::subtract(zero, x);
            x = zero;
        },
        [&](auto& x) { device::negate(where, x); });
}

/// Views: several neighbours share one polynomial, few come again, longer chains serve shorter launches, and
/// nothing but the result is written.
template <class Basis, class Where>
void check_views(const Where& where) {
    using shorter = rns::prefix<Basis, Basis::limbs - 1>;
    constexpr std::size_t count = 8;
    constexpr std::size_t gap = 6;  // words between the results
    constexpr std::size_t stride = device::words_of_poly<shorter> + gap;
    const auto a = random_polys<Basis, rns::evaluation_form>(2, 4);  // (p / 2) % 2
    const auto b = random_polys<Basis, rns::evaluation_form>(8, 5);  // p
    const auto c = random_polys<Basis, rns::evaluation_form>(4, 6);  // p % 4
    const auto stack_a = stack_of(where, a);
    const auto stack_b = stack_of(where, b);
    const auto stack_c = stack_of(where, c);
    auto out = poisoned<word>(where, count * stride);
    const word garbage = to_host<word>(where, out)[0];
    device::apply_pointwise<shorter>(where, device::pointwise::subtract_product{}, count, out.data(), stride,
                                     device::view_of(stack_a, 2), device::view_of(stack_b),
                                     device::view_of(stack_c));
    const auto words = to_host<word>(where, out);
    bool untouched = true;
    for (std::size_t p = 0; p < count; ++p) {
        CAPTURE(p);
        auto product = rns::level_reduce<shorter::limbs>(a[p / 2 % 2]);
        rns::multiply(product, product, rns::level_reduce<shorter::limbs>(b[p]));
        auto expected = rns::level_reduce<shorter::limbs>(c[p % 4]);
        rns::subtract(expected, product);
        const word* const got = words.data() + p * stride;
        CHECK(std::equal(expected.words().begin(), expected.words().end(), got));
        for (std::size_t i = device::words_of_poly<shorter>; i < stride; ++i) {
            untouched &= got[i] == garbage;
        }
    }
    CHECK(untouched);

    host_polys<shorter, rns::evaluation_form> first_limbs;
    for (const auto& p : b) {
        first_limbs.push_back(rns::level_reduce<shorter::limbs>(p));
    }
    check_stack(where, device::level_reduce<shorter::limbs>(where, stack_b), first_limbs);
}

/// Counts that do not fit are refused, empty stacks are no work, and a place that is not there is named.
template <class Where>
void check_stack_shapes(const Where& where) {
    using stack = device::poly_stack<short_basis, rns::evaluation_form, typename Where::space>;
    stack four(4);
    const stack three(3);
    const stack none;
    CHECK_THROWS_AS(device::add(where, four, three), shape_error);
    CHECK_THROWS_AS(device::multiply(where, four, none), shape_error);
    CHECK_THROWS_AS(device::multiply_accumulate(where, four, three, three), shape_error);
    stack empty;
    CHECK_NOTHROW(device::add(where, empty, three));
    CHECK(device::level_reduce<1>(where, empty).count() == 0);
    CHECK_THROWS_WITH_AS(device::download(where, four, 4),
                         "device::download: got place 4, expected one below the stack's count 4",
                         shape_error);
    const rns::poly<short_basis, rns::evaluation_form> p;
    CHECK_THROWS_AS(device::upload(where, p, four, 4), shape_error);
    CHECK(device::download(where, four, 3) == p);  // stacks start as zeros
}

}  // namespace tests
