// The transforms compile for GPUs: the schedules stage by stage, and two launches for what does not fit
// one block.
#include "../../bench/device/comparison_schedules.hpp"
#include "ntt_launches.cuh"

// Called by nobody: the kernels are compiled because they are named here.
void launch_stage_transforms(arith::word* words);
void launch_stage_transforms(arith::word* words) {
    const device::cuda where;
    using large = ckks::n16384_l4::basis;
    const device::plan<large, device::device_space> large_plan(where);
    launch_both_ways<large, comparison::staged>(where, large_plan, words);
    launch_both_ways<large, comparison::unfused>(where, large_plan, words);
    using largest = rns::prefix<ckks::n32768_l4::basis, 2>;
    launch_both_ways<largest, device::schedule::tuned>(
        where, device::plan<largest, device::device_space>(where), words);
}
