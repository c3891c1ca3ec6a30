#include <tensafe/io/name_pattern.hpp>

#include "../test.hpp"

using namespace tests;
using tensafe::io::name_patterns;

namespace {

bool fits(const std::string& key, std::string_view name) {
    name_patterns::usage used;
    return name_patterns({key}, "list").first(name, used).has_value();
}

struct row {
    std::string key;
    std::vector<std::string> fitting;
    std::vector<std::string> others;
};

// What CPython 3.11 says of re.match(r"(.*\.)?(KEY)$", name).
const std::vector<row> rows = {
    {"q_proj", {"q_proj", "a.q_proj", "q_proj\n"}, {"aq_proj", "q_proj.a", "q_proj\n\n", "a\n.q_proj", ""}},
    {"self.attn.q", {"x.self_attn.q", "selfXattnXq", "self.attn.q"}, {"self\nattn.q", "selfattnq"}},
    {"a\\.q", {"a.q", "x.a.q"}, {"a_q"}},
    {"(q|v)_proj", {"a.q_proj", "v_proj"}, {"k_proj", "qv_proj"}},
    {"q|v_proj", {"a.q", "v_proj"}, {"q_proj", "qv_proj"}},
    {"(?:q|)_proj", {"q_proj", "_proj"}, {"v_proj"}},
    {"^a.0.q", {"a.0.q", "aX0.q"}, {"x.a.0.q"}},
    {"^q|v", {"q", "a.v"}, {"a.q"}},
    {"a.^q", {}, {"a.q", "q"}},
    {"q$", {"q", "a.q", "q\n"}, {"qa"}},
    {"q$\n", {"q\n"}, {"q", "q\n\n"}},
    {"l\\.[0-9]\\.q", {"l.7.q", "a.l.0.q"}, {"l.17.q", "l.x.q"}},
    {"l\\.\\d{1,2}\\.q", {"l.7.q", "l.17.q"}, {"l.117.q", "l..q"}},
    {"[^0-3]q", {"xq", "4q", ".q", "a.4q"}, {"2q", "q"}},
    {"[]a]q[^]a]", {"]qb", "aq."}, {"bqb", "aq]"}},
    {"[a\\-z]q", {"-q", "zq"}, {"bq"}},
    {"[-a]q", {"-q", "aq"}, {"bq"}},
    {"[a-]q", {"-q", "aq"}, {"bq"}},
    {"[\\w.]+q", {"a.b_0.q", "xq"}, {"-q", "q"}},
    {"\\W\\D\\S", {"-a_"}, {"aa_", "-0_", "-a "}},
    {"a*b", {"b", "aab", "x.b"}, {"ba", "cb"}},
    {"a+?b", {"ab", "aab"}, {"b"}},
    {"a??b", {"ab", "b"}, {"aab"}},
    {"(ab){2}", {"abab", "x.abab"}, {"ab", "ababab"}},
    {"(ab){2,}", {"abab", "ababab"}, {"ab"}},
    {"(ab){,2}c", {"c", "abc", "ababc"}, {"abababc"}},
    {"(a|b{2}){3}", {"aaa", "abba", "bbbbbb"}, {"aa", "abb"}},
    {"a{0}b", {"b"}, {"ab"}},
    {"a{}b", {"a{}b"}, {"b", "ab"}},
    {"a{x}b{1", {"a{x}b{1"}, {"ab"}},
    {"(a*)*b", {"b", "aaab"}, {"ca"}},
    {"()*b", {"b"}, {"ab"}},
    {".*", {"", "a", "a.b"}, {"a\n\nb"}},
    {"", {"", "a.", "\n"}, {"a"}},
    {"层.q", {"层.q", "a.层xq"}, {"层q", "x层.q"}},
    {"[一-龥].q", {"层.q"}, {"é.q", "层q"}},
    {"\\[0\\]", {"a.[0]"}, {"0"}},
};

}  // namespace

TEST_CASE("a key fits the names that Python's expression matches, and no other") {
    for (const row& each : rows) {
        CAPTURE(each.key);
        for (const std::string& name : each.fitting) {
            CAPTURE(name);
            CHECK(fits(each.key, name));
        }
        for (const std::string& name : each.others) {
            CAPTURE(name);
            CHECK_FALSE(fits(each.key, name));
        }
    }
}

TEST_CASE("of several keys that fit the first one counts, and all are marked") {
    const name_patterns keys({"x", "a.q", "^a.q$", "q", ".q", "(q)", "b.q"}, "list");
    name_patterns::usage used;
    CHECK(keys.first("a.q", used) == 1);
    CHECK(keys.first("c.q", used) == 3);
    CHECK_FALSE(keys.first("c.k", used));
    CHECK(used.fitted == std::vector<bool>{false, true, true, true, false, true, false});
}

TEST_CASE("what is outside the subset is refused by name") {
    const std::vector<std::pair<std::string, std::string>> refused = {
        {"(?i)q", R"(a group that begins with "(?")"},
        {"(?!k)q", R"(a group that begins with "(?")"},
        {"(?P<n>q)", R"(a group that begins with "(?")"},
        {"(q)\\1", R"("\1")"},
        {"\\bq", R"("\b")"},
        {"[\\b]q", R"("\b")"},
        {"q\\Z", R"("\Z")"},
        {"a*+q", "possessive"},
        {"a**", "a repetition of"},
        {"^*q", "a repetition of an anchor"},
        {"*q", "a repetition of nothing"},
        {"(|+)q", "a repetition of nothing"},
        {"(q", "\"(\" without \")\""},
        {"q)", "\")\" without \"(\""},
        {"[q", R"("[" without "]")"},
        {"[]", R"("[" without "]")"},
        {"q\\", "a backslash at the end"},
        {"[z-a]", "a range of a class"},
        {"[\\d-z]", "a range of a class"},
        {"a{2,1}", "the wrong way round"},
        {"a{5000}", "longer than"},
        {"(((a{99}){99}){99}){99}", "longer than"},
        {"(){99999999999999999999}", "longer than"},
        {std::string(21, '(') + "q" + std::string(21, ')'), "more than 20 groups"},
        {std::string(1001, 'q'), "more than 1000 bytes"},
    };
    for (const auto& each : refused) {
        CAPTURE(each.first);
        CHECK_THROWS_WITH_AS(name_patterns({"fine", each.first}, "list"), Contains(each.second.c_str()),
                             unsupported_error);
    }
    CHECK_THROWS_WITH_AS(fits("\\w", "\xe5\xb1\x82"), Contains("beyond ASCII"), unsupported_error);
}

TEST_CASE("expressions that make other matchers backtrack take linear time") {
    CHECK_FALSE(fits("(a*)*b", std::string(100'000, 'a') + "c"));
    CHECK_FALSE(fits("(a|a|a)+b", std::string(100'000, 'a') + "."));
    CHECK_FALSE(fits("c(.*.*)*", std::string(100'000, 'a')));
}

TEST_CASE("patterns and names that take more than the allowed steps are refused") {
    const name_patterns patterns(std::vector<std::string>(1000, "x.*"), "list");
    name_patterns::usage used;
    CHECK_THROWS_WITH_AS(patterns.first(std::string(1'000'000, 'a'), used), Contains("list: not supported"),
                         unsupported_error);
}
