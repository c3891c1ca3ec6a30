#include <tensafe/arith/fp64.hpp>

#include <doctest/doctest.h>

#include "transform_checks.hpp"

namespace {

using tensafe::arith::fp64;
using namespace transform_checks;

TEST_CASE("with floating-point products every schedule equals the definition for degrees up to 512") {
    check_small_degrees<fp64, 20, 30, 34, 40, 46, 47, 49, 50>();
}

TEST_CASE("with floating-point products every schedule gives the same residues up to degree 2^17") {
    // The widest primes that never reduce inside the inverse and the forward transform, and the widest of
    // all.
    for (const int log_n : {16, 17}) {
        check_large_degree(policy<fp64, 33>(), log_n);
        check_large_degree(policy<fp64, 46>(), log_n);
        check_large_degree(policy<fp64, 50>(), log_n);
    }
}

TEST_CASE("with floating-point products a product with X^k shifts and X^N is -1") {
    for (const int log_n : {1, 2, 5, 13, 17}) {
        check_shifts(policy<fp64, 33>(), log_n);
        check_shifts(policy<fp64, 46>(), log_n);
        check_shifts(policy<fp64, 50>(), log_n);
    }
}

}  // namespace
