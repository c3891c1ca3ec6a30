#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/arith/shoup.hpp>

#include "policy_checks.hpp"

// What every policy must do.

namespace {

using namespace tensafe::arith;
using namespace policy_checks;

template <template <class> class Policy, int Widest>
struct up_to {
    static void runtime_moduli() { check_runtime_moduli<Policy, Widest>(); }
    static void fixed_moduli() { check_fixed_moduli<Policy, Widest>(); }
    static void constant_evaluation() { check_constant_evaluation<Policy, Widest>(); }
    static void conversion() {
        check_conversion<Policy<runtime_modulus<Widest>>>();
        check_conversion<Policy<runtime_modulus<20>>>();
    }
};
#define TENSAFE_POLICIES up_to<barrett, 61>, up_to<fp64, 50>, up_to<montgomery, 61>, up_to<shoup, 61>

TEST_CASE_TEMPLATE("lazy products are right and below their bound for moduli known at run time", T,
                   TENSAFE_POLICIES) {
    T::runtime_moduli();
}

TEST_CASE_TEMPLATE("lazy products are right and below their bound for moduli in the type", T,
                   TENSAFE_POLICIES) {
    T::fixed_moduli();
}

TEST_CASE_TEMPLATE("constant evaluation gives the same lazy products as run time", T, TENSAFE_POLICIES) {
    T::constant_evaluation();
}

TEST_CASE_TEMPLATE("conversion to the representation and back is the identity on residues", T,
                   TENSAFE_POLICIES) {
    T::conversion();
}

#undef TENSAFE_POLICIES

}  // namespace
