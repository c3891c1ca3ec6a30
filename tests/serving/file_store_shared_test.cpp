// What several servers count for one limit, in a store that is a table in memory.
#include "stored_counts.hpp"

using namespace tests;
using tensafe::serving::shared_counts;
using tensafe::serving::unavailable_error;

namespace {

/// What all servers share. It follows the words of shared_counts, number by number.
struct table {
    std::mutex mutex;
    std::map<std::pair<std::string, std::size_t>, std::map<std::string, std::uint64_t>> numbers;
    std::set<std::string> servers;
    bool is_away = false;
    bool loses_reply = false;  // of the next reservation
    std::size_t asked = 0;     // reservations

    std::uint64_t sum(const std::string& row, std::size_t group) {
        std::uint64_t result = 0;
        for (const auto& [server, number] : numbers[{row, group}]) {
            result += number;
        }
        return result;
    }
};

class member final : public shared_counts {
  public:
    explicit member(table& of) : of_(of) {}
    std::span<const std::byte> key() const noexcept override { return key_; }
    void begin(const std::string& server, entries_after entries) override {
        id_ = server;
        entries_ = std::move(entries);
        const std::lock_guard lock(of_.mutex);
        of_.servers.insert(id_);
    }
    void end() noexcept override {
        const std::lock_guard lock(of_.mutex);
        of_.servers.erase(id_);
    }
    void replay() {
        std::string last;
        for (auto some = entries_(last); !some.empty(); some = entries_(last)) {
            const std::lock_guard lock(of_.mutex);
            for (const entry& each : some) {
                std::uint64_t& mine = of_.numbers[{each.row, each.group}][id_];
                mine = std::max(mine, each.journaled);
            }
            last = some.back().row;
        }
    }
    std::vector<grant> reserve(std::span<const claim> claims) override {
        const std::lock_guard lock(of_.mutex);
        check();
        ++of_.asked;
        std::vector<grant> result;
        for (const claim& each : claims) {
            const auto& [row, group, journaled, asked] = each.of;
            std::uint64_t& mine = of_.numbers[{row, group}][id_];
            const std::uint64_t others = of_.sum(row, group) - mine;
            const std::uint64_t lost = mine > asked ? mine - journaled : 0;
            mine = std::max(mine, journaled);
            if (others + each.least + lost <= each.limit) {
                const std::uint64_t left = each.limit - std::min(each.limit, others + mine);
                mine = std::max({mine, each.least + lost,
                                 std::min(each.wanted + lost,
                                          mine + left / (2 * std::max<std::size_t>(of_.servers.size(), 1)))});
            }
            result.push_back({mine, others, lost});
        }
        if (std::exchange(of_.loses_reply, false)) {
            throw unavailable_error("lost", std::chrono::milliseconds(1));
        }
        return result;
    }
    void lower(std::span<const entry> entries) override {
        const std::lock_guard lock(of_.mutex);
        check();
        for (const entry& each : entries) {
            std::uint64_t& mine = of_.numbers[{each.row, each.group}][id_];
            mine = mine <= each.asked ? std::min(mine, each.journaled) : mine;
        }
    }
    bool is_up() const noexcept override { return !of_.is_away; }
    std::size_t servers() const noexcept override {
        const std::lock_guard lock(of_.mutex);
        return std::max<std::size_t>(of_.servers.size(), 1);
    }

  private:
    void check() const {
        if (of_.is_away) {
            throw unavailable_error("away", std::chrono::milliseconds(1));
        }
    }
    table& of_;
    std::vector<std::byte> key_ = std::vector<std::byte>(32, std::byte{7});
    std::string id_;
    entries_after entries_;
};

/// A server: its folder outlives it.
struct fleet_server {
    fleet_server(table& of, const std::filesystem::path& folder,
                 query_counts::when_full full = query_counts::when_full::refuse)
        : store(of), counts(folder, full, &store) {}
    member store;
    query_counts counts;
};

/// Two folders, and what their servers share.
struct fleet {
    bool ask(fleet_server& of, const limits& most, std::size_t group = 0) {
        return of.counts.add(of.counts.account_of("alice", "acme", "kjv"), group, 10, most) == outcome{};
    }
    std::array<temporary_directory, 2> folders;
    table shared;
};

constexpr std::uint64_t limit = 3200;

}  // namespace

