#include <tensafe/ckks/parameters.hpp>

#include <doctest/doctest.h>

#include "decode_checks.hpp"

using namespace tests;

TEST_CASE("traces are decoded to the bits of decode_trace, in one launch for all outputs") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        std::size_t launches = 0;
        const host_blocks where(order, &launches);
        check_traces<ckks::n16384_l4, 2>(where);
        CHECK(launches == 6);  // for the degrees from 2 to 64
        check_traces<ckks::minimal_n2048, 1>(where);
    }
}

TEST_CASE("whole polynomials are decoded to the bits of decode_slots") {
    in_every_order([](const auto& where) { check_decode_slots<ckks::private_n4096::basis>(where); });
}

TEST_CASE("tables are for traces of 2 to 64 coefficients") {
    using tables = device::folded_slot_tables<ckks::minimal_n2048::basis, memory::host_space>;
    CHECK_THROWS_WITH_AS(tables(host_blocks{}, 0),
                         "device::folded_slot_tables: log_n: got 0, expected 1 to 6", parameter_error);
    CHECK_THROWS_WITH_AS(tables(host_blocks{}, 7),
                         "device::folded_slot_tables: log_n: got 7, expected 1 to 6", parameter_error);
}
