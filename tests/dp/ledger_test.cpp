#include <tensafe/dp/gaussian_mechanism.hpp>
#include <tensafe/dp/ledger.hpp>

#include "../test.hpp"

using namespace tests;
using namespace tensafe::dp;

namespace {

const privacy_budget usual{8, 1e-5};
const release_cost small{0.125, 0};

struct power_cut {};

/// What a store and its device hold; it outlives the ledger.
struct device {
    ledger_state stored;
    std::size_t replaced = 0;
    std::size_t confirmed = 0;
    bool fails_before = false;
    bool fails_after = false;
};

class memory_store final : public ledger_store {
  public:
    explicit memory_store(device& to) : to_(to) {}
    ledger_state load() override { return to_.stored; }
    void replace(const ledger_state& state) override {
        if (to_.fails_before) {
            throw power_cut{};
        }
        to_.stored = state;
        ++to_.replaced;
    }
    void confirm() override {
        if (to_.fails_after) {
            throw power_cut{};
        }
        ++to_.confirmed;
    }

  private:
    device& to_;
};

/// A ledger and what its store holds.
struct stored_ledger {
    device disk;
    ledger spent{usual, std::make_unique<memory_store>(disk)};
};

std::string refusal_of(ledger& spent, std::string_view principal, const release_cost& cost,
                       std::uint64_t releases) {
    return refusal<tensafe::error>([&] { std::ignore = spent.charge(principal, cost, releases); });
}

}  // namespace

TEST_CASE("as many releases are allowed as the exact Gaussian curve gives, and not one more") {
    // With mu = 1/8 the squares are exact: n releases are one of mu = sqrt(n) / 8.
    std::uint64_t most = 0;
    while (gaussian_delta(8, std::sqrt(static_cast<double>(most + 1)) / 8) <= 1e-5) {
        ++most;
    }
    CHECK(most > 100);
    ledger spent(usual);
    CHECK(spent.left("ann", small) == most);
    for (std::uint64_t i = 0; i < most; ++i) {
        CHECK(spent.charge("ann", small).left() == 1);
    }
    CHECK(spent.left("ann", small) == 0);
    const odometer before = spent.spent("ann");
    CHECK(before.releases == most);
    CHECK(before.mu_squared >= static_cast<double>(most) / 64);
    CHECK(before.mu_squared < static_cast<double>(most) / 64 * (1 + 1e-12));
    CHECK(before.delta(8) <= 1e-5);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small), budget_error);
    CHECK(spent.spent("ann") == before);
    // Others have budgets of their own.
    CHECK(spent.left("bob", small) == most);
    CHECK(spent.charge("bob", small, most).left() == most);
    CHECK_THROWS_AS(std::ignore = spent.charge("bob", small), budget_error);
}

TEST_CASE("a charge is all or nothing, and its refusal says what is left") {
    ledger spent({1, 1e-5});
    CHECK(spent.charge("ann", {0.01, 0}, 3).left() == 3);
    const std::uint64_t left = spent.left("ann", {0.1, 0});
    CHECK(left > 0);
    CHECK(refusal_of(spent, "ann", {0.1, 0}, left + 1)
              .find("dp::ledger::charge: principal \"ann\": got " + std::to_string(left + 1) +
                    " releases, expected at most " + std::to_string(left) +
                    " of this cost (mu 0.1): 3 earlier ones have spent epsilon ") == 0);
    CHECK(spent.spent("ann").releases == 3);
    CHECK(spent.charge("ann", {0.1, 0}, left).left() == left);
    CHECK(spent.left("ann", {0.1, 0}) == 0);
    CHECK(contains(refusal_of(spent, "nobody", {5, 0}, 1), "expected at most 0"));
    CHECK(spent.state().principals.size() == 1);  // a refusal makes no account
}

