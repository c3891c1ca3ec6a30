#include <tensafe/arith/prime.hpp>
#include <tensafe/ckks/parameters.hpp>

#include <doctest/doctest.h>

#include "rounding_checks.hpp"

using namespace tests;

TEST_CASE("reals of every size get the residues that the host gives them, however many steps it takes") {
    const host_blocks where;
    check_residues<17>(where);
    check_residues<ckks::minimal_n2048::basis::prime<0>>(where);
    check_residues<ckks::private_n4096::basis::prime<1>>(where);
    check_residues<ckks::n16384_l4::basis::prime<0>>(where);
    check_residues<arith::ntt_prime_below(arith::word{1} << 61, 14)>(where);
}

TEST_CASE("any double becomes a residue, numbers that are too large and NaN among them") {
    const host_blocks where;
    using primes = ckks::n16384_l4::basis;
    check_any_double<primes::prime<0>, 89>(where);
    check_any_double<primes::prime<1>, 89>(where);
    check_any_double<primes::prime<1>, 112>(where);
    check_any_double<ckks::minimal_n2048::basis::prime<0>, 41>(where);
}

TEST_CASE("rows that a transform loads are the host's encodings, with errors and without") {
    in_every_order([&](const auto& where) {
        check_load_of_rows<ckks::private_n4096::basis>(where);
        check_load_of_rows<ckks::minimal_n2048::basis>(where);
    });
}

TEST_CASE("replicated states become the residues of the host's slot encoding") {
    in_every_order([&](const auto& where) {
        check_replicated<ckks::private_n4096::basis, float>(where, 500, 2);
        check_replicated<ckks::private_n4096::basis, double>(where, 5000, 0);
        check_replicated<ckks::n16384_l4::basis, float>(where, 4096, 1);
    });
}
