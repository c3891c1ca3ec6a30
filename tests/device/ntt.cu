#include <tensafe/arith/prime.hpp>
#include <tensafe/ckks/parameters.hpp>

#include "../../bench/device/comparison_schedules.hpp"
#include "device_checks.hpp"
#include "ntt/transform_checks.hpp"

using namespace tests;
using namespace transform_checks;
using n16384 = ckks::n16384_l4::basis;
using n4096 = ckks::private_n4096::basis;
using n2048 = ckks::minimal_n2048::basis;

DEVICE_CHECK(check_schedule<n16384, device::schedule::single_block>(where, 3))
DEVICE_CHECK(check_schedule<n16384, device::schedule::two_pass>(where, 3))
DEVICE_CHECK(check_schedule<n16384, comparison::staged>(where, 2))
DEVICE_CHECK(check_schedule<n16384, device::schedule::tuned>(where, 40))
DEVICE_CHECK_SMALL(check_schedule<n4096, device::schedule::single_block>(where, 4))
DEVICE_CHECK_SMALL(check_schedule<n4096, device::schedule::two_pass>(where, 4))
DEVICE_CHECK(check_schedule<n2048, device::schedule::tuned>(where, 300))
DEVICE_CHECK(check_launches<n16384, device::schedule::single_block>(where, launches, 1, 1))
DEVICE_CHECK(check_launches<n16384, device::schedule::two_pass>(where, launches, 2, 2))
