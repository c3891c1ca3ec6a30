#include <tensafe/device/exec/host_blocks.hpp>

#include "switch_checks.hpp"

TEST_CASE("a kernel switches a coefficient to a power of two as the host does") {
    for (const auto order : {tensafe::exec::thread_order::forward, tensafe::exec::thread_order::reverse,
                             tensafe::exec::thread_order::shuffled}) {
        block_switch_checks::check_switch(tensafe::exec::host_blocks(order));
    }
}
