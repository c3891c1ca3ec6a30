#include <tensafe/serving/router.hpp>

#include "../test.hpp"

using namespace tests;
using namespace tensafe::serving;
using strings = std::vector<std::string>;

namespace {

/// The published example.
std::vector<gate_entry> published_entries() {
    return {{"banking", {"bank", "deposit", "loan", "mortgage", "credit", "savings", "checking"}, false},
            {"investment", {"invest", "portfolio", "stock", "bond", "etf", "dividend", "market"}, false},
            {"shared_attention", {}, true}};
}
router published(matching how = matching::substring) {
    return router(keyword_gate(published_entries(), "shared_attention", how));
}

/// A gate for one keyword with whole words, asked for one query.
bool fires(const std::string& keyword, std::string_view query, matching how = matching::whole_words) {
    const keyword_gate gate({{"it", {keyword}, false}, {"else", {}, false}}, "else", how);
    return gate.choose(query).adapter == "it";
}

}  // namespace

TEST_CASE("queries go where the published keyword gate sends them") {
    const router by = published();
    struct known {
        const char* query;
        const char* adapter;
        std::size_t score;
        strings keywords;
    };
    const std::vector<known> answers = {
        {"What is the rate of a MORTGAGE loan?", "banking", 2, {"loan", "mortgage"}},
        {"Should I invest in an ETF or in a bond?", "investment", 3, {"invest", "bond", "etf"}},
        {"How is the weather?", "shared_attention", 0, {}},
        {"", "shared_attention", 0, {}},
        // One keyword each: the first entry wins.
        {"credit market", "banking", 1, {"credit"}},
        {"market credit", "banking", 1, {"credit"}},
        {"stock market credit", "investment", 2, {"stock", "market"}},
        // A keyword that occurs twice counts once.
        {"loan loan loan, stock market", "investment", 2, {"stock", "market"}},
        // Substrings, not words.
        {"A vagabond", "investment", 1, {"bond"}},
        {"Embankment and supermarket", "banking", 1, {"bank"}},
        {"reinvested dividends", "investment", 2, {"invest", "dividend"}}};
    for (const known& k : answers) {
        CAPTURE(k.query);
        const routed r = by.route(k.query);
        CHECK(r.adapter == k.adapter);
        CHECK(r.chosen == k.adapter);
        CHECK(r.score == k.score);
        CHECK(r.keywords == k.keywords);
        CHECK(r.always_active == strings{"shared_attention"});
    }
}

TEST_CASE("an adapter that is always active wins no query by keywords") {
    std::vector<gate_entry> entries = published_entries();
    entries[2].keywords = {"weather", "rain", "loan"};
    const keyword_gate gate(entries, "banking");
    CHECK(gate.choose("weather and rain").adapter == "banking");
    CHECK(gate.choose("weather and rain").score == 0);
    CHECK(gate.choose("weather, rain, loan, stock, etf").adapter == "investment");
}

TEST_CASE("if the choice is not loaded, the first loaded adapter of the gate is taken") {
    const router by = published();
    const auto among = [&](const strings& names) {
        return by.route("a loan",
                        [&](std::string_view n) { return std::count(names.begin(), names.end(), n) != 0; });
    };
    CHECK(among({"investment", "banking"}).adapter == "banking");
    const routed other = among({"shared_attention", "investment"});
    CHECK(other.adapter == "investment");
    CHECK(other.chosen == "banking");
    CHECK(other.score == 1);
    CHECK(among({"shared_attention"}).adapter == "shared_attention");
    CHECK(among({"shared_attention"}).always_active == strings{"shared_attention"});
    CHECK(among({"investment"}).always_active.empty());
    CHECK(contains(refusal<parameter_error>([&] { among({}); }), "\"banking\""));
    CHECK_THROWS_AS(among({"unknown to the gate"}), parameter_error);
}

