#include "transform_checks.hpp"

// Every policy on two widths and two schedules; transform_all_pairs_test.cpp has all of them.

namespace {

using namespace transform_checks;

// The widest primes that never reduce inside the forward transform, and the widest of all.
#define TENSAFE_POLICIES on<barrett, 57, 61>, on<fp64, 46, 50>, on<montgomery, 58, 61>, on<shoup, 58, 61>

TEST_CASE_TEMPLATE("a schedule equals the definition for degrees up to 512", T, TENSAFE_POLICIES) {
    check_small_degrees<T>(two_schedules);
}

TEST_CASE_TEMPLATE("schedules give the same residues at degree 2^16", T, TENSAFE_POLICIES) {
    T::for_each([](const auto& policy) { check_large_degree(policy, two_schedules, 16); });
}

TEST_CASE_TEMPLATE("a product with X^k shifts and X^N is -1", T, TENSAFE_POLICIES) {
    T::for_each([](const auto& policy) {
        for (const int log_n : {1, 2, 5, 13}) {
            check_shifts(policy, log_n);
        }
    });
}

#undef TENSAFE_POLICIES

}  // namespace
