#include <tensafe/device/exec/host_blocks.hpp>

#include <doctest/doctest.h>

#include "rescale_checks.hpp"

using tensafe::exec::host_blocks;
using tensafe::exec::thread_order;

TEST_CASE("rescaling stacks gives the words of rns::rescale") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        const host_blocks where(order);
        tests::check_rescale<tensafe::ckks::private_n4096::basis>(where);
        tests::check_rescale_at_ties<tensafe::ckks::private_n4096::basis>(where);
    }
}

TEST_CASE("the dropped prime may be the larger one") {
    const host_blocks where(thread_order::shuffled);
    tests::check_rescale<tensafe::ckks::n8192_l4::basis>(where);
    tests::check_rescale_at_ties<tensafe::ckks::n8192_l4::basis>(where);
}
