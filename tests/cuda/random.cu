// Draws of random values are one kernel.
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/random/samplers.hpp>

#include <span>

// Called by nobody: the kernel is compiled because it is named here.
void launch_draws(tensafe::device::cuda where, std::span<const tensafe::device::draw_group> groups);
void launch_draws(tensafe::device::cuda where, std::span<const tensafe::device::draw_group> groups) {
    tensafe::device::draw(where, groups);
}
