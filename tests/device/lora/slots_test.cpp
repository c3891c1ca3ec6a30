#include <tensafe/device/exec/host_blocks.hpp>

#include "slots_checks.hpp"

using namespace tensafe;

TEST_CASE("a classic token of two clients gives the host's requests, replies and answers") {
    // Pairs of rows, one input; and more entries than slots, two inputs.
    block_slots::check_tokens<ckks::n8192_l4>(exec::host_blocks(exec::thread_order::shuffled), 5, 1000);
    block_slots::check_tokens<ckks::n8192_l4>(exec::host_blocks(exec::thread_order::reverse), 3, 5000);
}
