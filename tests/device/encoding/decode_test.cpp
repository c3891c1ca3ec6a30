#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/device/exec/host_blocks.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "decode_checks.hpp"

namespace ckks = tensafe::ckks;
namespace encoding = tensafe::encoding;
using tensafe::exec::host_blocks;
using tensafe::exec::thread_order;

TEST_CASE("traces are decoded to the bits of decode_trace, in one launch for all outputs") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        std::size_t launches = 0;
        const host_blocks where(order, &launches);
        tests::check_traces<ckks::n16384_l4, 2>(where);
        CHECK(launches == 6);  // for the degrees from 2 to 64
        tests::check_traces<ckks::minimal_n2048, 1>(where);
    }
}

TEST_CASE("whole polynomials are decoded to the bits of decode_slots") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        tests::check_decode_slots<ckks::private_n4096::basis>(host_blocks(order));
    }
}

TEST_CASE("tables are for traces of 2 to 64 coefficients") {
    using tables = encoding::block_trace_tables<ckks::minimal_n2048::basis, tensafe::memory::host_space>;
    CHECK_THROWS_WITH_AS(tables(host_blocks{}, 0), "block_trace_tables: log_n: got 0, expected 1 to 6",
                         tensafe::parameter_error);
    CHECK_THROWS_WITH_AS(tables(host_blocks{}, 7), "block_trace_tables: log_n: got 7, expected 1 to 6",
                         tensafe::parameter_error);
}
