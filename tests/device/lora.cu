#include "device_checks.hpp"
#include "lora/decrypt_checks.hpp"
#include "lora/messages_checks.hpp"
#include "lora/rerandomize_checks.hpp"

using namespace tests;

DEVICE_CHECK_SMALL(rerandomize_checks::check_private(where))
DEVICE_CHECK(rerandomize_checks::check_shapes(where))
DEVICE_CHECK(rerandomize_checks::check_refusals(where))
DEVICE_CHECK_SMALL(reply_checks::check_shapes(where))
DEVICE_CHECK(reply_checks::check_refusals(where))
DEVICE_CHECK_SMALL(message_checks::checksum_bits(where))
