// Draws of random values are one kernel.
#include <tensafe/exec/cuda.cuh>
#include <tensafe/memory/device_space.cuh>
#include <tensafe/random/block_samplers.hpp>

#include <span>

// Called by nobody: the kernel is compiled because it is named here.
void launch_draws(tensafe::exec::cuda where, std::span<const tensafe::random::block_draws> groups);
void launch_draws(tensafe::exec::cuda where, std::span<const tensafe::random::block_draws> groups) {
    tensafe::random::draw_blocks(where, groups);
}
