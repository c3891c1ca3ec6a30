#include "device_checks.hpp"
#include "exec/launch_checks.hpp"

using namespace tests;

DEVICE_CHECK_SMALL(check_shared_memory(where))
DEVICE_CHECK_SMALL(check_block_indices(where))
DEVICE_CHECK_SMALL(check_atomics(where))
DEVICE_CHECK_SMALL(check_copies(where))
DEVICE_CHECK_SMALL(check_empty_launches(where))
