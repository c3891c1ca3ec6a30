#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/ntt/plan.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tensafe::arith;
using tensafe::parameter_error;
using tensafe::ntt::bit_reverse;
using tensafe::ntt::plan;

template <int Bits>
shoup<runtime_modulus<Bits>> shoup_of(word q) {
    return shoup<runtime_modulus<Bits>>(runtime_modulus<Bits>(q));
}

/// What a prepared factor multiplies by.
template <class Policy>
word value_of(const Policy& policy, typename Policy::factor factor) {
    const below<1, typename Policy::modulus_type, typename Policy::representation> one{Policy::from_word(1)};
    return Policy::to_word(reduce<1>(policy.modulus(), policy.multiply(one, factor)).value);
}

TEST_CASE("a plan refuses degrees outside 2 to 2^17") {
    const auto policy = shoup_of<20>(786433);  // 1 modulo 2^18
    for (const int log_n : {-1, 0, 18, 64, 1000}) {
        CAPTURE(log_n);
        CHECK_THROWS_WITH_AS(plan(policy, log_n), doctest::Contains("expected 1 to 17"), parameter_error);
        CHECK_THROWS_WITH_AS(plan(policy, log_n, 3), doctest::Contains("expected 1 to 17"), parameter_error);
    }
    CHECK(plan(policy, 1).degree() == 2);
    CHECK(plan(policy, 17).degree() == 131072);
}

TEST_CASE("a plan refuses a modulus that is composite or not 1 modulo 2N") {
    CHECK_THROWS_AS(plan(shoup_of<14>(97 * 113), 3), parameter_error);
    CHECK_THROWS_AS(plan(shoup_of<7>(97), 5), parameter_error);
    CHECK_NOTHROW(plan(shoup_of<7>(97), 4));
}

TEST_CASE("a plan refuses a root of another order") {
    const auto policy = shoup_of<7>(97);
    for (word psi = 0; psi < 97; ++psi) {
        CAPTURE(psi);
        if (power_mod(psi, 16, 97) == 96) {
            CHECK(plan(policy, 4, psi).psi() == psi);
        } else {
            CHECK_THROWS_AS(plan(policy, 4, psi), parameter_error);
        }
    }
}

template <class Policy>
void check_tables(const Policy& policy, int log_n) {
    const plan<Policy> p(policy, log_n);
    const word q = policy.modulus().value();
    CHECK(p.psi() == smallest_primitive_root(q, log_n));
    CHECK(p.log_n() == log_n);
    const word scale = value_of(policy, p.degree_inverse());
    CHECK(multiply_mod(scale, p.degree(), q) == 1);
    for (std::size_t i = 0; i < p.degree(); ++i) {
        CAPTURE(i);
        const word forward = value_of(policy, p.forward_factors()[i]);
        const word inverse = value_of(policy, p.inverse_factors()[i]);
        CHECK(forward == power_mod(p.psi(), bit_reverse(i, log_n), q));
        CHECK(multiply_mod(forward, inverse, q) == 1);
        if (i >= 1 && i < 4) {
            CHECK(value_of(policy, p.scaled_inverse_factor(i)) == multiply_mod(inverse, scale, q));
        }
    }
}

TEST_CASE("factor i is psi to the bit-reversed i, its inverse stands at the same place") {
    for (const int log_n : {1, 2, 3, 6}) {
        CAPTURE(log_n);
        const runtime_modulus<40> q(ntt_prime_below(word{1} << 40, 17));
        check_tables(shoup(q), log_n);
        check_tables(montgomery(q), log_n);
        check_tables(barrett(q), log_n);
        check_tables(fp64(q), log_n);
    }
}

TEST_CASE("a copied plan owns equal tables") {
    const plan original(shoup_of<7>(97), 4);
    const plan copy = original;
    CHECK(copy.forward_factors() != original.forward_factors());
    CHECK(copy.forward_factors()[5].value == original.forward_factors()[5].value);
    CHECK(copy.psi() == original.psi());
}

}  // namespace
