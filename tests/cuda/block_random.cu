// Draws of random values are one kernel.
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/device_space.cuh>
#include <tensafe/device/random/samplers.hpp>

#include <span>

// Called by nobody: the kernel is compiled because it is named here.
void launch_draws(tensafe::exec::cuda where, std::span<const tensafe::random::block_draws> groups);
void launch_draws(tensafe::exec::cuda where, std::span<const tensafe::random::block_draws> groups) {
    tensafe::random::draw_blocks(where, groups);
}
