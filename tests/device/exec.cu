#include "device_checks.hpp"
#include "exec/launch_checks.hpp"

DEVICE_CHECK_SMALL(tests::check_shared_memory(where))
DEVICE_CHECK_SMALL(tests::check_block_indices(where))
DEVICE_CHECK_SMALL(tests::check_atomics(where))
DEVICE_CHECK_SMALL(tests::check_copies(where))
DEVICE_CHECK_SMALL(tests::check_empty_launches(where))
