
#include <doctest/doctest.h>

#include "rescale_checks.hpp"

using namespace tests;

TEST_CASE("rescaling stacks gives the words of rns::rescale") {
    in_every_order([&](const auto& where) {
        check_rescale<ckks::private_n4096::basis>(where);
        check_rescale_at_ties<ckks::private_n4096::basis>(where);
    });
}

TEST_CASE("the dropped prime may be the larger one") {
    const host_blocks where(thread_order::shuffled);
    check_rescale<ckks::n8192_l4::basis>(where);
    check_rescale_at_ties<ckks::n8192_l4::basis>(where);
}
