#include "device_checks.hpp"
#include "lora/hide_checks.hpp"
#include "lora/open_checks.hpp"

DEVICE_CHECK_SMALL(block_hide_checks::check_private(where))
DEVICE_CHECK(block_hide_checks::check_shapes(where))
DEVICE_CHECK(block_hide_checks::check_refusals(where))
DEVICE_CHECK_SMALL(block_open_checks::check_shapes(where))
DEVICE_CHECK(block_open_checks::check_refusals(where))
