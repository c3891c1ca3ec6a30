#include "transform_checks.hpp"

// Every policy on every schedule.

namespace {

using namespace transform_checks;

TEST_CASE_TEMPLATE("every schedule equals the definition for degrees up to 512", T,
                   on<barrett, 20, 30, 40, 45, 49, 50, 57, 58, 59, 60, 61>,
                   on<fp64, 20, 30, 34, 40, 46, 47, 49, 50>,
                   on<montgomery, 20, 30, 40, 46, 49, 50, 58, 59, 60, 61>,
                   on<shoup, 20, 30, 40, 46, 49, 50, 58, 59, 60, 61>) {
    check_small_degrees<T>(all_schedules);
}

// The widest primes that never reduce inside the inverse and the forward transform, and the widest of all.
#define TENSAFE_POLICIES \
    on<barrett, 44, 57, 61>, on<fp64, 33, 46, 50>, on<montgomery, 45, 58, 61>, on<shoup, 45, 58, 61>

TEST_CASE_TEMPLATE("every schedule gives the same residues up to degree 2^17", T, TENSAFE_POLICIES) {
    T::for_each([](const auto& policy) {
        for (const int log_n : {16, 17}) {
            check_large_degree(policy, all_schedules, log_n);
        }
    });
}

TEST_CASE_TEMPLATE("a product with X^k shifts and X^N is -1 up to degree 2^17", T, TENSAFE_POLICIES) {
    T::for_each([](const auto& policy) {
        for (const int log_n : {1, 2, 5, 13, 17}) {
            check_shifts(policy, log_n);
        }
    });
}

#undef TENSAFE_POLICIES

}  // namespace
