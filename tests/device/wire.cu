#include "device_checks.hpp"
#include "wire/bits_checks.hpp"

DEVICE_CHECK_SMALL(block_bits_checks::checksum_bits(where))
