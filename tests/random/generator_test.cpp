#include <tensafe/random/generator.hpp>

#include <new>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.hpp"
#include "stream_reference.hpp"

namespace {

using namespace tensafe::random;
using namespace tensafe::testing;

static_assert(!std::is_copy_constructible_v<generator> && !std::is_copy_assignable_v<generator>,
              "a copied generator would give out the same seeds again");
static_assert(std::is_nothrow_move_constructible_v<generator> &&
              std::is_nothrow_move_assignable_v<generator>);
static_assert(!std::is_convertible_v<seed, generator>, "reproducible randomness is asked for by name");

/// Whether some byte string of `pattern.size()` bytes in the object's storage equals `pattern`.
template <std::size_t Size>
bool contains(const std::array<unsigned char, Size>& storage, const seed& pattern) {
    std::array<unsigned char, Size> copy{};
    const volatile unsigned char* const from = storage.data();
    for (std::size_t i = 0; i < Size; ++i) {
        copy[i] = from[i];
    }
    return std::search(copy.begin(), copy.end(), pattern.bytes.begin(), pattern.bytes.end()) != copy.end();
}

/// What the child of a fork draws next from `source`.
seed next_seed_of_a_child(generator& source) {
    int channel[2];
    REQUIRE(::pipe(channel) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const seed drawn = source.next_seed();
        const bool sent =
            ::write(channel[1], drawn.bytes.data(), seed_bytes) == static_cast<ssize_t>(seed_bytes);
        ::_exit(sent ? 0 : 1);
    }
    seed result;
    const ssize_t got = ::read(channel[0], result.bytes.data(), seed_bytes);
    int status = -1;
    ::waitpid(child, &status, 0);
    ::close(channel[0]);
    ::close(channel[1]);
    REQUIRE(status == 0);
    REQUIRE(got == static_cast<ssize_t>(seed_bytes));
    return result;
}

}  // namespace

TEST_CASE("a generator does not repeat a seed") {
    generator source;
    std::set<std::array<std::uint8_t, seed_bytes>> seen;
    for (int i = 0; i < 10000; ++i) {
        seen.insert(source.next_seed().bytes);
    }
    CHECK(seen.size() == 10000);
}

TEST_CASE("two generators of the system's entropy differ") {
    generator first;
    generator second;
    CHECK(first.next_seed() != second.next_seed());
}

TEST_CASE("generators from equal seeds agree and from different seeds do not") {
    generator first(counting_seed());
    generator second(counting_seed());
    generator other(counting_seed(1));
    for (int i = 0; i < 100; ++i) {
        const seed drawn = first.next_seed();
        CHECK(drawn == second.next_seed());
        CHECK(drawn != other.next_seed());
    }
}

TEST_CASE("moving a generator moves its place in the sequence") {
    generator reference(counting_seed());
    generator first(counting_seed());
    CHECK(first.next_seed() == reference.next_seed());
    generator second(std::move(first));
    CHECK(second.next_seed() == reference.next_seed());
    generator third;
    third = std::move(second);
    CHECK(third.next_seed() == reference.next_seed());
    generator& same = third;
    third = std::move(same);
    CHECK(third.next_seed() == reference.next_seed());
}

TEST_CASE("a generator that was moved from throws until it is given a new state") {
    generator first(counting_seed());
    const generator second(std::move(first));
    // NOLINTNEXTLINE(bugprone-use-after-move): this is what is tested
    CHECK_THROWS_AS(first.next_seed(), tensafe::error);
    first = generator(counting_seed(3));
    CHECK(first.next_seed() == generator(counting_seed(3)).next_seed());
}

TEST_CASE("a generator holds its key while it lives and neither that key nor a given seed afterwards") {
    alignas(generator) std::array<unsigned char, sizeof(generator)> storage{};
    auto* const object = new (storage.data()) generator(counting_seed(1));
    CHECK(contains(storage, counting_seed(1)));
    const seed drawn = object->next_seed();
    CHECK_FALSE(contains(storage, counting_seed(1)));
    CHECK_FALSE(contains(storage, drawn));
    generator taken(std::move(*object));
    CHECK(contains(storage, seed{}));
    *object = generator(counting_seed(2));
    CHECK(contains(storage, counting_seed(2)));
    object->~generator();
    CHECK(contains(storage, seed{}));
}

TEST_CASE("the child of a fork does not draw its parent's seeds from a generator of the system's entropy" *
          doctest::skip(!tests::has_fork)) {
    generator source;
    const seed of_child = next_seed_of_a_child(source);
    CHECK(of_child != source.next_seed());
}

TEST_CASE("the child of a fork repeats its parent's seeds from a reproducible generator" *
          doctest::skip(!tests::has_fork)) {
    generator source(counting_seed());
    const seed of_child = next_seed_of_a_child(source);
    CHECK(of_child == source.next_seed());
}

TEST_CASE("many seeds at once are those that one call each would give, from an explicit start") {
    generator one_by_one(counting_seed(5));
    generator at_once(counting_seed(5));
    std::vector<seed> seeds(70);
    at_once.next_seeds(seeds);
    for (const seed& s : seeds) {
        CHECK(s == one_by_one.next_seed());
    }
    CHECK(at_once.next_seed() == one_by_one.next_seed());
}

TEST_CASE("many seeds at once from the system's entropy are all written, and all differ") {
    generator source;
    std::vector<seed> all;
    for (const unsigned count : {1U, 2U, 31U, 32U, 33U, 100U}) {
        std::vector<seed> seeds(count);
        source.next_seeds(seeds);
        all.insert(all.end(), seeds.begin(), seeds.end());
    }
    all.push_back(seed{});  // nobody draws zeros
    std::sort(all.begin(), all.end(), [](const seed& a, const seed& b) { return a.bytes < b.bytes; });
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST_CASE("many seeds at once from a generator that was moved from are refused") {
    generator source;
    const generator taken(std::move(source));
    std::vector<seed> seeds(3);
    CHECK_THROWS_AS(source.next_seeds(seeds), tensafe::error);
}

TEST_CASE(
    "what is sent says nothing of the seed that it stands for, and of an explicit start it is the seed") {
    // By the ChaCha20 of tests/data/exchange/make.py.
    constexpr std::string_view known = "49c253ced439ad97ab1a2f4b559d1d1e3e94ea41c1de290b9e93d0af68bf286f";
    const seed sent = published(counting_seed());
    for (std::size_t i = 0; i < seed_bytes; ++i) {
        CHECK(sent.bytes[i] == std::stoul(std::string(known.substr(2 * i, 2)), nullptr, 16));
    }
    generator source;
    const seed drawn = source.next_seed();
    CHECK(source.to_send(drawn) == published(drawn));
    CHECK(source.next_nonce() != source.next_nonce());
    {
        const auto hedging = source.hedge(drawn.bytes);
        CHECK(source.to_send(drawn) == published(drawn));
    }
    generator first(counting_seed());
    generator second(counting_seed());
    CHECK(first.next_nonce() == second.next_seed());
    CHECK(first.to_send(drawn) == drawn);
}
