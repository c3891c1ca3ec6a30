#include <tensafe/serving/meter.hpp>

#include "../test.hpp"

using namespace tests;
using namespace tensafe::serving;

namespace {

/// One request of `tokens` tokens; all other counters follow from it.
usage served(std::uint64_t tokens) {
    return {1, 0, tokens, 2 * tokens, 3 * tokens, 5 * tokens};
}

usage found(const meter& m, const std::string& adapter, const std::string& client) {
    for (const meter_series& each : m.snapshot().series) {
        if (each.adapter == adapter && each.client == client) {
            return each.used;
        }
    }
    return {};
}

std::vector<std::pair<std::string, std::string>> names_of(const meter_snapshot& s) {
    std::vector<std::pair<std::string, std::string>> result;
    for (const meter_series& each : s.series) {
        result.emplace_back(each.adapter, each.client);
    }
    return result;
}
using names = std::vector<std::pair<std::string, std::string>>;

}  // namespace

TEST_CASE("names that cannot be shown, empty and too long ones count as other") {
    // The last of these are no UTF-8, or control characters of it.
    std::vector<std::string> refused = {"", std::string(129, 'x'), "a\nb", std::string("a\0b", 3)};
    const std::vector<std::string> bytes = words(
        "\x7F \x1F a\xFF \x80 \xC3 \xC3( \xC0\x80 \xC1\xBF \xE0\x9F\xBF \xED\xA0\x80 \xE2\x82 \xE2\x28\xA1 "
        "\xF0\x8F\xBF\xBF \xF4\x90\x80\x80 \xF5\x80\x80\x80 \xF0\x9F\x98 \xF0\x9F\x98( \xC2\x85 \xE2\x82(");
    REQUIRE(bytes.size() == 19);
    refused.insert(refused.end(), bytes.begin(), bytes.end());
    meter m;
    for (const std::string& name : refused) {
        m.record("a", name, served(1));
        m.record(name, "c", served(1));
    }
    CHECK(names_of(m.snapshot()) == names{{"a", "other"}, {"other", "c"}});
    CHECK(m.snapshot().total().tokens == 2 * refused.size());
}

TEST_CASE("names of any letters are kept as they are") {
    std::vector<std::string> kept = words(
        "~ a\"b\\c {}=, \xC2\xA0 \xC3\xA9 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBD "
        "\xF0\x90\x80\x80 \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF");
    REQUIRE(kept.size() == 13);
    kept.insert(kept.end(), {std::string(128, 'x'), " "});
    meter m;
    for (const std::string& name : kept) {
        m.record("a", name, served(1));
    }
    CHECK(m.snapshot().series.size() == kept.size());
    for (const std::string& name : kept) {
        CHECK(found(m, "a", name) == served(1));
    }
}

TEST_CASE("beyond the limits clients, adapters and pairs count as other, and sums lose nothing") {
    meter m({.longest_name = 16, .most_adapters = 2, .most_clients = 3, .most_series = 4});
    const std::vector<std::string> clients = {"c1", "c2", "c3", "c4"};
    for (const std::string& client : clients) {
        m.record("a1", client, served(1));
    }
    // c4 was one too many.
    CHECK(names_of(m.snapshot()) == names{{"a1", "c1"}, {"a1", "c2"}, {"a1", "c3"}, {"a1", "other"}});
    // Four series are there: a fifth pair of known names counts for the adapter alone.
    m.record("a2", "c1", served(10));
    m.record("a2", "c4", served(10));
    m.record("a3", "c1", served(100));   // an adapter too many
    m.record("a1", "c2", served(1000));  // known: as before
    CHECK(
        names_of(m.snapshot()) ==
        names{
            {"a1", "c1"}, {"a1", "c2"}, {"a1", "c3"}, {"a1", "other"}, {"a2", "other"}, {"other", "other"}});
    CHECK(found(m, "a2", "other").tokens == 20);
    CHECK(found(m, "other", "other").tokens == 100);
    CHECK(found(m, "a1", "c2").tokens == 1001);
    CHECK(m.snapshot().total().tokens == 4 + 20 + 100 + 1000);
}

