// The transforms compile for GPUs: for the parameter sets that matter, the schedules that keep values
// in registers.
#include "ntt_launches.cuh"

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
