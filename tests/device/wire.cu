#include "../wire/block_bits_checks.hpp"
#include "device_checks.hpp"

DEVICE_CHECK_SMALL(block_bits_checks::check_bits(where))
