// What query limits stand on: counts that no crash, full disk or lack of memory makes too small. Long, for
// each way to be killed, full or damaged is a case.
#include "stored_counts.hpp"

using namespace tests;

TEST_CASE_FIXTURE(stored_counts,
                  "a stop leaves exact counts in a file that names nobody, with a key of its own") {
    {
        query_counts counts(folder.path());
        const auto alice = counts.account_of("alice", "acme", "kjv");
        const auto bob = counts.account_of("bob", "acme", "kjv");
        CHECK(counts.add(alice, 0, 10, {9, {}, {}}) ==
              outcome{outcome::limit_reached, tensafe::serving::scope::client, 10});
        CHECK(counts.rows() == 0);  // what was not counted leaves no row
        CHECK(counts.add(alice, 4'000'000'000, 10, {}) == outcome{});
        counts.take_back(alice, 4'000'000'000, 10);
        CHECK(counts.used(alice, 4'000'000'000) == bits{});
        CHECK(counts.add(alice, 1, 10, {15, 25, 25}) == outcome{});
        CHECK(counts.add(alice, 1, 10, {15, 25, 25}) ==
              outcome{outcome::limit_reached, tensafe::serving::scope::client, 20});
        CHECK(counts.add(bob, 1, 10, {15, 25, 25}) == outcome{});
        CHECK(counts.add(bob, 1, 10, {25, 25, 25}) ==
              outcome{outcome::limit_reached, tensafe::serving::scope::tenant, 30});
        CHECK(counts.add(bob, 1, 10, {std::nullopt, {}, 25}) ==
              outcome{outcome::limit_reached, tensafe::serving::scope::adapter, 30});
        CHECK(counts.used(bob, 1) == bits{10, 20, 20});
        counts.take_back(bob, 1, 10);
        CHECK(counts.used(bob, 1) == bits{0, 10, 10});
        counts.save();
        // Whoever asks all the same is counted.
        CHECK(counts.add(bob, 2, 10, {}) == outcome{});
        CHECK(after_a_kill(bob, 2)[0] >= 10);
        counts.save();
    }
    const std::string text = text_of(usage());
    for (const char* name : {"alice", "acme", "kjv"}) {
        CHECK_FALSE(contains(text, name));
    }
    {
        query_counts counts(folder.path());
        CHECK(counts.rows() == 4);
        CHECK(counts.used(counts.account_of("alice", "acme", "kjv"), 1) == bits{10, 10, 10});
        // A client that has the name of a tenant is another.
        CHECK(counts.used(counts.account_of("acme", "", "kjv"), 1) == bits{0, 0, 10});
    }
    REQUIRE(::chmod((folder.path() / "usage_key").c_str(), 0644) == 0);
    check_refused("0600");
}

TEST_CASE_FIXTURE(stored_counts,
                  "whenever a server is killed, what it counted still is, with a chunk on top at most") {
    for (const limits& of : {limits{}, limits{1000, 2000, 3200}, limits{200, {}, 4'000'000}}) {
        std::uint64_t counted = 0;
        const std::size_t group = of[0].value_or(0);
        query_counts counts(folder.path());
        const auto alice = counts.account_of("alice", "acme", "kjv");
        while (counted < 1200 && counts.add(alice, group, 10, of) == outcome{}) {
            counted += 10;
            const bits left = after_a_kill(alice, group);
            for (std::size_t i = 0; i < left.size(); ++i) {
                CHECK(left[i] >= counted);
                const std::uint64_t most = of[i].value_or(~0u);
                CHECK(left[i] <= std::min(counted + query_counts::chunk(10, of[i], counted), most));
                CHECK(left[i] - counted <= std::max<std::uint64_t>(10, (most - counted) / 2));
            }
        }
        CHECK(counted == std::min<std::uint64_t>(1200, of[0].value_or(1200)));
    }
}

TEST_CASE_FIXTURE(stored_counts, "a client gets no more than its limit, however often the server is killed") {
    constexpr std::uint64_t limit = 640;
    static_assert(limit / 32 == 20);
    const auto alice = account_of("alice");
    std::uint64_t answered = 0;
    std::size_t lives = 0;
    for (bool goes_on = true; goes_on && answered <= limit; ++lives) {
        query_counts counts(folder.path());
        for (int i = 0; i < 3 && goes_on; ++i) {
            goes_on = counts.add(alice, 0, 10, {limit, {}, {}}) == outcome{};
            answered += goes_on ? 10 : 0;
        }
    }
    CHECK(lives > 10);
    CHECK(answered <= limit);
    CHECK(answered + lives * query_counts::chunk(10, limit, 0) >= limit);
}

TEST_CASE_FIXTURE(stored_counts,
                  "what is given back is on disk at once, of one row, and never more than was counted") {
    query_counts counts(folder.path());
    const auto alice = counts.account_of("alice", "acme", "kjv");
    const limits of{1000, 2000, 4000};
    const auto lower = [&](std::vector<std::uint64_t> by) {
        return counts.give_back(alice[0], std::move(by));
    };
    CHECK(lower({10}) == std::vector<std::uint64_t>{0});
    CHECK(counts.rows() == 0);
    for (int i = 0; i < 20; ++i) {
        REQUIRE(counts.add(alice, i % 2 == 0 ? 0 : 2, 10, of) == outcome{});
    }
    CHECK(lower({60, 30, 500}) == std::vector<std::uint64_t>{60, 0, 100});
    const std::uint64_t on_disk = after_a_kill(alice, 0)[0];
    CHECK(on_disk >= 40);
    CHECK(on_disk <= 40 + query_counts::chunk(10, of[0], 40));
    CHECK(after_a_kill(alice, 0)[2] >= 100);
    CHECK(counts.used(alice, 0) == bits{40, 100, 100});
    CHECK(counts.used(alice, 2) == bits{0, 100, 100});
    // It is counted and reserved on from there.
    while (counts.add(alice, 0, 10, of) == outcome{}) {
        CHECK(after_a_kill(alice, 0)[0] >= counts.used(alice, 0)[0]);
    }
    CHECK(counts.used(alice, 0) == bits{1000, 1060, 1060});
    with_file_limit(10, [&] { CHECK_THROWS_AS(lower({50}), tensafe::io_error); });
    CHECK(counts.used(alice, 0)[0] == 1000);
    CHECK(after_a_kill(alice, 0)[0] == 1000);
    // While others count in the row.
    std::jthread other([&] {
        for (int i = 0; i < 300; ++i) {
            static_cast<void>(counts.add(alice, 1, 10, {}));
        }
    });
    std::uint64_t given = 0;
    for (int i = 0; i < 20; ++i) {
        given += lower({0, 50})[1];
    }
    other.join();
    CHECK(counts.used(alice, 1)[0] == 3000 - given);
    CHECK(after_a_kill(alice, 1)[0] >= 3000 - given);
    counts.save();
    CHECK(after_a_kill(alice, 1)[0] == 3000 - given);
}

TEST_CASE_FIXTURE(stored_counts, "threads that count the same and other clients lose nothing") {
    query_counts counts(folder.path());
    const auto count = [&](std::size_t thread) {
        for (std::size_t i = 0; i < 200; ++i) {
            const auto of = counts.account_of(std::to_string(i % 5 + thread), "acme", "kjv");
            if (counts.add(of, i % 3, 10, {1000, 100'000, {}}) == outcome{} && i % 10 == 0) {
                counts.take_back(of, i % 3, 10);
            }
        }
    };
    {
        std::jthread other([&] { count(1); });
        count(0);
    }
    const auto all = counts.account_of("", "acme", "kjv");
    std::uint64_t sum = 0;
    for (std::size_t group = 0; group < 3; ++group) {
        sum += counts.used(all, group)[1];
        CHECK(after_a_kill(all, group)[2] >= counts.used(all, group)[2]);
    }
    CHECK(sum == 2 * 180 * 10);
}

TEST_CASE_FIXTURE(stored_counts, "whatever memory lacks, a request counts in all rows or in none") {
    query_counts counts(folder.path());
    const auto alice = counts.account_of("alice", "acme", "kjv");
    std::size_t failures = 0;
    for (bool counted = false; !counted; failures += counted ? 0 : 1) {
        REQUIRE(failures < 1000);
        allocations_left = failures;
        try {
            counted = counts.add(alice, 7, 10, {1000, 1000, 1000}) == outcome{};
        } catch (const std::bad_alloc&) {
        }
        allocations_left = ~std::size_t{0};
        const std::uint64_t expected = counted ? 10 : 0;
        CHECK(counts.used(alice, 7) == bits{expected, expected, expected});
    }
    CHECK(failures > 3);
    // It is called where an exception would end the process.
    allocations_left = 0;
    counts.take_back(alice, 7, 10);
    const bool had_one_left = allocations_left == 0;
    allocations_left = ~std::size_t{0};
    CHECK(had_one_left);
    CHECK(counts.used(alice, 7) == bits{});
}

TEST_CASE_FIXTURE(stored_counts,
                  "without room on the disk what is reserved is given out, and then nothing is counted") {
    query_counts counts(folder.path());
    const auto alice = counts.account_of("alice", "", "kjv");
    REQUIRE(counts.add(alice, 0, 10, {}) == outcome{});
    const std::string before = text_of(usage());
    std::size_t answers = 1;
    const auto add = [&](std::size_t group) {
        return refusal<io_error>([&] {
            while (answers < 1000 && counts.add(alice, group, 10, {}) == outcome{}) {
                ++answers;
            }
        });
    };
    std::vector<std::string> said;
    with_file_limit(before.size() + 30, [&] { said = {add(0), add(0), add(1)}; });
    for (const std::string& each : said) {
        CHECK(contains(each, "usage\": cannot reserve counts: File too large"));
    }
    CHECK(answers == 65);  // the first one, and a chunk
    CHECK(counts.used(alice, 0) == bits{650, 650, 650});
    CHECK(counts.used(alice, 1) == bits{});
    CHECK(
        text_of(usage()).starts_with(before));  // who reserves ahead may be at it; what is left is read below
    CHECK(counts.add(alice, 1, 10, {}) == outcome{});
    CHECK(after_a_kill(alice, 0)[2] >= 650);
    CHECK(after_a_kill(alice, 1)[2] == 650);
}

TEST_CASE_FIXTURE(stored_counts,
                  "made-up keys lock no client out: those that asked least make room, no tenant") {
    const auto heavy = account_of("heavy");
    const auto light = account_of("light", "acme");
    std::vector<std::string> lines = {" " + heavy[0] + " 7:3", " " + heavy[2] + " 7:90",
                                      " " + light[0] + " 7:1", " " + light[1] + " 7:1"};
    while (lines.size() < query_counts::most_rows) {
        lines.push_back(" " + name_of_nobody(lines.size()) + " 7:2");
    }
    lines.emplace_back();
    // Behind the table one too many: such a row was evicted, and the file was not written anew.
    lines.push_back(" " + name_of_nobody(0) + " 7:2");
    put_lines(lines);
    for (const auto full : {query_counts::when_full::evict, query_counts::when_full::refuse}) {
        CHECK(query_counts(folder.path(), full).rows() <= query_counts::most_rows);
    }
    lines.pop_back();
    put_lines(lines);
    query_counts counts(folder.path(), query_counts::when_full::evict);
    REQUIRE(counts.rows() == query_counts::most_rows);
    CHECK(counts.used(light, 7)[0] == 1);
    const auto fresh = counts.account_of("fresh", "", "kjv");
    REQUIRE(counts.add(fresh, 7, 2, {}) == outcome{});
    CHECK(counts.rows() < query_counts::most_rows);
    CHECK(counts.used(heavy, 7) == bits{3, 3, 92});
    CHECK(counts.used(light, 7) == bits{0, 1, 92});
    CHECK(after_a_kill(fresh, 7)[0] >= 2);
}

TEST_CASE_FIXTURE(stored_counts, "a table full of addresses has room for others, and keeps who asked most") {
    std::vector<std::string> lines;
    const auto all = account_of("", "");
    lines.push_back(" " + all[2] + " 0:90");
    const std::string heavy = account_of("", "address heavy")[1];
    lines.push_back(" " + heavy + " 0:80");
    while (lines.size() < query_counts::most_rows) {
        lines.push_back(" " + heavy.substr(0, 1) + name_of_nobody(lines.size()).substr(1) + " 0:5");
    }
    lines.emplace_back();
    put_lines(lines);
    query_counts counts(folder.path(), query_counts::when_full::evict);
    REQUIRE(counts.rows() == query_counts::most_rows);
    CHECK(counts.add(counts.account_of("fresh", "address fresh", "kjv"), 0, 5, {}).what == outcome::counted);
    CHECK(counts.rows() < query_counts::most_rows);
    CHECK(counts.used(counts.account_of("fresh", "address heavy", "kjv"), 0) == bits{5, 80, 95});
}

TEST_CASE_FIXTURE(stored_counts,
                  "a full table of listed clients refuses further ones, and those it has go on") {
    const auto known = account_of("known");
    std::vector<std::string> lines = {" " + known[0] + " 0:5", " " + known[2] + " 0:5"};
    while (lines.size() < query_counts::most_rows - 2) {
        lines.push_back(" " + name_of_nobody(lines.size()) + " 0:5");
    }
    lines.emplace_back();
    put_lines(lines);
    query_counts counts(folder.path());
    const auto add = [&](const char* client, std::size_t group = 0) {
        return counts.add(counts.account_of(client, "", "kjv"), group, 5, {}).what;
    };
    CHECK(add("fresh") == outcome::no_room);
    CHECK(add("known", 1) == outcome::counted);
    CHECK(counts.used(counts.account_of("fresh", "", "kjv"), 0) == bits{0, 0, 5});
}

TEST_CASE_FIXTURE(stored_counts, "a long file is written anew, with all that is reserved in it") {
    const auto alice = account_of("alice");
    const auto bob = account_of("bob");
    std::string log = " " + alice[0];
    for (std::size_t i = 1; log.size() <= std::size_t{4} << 20; ++i) {
        log += " 3:" + std::to_string(i);
    }
    put_lines({" " + bob[0] + " 1:30", "", log + " 3:77 3:5"});
    query_counts counts(folder.path());
    const std::uint64_t most = counts.used(alice, 3)[0];
    CHECK(most > 1000);
    REQUIRE(counts.add(bob, 2, 10, {}) == outcome{});
    CHECK(std::filesystem::file_size(usage()) < 1000);
    CHECK(after_a_kill(alice, 3) == bits{most, most, 0});
    CHECK(after_a_kill(bob, 1)[0] == 30);
    CHECK(after_a_kill(bob, 2) == bits{650, 650, 650});
}

TEST_CASE_FIXTURE(stored_counts,
                  "counts without their key, a key without its counts, and a folder in use are errors") {
    {
        query_counts first(folder.path());
        check_refused("another server uses this state folder");
        check_refused(folder.path().string());
        REQUIRE(first.add(first.account_of("alice", "", "kjv"), 0, 10, {}) == outcome{});
    }
    std::filesystem::rename(usage(), folder.path() / "away");
    check_refused("usage\": is missing");
    std::filesystem::rename(folder.path() / "away", usage());
    std::filesystem::remove(folder.path() / "usage_key");
    check_refused("usage_key\": is missing");
    folder.put("usage_key", std::string(32, 'x'));
    REQUIRE(::chmod((folder.path() / "usage_key").c_str(), 0600) == 0);
    check_refused("usage\": line 2: is damaged, not whole, or was made with another usage_key");
}

TEST_CASE("a first start that was cut anywhere begins again, and what it left is removed") {
    const std::string nothing = usage_text({""}, "the key of a start that was cut");
    for (const std::map<std::string, std::string>& left :
         {std::map<std::string, std::string>{{"usage.partial-17-0", "tensafe"}},
          {{"usage", nothing}},
          {{"usage", nothing}, {"usage_key.partial-aB3xYz", "x"}}}) {
        const temporary_directory folder;
        for (const auto& [name, text] : left) {
            folder.put(name, text);
        }
        folder.put("notes.partial-1", "of somebody");
        CHECK(query_counts(folder.path()).rows() == 0);
        CHECK(entries(folder.path()) == 3);
        CHECK(text_of(folder.path() / "usage") == usage_text({""}, text_of(folder.path() / "usage_key")));
        CHECK(query_counts(folder.path()).rows() == 0);
    }
}

TEST_CASE_FIXTURE(stored_counts,
                  "a torn last line is dropped, and any other damage is an error with its line") {
    query_counts::account alice;
    {
        query_counts counts(folder.path());
        alice = counts.account_of("alice", "", "kjv");
        REQUIRE(counts.add(alice, 0, 10, {}) == outcome{});
        counts.save();
        REQUIRE(counts.add(alice, 0, 10, {}) == outcome{});
        REQUIRE(counts.add(alice, 1, 10, {}) == outcome{});
    }
    const std::string whole = text_of(usage());
    const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
    const std::size_t table = whole.rfind('\n', last - 2) + 1;
    for (std::size_t cut = last; cut <= whole.size(); ++cut) {
        put(whole.substr(0, cut));
        query_counts counts(folder.path());
        CHECK(counts.used(alice, 0)[0] == 660);
        CHECK(counts.used(alice, 1)[0] == (cut == whole.size() ? 650 : 0));
        CHECK(text_of(usage()).size() == (cut == whole.size() ? cut : last));
    }
    std::string torn = whole;
    torn.replace(last + 100, 20, 20, '\0');
    put(torn);
    CHECK(query_counts(folder.path()).used(alice, 1)[0] == 0);
    put(whole.substr(0, last + 3));
    {
        query_counts counts(folder.path());
        REQUIRE(counts.add(alice, 2, 10, {}) == outcome{});
    }
    CHECK(query_counts(folder.path()).used(alice, 2)[0] == 650);  // nothing torn is before it
    for (std::size_t i = 0; i < table; ++i) {
        put(whole.substr(0, i));
        check_refused("usage\": line ");
    }
    for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
        std::string damaged = whole;
        damaged[i] ^= 1;
        put(damaged);
        CAPTURE(i);
        check_refused("usage\": line ");
    }
}

TEST_CASE_FIXTURE(stored_counts, "a usage file that is no list of counts is refused with its line") {
    static_cast<void>(account_of("alice"));
    const std::string name = name_of_nobody(1);
    const std::string good = " " + name + " 1:2";
    put_lines({good + " 3:4611686018427387904" + good, ""});
    CHECK(query_counts(folder.path()).rows() == 1);
    for (const std::string& rows :
         {good + " ", good + " -1", good + "x", good + "  1:2", " " + name + " 1",
          " " + name + " 1:", " " + name + " 1:0", " " + name + " 1:4611686018427387905", " " + name + "1:2",
          std::string(" 1:2"), " b" + name.substr(1) + " 1:2", " " + name.substr(0, 64) + " 1:2",
          " c" + std::string(64, 'A') + " 1:2"}) {
        CAPTURE(rows);
        put_lines({good, rows, ""});
        check_refused("usage\": line 3: is no list of counts, or one too many. Move it and usage_key away");
        put_lines({good, "", rows});
        check_refused("usage\": line 4: is no list of counts");
    }
    put_lines({good});
    check_refused("usage\": line 3: is missing, the end of the table");
    put("tensafe split usage 2\n" + name + " 1:2\n");
    check_refused("usage\": line 1: got version 2, expected 3");
    put("tensafe split usage 4\n");
    check_refused("usage\": line 1: does not say \"tensafe split usage 3\"");
}

TEST_CASE_FIXTURE(stored_counts,
                  "a refusal for a limit that is shared says no number that others had a part in") {
    std::vector<tensafe::serving::query_limits> groups(2, {10, {}});
    groups[0].limits[1] = groups[1].limits[2] = 25;
    query_counts counts(folder.path());
    for (const std::size_t group : {0u, 1u}) {
        for (const char* const client : {"alice", "bob", "carol"}) {
            tensafe::serving::file_store store(counts, counts.account_of(client, "acme", "kjv"), groups);
            if (client != std::string_view("carol")) {
                store.add(group);
                continue;
            }
            CHECK(refusal<tensafe::session::refused_error>([&] { store.add(group); }) ==
                  "request: with it the scope " + std::to_string(group + 1) +
                      " would have got more bits of this input's A than it may have");
        }
    }
}

TEST_CASE_FIXTURE(stored_counts, "a store refuses what passes a limit, in sessions to come too") {
    const std::vector<tensafe::serving::query_limits> groups{{10, {25, {}, {}}}, {10, {}}};
    for (const int answers : {2, 0}) {  // of the first start, and of the next one
        query_counts counts(folder.path());
        tensafe::serving::file_store store(counts, counts.account_of("alice", "", "kjv"), groups);
        for (int i = 0; i < answers; ++i) {
            store.admit_block(0);  // counts nothing
            store.add(0);
        }
        const std::string said = refusal<tensafe::session::refused_error>([&] { store.add(0); });
        CHECK(contains(said, "this client would have got 30 bits of this input's A, expected at most 25"));
        CHECK_THROWS_AS(store.admit_block(0), tensafe::session::refused_error);
        store.add(1);
        store.take_back(0);
        store.add(0);
        counts.save();
    }
}
