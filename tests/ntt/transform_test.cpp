#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/arith/shoup.hpp>

#include <doctest/doctest.h>

#include "transform_checks.hpp"

namespace {

using namespace tensafe::arith;
using namespace transform_checks;

/// A policy; the widest primes that never reduce inside the inverse and the forward transform, and the widest
/// of all.
template <template <class> class Policy, int Inverse, int Forward, int Widest>
struct policy_case {
    static void check_small() {
        check_small_degrees<Policy, 20, 30, 40, Inverse, Inverse + 1, 49, 50>();
        if constexpr (Widest > 50) {
            check_small_degrees<Policy, Forward, Forward + 1, 60, 61>();
        } else {
            check_small_degrees<Policy, Forward, Forward + 1>();
        }
    }
    static void check_large() {
        for (const int log_n : {16, 17}) {
            check_large_degree(policy<Policy, Inverse>(), log_n);
            check_large_degree(policy<Policy, Forward>(), log_n);
            check_large_degree(policy<Policy, Widest>(), log_n);
        }
    }
    static void check_products() {
        for (const int log_n : {1, 2, 5, 13, 17}) {
            check_shifts(policy<Policy, Inverse>(), log_n);
            check_shifts(policy<Policy, Forward>(), log_n);
            check_shifts(policy<Policy, Widest>(), log_n);
        }
    }
};

#define POLICIES                                                                                           \
    policy_case<shoup, 45, 58, 61>, policy_case<montgomery, 45, 58, 61>, policy_case<barrett, 44, 57, 61>, \
        policy_case<fp64, 33, 46, 50>

TEST_CASE_TEMPLATE("every schedule of every policy equals the definition for degrees up to 512", P,
                   POLICIES) {
    P::check_small();
}

TEST_CASE_TEMPLATE("every schedule of every policy gives the same residues up to degree 2^17", P, POLICIES) {
    P::check_large();
}

TEST_CASE_TEMPLATE("with every policy a product with X^k shifts and X^N is -1", P, POLICIES) {
    P::check_products();
}

}  // namespace
