#include <tensafe/arith/prime.hpp>

#include "device_checks.hpp"
#include "ntt/transform_checks.hpp"

using namespace block_transform_checks;

template <int LogN, int... Bits>
using basis =
    tensafe::rns::basis<LogN, tensafe::arith::ntt_prime_below(tensafe::arith::word{1} << Bits, LogN)...>;

DEVICE_CHECK_SMALL(check_schedule<basis<10, 50, 61>, ntt::staged>(where, 3))
DEVICE_CHECK(check_schedule<basis<10, 50, 61>, ntt::unfused>(where, 3))
DEVICE_CHECK(check_schedule<basis<14, 40>, ntt::unfused>(where, 2))
DEVICE_CHECK(check_launches<basis<14, 40>, ntt::staged>(where, launches, 7, 7))
DEVICE_CHECK(check_launches<basis<14, 40>, ntt::unfused>(where, launches, 14, 15))
DEVICE_CHECK(check_schedule<basis<10, 50, 61>, ntt::single_block>(where, 3))
DEVICE_CHECK(check_schedule<basis<13, 50, 61>, ntt::single_block>(where, 3))
DEVICE_CHECK(check_schedule<basis<10, 50, 61>, ntt::two_pass>(where, 3))
DEVICE_CHECK(check_schedule<basis<13, 61>, ntt::two_pass>(where, 3))
DEVICE_CHECK(check_schedule<basis<15, 50>, ntt::two_pass>(where, 3))
DEVICE_CHECK(check_schedule<basis<17, 50>, ntt::two_pass>(where, 2))
