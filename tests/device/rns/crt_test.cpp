#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/exec/host_blocks.hpp>
#include <tensafe/device/rns/crt.hpp>

#include <doctest/doctest.h>

#include "crt_checks.hpp"

using tensafe::exec::host_blocks;
using tensafe::exec::thread_order;

TEST_CASE("the block form of the CRT gives the bits of rns::to_double") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        const host_blocks where(order);
        tests::check_crt<tensafe::ckks::n16384_l4::basis>(where);
        tests::check_crt<tensafe::ckks::private_n4096::basis>(where);
        tests::check_crt<tensafe::ckks::minimal_n2048::basis>(where);
        tests::check_crt<tests::uneven_basis>(where);
    }
}
