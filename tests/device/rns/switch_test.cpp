
#include "switch_checks.hpp"

using namespace tests;

TEST_CASE("a kernel switches a coefficient to a power of two as the host does") {
    for (const auto order :
         {device::thread_order::forward, device::thread_order::reverse, device::thread_order::shuffled}) {
        switch_checks::check_switch(device::host_blocks(order));
    }
}
