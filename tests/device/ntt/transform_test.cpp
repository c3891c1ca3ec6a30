#include <tensafe/arith/prime.hpp>

#include "transform_checks.hpp"

using namespace tests;

// The parameter sets: rns layer types of ckks::n16384_l4, private_n4096 and minimal_n2048, without the layer.

namespace {
using namespace tests::transform_checks;

constexpr arith::word p60a = arith::ntt_prime_below(word{1} << 60, 14);
constexpr arith::word p60b = arith::ntt_prime_below(p60a, 14);
constexpr arith::word p40a = arith::ntt_prime_below(word{1} << 40, 14);
constexpr arith::word p40b = arith::ntt_prime_below(p40a, 14);
using n16384 = rns::basis<14, p60a, p40a, p40b, p60b>;
using n4096 =
    rns::basis<12, arith::ntt_prime_below(word{1} << 45, 12), arith::ntt_prime_below(word{1} << 44, 12)>;
using n2048 = rns::basis<11, arith::ntt_prime_below(word{1} << 41, 11)>;

TEST_CASE("one launch with a limb in each thread block gives the host's transforms at N = 16384") {
    check_in_every_order<n16384, device::schedule::single_block>(3);
}

TEST_CASE("two launches give the host's transforms at N = 16384") {
    check_in_every_order<n16384, device::schedule::two_pass>(3);
}

TEST_CASE("one launch with a limb in each thread block gives the host's transforms at N = 4096 and 2048") {
    check_in_every_order<n4096, device::schedule::single_block>(4);
    check_in_every_order<n2048, device::schedule::single_block>(4);
}

TEST_CASE("the number of launches is that of the schedule") {
    std::size_t launches = 0;
    const device::host_blocks where(thread_order::forward, &launches);
    check_launches<n16384, device::schedule::single_block>(where, launches, 1, 1);
    check_launches<n16384, device::schedule::two_pass>(where, launches, 2, 2);
    check_launches<n16384, device::schedule::tuned>(where, launches, 2, 2);
    check_launches<n2048, device::schedule::tuned>(where, launches, 1, 1);
}

TEST_CASE("a launch of more thread blocks than a grid has is refused") {
    const device::host_blocks where;
    const device::plan<n2048, memory::host_space> plan(where);
    const device::load_words<n2048> load{nullptr};
    const device::store_words<n2048> store{nullptr};
    CHECK_THROWS_AS((device::forward<n2048>(where, plan, load, store, std::size_t{1} << 31, nullptr)),
                    parameter_error);
    CHECK_THROWS_AS((device::inverse<n2048>(where, plan, load, store, std::size_t{1} << 40, nullptr)),
                    parameter_error);
}

TEST_CASE("the tuned schedule keeps small limbs whole and cuts those that do not fit") {
    static_assert(device::schedule::tuned_to_single_block(11));
    static_assert(device::schedule::tuned_to_single_block(12));
    static_assert(!device::schedule::tuned_to_single_block(14));
    static_assert(!device::schedule::tuned_to_single_block(15));
}

}  // namespace
