
#include "slots_checks.hpp"

using namespace tests;

TEST_CASE("a classic token of two clients gives the host's requests, replies and answers") {
    // Pairs of rows, one input; and more entries than slots, two inputs.
    slot_token_checks::check_tokens<ckks::n8192_l4>(device::host_blocks(device::thread_order::shuffled), 5,
                                                    1000);
    slot_token_checks::check_tokens<ckks::n8192_l4>(device::host_blocks(device::thread_order::reverse), 3,
                                                    5000);
}
