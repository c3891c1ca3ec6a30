// What dp::ledger promises to several threads; to be compiled with -fsanitize=thread.

#include <tensafe/dp/ledger.hpp>
#include <tensafe/dp/ledger_file.hpp>

#include "../io/file_builder.hpp"

using namespace tests;

namespace {

const dp::release_cost each{0.25, 1e-15};

TEST_CASE("threads that charge one file at once are granted what one thread would be, and the file has it") {
    const tests::temporary_directory folder;
    const auto path = folder.path() / "ledger";
    const std::vector<std::string> names = {"ann", "bob", "cid"};
    std::uint64_t most = 0;
    {
        dp::ledger spent({8, 1e-5}, std::make_unique<tensafe::dp::ledger_file>(
                                        path, tensafe::dp::missing_ledger::start_empty));
        most = spent.left("ann", each);
        std::atomic<std::uint64_t> granted{0};
        std::atomic<std::uint64_t> wrong{0};
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < 3; ++t) {
            threads.emplace_back([&, t] {
                std::size_t refused = 0;
                for (std::size_t i = t; refused < names.size(); ++i) {
                    try {
                        dp::release_charge charge = spent.charge(names[i % names.size()], each, 2);
                        for (; charge.left() > 0; ++granted) {
                            charge.spend(each);
                        }
                        refused = 0;
                    } catch (const tensafe::budget_error&) {
                        ++refused;  // in a row, of each name once: all are used up
                    }
                }
            });
        }
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i) {
                for (const auto& [name, cost] : spent.state().principals) {
                    wrong += cost.releases > most || cost.releases % 2 != 0 || cost.delta(8) > 1e-5;
                    wrong += spent.left(name, each) > most;
                }
            }
        });
        for (auto& thread : threads) {
            thread.join();
        }
        CHECK(wrong == 0);
        CHECK(granted == names.size() * (most - most % 2));
    }
    dp::ledger again({8, 1e-5}, std::make_unique<tensafe::dp::ledger_file>(path));
    for (const std::string& name : names) {
        CHECK(again.spent(name).releases == most - most % 2);
    }
}

TEST_CASE("of two threads that spend the last release of a charge at once, one gets it") {
    constexpr std::size_t rounds = 20'000;
    constexpr dp::release_cost little{1e-4, 0};
    dp::ledger ledger({8, 1e-5});
    std::vector<dp::release_charge> charges;
    for (std::size_t i = 0; i < rounds; ++i) {
        charges.push_back(ledger.charge("ann", little));
    }
    std::atomic<std::uint64_t> spent{0};
    std::atomic<std::size_t> arrived{0};
    const auto spend_all = [&] {
        for (std::size_t i = 0; i < rounds; ++i) {
            for (++arrived; arrived < 2 * (i + 1);) {
                std::this_thread::yield();
            }
            try {
                charges[i].spend(little);
                ++spent;
            } catch (const tensafe::budget_error&) {
            }
        }
    };
    std::thread other(spend_all);
    spend_all();
    other.join();
    CHECK(spent == rounds);
    for (const dp::release_charge& charge : charges) {
        CHECK(charge.left() == 0);
    }
}

}  // namespace
