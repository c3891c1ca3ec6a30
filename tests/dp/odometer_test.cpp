#include <tensafe/dp/ledger.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using namespace tensafe::dp;

const release_cost tenth{0.1, 1e-12};

// Only a ledger makes a charge that is worth anything, and nobody makes two of one.
static_assert(!std::is_constructible_v<release_charge, const release_cost&, std::uint64_t>);
static_assert(!std::is_copy_constructible_v<release_charge> && !std::is_copy_assignable_v<release_charge>);
static_assert(std::is_nothrow_move_constructible_v<release_charge> &&
              std::is_nothrow_move_assignable_v<release_charge>);

release_charge grant_of(std::uint64_t releases) {
    ledger spent({8, 1e-5});
    return spent.charge("ann", tenth, releases);
}

std::string refusal_of(release_charge& charge, const release_cost& cost) {
    return refusal<budget_error>([&] { charge.spend(cost); });
}

}  // namespace

TEST_CASE("a charge is worth as many releases as were charged, and not one more") {
    release_charge charge = grant_of(3);
    CHECK(charge.cost() == tenth);
    for (std::uint64_t left = 3; left > 0; --left) {
        CHECK(charge.left() == left);
        charge.spend(tenth);
    }
    CHECK(charge.left() == 0);
    CHECK_THROWS_AS(charge.spend(tenth), budget_error);
    CHECK_THROWS_AS(charge.spend(tenth), budget_error);
    CHECK(charge.left() == 0);
}

TEST_CASE("a charge is for one cost, to the last bit") {
    release_charge charge = grant_of(2);
    CHECK(refusal_of(charge, {std::nextafter(0.1, 1), 1e-12}) ==
          "dp::release_charge::spend: got a release of mu 0.10000000000000002 and slack 1e-12, expected one "
          "of the cost that was charged, mu 0.1 and slack 1e-12");
    CHECK_THROWS_AS(charge.spend({std::nextafter(0.1, 0), 1e-12}), budget_error);
    CHECK_THROWS_AS(charge.spend({0.1, 0}), budget_error);
    CHECK_THROWS_AS(charge.spend({not_a_number, 1e-12}), budget_error);
    CHECK(charge.left() == 2);
    charge.spend(tenth);
    CHECK(charge.left() == 1);
}

TEST_CASE("a charge that was moved from is worth nothing, and so is one that no ledger gave") {
    release_charge first = grant_of(5);
    first.spend(tenth);
    release_charge second = std::move(first);
    CHECK(first.left() == 0);  // NOLINT: that is what is tested
    CHECK(refusal_of(first, tenth) ==
          "dp::release_charge::spend: got a charge with nothing left, expected one release of it; charge "
          "the ledger for more");
    CHECK(second.left() == 4);

    release_charge third = grant_of(7);
    third = std::move(second);
    CHECK(second.left() == 0);
    CHECK(third.left() == 4);  // what it had is lost
    release_charge& itself = third;
    third = std::move(itself);
    CHECK(third.left() == 4);

    release_charge none;
    CHECK(none.left() == 0);
    CHECK_THROWS_AS(none.spend({}), budget_error);
    CHECK_THROWS_AS(none.spend(tenth), budget_error);
}

TEST_CASE("a cost is a finite mu above 0 and a slack from 0 to below 1") {
    for (const double mu : {0.0, -0.0, -1.0, infinity, -infinity, not_a_number}) {
        CHECK_THROWS_AS(release_cost({mu, 0}).check(), parameter_error);
    }
    for (const double slack : {-1e-300, 1.0, infinity, not_a_number}) {
        CHECK_THROWS_AS(release_cost({1, slack}).check(), parameter_error);
    }
    CHECK_NOTHROW(release_cost({std::numeric_limits<double>::denorm_min(), 0}).check());
    CHECK_NOTHROW(release_cost({std::numeric_limits<double>::max(), std::nextafter(1.0, 0)}).check());
    CHECK_THROWS_WITH(release_cost({not_a_number, 0}).check(),
                      "dp::release_cost: mu: got nan, expected a finite number above 0");
}
