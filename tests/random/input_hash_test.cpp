#include <tensafe/random/generator.hpp>

#include "../test.hpp"
#include "stream_reference.hpp"

namespace {

using namespace tensafe::random;
using namespace tensafe::testing;

using parts = std::vector<std::vector<std::uint8_t>>;

seed hashed(const parts& input, const seed& fresh = counting_seed()) {
    input_hash hash(fresh);
    for (const auto& part : input) {
        hash.add(std::span<const std::uint8_t>(part));
    }
    return hash.result();
}

std::vector<std::uint8_t> counting(std::size_t n) {
    std::vector<std::uint8_t> result(n);
    std::iota(result.begin(), result.end(), std::uint8_t{0});
    return result;
}

}  // namespace

// Computed by a program in Python, with whole numbers and a ChaCha20 of its own.
TEST_CASE("hedged seeds are those of docs/design/random-streams.md") {
    CHECK(to_hex(hashed({}).bytes) == "4e583f159d31a9ef73b8afd4f5adaa2d21d3bf65ae16bb59c5673caca6d3a25c");
    CHECK(to_hex(hashed({counting(37), {}}).bytes) ==
          "e06fbcafaadd79eacfcc435a9d8ed77b91508bba6199c52dc5aba4063233418a");
    CHECK(to_hex(hashed({std::vector<std::uint8_t>(4096, 0xff)}).bytes) ==
          "88a1ff3a95a2476139aab055ada3d9f93c7a955d610da377cf8f8ab4a81579db");
}

TEST_CASE("every bit, length and border of an input changes the seed, and so does the fresh one") {
    std::vector<seed> all;
    for (std::size_t n = 0; n <= 40; ++n) {
        all.push_back(hashed({std::vector<std::uint8_t>(n)}));  // zeros
        all.push_back(hashed({std::vector<std::uint8_t>(n), {}}));
    }
    for (std::size_t bit = 0; bit < 37 * 8; ++bit) {
        auto changed = counting(37);
        changed[bit / 8] = static_cast<std::uint8_t>(changed[bit / 8] ^ 1u << bit % 8);
        all.push_back(hashed({changed}));
    }
    for (std::size_t border = 0; border <= 37; ++border) {
        const auto whole = counting(37);
        const auto middle = whole.begin() + static_cast<std::ptrdiff_t>(border);
        all.push_back(hashed({{whole.begin(), middle}, {middle, whole.end()}}));
    }
    all.push_back(hashed({}));
    all.push_back(hashed({}, seed()));
    std::set<std::array<std::uint8_t, seed_bytes>> different;
    for (const seed& each : all) {
        different.insert(each.bytes);
    }
    CHECK(different.size() == all.size());
}

TEST_CASE("seeds under and between hedges do not repeat") {
    generator source;
    const std::vector<double> input{1, 2, 3};
    std::set<std::array<std::uint8_t, seed_bytes>> seen;
    for (int i = 0; i < 100; ++i) {
        {
            const auto outer = source.hedge(input);
            const auto inner = source.hedge(input, std::vector<float>{4});  // changes nothing
            seen.insert(source.next_seed().bytes);
            seen.insert(source.next_seed().bytes);
        }
        seen.insert(source.next_seed().bytes);
    }
    CHECK(seen.size() == 300);
}

TEST_CASE("an explicit start is not hedged") {
    generator plain(counting_seed());
    generator hedged(counting_seed());
    const auto hedging = hedged.hedge(std::vector<double>{1, 2, 3});
    CHECK(plain.next_seed() == hedged.next_seed());
}
