#include <tensafe/arith/modulus.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tensafe::arith;

TEST_CASE("a modulus reports its width, its value and the largest of its kind") {
    CHECK(fixed_modulus<65537>::bits == 17);
    CHECK(fixed_modulus<65537>::largest == 65537);
    CHECK(fixed_modulus<65537>::value() == 65537);
    CHECK(runtime_modulus<17>::largest == 131071);
    CHECK(runtime_modulus<17>(65537).value() == 65537);
}

TEST_CASE("a run-time modulus refuses even numbers and other widths, and names what it got") {
    CHECK(runtime_modulus<20>(1048575).value() == 1048575);
    CHECK(runtime_modulus<20>(524289).value() == 524289);
    CHECK_THROWS_WITH_AS(runtime_modulus<20>(1048574), doctest::Contains("1048574"),
                         tensafe::parameter_error);
    CHECK_THROWS_AS(runtime_modulus<20>(524287), tensafe::parameter_error);
    CHECK_THROWS_AS(runtime_modulus<20>(1048577), tensafe::parameter_error);
    CHECK_THROWS_AS(runtime_modulus<20>(0), tensafe::parameter_error);
    CHECK_THROWS_AS(runtime_modulus<61>(~word{0}), tensafe::parameter_error);
    CHECK_THROWS_WITH_AS((runtime_modulus<20, 18>(65537)), doctest::Contains("of 18 to 20 bits"),
                         tensafe::parameter_error);
    CHECK(runtime_modulus<20, 17>(65537).value() == 65537);
}

}  // namespace
