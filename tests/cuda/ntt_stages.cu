// The transforms compile for GPUs: the schedules stage by stage, and two launches for what does not fit
// one block.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/ntt/transform.hpp>

#include "../../bench/device/comparison_schedules.hpp"

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
