#include <tensafe/arith/fp64.hpp>

#include <doctest/doctest.h>

#include "policy_checks.hpp"

namespace {

using namespace tensafe::arith;
using namespace policy_checks;

TEST_CASE("lazy floating-point products are right and below their bound for moduli known at run time") {
    check_runtime_moduli<fp64, 50>();
}

TEST_CASE("lazy floating-point products are right and below their bound for moduli in the type") {
    check_fixed_moduli<fp64, 50>();
}

TEST_CASE("constant evaluation gives the same lazy floating-point products as run time") {
    check_constant_evaluation<fp64, 50>();
}

TEST_CASE("conversion to the floating-point representation and back is the identity on residues") {
    check_conversion<fp64<runtime_modulus<50>>>();
    check_conversion<fp64<runtime_modulus<20>>>();
}

}  // namespace
