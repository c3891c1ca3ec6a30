// The transforms compile for GPUs: for the parameter sets that matter, the schedules that keep values
// in registers.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/ntt/transform.hpp>

namespace {

using namespace tensafe;

template <class Basis, class Schedule>
void launch_both_ways(const device::cuda& where, const device::plan<Basis, device::device_space>& plan,
                      arith::word* words) {
    const device::load_words<Basis> load{words};
    const device::store_words<Basis> store{words};
    device::forward<Basis, Schedule>(where, plan, load, store, 1, words);
    device::inverse<Basis, Schedule>(where, plan, load, store, 1, words);
}

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_block_transforms(arith::word* words);
void launch_block_transforms(arith::word* words) {
    const device::cuda where;
    using large = ckks::n16384_l4::basis;
    const device::plan<large, device::device_space> large_plan(where);
    launch_both_ways<large, device::schedule::single_block>(where, large_plan, words);
    launch_both_ways<large, device::schedule::two_pass>(where, large_plan, words);
    using small = ckks::private_n4096::basis;
    launch_both_ways<small, device::schedule::tuned>(where, device::plan<small, device::device_space>(where),
                                                     words);
    using smallest = ckks::minimal_n2048::basis;
    launch_both_ways<smallest, device::schedule::tuned>(
        where, device::plan<smallest, device::device_space>(where), words);
}