TEST_CASE("a gate with a list of its own takes that, and with an empty one nothing, instead") {
    const keyword_gate gate(published_entries(), "shared_attention");
    const auto no_banking = [](std::string_view n) { return n != "banking"; };
    CHECK(router(gate, {"shared_attention", "investment"}).route("a loan", no_banking).adapter ==
          "shared_attention");
    CHECK_THROWS_AS(router(gate, strings{}).route("a loan", no_banking), parameter_error);
    CHECK(router(gate, strings{}).route("a stock", no_banking).adapter == "investment");
}

TEST_CASE("case is folded for ASCII letters alone") {
    const keyword_gate gate({{"a", {"BaNk", "bank", "\xC3\x84RZTE"}, false}, {"b", {}, false}}, "b");
    CHECK(gate.entries()[0].keywords == strings{"bank", "\xC3\x84rzte"});
    CHECK(gate.choose("BANK").score == 1);
    CHECK(gate.choose("\xC3\x84rzte").score == 1);
    CHECK(gate.choose("\xC3\xA4rzte").score == 0);  // its lower case in UTF-8
    CHECK(gate.choose("@AZ[`az{").score == 0);
    CHECK(fires("az[", "@AZ[", matching::substring));
    CHECK_FALSE(fires("`", "@", matching::substring));  // 0x40 and 0x60: not letters
    CHECK_FALSE(fires("{", "[", matching::substring));
}

TEST_CASE("whole words fire where no letter, digit or underscore stands beside them") {
    for (const char* query : {"loan", "a loan", "loan.", "(LOAN)", "home-loan", "loan's", "loans loan",
                              "\xE2\x80\x9Cloan\xE2\x80\x9D", "loan\xE2\x80\x99s", "a\xC2\xA0loan\xC2\xA0",
                              "\xC2\xABloan\xC2\xBB", "\xE3\x80\x8Cloan\xE3\x80\x82"}) {
        CAPTURE(query);
        CHECK(fires("loan", query));
        CHECK(fires("loan", query, matching::substring));
    }
    for (const char* query :
         {"loans", "reloan", "loan2", "2loan", "\xC2\xA0xloan", "_loan", "loan_", "\xC3\xA9loan",
          "loan\xC3\xA9", "\xE6\x97\xA5loan", "loan\xE6\x97\xA5", "\xE3\x81\x82loan"}) {
        CAPTURE(query);
        CHECK_FALSE(fires("loan", query));
        CHECK(fires("loan", query, matching::substring));
    }
    CHECK_FALSE(published(matching::whole_words).route("A vagabond").score == 1);
    CHECK(published(matching::whole_words).route("A bond").adapter == "investment");
    CHECK(fires("credit card", "my Credit Card."));
    CHECK_FALSE(fires("credit card", "my credit  card"));
    CHECK(fires("c++", "in C++, too"));
    CHECK(fires("aa", "aaa aa"));
}

TEST_CASE("queries of any bytes are routed") {
    const router by = published();
    const std::string zeros("lo\0an \0bond\xFF\xC2", 14);
    CHECK(by.route(zeros).adapter == "investment");
    CHECK(published(matching::whole_words).route(zeros).adapter == "shared_attention");
    CHECK(by.route("\xC2").adapter == "shared_attention");
    std::string text(1 << 20, 'a');
    text += "bond";
    CHECK(by.route(text).adapter == "investment");
    CHECK(published(matching::whole_words).route(text).adapter == "shared_attention");
}

