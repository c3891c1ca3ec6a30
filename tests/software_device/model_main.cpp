// What the model must say of launches whose answer is known: each part of a GPU binds where it alone is used.

#include <cmath>
#include <cstdio>
#include <cstring>

#include "model.hpp"

namespace {

using namespace software_device;

const kernel idle{};  // no basic blocks: nothing to correct
const u16 twenty[][counts::classes] = {{20}};
const kernel of_twenty = [] {
    kernel result{};
    result.basic_blocks = 1;
    result.instructions = twenty;
    return result;
}();

int wrong = 0;

void check(const char* what, bool holds) {
    if (!holds) {
        std::printf("wrong: %s\n", what);
        ++wrong;
    }
}
bool is_near(double a, double b) {
    return std::abs(a - b) < 0.02 * b;
}

launch of_threads(u32 threads, u32 shared_bytes = 0) {
    launch result;
    result.code = &idle;
    result.threads = threads;
    result.shared_bytes = shared_bytes;
    return result;
}
/// Blocks of 256 threads, each thread so many instructions of a class.
counts of_blocks(double blocks, counts::what part = counts::integer, double instructions = 0) {
    counts result;
    result[counts::blocks] = blocks;
    result[counts::threads] = 256 * blocks;
    result[part] = 256 * blocks * instructions;
    return result;
}

}  // namespace

int main() {
    const machine_model& a100 = *find_model("A100");
    const machine_model& h200 = *find_model("H200");
    check("an unknown GPU is none", find_model("H300") == nullptr);
    const resources few{32, 0};
    const double gap = predict_launch(h200, of_threads(256), of_blocks(1), few).microseconds;
    check("an empty launch takes what a launch takes", is_near(gap, 1.0));

    // 132,000 blocks of 1,000 integer instructions: 2 warps a cycle, at 85 %.
    const double cycles = 1000 * 8 * 1000.0 / 2 / 0.85;
    const prediction integers =
        predict_launch(h200, of_threads(256), of_blocks(132000, counts::integer, 1000), few);
    check("integers bind", std::strcmp(integers.binds, "integers") == 0);
    check("integers: two warps a cycle", is_near(integers.microseconds - gap, cycles / 1755));
    const prediction reals =
        predict_launch(a100, of_threads(256), of_blocks(108000, counts::doubles, 1000), few);
    check("doubles: one warp a cycle on an A100", is_near(reals.microseconds - gap, 2 * cycles / 1410));
    check("doubles bind", std::strcmp(reals.binds, "doubles") == 0);

    const prediction products =
        predict_launch(h200, of_threads(256), of_blocks(132000, counts::multiply, 1000), few);
    check("products bind", std::strcmp(products.binds, "products") == 0);
    check("products: two warps a cycle", is_near(products.microseconds - gap, cycles / 1755));
    counts shared = of_blocks(132000);
    shared[counts::shared_wavefronts] = 132000 * 4000.0;
    const prediction wavefronts = predict_launch(h200, of_threads(256), shared, few);
    check("shared memory binds", std::strcmp(wavefronts.binds, "shared memory") == 0);
    check("one wavefront a cycle", is_near(wavefronts.microseconds - gap, cycles / 1755));

    // Of a kernel without loops ptxas made 16 instructions where 20 were expected.
    launch corrected = of_threads(256);
    corrected.code = &of_twenty;
    check(
        "integers: as many as ptxas makes",
        is_near(
            predict_launch(h200, corrected, of_blocks(132000, counts::integer, 1000), {32, 16}).microseconds -
                gap,
            0.8 * cycles / 1755));

    // Eight blocks on each multiprocessor, which wait 6,000 cycles: all at once, or with many registers two
    // at a time.
    counts waiting = of_blocks(8 * 132);
    waiting[counts::load_phases] = 10 * 8 * 132;
    const auto waits = [&](double registers) {
        return predict_launch(h200, of_threads(256), waiting, {registers, 0});
    };
    check("latency binds", std::strcmp(waits(32).binds, "latency") == 0);
    check("waits for ten loads", is_near(waits(32).microseconds - gap, 6000 / 1755.0));
    check("waits in four turns", is_near(waits(128).microseconds - gap, 4 * 6000 / 1755.0));
    check("registers come by eights", is_near(waits(33).microseconds - gap, 8.0 / 6 * 6000 / 1755.0));

    // One block more than there are multiprocessors takes a second turn.
    const auto of_whole_block = [&](double blocks) {
        return predict_launch(h200, of_threads(256, 200 << 10), of_blocks(blocks, counts::integer, 10000),
                              few)
                   .microseconds -
               gap;
    };
    check("a block more, twice the time", is_near(of_whole_block(133), 2 * of_whole_block(132)));

    // A gigabyte through the memory; ten megabytes stay in the cache.
    counts bytes = of_blocks(13200);
    bytes[counts::block_sectors] = bytes[counts::launch_sectors] = 1e9 / 32;
    const prediction memory = predict_launch(h200, of_threads(256), bytes, few);
    check("memory binds", std::strcmp(memory.binds, "memory") == 0);
    check("memory: nine tenths of 4,800 GB/s", is_near(memory.microseconds - gap, 1e9 / (0.9 * 4.8e6)));
    bytes[counts::launch_sectors] = 1e7 / 32;
    check("what fits the cache is not read from memory",
          std::strcmp(predict_launch(h200, of_threads(256), bytes, few).binds, "L2") == 0);
    check("copies to the host are slower", predict_copy(h200, 1e8, false) > predict_copy(h200, 1e8, true));
    return wrong == 0 ? 0 : 1;
}
