#include <tensafe/arith/barrett.hpp>

#include <doctest/doctest.h>

#include "transform_checks.hpp"

namespace {

using tensafe::arith::barrett;
using namespace transform_checks;

TEST_CASE("with Barrett products every schedule equals the definition for degrees up to 512") {
    check_small_degrees<barrett, 20, 30, 40, 45, 49, 50, 57, 58, 59, 60, 61>();
}

TEST_CASE("with Barrett products every schedule gives the same residues up to degree 2^17") {
    // The widest primes that never reduce inside the inverse and the forward transform, and the widest of
    // all.
    for (const int log_n : {16, 17}) {
        check_large_degree(policy<barrett, 44>(), log_n);
        check_large_degree(policy<barrett, 57>(), log_n);
        check_large_degree(policy<barrett, 61>(), log_n);
    }
}

TEST_CASE("with Barrett products a product with X^k shifts and X^N is -1") {
    for (const int log_n : {1, 2, 5, 13, 17}) {
        check_shifts(policy<barrett, 44>(), log_n);
        check_shifts(policy<barrett, 57>(), log_n);
        check_shifts(policy<barrett, 61>(), log_n);
    }
}

}  // namespace
