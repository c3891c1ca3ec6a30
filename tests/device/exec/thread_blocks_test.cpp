#include "../../test.hpp"
#include "launch_checks.hpp"

using namespace tests;

namespace {

/// Moves values one thread on, in one phase where it needs two: a missing barrier.
struct rotate_without_barrier {
    static constexpr int threads = 32;
    struct shared_type {
        std::uint32_t values[32];
    };
    std::uint32_t* to;

    void operator()(auto& ctx) const {
        auto& values = ctx.shared().values;
        ctx.last([&](int t) {
            values[t] = static_cast<std::uint32_t>(t);
            to[t] = values[(t + 31) % 32];
        });
    }
};

/// Reads what nobody wrote.
struct read_garbage {
    static constexpr int threads = 32;
    struct shared_type {
        std::uint32_t values[32];
    };
    std::uint32_t* to;

    void operator()(auto& ctx) const {
        auto kept = ctx.template make_private<std::uint32_t>();
        const std::size_t first = std::size_t{64} * ctx.block().x;
        ctx.each([&](int t) {
            to[first + static_cast<std::size_t>(t)] = ctx.shared().values[t];
            to[first + 32 + static_cast<std::size_t>(t)] = kept[t];
        });
        ctx.last([&](int t) { ctx.shared().values[t] = 7; });  // not for the next block to see
    }
};

/// Logs who comes when.
struct log_turns {
    static constexpr int threads = 32;
    using shared_type = device::no_shared;
    std::vector<std::uint32_t>* log;

    void operator()(auto& ctx) const {
        for (int phase = 0; phase < 2; ++phase) {
            ctx.each([&](int t) { log->push_back(32 * ctx.block().x + static_cast<std::uint32_t>(t)); });
        }
    }
};

std::vector<std::uint32_t> turns_of(device::thread_order order, std::uint32_t blocks) {
    std::vector<std::uint32_t> log;
    device::host_blocks(order).launch(log_turns{&log}, {blocks});
    return log;
}

}  // namespace

TEST_CASE("kernels give the same results in every order of threads and thread blocks") {
    in_every_order([](const auto& where) {
        check_shared_memory(where);
        check_block_indices(where);
        check_atomics(where);
        check_copies(where);
        check_empty_launches(where);
    });
}

TEST_CASE("a missing barrier gives different results in different orders") {
    std::set<std::vector<std::uint32_t>> results;
    std::vector<std::uint32_t> expected(32);
    for (std::uint32_t t = 0; t < 32; ++t) {
        expected[t] = (t + 31) % 32;
    }
    in_every_order([&](const auto& where) {
        std::vector<std::uint32_t> got(32);
        where.launch(rotate_without_barrier{got.data()}, {1});
        CHECK(got != expected);
        results.insert(got);
    });
    CHECK(results.size() == 3);
}

TEST_CASE("shared memory and private values are garbage at the start of each thread block") {
    in_every_order([](const auto& where) {
        std::vector<std::uint32_t> got(3 * 64);
        where.launch(read_garbage{got.data()}, {3});
        CHECK(got == std::vector<std::uint32_t>(3 * 64, 0xA5A5A5A5));
    });
}

TEST_CASE("each thread of each thread block takes exactly one turn in a phase, in the order asked for") {
    const std::vector<std::uint32_t> forward = turns_of(device::thread_order::forward, 3);
    REQUIRE(forward.size() == 3 * 2 * 32);
    for (std::size_t i = 0; i < forward.size(); ++i) {
        CHECK(forward[i] == i / 64 * 32 + i % 32);
    }
    const std::vector<std::uint32_t> reverse = turns_of(device::thread_order::reverse, 3);
    REQUIRE(reverse.size() == forward.size());
    for (std::size_t i = 0; i < reverse.size(); ++i) {
        CHECK(reverse[i] == (2 - i / 64) * 32 + (31 - i % 32));
    }
}

TEST_CASE("the shuffled order is another permutation at each phase") {
    const std::vector<std::uint32_t> log = turns_of(device::thread_order::shuffled, 8);
    std::set<std::uint32_t> blocks;
    std::set<std::vector<std::uint32_t>> orders;
    for (std::size_t first = 0; first < log.size(); first += 32) {
        std::vector<std::uint32_t> phase(log.begin() + static_cast<std::ptrdiff_t>(first),
                                         log.begin() + static_cast<std::ptrdiff_t>(first) + 32);
        const std::uint32_t block = phase[0] / 32;
        blocks.insert(block);
        for (std::uint32_t& t : phase) {
            t -= 32 * block;
        }
        orders.insert(phase);
        std::sort(phase.begin(), phase.end());
        for (std::uint32_t t = 0; t < 32; ++t) {
            CHECK(phase[t] == t);
        }
    }
    CHECK(blocks.size() == 8);
    CHECK(orders.size() == 16);                              // 8 blocks of 2 phases
    CHECK(log[0] / 32 + log[64] / 32 + log[128] / 32 != 3);  // blocks are shuffled, too: not 0, 1, 2
}

TEST_CASE("launches are counted where a counter is given") {
    std::size_t launches = 0;
    const device::host_blocks where(device::thread_order::forward, &launches);
    check_block_indices(where);
    CHECK(launches == 1);
    check_shared_memory(where);
    CHECK(launches == 6);
}
