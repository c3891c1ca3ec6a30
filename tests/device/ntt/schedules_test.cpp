#include <tensafe/arith/prime.hpp>

#include "../../../bench/device/comparison_schedules.hpp"
#include "transform_checks.hpp"

using namespace tests;

// The schedules stage by stage, other degrees, and primes of the widths with the tightest bounds.

namespace {
using namespace tests::transform_checks;

template <int LogN, int... Bits>
using basis = rns::basis<LogN, arith::ntt_prime_below(word{1} << Bits, LogN)...>;

TEST_CASE("stage by stage with and without eight fused stages gives the host's transforms") {
    using narrow_and_wide = basis<10, 50, 61>;
    check_in_every_order<narrow_and_wide, comparison::staged>(3);
    check_in_every_order<narrow_and_wide, comparison::unfused>(3);
}

TEST_CASE("seven and fourteen launches at N = 16384 for the schedules stage by stage") {
    std::size_t launches = 0;
    const device::host_blocks where(thread_order::shuffled, &launches);
    using basis = basis<14, 40>;
    check_launches<basis, comparison::staged>(where, launches, 7, 7);
    check_launches<basis, comparison::unfused>(where, launches, 14, 15);
    check_schedule<basis, comparison::staged>(where, 1);
    check_schedule<basis, comparison::unfused>(where, 1);
}

TEST_CASE("every degree whose limbs fit a thread block gives the host's transforms in one launch") {
    check_in_every_order<basis<10, 50, 61>, device::schedule::single_block>(3);
    check_schedule<basis<12, 61>, device::schedule::single_block>(device::host_blocks(thread_order::shuffled),
                                                                  3);
    check_in_every_order<basis<13, 50, 61>, device::schedule::single_block>(3);
    check_schedule<basis<14, 50>, device::schedule::single_block>(device::host_blocks(thread_order::shuffled),
                                                                  3);
}

TEST_CASE("every degree gives the host's transforms in two launches") {
    check_in_every_order<basis<10, 50, 61>, device::schedule::two_pass>(3);
    check_in_every_order<basis<11, 61>, device::schedule::two_pass>(3);
    check_in_every_order<basis<12, 50>, device::schedule::two_pass>(3);
    const device::host_blocks where(thread_order::shuffled);
    check_schedule<basis<13, 61>, device::schedule::two_pass>(where, 3);
    check_schedule<basis<15, 50>, device::schedule::two_pass>(where, 2);
    check_schedule<basis<16, 61>, device::schedule::two_pass>(where, 1);
    check_schedule<basis<17, 50>, device::schedule::two_pass>(where, 1);
}

}  // namespace
