#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/retained_blocks.hpp>

#include <thread>

#include "../test.hpp"

using namespace tests;
using tensafe::memory::retained_blocks;

namespace {

constexpr std::size_t least = retained_blocks::least_bytes;
constexpr bool retains = least < retained_blocks::most_bytes;  // not with AddressSanitizer

/// A block that was written, so that two which overlap would differ.
struct block {
    explicit block(retained_blocks& from, std::size_t size, unsigned char value)
        : bytes(size), data(static_cast<unsigned char*>(from.allocate(size))) {
        std::fill_n(data, bytes, value);
    }
    bool holds(unsigned char value) const {
        return std::all_of(data, data + bytes, [&](unsigned char x) { return x == value; });
    }
    std::size_t bytes;
    unsigned char* data;
};

}  // namespace

TEST_CASE("a large block that was released is the next one of its size, the youngest first") {
    if (!retains) {
        return;
    }
    retained_blocks blocks;
    block a(blocks, least, 1);
    block b(blocks, least, 2);
    block c(blocks, least + 64, 3);
    CHECK(reinterpret_cast<std::uintptr_t>(c.data) % tensafe::memory::alignment == 0);
    blocks.release(a.data, a.bytes);
    blocks.release(b.data, b.bytes);
    blocks.release(c.data, c.bytes);
    block again(blocks, least, 4);
    CHECK(again.data == b.data);
    block and_again(blocks, least, 5);
    CHECK(and_again.data == a.data);
    block another(blocks, least, 6);
    CHECK(another.data != a.data);
    CHECK(another.data != b.data);
    CHECK(again.holds(4));
    CHECK(and_again.holds(5));
    for (const block& each : {again, and_again, another}) {
        blocks.release(each.data, each.bytes);
    }
}

TEST_CASE("blocks beyond the limit go back at once, the oldest make room, and none is of a size that wraps") {
    if (!retains) {
        return;
    }
    retained_blocks blocks;
    CHECK_THROWS_AS(blocks.allocate(~std::size_t{0} - 64), std::bad_alloc);
    CHECK_THROWS_AS(blocks.allocate(~std::size_t{0} / 2), std::bad_alloc);
    void* const huge = blocks.allocate(retained_blocks::most_bytes + 1);
    CHECK(reinterpret_cast<std::uintptr_t>(huge) % retained_blocks::huge_page == 0);
    blocks.release(huge, retained_blocks::most_bytes + 1);
    // Three of which two have room.
    constexpr std::size_t half = retained_blocks::most_bytes / 2;
    std::array<void*, 3> made{};
    for (void*& each : made) {
        each = blocks.allocate(half);
    }
    for (void* const each : made) {
        blocks.release(each, half);
    }
    CHECK(blocks.allocate(half) == made[2]);
    CHECK(blocks.allocate(half) == made[1]);
    blocks.release(made[1], half);
    blocks.release(made[2], half);
    // More blocks than there are places.
    std::vector<void*> many;
    for (int i = 0; i < 300; ++i) {
        many.push_back(blocks.allocate(least));
    }
    for (void* const each : many) {
        blocks.release(each, least);
    }
    CHECK(blocks.allocate(least) == many.back());
    blocks.release(many.back(), least);
}

TEST_CASE("a limit is kept, and lowering it gives blocks back") {
    if (!retains) {
        return;
    }
    retained_blocks blocks;
    blocks.limit(2 * least);
    void* const first = blocks.allocate(least);
    void* const large = blocks.allocate(3 * least);
    blocks.release(large, 3 * least);
    blocks.release(first, least);
    CHECK(blocks.allocate(least) == first);
    blocks.limit(0);
    blocks.release(first, least);
    blocks.limit(retained_blocks::most_bytes);
    void* const kept = blocks.allocate(least);
    blocks.release(kept, least);
    CHECK(blocks.allocate(least) == kept);
    blocks.release(kept, least);
}

TEST_CASE("threads share blocks, and none is given to two") {
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (unsigned char t = 1; t <= 4; ++t) {
        threads.emplace_back([&wrong, t] {
            for (int i = 0; i < 300; ++i) {
                block mine(retained_blocks::shared(), std::size_t{64} << (10 + i % 2), t);
                wrong += mine.holds(t) ? 0 : 1;
                retained_blocks::shared().release(mine.data, mine.bytes);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
}

TEST_CASE("secrets are wiped before their memory is kept for others") {
    constexpr std::size_t size = (std::size_t{1} << 20) + 64;  // of no other test
    const std::uint8_t* kept = nullptr;
    {
        tensafe::memory::secret_buffer<std::uint8_t> secret(size, tensafe::memory::uninitialized);
        std::fill(secret.begin(), secret.end(), std::uint8_t{0xa5});
        kept = secret.data();
    }
    const tensafe::memory::buffer<std::uint8_t> next(size, tensafe::memory::uninitialized);
    if (retains) {
        CHECK(next.data() == kept);
        CHECK(std::all_of(next.begin(), next.end(), [](std::uint8_t x) { return x == 0; }));
    }
}