TEST_CASE("with all series taken, what goes to a series that is there still goes there") {
    meter m({.longest_name = 16, .most_adapters = 1, .most_clients = 9, .most_series = 2});
    m.record("a", "c", served(1));
    m.record("b", "c", served(2));  // an adapter too many
    m.record("d", "c", served(4));
    CHECK(names_of(m.snapshot()) == names{{"a", "c"}, {"other", "c"}});
    CHECK(found(m, "other", "c").tokens == 6);
}

TEST_CASE("a flood of names does not grow a meter past its limits, whatever they are") {
    random_numbers generator(7);
    meter m({.longest_name = 4, .most_adapters = 5, .most_clients = 20, .most_series = 30});
    std::uint64_t recorded = 0;
    for (int k = 0; k < 5000; ++k) {
        const auto name = [&] {
            std::string n(generator() % 6, ' ');
            for (char& c : n) {
                c = static_cast<char>(generator() % 256);
            }
            return n;
        };
        m.record(name(), name(), served(static_cast<std::uint64_t>(k)));
        recorded += static_cast<std::uint64_t>(k);
    }
    const meter_snapshot s = m.snapshot();
    CHECK(s.series.size() <= 30 + 5 + 1);
    CHECK(s.by_adapter().series.size() == 5 + 1);
    std::set<std::string> clients;
    for (const meter_series& each : s.series) {
        clients.insert(each.client);
    }
    CHECK(clients.size() <= 20 + 1);
    CHECK(s.total().tokens == recorded);
    CHECK(s.total().requests == 5000);
}

TEST_CASE("a meter without room counts everything as other") {
    meter m({.longest_name = 16, .most_adapters = 0, .most_clients = 0, .most_series = 0});
    m.record("a", "c", served(2));
    m.record("b", "d", served(3));
    CHECK(names_of(m.snapshot()) == names{{"other", "other"}});
    CHECK(m.snapshot().total().tokens == 5);
}

TEST_CASE("a forgotten client is nowhere by name, its counts are other's, and its place is free") {
    meter m({.longest_name = 16, .most_adapters = 9, .most_clients = 2, .most_series = 99});
    m.record("x", "ann", served(1));
    m.record("y", "ann", served(2));
    m.record("x", "bob", served(4));
    m.record("x", "eve", served(8));  // no room: other
    CHECK(m.forget_client("nobody") == usage{});
    CHECK(m.forget_client("other") == usage{});
    CHECK(m.snapshot().total().tokens == 15);
    CHECK(m.forget_client("ann").tokens == 3);
    CHECK(names_of(m.snapshot()) == names{{"x", "bob"}, {"x", "other"}, {"y", "other"}});
    CHECK(found(m, "x", "other").tokens == 9);
    CHECK(found(m, "y", "other").tokens == 2);
    CHECK(m.snapshot().total().tokens == 15);
    CHECK(m.forget_client("ann") == usage{});
    m.record("x", "eve", served(16));
    CHECK(found(m, "x", "eve").tokens == 16);
    m.record("x", "ann", served(32));  // bob and eve are two
    CHECK(found(m, "x", "other").tokens == 41);
}

TEST_CASE("reset returns what was counted and leaves nothing, limits included") {
    meter m({.longest_name = 16, .most_adapters = 1, .most_clients = 1, .most_series = 9});
    m.record("a", "c", served(1));
    const meter_snapshot before = m.snapshot();
    CHECK(m.reset() == before);
    CHECK(m.snapshot().series.empty());
    m.record("b", "d", served(1));
    CHECK(names_of(m.snapshot()) == names{{"b", "d"}});
}

TEST_CASE("merged counters add up, under the limits and names that a meter takes") {
    meter m({.longest_name = 16, .most_adapters = 2, .most_clients = 2, .most_series = 9});
    m.record("a", "c", served(1));
    m.merge(
        {{{"a", "c", served(2)}, {"a", "d", served(4)}, {"a", "e", served(8)}, {"b\n", "c", served(16)}}});
    CHECK(found(m, "a", "c") == usage{2, 0, 3, 6, 9, 15});
    CHECK(found(m, "a", "d") == served(4));
    CHECK(found(m, "a", "other") == served(8));
    CHECK(found(m, "other", "c") == served(16));
    meter again;
    again.merge(m.snapshot());
    CHECK(again.snapshot() == m.snapshot());
}

