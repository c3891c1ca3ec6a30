// Chains of primes, and polynomials whose chain and form are part of their types.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/crt.hpp>
#include <tensafe/rns/pointwise.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/rns/rescale.hpp>

#include <array>

using namespace tensafe;

template struct rns::basis<3, 97>;
template struct rns::basis<4, 97>;
template struct rns::basis<3, 97, 113, 193>;

#ifdef BASIS_COMPOSITE_MODULUS
// expect: rns::basis: every modulus must be a prime that is 1 modulo 2N
template struct rns::basis<3, 97, 97 * 113>;
#endif
#ifdef BASIS_PRIME_FOR_A_SMALLER_DEGREE
// expect: rns::basis: every modulus must be a prime that is 1 modulo 2N
template struct rns::basis<5, 97>;
#endif
#ifdef BASIS_REPEATED_PRIME
// expect: rns::basis: the primes of a chain must be distinct
template struct rns::basis<3, 97, 113, 97>;
#endif
#ifdef BASIS_WITHOUT_PRIMES
// expect: rns::basis: the modulus chain needs at least one prime
template struct rns::basis<3>;
#endif

using chain = rns::basis<3, 97, 113>;
using values = rns::poly<chain, rns::evaluation_form>;
using coefficients = rns::poly<chain, rns::coefficient_form>;
using shorter = rns::poly<rns::prefix<chain, 1>, rns::evaluation_form>;

template class rns::poly<chain, rns::evaluation_form>;
#ifdef POLY_OF_UNKNOWN_FORM
// expect: rns::poly: the form is coefficient_form or evaluation_form
struct other_form {};
template class rns::poly<chain, other_form>;
#endif

auto last_limb(values& p) {
    return p.limb<1>();
}
#ifdef POLY_LIMB_OUT_OF_RANGE
// expect: rns::poly::limb: the chain has no such limb
auto limb_after_the_last(values& p) {
    return p.limb<2>();
}
#endif

void sum(values& a, const values& b) {
    rns::add(a, b);
}
#ifdef ADD_CHAINS_MIXED
// expect: no matching function
void sum(values& a, const shorter& b) {
    rns::add(a, b);
}
#endif

void product(values& out, const values& a, const values& b) {
    rns::multiply(out, a, b);
}
#ifdef MULTIPLY_FORMS_MIXED
// expect: deleted function
void product(values& out, const values& a, const coefficients& b) {
    rns::multiply(out, a, b);
}
#endif
#ifdef MULTIPLY_IN_COEFFICIENT_FORM
// expect: deleted function
void product(coefficients& out, const coefficients& a, const coefficients& b) {
    rns::multiply(out, a, b);
}
#endif

values once(const coefficients& p) {
    return rns::forward(p);
}
#ifdef FORWARD_TWICE
// expect: no matching function
auto twice(const coefficients& p) {
    return rns::forward(once(p));
}
#endif

auto keep_both(const values& p) {
    return rns::level_reduce<2>(p);
}
#ifdef LEVEL_REDUCE_TO_LONGER
// expect: rns::prefix: a chain can only get shorter
auto keep_three(const values& p) {
    return rns::level_reduce<3>(p);
}
#endif

shorter drop(const values& p) {
    return rns::rescale(p);
}
#ifdef RESCALE_ONE_LIMB
// expect: deleted function
auto drop(const shorter& p) {
    return rns::rescale(p);
}
#endif

template <int... Bits>
using wide_chain =
    typename ckks::parameters<10, ckks::limb_bits<Bits...>, 40, ckks::insecure_for_tests>::basis;
using residues = std::array<arith::word, 17>;

double largest_range(const residues& r) {
    using widest = wide_chain<61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 47>;
    return rns::to_double<widest>(r);
}
#ifdef TO_DOUBLE_OF_WIDE_MODULUS
// expect: rns::to_double: the modulus must be below 2^1023
double infinite(const residues& r) {
    using too_wide = wide_chain<61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 48>;
    return rns::to_double<too_wide>(r);
}
#endif
