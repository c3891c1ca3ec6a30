#include "device_checks.hpp"
#include "wire/bits_checks.hpp"

using namespace tests;

DEVICE_CHECK_SMALL(bits_checks::checksum_bits(where))
