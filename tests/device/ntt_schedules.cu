#include <tensafe/arith/prime.hpp>

#include "../../bench/device/comparison_schedules.hpp"
#include "device_checks.hpp"
#include "ntt/transform_checks.hpp"

using namespace tests;
using namespace transform_checks;

template <int LogN, int... Bits>
using basis = rns::basis<LogN, arith::ntt_prime_below(arith::word{1} << Bits, LogN)...>;

DEVICE_CHECK_SMALL(check_schedule<basis<10, 50, 61>, comparison::staged>(where, 3))
DEVICE_CHECK(check_schedule<basis<10, 50, 61>, comparison::unfused>(where, 3))
DEVICE_CHECK(check_schedule<basis<14, 40>, comparison::unfused>(where, 2))
DEVICE_CHECK(check_launches<basis<14, 40>, comparison::staged>(where, launches, 7, 7))
DEVICE_CHECK(check_launches<basis<14, 40>, comparison::unfused>(where, launches, 14, 15))
DEVICE_CHECK(check_schedule<basis<10, 50, 61>, device::schedule::single_block>(where, 3))
DEVICE_CHECK(check_schedule<basis<13, 50, 61>, device::schedule::single_block>(where, 3))
DEVICE_CHECK(check_schedule<basis<10, 50, 61>, device::schedule::two_pass>(where, 3))
DEVICE_CHECK(check_schedule<basis<13, 61>, device::schedule::two_pass>(where, 3))
DEVICE_CHECK(check_schedule<basis<15, 50>, device::schedule::two_pass>(where, 3))
DEVICE_CHECK(check_schedule<basis<17, 50>, device::schedule::two_pass>(where, 2))
