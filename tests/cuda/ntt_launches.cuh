#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/ntt/transform.hpp>

using namespace tensafe;

/// Names both transforms of a schedule, so that they are compiled.
template <class Basis, class Schedule>
void launch_both_ways(const device::cuda& where, const device::plan<Basis, device::device_space>& plan,
                      arith::word* words) {
    const device::load_words<Basis> load{words};
    const device::store_words<Basis> store{words};
    device::forward<Basis, Schedule>(where, plan, load, store, 1, words);
    device::inverse<Basis, Schedule>(where, plan, load, store, 1, words);
}
