#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/encoding/decode.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>

#include <doctest/doctest.h>

#include "crt_checks.hpp"

using namespace tests;

TEST_CASE("the block form of the CRT gives the bits of rns::to_double") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        const host_blocks where(order);
        check_crt<ckks::n16384_l4::basis>(where);
        check_crt<ckks::private_n4096::basis>(where);
        check_crt<ckks::minimal_n2048::basis>(where);
        check_crt<uneven_basis>(where);
    }
}
