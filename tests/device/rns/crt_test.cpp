#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/encoding/decode.hpp>

#include <doctest/doctest.h>

#include "crt_checks.hpp"

using namespace tests;

TEST_CASE("the device form of the CRT gives the bits of rns::to_double") {
    in_every_order([&](const auto& where) {
        check_crt<ckks::n16384_l4::basis>(where);
        check_crt<ckks::private_n4096::basis>(where);
        check_crt<ckks::minimal_n2048::basis>(where);
        check_crt<uneven_basis>(where);
    });
}
