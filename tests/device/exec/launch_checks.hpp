#pragma once

// What every place that runs kernels must do: the same checks for the host and for a GPU.

#include "../device_data.hpp"

namespace tests {

/// Reverses the values of each block through shared memory: wrong without its barrier.
template <int Threads, int SharedValues = Threads>
struct reverse_each_block {
    static constexpr int threads = Threads;
    struct shared_type {
        std::uint64_t values[std::size_t{SharedValues}];
    };
    const std::uint64_t* from;
    std::uint64_t* to;

    TENSAFE_HOST_DEVICE void operator()(auto& ctx) const {
        auto& shared = ctx.shared();
        auto kept = ctx.template make_private<std::uint64_t>();
        const std::size_t first = std::size_t{ctx.block().x} * Threads;
        ctx.each([&](int t) {
            kept[t] = from[first + static_cast<std::size_t>(t)];
            shared.values[SharedValues - Threads + t] = kept[t];
        });
        // The value that the thread itself had goes into the upper half, so that private values count.
        ctx.last([&](int t) {
            to[first + static_cast<std::size_t>(t)] = shared.values[SharedValues - 1 - t] + (kept[t] << 32);
        });
    }
};

/// Each block writes its place at its place.
struct write_block_index {
    static constexpr int threads = 32;
    using shared_type = device::no_shared;
    device::grid_shape grid;
    std::uint32_t* to;

    TENSAFE_HOST_DEVICE void operator()(auto& ctx) const {
        const auto b = ctx.block();
        const std::size_t at = (std::size_t{b.z} * grid.y + b.y) * grid.x + b.x;
        ctx.last([&](int t) {
            if (t < 3) {
                to[3 * at + static_cast<std::size_t>(t)] = t == 0 ? b.x : t == 1 ? b.y : b.z;
            }
        });
    }
};

/// All threads of all blocks change the same two numbers.
struct count_and_mark {
    static constexpr int threads = 64;
    static constexpr int blocks_per_sm = 4;
    using shared_type = device::no_shared;
    std::uint64_t* sum;
    std::uint32_t* bits;

    TENSAFE_HOST_DEVICE void operator()(auto& ctx) const {
        ctx.last([&](int t) {
            ctx.atomic_add(sum, static_cast<std::uint64_t>(t));
            ctx.atomic_or(bits, std::uint32_t{1} << (ctx.block().x % 32));
        });
    }
};

template <int Threads, int SharedValues, class Where>
void check_reversal(const Where& where) {
    const std::uint32_t blocks = 5;
    std::vector<std::uint64_t> values(blocks * Threads);
    std::iota(values.begin(), values.end(), std::uint64_t{1});
    const auto from = to_device(where, values);
    auto to = poisoned<std::uint64_t>(where, values.size());
    where.launch(reverse_each_block<Threads, SharedValues>{from.data(), to.data()}, {blocks});
    const std::vector<std::uint64_t> got = to_host<std::uint64_t>(where, to);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t mirrored = i / Threads * Threads + (Threads - 1 - i % Threads);
        wrong += got[i] != values[mirrored] + (values[i] << 32);
    }
    CHECK(wrong == 0);
}

/// Barriers, shared memory of all sizes, and private values.
void check_shared_memory(const auto& where) {
    check_reversal<32, 32>(where);
    check_reversal<1024, 1024>(where);
    check_reversal<256, 6144>(where);    // exactly 48 KiB
    check_reversal<256, 6145>(where);    // a word more needs leave
    check_reversal<1024, 20480>(where);  // 160 KiB: nearly all that there is on the smaller of our GPUs
}

void check_block_indices(const auto& where) {
    const device::grid_shape grid{7, 3, 2};
    auto to = poisoned<std::uint32_t>(where, 3 * 7 * 3 * 2);
    where.launch(write_block_index{grid, to.data()}, grid);
    const std::vector<std::uint32_t> got = to_host<std::uint32_t>(where, to);
    std::size_t wrong = 0;
    for (std::uint32_t at = 0; at < 7 * 3 * 2; ++at) {
        wrong += got[3 * at] != at % 7 || got[3 * at + 1] != at / 7 % 3 || got[3 * at + 2] != at / 21;
    }
    CHECK(wrong == 0);
}

void check_atomics(const auto& where) {
    auto sum = to_device(where, std::vector<std::uint64_t>{std::uint64_t{1} << 32});
    auto bits = to_device(where, std::vector<std::uint32_t>{0});
    where.launch(count_and_mark{sum.data(), bits.data()}, {31});
    CHECK(to_host<std::uint64_t>(where, sum)[0] == (std::uint64_t{1} << 32) + 31 * (63 * 64 / 2));
    CHECK(to_host<std::uint32_t>(where, bits)[0] == 0x7fffffff);
}

template <class Where>
void check_copies(const Where& where) {
    auto a = to_device(where, std::vector<std::uint16_t>{1, 2, 3, 4, 5});
    auto b = poisoned<std::uint16_t>(where, 5);
    where.copy(a.data() + 1, b.data(), 3);
    where.fill_zero(b.data() + 3, 1);
    CHECK(to_host<std::uint16_t>(where, b) == std::vector<std::uint16_t>{2, 3, 4, 0, 0xA5A5});
    memory::buffer<std::uint16_t, typename Where::space> zeros(3);
    CHECK(to_host<std::uint16_t>(where, zeros) == std::vector<std::uint16_t>(3));
    const auto copied = a;
    where.fill_zero(a.data(), 5);
    CHECK(to_host<std::uint16_t>(where, copied) == std::vector<std::uint16_t>{1, 2, 3, 4, 5});
}

/// Nothing runs for an empty grid.
void check_empty_launches(const auto& where) {
    where.launch(write_block_index{{}, nullptr}, {0, 3, 1});
    where.launch(write_block_index{{}, nullptr}, {3, 0, 1});
    where.wait();
    CHECK(true);  // that nothing was thrown, and nothing is reported now
}

}  // namespace tests
