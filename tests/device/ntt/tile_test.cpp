#include <tensafe/device/ntt/transform.hpp>

#include "../../test.hpp"

// Who holds what: each entry is held once in each round, and shared memory is reached without bank conflicts.

namespace {

using namespace tensafe::device::detail;

/// Whether threads that are served together (a quarter of a warp for pairs, half a warp for words) reach
/// different banks: 16 words wide.
bool without_conflicts(const std::vector<std::size_t>& places, std::size_t width) {
    const std::size_t together = 16 / width;
    for (std::size_t first = 0; first < places.size(); first += together) {
        std::set<std::size_t> banks;
        for (std::size_t i = first; i < first + together; ++i) {
            banks.insert(places[i] / width % together);
        }
        if (banks.size() != together) {
            return false;
        }
    }
    return true;
}

template <class Tile, int Round>
void check_round() {
    using layout = round_layout<Tile, Round>;
    CAPTURE(Round);
    std::vector<int> held(Tile::size);
    std::vector<int> used(Tile::size);
    bool places_agree = true;
    bool pairs_are_neighbours = true;
    for (int n = 0; n < layout::held; ++n) {
        for (int t = 0; t < Tile::threads; ++t) {
            const std::size_t base = layout::base(t);
            const std::size_t i = base + layout::offset(n);
            const std::size_t place = layout::in_shared(Tile::in_shared(base), n);
            ++held[i];
            ++used[place];
            places_agree &= place == Tile::in_shared(i);
        }
    }
    CHECK(std::count(held.begin(), held.end(), 1) == static_cast<std::ptrdiff_t>(Tile::size));
    CHECK(std::count(used.begin(), used.end(), 1) == static_cast<std::ptrdiff_t>(Tile::size));
    CHECK(places_agree);
    bool conflicts = false;
    const int accesses = layout::has_pairs ? layout::held / 2 : layout::held;
    for (int a = 0; a < accesses; ++a) {
        const int n = layout::has_pairs ? layout::first_of_pair(a) : a;
        std::vector<std::size_t> places;
        for (int t = 0; t < Tile::threads; ++t) {
            places.push_back(Tile::in_shared(layout::base(t) + layout::offset(n)));
            pairs_are_neighbours &=
                !layout::has_pairs || (places.back() % 2 == 0 &&
                                       layout::offset(layout::second_of_pair(a)) == layout::offset(n) + 1);
        }
        conflicts |= !without_conflicts(places, layout::has_pairs ? 2 : 1);
    }
    CHECK(pairs_are_neighbours);
    CHECK(!conflicts);
}

template <class Tile>
void check_tile() {
    CAPTURE(Tile::log_n);
    [&]<int... Round>(std::integer_sequence<int, Round...>) {
        (check_round<Tile, Round>(), ...);
    }
    (std::make_integer_sequence<int, Tile::rounds>{});
    // The blocks of a limb together hold every entry once.
    std::vector<int> held(std::size_t{1} << Tile::log_n);
    for (std::size_t block = 0; block < std::size_t{1} << Tile::log_blocks; ++block) {
        for (std::size_t i = 0; i < Tile::size; ++i) {
            ++held[Tile::in_limb(block, i)];
        }
    }
    CHECK(std::count(held.begin(), held.end(), 1) == static_cast<std::ptrdiff_t>(held.size()));
}

TEST_CASE("each entry of a whole limb has one holder in each round, and no bank is asked twice") {
    check_tile<whole_limb<10>::type>();
    check_tile<whole_limb<11>::type>();
    check_tile<whole_limb<12>::type>();
    check_tile<whole_limb<13>::type>();
    check_tile<whole_limb<14>::type>();
}

template <int LogN>
void check_two_tiles() {
    check_tile<typename two_tiles<LogN>::columns>();
    check_tile<typename two_tiles<LogN>::runs>();
}

TEST_CASE("each entry of columns and of runs has one holder in each round, and no bank is asked twice") {
    check_two_tiles<10>();
    check_two_tiles<11>();
    check_two_tiles<12>();
    check_two_tiles<13>();
    check_two_tiles<14>();
    check_two_tiles<15>();
    check_two_tiles<16>();
    check_two_tiles<17>();
}

/// Factors are where the last stages read them, and no two share a place.
TEST_CASE("the order of factors is a permutation that keeps the first stages as they are") {
    std::set<std::size_t> places;
    for (int stage = 0; stage < 10; ++stage) {
        for (std::size_t i = 0; i < std::size_t{1} << stage; ++i) {
            const std::size_t place = factor_position<10>(stage, i);
            CHECK((stage >= 6 || place == (std::size_t{1} << stage) + i));
            places.insert(place);
        }
    }
    CHECK(places.size() == 1023);
    CHECK(*places.begin() == 1);
    CHECK(*places.rbegin() == 1023);
}

}  // namespace