TEST_CASE_FIXTURE(fleet, "two servers give one limit, and keep no more than a chunk each for themselves") {
    for (std::size_t group = 0; group < 3; ++group) {  // with a limit of this scope
        limits of;
        of[group] = limit;
        fleet_server a(shared, folders[0].path());
        fleet_server b(shared, folders[1].path());
        std::uint64_t answered = 0;
        for (std::size_t i = 0; i < 40; ++i) {
            answered += ask(a, of, group) ? 10u : 0u;
            answered += ask(b, of, group) ? 10u : 0u;
        }
        CHECK(answered == 800);
        while (ask(a, of, group)) {
            answered += 10;
        }
        CHECK(answered <= limit);
        CHECK(answered + query_counts::chunk(10, limit, 800, 2) + 10 >= limit);
        while (ask(b, of, group)) {
            answered += 10;
        }
        CHECK(answered == limit);
        const auto used = a.counts.used(a.counts.account_of("alice", "acme", "kjv"), group);
        CHECK(used[group] == limit);
    }
}

TEST_CASE_FIXTURE(fleet, "threads of two servers get the limit together, and not an answer more") {
    fleet_server a(shared, folders[0].path());
    fleet_server b(shared, folders[1].path());
    std::atomic<std::uint64_t> answered = 0;
    on_threads(4, [&](std::size_t t) {
        while (ask(t % 2 == 0 ? a : b, {limit, limit + 10, {}})) {
            answered += 10;
        }
    });
    CHECK(answered <= limit);
    CHECK(answered + 20 >= limit);
}

TEST_CASE_FIXTURE(fleet, "what one server gives back at a clean stop the others have a second later") {
    const limits of{limit, {}, {}};
    std::uint64_t answered = 0;
    {
        fleet_server a(shared, folders[0].path());
        REQUIRE(ask(a, of));
        answered += 10;
        a.counts.save();
    }
    CHECK(shared.numbers.begin()->second.begin()->second == 10);
    auto a = std::make_unique<fleet_server>(shared, folders[0].path());
    fleet_server b(shared, folders[1].path());
    REQUIRE(ask(*a, of));
    while (ask(b, of)) {
        answered += 10;
    }
    CHECK(answered < limit - 20);
    a->counts.save();
    a.reset();
    CHECK_FALSE(ask(b, of));  // heard less than a second ago
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    while (ask(b, of)) {
        answered += 10;
    }
    CHECK(answered == limit - 10);
}

TEST_CASE_FIXTURE(fleet, "a lost reply costs nothing, and a lost file costs what the store has of it") {
    const limits of{limit, {}, {}};
    std::string id;
    {
        fleet_server a(shared, folders[0].path());
        const auto alice = a.counts.account_of("alice", "acme", "kjv");
        for (int i = 0; i < 12; ++i) {
            REQUIRE(ask(a, of));
            CHECK(a.counts.used(alice, 0)[0] == 10u * (static_cast<unsigned>(i) + 1));
        }
        shared.loses_reply = true;
        for (int i = 0; i < 12; ++i) {
            bool is_answered = false;
            try {
                is_answered = ask(a, of);
            } catch (const unavailable_error&) {
                is_answered = ask(a, of);
            }
            CHECK(is_answered);
        }
        CHECK(a.counts.used(alice, 0)[0] == 240);
        id = text_of(folders[0].path() / "server_id");
        CHECK(id.size() == 32);
    }
    // The folder as it was at first, as of a backup.
    {
        const temporary_directory other;
        fleet_server fresh(shared, other.path());
        std::filesystem::copy_file(other.path() / "usage", folders[0].path() / "usage",
                                   std::filesystem::copy_options::overwrite_existing);
    }
    {  // what it does not know of is nothing that it may lower
        fleet_server stops(shared, folders[0].path());
        shared.loses_reply = true;
        CHECK_THROWS_AS(ask(stops, of), unavailable_error);
        stops.counts.save();
    }
    fleet_server a(shared, folders[0].path());
    shared.loses_reply = true;
    CHECK_THROWS_AS(ask(a, of), unavailable_error);
    const auto alice = a.counts.account_of("alice", "acme", "kjv");
    CHECK(shared.numbers[{alice[0], 0}][id] >= 240);
    REQUIRE(ask(a, of));
    std::uint64_t answered = a.counts.used(alice, 0)[0];
    CHECK(answered >= 240 + 10);
    while (ask(a, of)) {
        answered += 10;
    }
    CHECK(answered + 10 > limit);
    CHECK(answered <= limit);
}

