#include <tensafe/arith/montgomery.hpp>

#include <doctest/doctest.h>

#include "policy_checks.hpp"

namespace {

using namespace tensafe::arith;
using namespace policy_checks;

TEST_CASE("lazy Montgomery products are right and below their bound for moduli known at run time") {
    check_runtime_moduli<montgomery, 61>();
}

TEST_CASE("lazy Montgomery products are right and below their bound for moduli in the type") {
    check_fixed_moduli<montgomery, 61>();
}

TEST_CASE("constant evaluation gives the same lazy Montgomery products as run time") {
    check_constant_evaluation<montgomery, 61>();
}

TEST_CASE("conversion to the Montgomery representation and back is the identity on residues") {
    check_conversion<montgomery<runtime_modulus<61>>>();
    check_conversion<montgomery<runtime_modulus<20>>>();
}

}  // namespace