TEST_CASE("the gate agrees with a score by sets, for random entries and queries") {
    random_numbers generator(6);
    const auto pick = [&](unsigned n) { return static_cast<std::size_t>(generator() % n); };
    const auto word = [&](std::size_t longest) {
        std::string w(1 + pick(static_cast<unsigned>(longest)), 'a');
        for (char& c : w) {
            c = static_cast<char>('a' + static_cast<char>(pick(3)));
        }
        return w;
    };
    for (int round = 0; round < 300; ++round) {
        std::vector<gate_entry> entries;
        for (const char* name : {"x", "y", "z", "w"}) {
            gate_entry entry{name, {}, pick(5) == 0};
            for (std::size_t k = pick(5); k > 0; --k) {
                entry.keywords.push_back(word(4));
            }
            entries.push_back(entry);
        }
        const std::string query = word(30);
        std::string best = "z";
        std::size_t most = 0;
        for (const gate_entry& entry : entries) {
            std::set<std::string> fired;
            for (const std::string& keyword : entry.keywords) {
                if (query.find(keyword) != std::string::npos) {
                    fired.insert(keyword);
                }
            }
            if (!entry.always_active && fired.size() > most) {
                most = fired.size();
                best = entry.adapter;
            }
        }
        const routed r = router(keyword_gate(entries, "z")).route(query);
        CHECK(r.adapter == best);
        CHECK(r.score == most);
        CHECK(r.keywords.size() == most);
    }
}

TEST_CASE("a gate refuses entries that say nothing or contradict each other") {
    const auto refused = [](std::vector<gate_entry> entries, const char* fallback) {
        return refusal<parameter_error>([&] { keyword_gate(std::move(entries), fallback); });
    };
    CHECK(contains(refused({}, "a"), "no entry"));
    CHECK(contains(refused({{"", {}, false}}, ""), "without a name"));
    CHECK(contains(refused({{"a", {}, false}, {"b", {}, false}, {"a", {}, false}}, "a"), "\"a\" twice"));
    CHECK(contains(refused({{"a", {"x", ""}, false}}, "a"), "0 bytes"));
    CHECK(contains(refused({{"a", {std::string(257, 'x')}, false}}, "a"), "257 bytes"));
    CHECK(contains(refused({{"a", {}, false}}, "b"), "fallback \"b\""));
    CHECK(keyword_gate({{"a", {std::string(256, 'x')}, false}}, "a").choose(std::string(256, 'X')).score ==
          1);
}

TEST_CASE("a callable names the adapter, and a list says what to take where that is not loaded") {
    const auto by_length = [](std::string_view query) {
        return std::string(query.size() > 5 ? "long" : "short");
    };
    const router plain(by_length);
    CHECK(plain.route("abc").adapter == "short");
    CHECK(plain.route("abcdef").adapter == "long");
    CHECK(plain.route("abc").score == 0);
    CHECK(plain.route("abc").always_active.empty());
    const auto only = [](std::string_view expected) {
        return [expected](std::string_view name) { return name == expected; };
    };
    CHECK(contains(refusal<parameter_error>([&] { plain.route("abc", only("long")); }), "\"short\""));
    const router replaced(by_length, {"third", "long"});
    CHECK(replaced.route("abc", only("long")).adapter == "long");
    CHECK(replaced.route("abc", only("long")).chosen == "short");
    CHECK(replaced.route("abc").adapter == "short");
    CHECK_THROWS_AS(replaced.route("abc", only("fourth")), parameter_error);
}

TEST_CASE("an empty name stands for no choice, even if everything is loaded") {
    const router by([](std::string_view) { return std::string(); }, {"", "default"});
    CHECK(by.route("x").adapter == "default");
    CHECK_THROWS_AS(router([](std::string_view) { return std::string(); }).route("x"), parameter_error);
}

TEST_CASE("empty callables are refused, and exceptions of callables pass through") {
    const router::chooser nobody;
    const router::loaded nothing;
    CHECK_THROWS_AS(router{nobody}, parameter_error);
    CHECK_THROWS_AS(published().route("x", nothing), parameter_error);
    const router by([](std::string_view) -> std::string { throw std::runtime_error("mine"); });
    CHECK_THROWS_WITH(by.route("x"), "mine");
}

TEST_CASE("threads route at the same time") {
    const router by = published();
    std::array<std::size_t, 4> wrong{};
    on_threads(wrong.size(), [&](std::size_t t) {
        for (int k = 0; k < 200; ++k) {
            wrong[t] += by.route(t % 2 == 0 ? "a loan" : "a stock").adapter !=
                        (t % 2 == 0 ? "banking" : "investment");
        }
    });
    CHECK(wrong == std::array<std::size_t, 4>{});
}