TEST_CASE_FIXTURE(fleet, "while the store is away only what is reserved is answered, and a stop says so") {
    fleet_server a(shared, folders[0].path());
    const limits of{limit, {}, {}};
    REQUIRE(ask(a, of));
    shared.is_away = true;
    std::size_t answered = 0;
    const auto ask_on = [&] {
        for (; ask(a, of) && answered < limit; ++answered) {
        }
    };
    CHECK_THROWS_AS(ask_on(), unavailable_error);
    CHECK(answered > 0);
    CHECK((answered + 1) * 10 <= query_counts::chunk(10, limit, 0) + 10);
    CHECK_THROWS_AS(ask(a, of), unavailable_error);
    CHECK_THROWS_AS(a.counts.save(), unavailable_error);
    shared.is_away = false;
    CHECK(ask(a, of));
}

TEST_CASE_FIXTURE(fleet, "all that the file has is told again to a store that lost it") {
    {
        fleet_server a(shared, folders[0].path());
        for (int i = 0; i < 700; ++i) {
            const auto of = a.counts.account_of(std::to_string(i), "acme", "kjv");
            REQUIRE(a.counts.add(of, 3, 10, {}) == outcome{});
        }
    }  // as killed
    fleet_server a(shared, folders[0].path());
    const auto before = std::exchange(shared.numbers, {});
    a.store.replay();
    CHECK(shared.numbers == before);
    a.store.replay();
    CHECK(shared.numbers == before);
}

TEST_CASE_FIXTURE(fleet, "whom a server evicted the store still knows") {
    const limits of{100, {}, {}};
    query_counts::account alice;
    {
        fleet_server a(shared, folders[0].path());
        alice = a.counts.account_of("alice", "acme", "kjv");
        while (ask(a, of)) {
        }
        a.counts.save();
    }
    std::vector<std::string> lines{" " + alice[0] + " 0:100"};
    for (std::size_t i = 1; i < query_counts::most_rows; ++i) {
        lines.push_back(" " + name_of_nobody(i) + " 0:1000");
    }
    lines.emplace_back();
    std::filesystem::remove(folders[0].path() / "usage");
    folders[0].put("usage", usage_text(lines, std::string(32, '\7')));
    fleet_server a(shared, folders[0].path(), query_counts::when_full::evict);
    CHECK(a.counts.used(alice, 0)[0] == 100);
    CHECK(a.counts.add(a.counts.account_of("bob", "acme", "kjv"), 0, 10, {}) == outcome{});
    CHECK(a.counts.used(alice, 0)[0] == 0);
    CHECK_FALSE(ask(a, of));
}

TEST_CASE_FIXTURE(fleet,
                  "what is given back to one server is lower in the store, and in nobody else's number") {
    fleet_server a(shared, folders[0].path());
    fleet_server b(shared, folders[1].path());
    const limits of{limit, {}, {}};
    for (int i = 0; i < 30; ++i) {
        REQUIRE(ask(a, of));
        REQUIRE(ask(b, of));
    }
    const auto alice = a.counts.account_of("alice", "acme", "kjv");
    const auto of_row = [&] { return shared.sum(alice[0], 0); };
    const std::uint64_t before = of_row();
    CHECK(a.counts.used(alice, 0, false)[0] == 300);
    CHECK(a.counts.give_back(alice[0], {200}) == std::vector<std::uint64_t>{200});
    CHECK(of_row() <=
          before - 200 + 2 * query_counts::chunk(10, limit, 0, 2));  // what was reserved meanwhile
    shared.is_away = true;
    CHECK_THROWS_AS(a.counts.give_back(alice[0], {50}), unavailable_error);
    CHECK(a.counts.used(alice, 0, false)[0] == 100);  // or it would be given back again
}

TEST_CASE_FIXTURE(fleet, "a folder is of a server alone or of one of several, and names nobody in either") {
    { fleet_server a(shared, folders[0].path()); }
    const std::string said = refusal<tensafe::error>([&] { query_counts(folders[0].path()); });
    CHECK(contains(said, "server_id\": this folder's server counted with others"));
    { query_counts alone(folders[1].path()); }
    CHECK(contains(refusal<tensafe::error>([&] { fleet_server(shared, folders[1].path()); }),
                   "usage_key\": this folder's server counted alone"));
    std::filesystem::remove(folders[0].path() / "usage");
    CHECK(contains(refusal<tensafe::error>([&] { fleet_server(shared, folders[0].path()); }),
                   "expected both or neither"));
}
