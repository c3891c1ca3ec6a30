// The block transforms compile for GPUs: for the parameter sets that matter, the schedules that keep values
// in registers.
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
void launch_block_transforms(arith::word* words);
void launch_block_transforms(arith::word* words) {
    const exec::cuda where;
    using large = ckks::n16384_l4::basis;
    const ntt::block_plan<large, memory::device_space> large_plan(where);
    launch_both_ways<large, ntt::single_block>(where, large_plan, words);
    launch_both_ways<large, ntt::two_pass>(where, large_plan, words);
    using small = ckks::private_n4096::basis;
    launch_both_ways<small, ntt::tuned>(where, ntt::block_plan<small, memory::device_space>(where), words);
    using smallest = ckks::minimal_n2048::basis;
    launch_both_ways<smallest, ntt::tuned>(where, ntt::block_plan<smallest, memory::device_space>(where),
                                           words);
}
