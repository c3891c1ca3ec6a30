#include "../backends.hpp"

#include "transform_checks.hpp"

using transform_checks::random_residues;
using transform_checks::word;
using transform_checks::words;
namespace arith = tensafe::arith;
namespace ntt = tensafe::ntt;

namespace {

/// Where carries and reductions are at their limits.
std::vector<words> inputs(std::size_t degree, word q) {
    words alternating(degree);
    words few = random_residues(degree, 2, 5);
    for (std::size_t i = 0; i < degree; ++i) {
        alternating[i] = i % 2 == 0 ? q - 1 : 0;
        few[i] *= q - 1;
    }
    return {random_residues(degree, q, 1), words(degree, q - 1), words(degree, 0), alternating, few};
}

/// Signed bytes, the extreme ones among them, and their residues.
std::pair<std::vector<std::int8_t>, words> small_numbers(std::size_t degree, word q) {
    std::vector<std::int8_t> small(degree);
    words residues(degree);
    for (std::size_t k = 0; k < degree; ++k) {
        small[k] = static_cast<std::int8_t>(k * 37 - 128 * (k % 3));
        residues[k] = small[k] < 0 ? q - static_cast<word>(-small[k]) : static_cast<word>(small[k]);
    }
    return {small, residues};
}

template <class Modulus>
void check_modulus(word q, int log_n, bool other_root) {
    using policy_type = arith::shoup<Modulus>;
    const policy_type policy{Modulus(q)};
    const word smallest = arith::smallest_primitive_root(q, log_n);
    const word psi = other_root ? arith::power_mod(smallest, 5, q) : smallest;
    const ntt::plan<policy_type> plan(policy, log_n, psi);
    CAPTURE(q);
    CAPTURE(log_n);
    for (const words& input : inputs(plan.degree(), q)) {
        words values = input;
        ntt::forward<ntt::all_fused>(plan, values);
        words coefficients = input;
        ntt::inverse<ntt::all_fused>(plan, coefficients);
        tests::for_each_backend([&](tensafe::exec::backend) {
            words limb = input;
            ntt::forward(plan, limb);
            CHECK(limb == values);
            limb = input;
            ntt::inverse(plan, limb);
            CHECK(limb == coefficients);
        });
    }
    const auto small = small_numbers(plan.degree(), q);
    words expected = small.second;
    ntt::forward<ntt::all_fused>(plan, expected);
    tests::for_each_backend([&](tensafe::exec::backend) {
        words limb(plan.degree(), ~word{0});
        if (plan.vector_tables().template transform<ntt::direction::forward>(small.first.data(),
                                                                             limb.data())) {
            CHECK(limb == expected);
        }
    });
}

/// With code for primes of this width, and with that for its class.
template <int Bits>
void check_width(word q, int log_n, bool other_root) {
    check_modulus<arith::runtime_modulus<Bits>>(q, log_n, other_root);
    check_modulus<arith::modulus_class<Bits>>(q, log_n, other_root);
}

/// The largest and the smallest prime of this width, for all degrees up to `largest_log_n`.
template <int Bits>
void check_widths(int largest_log_n) {
    for (int log_n = 1; log_n <= largest_log_n; ++log_n) {
        const word top = arith::ntt_prime_below(word{1} << Bits, log_n);
        if (top >> (Bits - 1) == 1) {
            check_width<Bits>(top, log_n, log_n % 2 == 0);
        }
    }
    word low = (word{1} << (Bits - 1)) + 1;
    constexpr int log_n = 9;
    while (low % (2 << log_n) != 1 || !arith::is_ntt_prime(low, log_n)) {
        low += 2;
    }
    check_width<Bits>(low, log_n, false);
}

}  // namespace

TEST_CASE("every back-end transforms as portable code does: narrow primes") {
    check_widths<16>(10);
    check_widths<20>(12);
    check_widths<45>(13);
    check_widths<46>(12);
    check_widths<48>(12);
    check_widths<49>(12);
    check_widths<50>(13);
}

TEST_CASE("every back-end transforms as portable code does: wide primes") {
    check_widths<51>(12);
    check_widths<60>(13);
    check_widths<61>(12);
}

TEST_CASE("every back-end transforms as portable code does: large degrees") {
    check_width<45>(arith::ntt_prime_below(word{1} << 45, 17), 17, false);
    check_width<49>(arith::ntt_prime_below(word{1} << 49, 15), 15, true);
    check_width<50>(arith::ntt_prime_below(word{1} << 50, 16), 16, true);
    check_width<60>(arith::ntt_prime_below(word{1} << 60, 17), 17, false);
    check_width<60>(arith::ntt_prime_below(word{1} << 60, 14), 14, false);
}

TEST_CASE_TEMPLATE("every back-end agrees with the definition", Modulus, arith::runtime_modulus<45>,
                   arith::runtime_modulus<50>, arith::runtime_modulus<60>) {
    for (const int log_n : {5, 9, 10}) {
        const word q = arith::ntt_prime_below(word{1} << Modulus::bits, log_n);
        const arith::shoup<Modulus> policy{Modulus(q)};
        const ntt::plan<arith::shoup<Modulus>> plan(policy, log_n);
        const words input = random_residues(plan.degree(), q, 3);
        const words expected = tests::reference_forward(input, log_n, q, plan.psi());
        tests::for_each_backend([&](tensafe::exec::backend) {
            words limb = input;
            ntt::forward(plan, limb);
            CHECK(limb == expected);
            ntt::inverse(plan, limb);
            CHECK(limb == input);
        });
    }
}

TEST_CASE("limbs need no alignment") {
    using policy_type = arith::shoup<arith::runtime_modulus<45>>;
    const word q = arith::ntt_prime_below(word{1} << 45, 11);
    const ntt::plan<policy_type> plan(policy_type(arith::runtime_modulus<45>(q)), 11);
    const words input = random_residues(plan.degree(), q, 9);
    words expected = input;
    ntt::forward<ntt::all_fused>(plan, expected);
    tests::for_each_backend([&](tensafe::exec::backend) {
        words memory(plan.degree() + 3, 77);
        std::copy(input.begin(), input.end(), memory.begin() + 1);
        const std::span<word> limb = std::span(memory).subspan(1, plan.degree());
        ntt::forward(plan, limb);
        CHECK(std::equal(limb.begin(), limb.end(), expected.begin()));
        ntt::inverse(plan, limb);
        CHECK(std::equal(limb.begin(), limb.end(), input.begin()));
        CHECK(memory[0] == 77);
        CHECK(memory[plan.degree() + 1] == 77);
    });
}
