// The block transforms compile for GPUs: the schedules stage by stage, and two launches for what does not fit
// one block.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/device_space.cuh>
#include <tensafe/device/ntt/transform.hpp>

namespace {

using namespace tensafe;

template <class Basis, class Schedule>
void launch_both_ways(const exec::cuda& where, const ntt::block_plan<Basis, memory::device_space>& plan,
                      arith::word* words) {
    const ntt::load_words<Basis> load{words};
    const ntt::store_words<Basis> store{words};
    ntt::forward_blocks<Basis, Schedule>(where, plan, load, store, 1, words);
    ntt::inverse_blocks<Basis, Schedule>(where, plan, load, store, 1, words);
}

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_stage_transforms(arith::word* words);
void launch_stage_transforms(arith::word* words) {
    const exec::cuda where;
    using large = ckks::n16384_l4::basis;
    const ntt::block_plan<large, memory::device_space> large_plan(where);
    launch_both_ways<large, ntt::staged>(where, large_plan, words);
    launch_both_ways<large, ntt::unfused>(where, large_plan, words);
    using largest = rns::prefix<ckks::n32768_l4::basis, 2>;
    launch_both_ways<largest, ntt::tuned>(where, ntt::block_plan<largest, memory::device_space>(where),
                                          words);
}
