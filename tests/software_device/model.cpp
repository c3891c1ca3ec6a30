// What docs/gpu.md predicts: here is what is assumed of a GPU.

#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace software_device {

namespace {

// L2 gives two thirds of 5,120 bytes a cycle; memory nine tenths of its data sheet.
constexpr machine_model models[] = {
    {"A100", 108, 1.41, 32, 0.9 * 2039, 3400 * 1.41, 40e6, 164 << 10, 22},
    {"H100", 132, 1.755, 64, 0.9 * 3350, 3400 * 1.755, 50e6, 228 << 10, 45},
    {"H200", 132, 1.755, 64, 0.9 * 4800, 3400 * 1.755, 50e6, 228 << 10, 45},
};

constexpr double launch_gap = 1.0;      // microseconds from a kernel of a graph to the next
constexpr double pipe_share = 0.85;     // of its cycles in which the busiest pipe works
constexpr double load_latency = 600;    // cycles until device memory answers
constexpr double barrier_latency = 40;  // cycles
constexpr double dependent_issue = 2;   // cycles from an instruction of a warp to its next, on average
constexpr double registers_of_multiprocessor = 65536;
constexpr double threads_of_multiprocessor = 2048;
constexpr double blocks_of_multiprocessor = 32;

}  // namespace

const machine_model* find_model(const std::string& name) {
    const auto* const found = std::find_if(std::begin(models), std::end(models),
                                           [&](const machine_model& m) { return name == m.name; });
    return found == std::end(models) ? nullptr : found;
}

prediction predict_launch(const machine_model& gpu, const launch& what, const counts& count,
                          const resources& needs) {
    const double blocks = count[counts::blocks];
    const double warps = std::ceil(what.threads / 32.0);

    // What ptxas makes of the kernel, against what we expected of its instructions. Of loops that it unrolls
    // the size says nothing.
    double expected = 0;
    for (u32 i = 0; i < what.code->basic_blocks; ++i) {
        for (std::size_t c = 0; c < counts::classes; ++c) {
            expected += what.code->instructions[i][c];
        }
    }
    const double correction = expected == 0 ? 1 : std::clamp(needs.instructions / expected, 0.75, 1.0);
    double issued = 0;
    for (int i = counts::integer; i <= counts::control; ++i) {
        issued += count[static_cast<std::size_t>(i)] / 32 / blocks;
    }
    const double of_code = correction * issued;

    // Cycles of a multiprocessor for a block, by part.
    const auto of_block = [&](int what_for) { return count[static_cast<std::size_t>(what_for)] / blocks; };
    const double products = of_block(counts::multiply) / 32;
    const double reals = of_block(counts::doubles) / 32;
    const double others = std::max(
        of_code - products - reals - (of_block(counts::global) + of_block(counts::shared)) / 32, 0.0);
    const std::pair<double, const char*> parts[] = {
        {of_code / 4, "instructions"},
        {others / 2, "integers"},
        {products / 2, "products"},
        {reals * 32 / gpu.double_lanes + of_block(counts::convert) / 16, "doubles"},
        {of_block(counts::shared_wavefronts) +
             (of_block(counts::load_sectors) + of_block(counts::store_sectors)) / 4,
         "shared memory"},
    };
    const auto& busiest = *std::max_element(std::begin(parts), std::end(parts));
    const double pipe = busiest.first / pipe_share;

    // Blocks that a multiprocessor holds at once, and that the fullest one gets.
    const double registers = std::ceil(std::max(needs.registers, 16.0) / 8) * 8 * 32 * warps;
    const double room =
        std::min({blocks_of_multiprocessor, std::floor(threads_of_multiprocessor / (32 * warps)),
                  std::floor(registers_of_multiprocessor / registers),
                  what.shared_bytes == 0 ? blocks_of_multiprocessor
                                         : std::floor(gpu.shared_size / (what.shared_bytes + 1024.0))});
    const double given = std::ceil(blocks / gpu.multiprocessors);
    const double held = std::min(std::max(room, 1.0), given);
    const double alone = std::max(pipe, dependent_issue * of_code / warps) +
                         load_latency * of_block(counts::load_phases) +
                         barrier_latency * of_block(counts::phases);
    const double together = held * pipe;
    const double cycles = given / held * std::max(together, alone);

    const double sectors = 32 * count[counts::block_sectors];
    const double bytes = 32 * count[counts::launch_sectors];
    std::pair<double, const char*> limits[] = {
        {cycles / gpu.gigahertz, together >= alone ? busiest.second : "latency"},
        {sectors / gpu.cache_bytes, "L2"},
        {bytes > gpu.cache_size / 2 ? bytes / gpu.memory_bytes : 0.0, "memory"},
    };
    const auto& limit = *std::max_element(std::begin(limits), std::end(limits));
    const double microseconds = limit.first / 1000;
    return {microseconds + launch_gap, microseconds < launch_gap ? "launch" : limit.second};
}

double predict_copy(const machine_model& gpu, double bytes, bool within) {
    return launch_gap + (within ? 2 * bytes / gpu.memory_bytes : bytes / gpu.host_bytes) / 1000;
}

}  // namespace software_device
