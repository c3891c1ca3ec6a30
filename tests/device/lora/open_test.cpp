#include <tensafe/device/exec/host_blocks.hpp>

#include "open_checks.hpp"

using tensafe::exec::host_blocks;
using tensafe::exec::thread_order;

TEST_CASE("blocks open replies to the host's values, bit for bit") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        block_open_checks::check_shapes(host_blocks(order));
    }
}

TEST_CASE("opening refuses wide traces and replies that are not aligned; no tokens take no launch") {
    std::size_t launches = 0;
    const host_blocks where(thread_order::forward, &launches);
    block_open_checks::check_refusals(where);
    tensafe::lora::open_blocks<tensafe::ckks::minimal_n2048>(where, nullptr, 16, nullptr, 1, 0, nullptr,
                                                             nullptr, 2, nullptr);
    CHECK(launches == 0);
}