TEST_CASE("a name cannot pretend to be a part of a message") {
    ledger spent({1, 1e-5});
    CHECK(contains(
        refusal_of(spent, "ann\": got 0 \\ Zo\xc3\xab", {5, 0}, 1),
        R"(principal "ann\": got 0 \\ Zo\u00eb": got 1 releases, expected at most 0 of this cost (mu 5))"));
    device disk;
    disk.stored.principals.emplace("a\"b", odometer{-1, 0, 1});
    CHECK_THROWS_WITH(
        ledger(usual, std::make_unique<memory_store>(disk)),
        R"(dp::ledger: stored state of "a\"b": mu_squared: got -1, expected a finite number, 0 or more)");
}

TEST_CASE("slacks add up, rounded up, and take from delta") {
    ledger spent(usual);
    static_cast<void>(spent.charge("ann", {1e-3, 1e-6}, 9));
    CHECK(spent.spent("ann").delta_slack >= 9e-6);
    CHECK(spent.spent("ann").delta_slack < 9.0000001e-6);
    CHECK(spent.spent("ann").delta(8) >= 9e-6);
    static_cast<void>(spent.charge("ann", small));  // no slack of its own
    CHECK(spent.left("ann", {1e-3, 1e-6}) == 0);    // ten times 1e-6 is 1e-5, rounded up it is more
    CHECK(spent.left("ann", {1e-3, 9e-7}) == 1);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", {1e-3, 0.5}, 1'000'000'000), budget_error);

    // Both kinds of delta count: each alone would fit.
    ledger both(usual);
    const std::uint64_t most = both.left("ann", small);
    static_cast<void>(both.charge("ann", small, most));
    CHECK(both.left("ann", {1e-9, 9e-6}) == 0);
}

TEST_CASE("what was spent is the curve of one Gaussian mechanism, with the slack on top") {
    const odometer spent{4, 1e-6, 1};
    CHECK(spent.delta(3) >= gaussian_delta(3, 2) + 1e-6);
    CHECK(spent.delta(3) <= (gaussian_delta(3, 2) + 1e-6) * (1 + 1e-12));
    CHECK(spent.epsilon(1e-5) > 0);
    CHECK(spent.delta(spent.epsilon(1e-5)) <= 1e-5);
    CHECK(spent.delta(spent.epsilon(1e-5) * 0.999) > 1e-5);
    CHECK(spent.epsilon(1e-6) == infinity);
    CHECK(odometer{}.delta(0) == 0);
    CHECK(odometer{}.epsilon(1e-9) == 0);
    // Whatever was spent.
    for (const odometer& each : {spent, odometer{}}) {
        for (const double wrong : {0.0, 1.0, 2.0, -1.0, not_a_number}) {
            CHECK_THROWS_AS(each.epsilon(wrong), parameter_error);
        }
        for (const double wrong : {-1.0, not_a_number, infinity}) {
            CHECK_THROWS_AS(each.delta(wrong), parameter_error);
        }
    }
}

TEST_CASE("what is left can be charged and one more cannot, whatever the costs") {
    random_numbers random(7);
    ledger spent(usual);
    for (int i = 0; i < 200; ++i) {
        const std::string name = "principal " + std::to_string(i % 7);
        const release_cost cost{std::pow(10, random.uniform(-6, 0.5)),
                                i % 3 == 0 ? 0 : std::pow(10, 3 * random.uniform(-6, 0.5) - 9)};
        const std::uint64_t left = spent.left(name, cost);
        const odometer before = spent.spent(name);
        CHECK_THROWS_AS(std::ignore = spent.charge(name, cost, left + 1), budget_error);
        CHECK(spent.spent(name) == before);
        const auto some = static_cast<std::uint64_t>(random.uniform(0, 1) * 0.5 * static_cast<double>(left));
        if (some > 0) {
            CHECK(spent.charge(name, cost, some).left() == some);
            CHECK(spent.spent(name).releases == before.releases + some);
            CHECK(spent.spent(name).mu_squared >=
                  before.mu_squared + cost.mu * cost.mu * static_cast<double>(some));
            CHECK(spent.spent(name).delta(8) <= 1e-5);
            CHECK(spent.left(name, cost) <= left - some);
        }
    }
}

TEST_CASE("counts and costs at the ends of their types are no way around the budget") {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    constexpr double huge = std::numeric_limits<double>::max();
    ledger spent(usual);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small, most), budget_error);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", {huge, 0}), budget_error);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", {huge, 0}, most), budget_error);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", {1e150, 0}, most), budget_error);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", {1, 0.999}, most), budget_error);
    CHECK(spent.left("ann", {huge, 0}) == 0);
    CHECK(spent.state() == ledger_state{});

    // A mu whose square is below every double still counts as something.
    const release_cost tiny{1e-200, 0};
    CHECK(spent.left("bob", tiny) == most);
    static_cast<void>(spent.charge("bob", tiny, most - 1));
    CHECK(spent.spent("bob").mu_squared > 0);
    CHECK(spent.left("bob", tiny) == 1);
    static_cast<void>(spent.charge("bob", tiny));
    CHECK(spent.left("bob", tiny) == 0);  // nothing can be counted any more
    CHECK_THROWS_AS(std::ignore = spent.charge("bob", tiny), budget_error);
    CHECK(spent.spent("bob").releases == most);
}

TEST_CASE("a principal's own budget is used instead of the common one, and wrong budgets are refused") {
    ledger spent(usual, nullptr, {{"ann", {1, 1e-6}}, {"eve", {100, 0.1}}});
    CHECK(spent.budget_of("ann") == privacy_budget{1, 1e-6});
    CHECK(spent.budget_of("bob") == usual);
    CHECK(spent.left("ann", small) < spent.left("bob", small));
    CHECK(spent.left("eve", small) > spent.left("bob", small));
    for (const privacy_budget wrong : {privacy_budget{0, 0.1}, privacy_budget{1, 0}, privacy_budget{1, 1},
                                       privacy_budget{not_a_number, 0.1}, privacy_budget{1, not_a_number}}) {
        CHECK_THROWS_AS(ledger{wrong}, parameter_error);
        CHECK_THROWS_AS(ledger(usual, nullptr, {{"ann", wrong}}), parameter_error);
    }
    CHECK_THROWS_AS(ledger(usual, nullptr, {{"", usual}}), parameter_error);
}

