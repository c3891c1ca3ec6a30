#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/packing/protection.hpp>

#include "device_checks.hpp"
#include "lora/block_checks.hpp"

using namespace tests;
using namespace tests::block_checks;

using private_range = lora::protects_adapter_rows<>;
using narrow_range = lora::protects_adapter_rows<lora::average_case<6>>;

DEVICE_CHECK_SMALL(check_blocks<two_limbs, private_range>(where, 8, 6, 301, {1, 3, 4, 5}))
DEVICE_CHECK(check_blocks<one_limb, narrow_range>(where, 8, 261, 33, {1, 18}))
DEVICE_CHECK(check_blocks<one_limb, private_range>(where, 4, 1, 2500, {5}))
DEVICE_CHECK(check_blocks<ckks::private_n4096, private_range>(where, 32, 5, 777, {9}))
DEVICE_CHECK(check_spoilt_work<two_limbs, private_range>(where))
// Recorded as graphs and replayed.
DEVICE_CHECK(check_spoilt_work<two_limbs, private_range>(where, run_recorded()))
DEVICE_CHECK(check_blocks<two_limbs, private_range>(where, 8, 2, 50, {3, 1, 3}, run_recorded()))