TEST_CASE("threads record at the same time, and every snapshot holds whole records") {
    meter m;
    constexpr std::size_t writers = 3;
    constexpr std::uint64_t records = 2000;
    std::atomic<bool> done = false;
    std::size_t torn = 0;
    std::size_t fallen = 0;
    {
        std::jthread reader([&] {
            std::uint64_t last = 0;
            for (bool more = true; more;) {
                more = !done.load();
                const usage total = m.snapshot().total();
                torn += total.products != 2 * total.tokens || total.bytes_down != 5 * total.tokens;
                fallen += total.tokens < last;
                last = total.tokens;
            }
        });
        on_threads(writers, [&](std::size_t t) {
            for (std::uint64_t k = 0; k < records; ++k) {
                m.record(k % 2 == 0 ? "even" : "odd", "client " + std::to_string(k % 50 + t), served(k));
                if (k % 500 == 0) {
                    m.forget_client("client 1");
                }
            }
        });
        done = true;
    }
    CHECK(torn == 0);
    CHECK(fallen == 0);
    CHECK(m.snapshot().total().requests == writers * records);
    CHECK(m.snapshot().total().tokens == writers * (records * (records - 1) / 2));
}

TEST_CASE("a meter agrees with a map for random records") {
    random_numbers generator(8);
    meter m;
    std::map<std::pair<std::string, std::string>, usage> expected;
    for (int k = 0; k < 2000; ++k) {
        const std::string adapter = "a" + std::to_string(generator() % 7);
        const std::string client = "c" + std::to_string(generator() % 11);
        const auto count = [&] { return generator() >> 32; };
        const usage used = {count(), count(), count(), count(), count(), count()};
        m.record(adapter, client, used);
        usage& sum = expected[{adapter, client}];
        sum = {sum.requests + used.requests, sum.refused + used.refused,   sum.tokens + used.tokens,
               sum.products + used.products, sum.bytes_up + used.bytes_up, sum.bytes_down + used.bytes_down};
    }
    const meter_snapshot s = m.snapshot();
    REQUIRE(s.series.size() == expected.size());
    auto at = expected.begin();
    for (const meter_series& each : s.series) {
        CHECK(std::pair(each.adapter, each.client) == at->first);
        CHECK(each.used == at->second);
        ++at;
    }
}

TEST_CASE("forgetting agrees with a map that renames, for random records in any order") {
    random_numbers generator(9);
    for (int round = 0; round < 50; ++round) {
        meter m;
        std::map<std::pair<std::string, std::string>, usage> expected;
        const auto name = [&](const char* kind) {
            const auto number = generator() % 6;
            return number == 0 ? std::string("other") : kind + std::to_string(number);
        };
        for (int k = 0; k < 60; ++k) {
            // Names before and behind "other".
            const std::string adapter = name(k % 2 == 0 ? "a" : "z");
            const std::string client = name(k % 3 == 0 ? "c" : "x");
            if (generator() % 8 >= 2) {
                const usage used = served(generator() % 1000);
                m.record(adapter, client, used);
                expected[{adapter, client}] += used;
                continue;
            }
            usage sum;
            std::map<std::pair<std::string, std::string>, usage> rest;
            for (const auto& [names_of_series, used] : expected) {
                auto kept = names_of_series;
                if (kept.second != "other" && kept.second == client) {
                    kept.second = "other";
                    sum += used;
                }
                rest[kept] += used;
            }
            expected = std::move(rest);
            CHECK(m.forget_client(client) == sum);
        }
        std::vector<meter_series> series;
        for (const auto& [names_of_series, used] : expected) {
            series.push_back({names_of_series.first, names_of_series.second, used});
        }
        CHECK(m.snapshot().series == series);
    }
}

TEST_CASE("the places of forgotten names are free, and of those only") {
    meter m({.longest_name = 16, .most_adapters = 2, .most_clients = 2, .most_series = 99});
    m.record("a", "c", served(1));
    m.record("b", "c", served(1));
    m.record("b", "d", served(1));
    m.forget_client("c");  // joins nothing under a, and other of b
    m.record("x", "e", served(1));
    m.record("x", "f", served(1));
    CHECK(names_of(m.snapshot()) ==
          names{{"a", "other"}, {"b", "d"}, {"b", "other"}, {"other", "e"}, {"other", "other"}});
}