TEST_CASE_FIXTURE(stored_ledger,
                  "names that cannot be shown, and nonsense, are refused before anything is looked at") {
    for (const std::string& name : {std::string(), std::string(129, 'a'), std::string("a\nb"),
                                    std::string("\xff"), std::string(1, '\0')}) {
        CHECK_THROWS_AS(std::ignore = spent.charge(name, small), parameter_error);
        CHECK_THROWS_AS(spent.left(name, small), parameter_error);
        CHECK_FALSE(ledger::is_principal(name));
    }
    CHECK(refusal_of(spent, "a\nb", small, 1) ==
          "dp::ledger::charge: principal: got a name of 3 bytes that cannot be printed, expected 1 to 128 "
          "bytes of UTF-8 without control characters");
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small, 0), parameter_error);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", {0, 0}), parameter_error);
    CHECK_THROWS_AS(spent.left("ann", {1, 2}), parameter_error);
    CHECK(disk.replaced == 0);
    CHECK_NOTHROW(std::ignore = spent.charge(std::string(128, 'a'), small));
    CHECK_NOTHROW(std::ignore = spent.charge("Zo\xc3\xab \"x\\", small));
}

TEST_CASE("a ledger takes no more principals than it may, and those it has go on") {
    device disk;
    for (std::size_t i = 0; i < ledger::most_principals; ++i) {
        disk.stored.principals.emplace(std::to_string(i), odometer{1e-3, 0, 1});
    }
    ledger spent(usual, std::make_unique<memory_store>(disk));
    CHECK_THROWS_AS(std::ignore = spent.charge("one more", small), budget_error);
    CHECK(spent.charge("17", small).left() == 1);
    disk.stored.principals.emplace("one more", odometer{1e-3, 0, 1});
    CHECK_THROWS_AS(ledger(usual, std::make_unique<memory_store>(disk)), format_error);
}

TEST_CASE_FIXTURE(stored_ledger,
                  "a charge is stored and confirmed before it is granted, a refusal stores nothing") {
    CHECK(spent.charge("ann", small, 5).left() == 5);
    CHECK(disk.replaced == 1);
    CHECK(disk.confirmed == 1);
    CHECK(disk.stored == spent.state());
    CHECK(disk.stored.principals.at("ann").releases == 5);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small, 1'000'000), budget_error);
    CHECK(disk.replaced == 1);
}

TEST_CASE_FIXTURE(stored_ledger, "a charge that could not be stored never was") {
    disk.fails_before = true;
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small), power_cut);
    CHECK(spent.state() == ledger_state{});  // nor is there an account
    disk.fails_before = false;
    static_cast<void>(spent.charge("ann", small, 2));
    const ledger_state before = spent.state();
    disk.fails_before = true;
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small, 3), power_cut);
    CHECK(spent.state() == before);
    CHECK(disk.stored == before);
}

TEST_CASE_FIXTURE(stored_ledger,
                  "a charge of which nobody knows whether it was stored is spent and not granted") {
    disk.fails_after = true;
    release_charge charge;
    CHECK_THROWS_AS(charge = spent.charge("ann", small, 4), power_cut);
    CHECK(charge.left() == 0);
    CHECK(spent.spent("ann").releases == 4);
    CHECK(disk.stored == spent.state());
    disk.fails_after = false;
    charge = spent.charge("ann", small, 3);
    CHECK(spent.spent("ann").releases == 7);
    CHECK(disk.stored == spent.state());
}

TEST_CASE("a ledger goes on from what was stored, with the budget that it is given now") {
    device disk;
    std::uint64_t left = 0;
    {
        ledger spent(usual, std::make_unique<memory_store>(disk));
        static_cast<void>(spent.charge("ann", small, 50));  // never used, spent all the same
        left = spent.left("ann", small);
    }
    ledger again(usual, std::make_unique<memory_store>(disk));
    CHECK(again.spent("ann").releases == 50);
    CHECK(again.left("ann", small) == left);
    CHECK(ledger({16, 1e-5}, std::make_unique<memory_store>(disk)).left("ann", small) > left);
    CHECK(ledger({0.1, 1e-5}, std::make_unique<memory_store>(disk)).left("ann", small) == 0);
}

TEST_CASE("a stored state that no ledger came to is refused") {
    const auto refused = [](const std::string& name, const odometer& spent) {
        device disk;
        disk.stored.principals.emplace(name, spent);
        CHECK_THROWS_AS(ledger(usual, std::make_unique<memory_store>(disk)), format_error);
    };
    refused("ann", {-1, 0, 1});
    refused("ann", {not_a_number, 0, 1});
    refused("ann", {infinity, 0, 1});
    refused("ann", {1, -1e-9, 1});
    refused("ann", {1, 1, 1});
    refused("ann", {1, not_a_number, 1});
    refused("ann", {1, 0, 0});
    refused("ann", {0, 0, 1});
    refused("ann", {0, 1e-9, 0});
    refused("", {1, 0, 1});
    refused("a\tb", {1, 0, 1});
    device disk;
    disk.stored.principals.emplace("ann", odometer{});
    CHECK_NOTHROW(ledger(usual, std::make_unique<memory_store>(disk)));
}
