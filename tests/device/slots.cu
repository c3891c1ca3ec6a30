#include <tensafe/ckks/parameters.hpp>

#include "device_checks.hpp"
#include "lora/slots_checks.hpp"

using namespace tests;

DEVICE_CHECK_SMALL(slot_token_checks::check_tokens<ckks::n8192_l4>(where, 3, 1000))
DEVICE_CHECK(slot_token_checks::check_tokens<ckks::n8192_l4>(where, 3, 5000))
DEVICE_CHECK(slot_token_checks::check_tokens<ckks::n16384_l4>(where, 32, 4096))
