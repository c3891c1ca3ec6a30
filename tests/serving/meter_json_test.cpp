#include <tensafe/serving/meter.hpp>
#include <tensafe/serving/meter_json.hpp>

#include "../test.hpp"

using namespace tests;
using namespace tensafe::serving;

namespace {

const std::string one_series =
    R"({"format":"tensafe meter","version":1,)"
    R"("total":{"requests":1,"refused":2,"tokens":3,"products":4,"bytes_up":5,"bytes_down":6},)"
    R"("series":[{"adapter":"banking","client":"ann","requests":1,"refused":2,"tokens":3,"products":4,"bytes_up":5,"bytes_down":6}]})";

/// `text` with the last `from` replaced.
std::string replaced_last(std::string text, std::string_view from, std::string_view to) {
    const std::size_t at = text.rfind(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
}

std::string refusal_of(const std::string& text, const meter_limits& limits = {}) {
    return refusal<format_error>([&] { read_meter_json(text, "counters.json", limits); });
}

}  // namespace

TEST_CASE("the JSON of a snapshot is this one") {
    CHECK(meter_json({{{"banking", "ann", {1, 2, 3, 4, 5, 6}}}}) == one_series);
    CHECK(meter_json({}) ==
          R"({"format":"tensafe meter","version":1,)"
          R"("total":{"requests":0,"refused":0,"tokens":0,"products":0,"bytes_up":0,"bytes_down":0},)"
          R"("series":[]})");
    CHECK(contains(meter_json({}, 2), "\n  \"version\": 1,\n"));
}

TEST_CASE("counters come back from JSON as they were, the largest ones and odd names too") {
    meter m;
    random_numbers generator(9);
    for (const char* adapter : {"a", "quote\" back\\slash", "caf\xC3\xA9", "\xF0\x9F\x98\x80"}) {
        for (const char* client : {"other", "</script>", "x"}) {
            m.record(
                adapter, client,
                {generator(), generator(), generator(), std::numeric_limits<std::uint64_t>::max(), 0, 1});
        }
    }
    const meter_snapshot before = m.snapshot();
    CHECK(before.total().products == std::numeric_limits<std::uint64_t>::max());  // saturated
    CHECK(read_meter_json(meter_json(before)) == before);
    CHECK(read_meter_json(meter_json(before, 4)) == before);
    CHECK(read_meter_json(meter_json({})) == meter_snapshot{});
    meter after;
    after.merge(read_meter_json(meter_json(before)));
    CHECK(after.snapshot() == before);
}

TEST_CASE("bytes that are no UTF-8 are replaced, not refused") {
    const std::string text = meter_json({{{"a\xFF", "b", {}}}});
    CHECK(contains(text, "a\xEF\xBF\xBD"));
    CHECK(read_meter_json(text).series.at(0).adapter == "a\xEF\xBF\xBD");
}

TEST_CASE("JSON of another form is refused, and the message says where") {
    REQUIRE(read_meter_json(one_series).series.size() == 1);
    const std::size_t list = one_series.find("[");
    const std::vector<refused_text> rows = {
        {"", "\"counters.json\": not valid JSON"},
        {one_series.substr(0, one_series.size() - 1), "not valid JSON"},
        {one_series + "x", "not valid JSON"},
        {"[]", "got an array, expected an object of 4 members"},
        {"{}", "an object of 0 members"},
        {one_series.substr(0, list) + "{}}", "series: got an object of 0 members"},
        {replaced(one_series, "tensafe meter", "meter"), "format: got \"\\\"meter\\\"\""},
        {replaced(one_series, "\"tensafe meter\"", "7"), "format: got \"7\""},
        {replaced(one_series, "\"format\"", "\"Format\""), "missing key \"format\""},
        {replaced(one_series, "\"version\"", "\"extra\":0,\"version\""), "an object of 5 members"},
        {replaced(one_series, "\"version\":1", "\"version\":1,\"version\":1"), "duplicate key"},
        {replaced(one_series, "\"client\":\"ann\"", "\"client\":null"), "series 0: client: got \"null\""},
        {replaced(one_series, "\"client\"", "\"customer\""), "series 0: missing key \"client\""},
        {replaced(one_series, "\"client\":\"ann\",", ""), "series 0: got an object of 7 members"},
        {replaced(one_series, "[{", "[4,{"), "series 0: got \"4\""}};
    check_refused(rows, "\"counters.json\"",
                  [](const std::string& text) { read_meter_json(text, "counters.json"); });
    for (const char* version : {"2", "0", "1.0", "-1", "\"1\"", "null", "[]"}) {
        CAPTURE(version);
        CHECK(
            contains(refusal_of(replaced(one_series, "\"version\":1", std::string("\"version\":") + version)),
                     "expected 1"));
    }
}

TEST_CASE("counts that are no whole numbers of 64 bits are refused") {
    for (const char* count : {"-1", "1.5", "1e3", "18446744073709551616", "\"3\"", "true", "null"}) {
        CAPTURE(count);
        CHECK(contains(
            refusal_of(replaced_last(one_series, "\"tokens\":3", std::string("\"tokens\":") + count)),
            "series 0: tokens"));
    }
    CHECK(contains(refusal_of(replaced_last(one_series, "\"tokens\":3", "\"tokens\":4")), "not the sum"));
    CHECK(contains(refusal_of(replaced(one_series, "\"tokens\":3", "\"tokens\":-3")), "total: tokens"));
    CHECK(contains(refusal_of(replaced(one_series, "\"refused\":2,", "")),
                   "total: got an object of 5 members"));
}

TEST_CASE("a pair that comes twice is refused") {
    const std::size_t start = one_series.find("[{") + 1;
    const std::string series = one_series.substr(start, one_series.size() - start - 2);
    std::string text = replaced(one_series, series, series + "," + series);
    for (const char* total :
         {"requests\":1", "refused\":2", "tokens\":3", "products\":4", "bytes_up\":5", "bytes_down\":6"}) {
        const std::string name(total, std::string(total).find(':') + 1);
        text = replaced(text, total,
                        name + std::to_string(2 * std::stoi(std::string(total).substr(name.size()))));
    }
    CHECK(contains(refusal_of(text), "series 1: adapter \"banking\" and client \"ann\" come twice"));
}

TEST_CASE("text beyond the limit is refused before it is read") {
    const meter_limits few{4, 2, 3, 4};
    CHECK(longest_meter_json(few) == 7 * (16 + 816) + 2048);
    const std::string text(longest_meter_json(few) + 1, ' ');
    CHECK(contains(refusal_of(text, few), "got 7873 bytes, expected at most 7872"));
    CHECK(contains(refusal_of(text.substr(1), few), "not valid JSON"));
    CHECK(longest_meter_json() == 101'001 * (512 + 816) + 2048);
    // Whatever the limits are, nothing overflows.
    constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    CHECK(longest_meter_json({any, any, any, any}) > std::size_t{1} << 60);
}

TEST_CASE("text of more values than a meter has is refused at the first of them") {
    const meter_limits few{4, 2, 3, 4};  // seven series
    const std::string start = R"({"format":"tensafe meter","version":1,"series":[)";
    std::string text = start + "[]";
    for (int i = 0; i < 500; ++i) {
        text += ",[]";
    }
    REQUIRE(text.size() < longest_meter_json(few));
    // The text is cut: what is told is what was found first.
    CHECK(contains(refusal_of(text, few), "more than 74 JSON values"));
    CHECK(contains(refusal_of(start + "0,0,0", few), "not valid JSON"));
    std::string longer = start + "0";
    for (int i = 0; i < 909'100; ++i) {
        longer += ",0";
    }
    CHECK(contains(refusal_of(longer), "more than 909020 JSON values"));
}

TEST_CASE("a meter that is full comes back with its own limits, however long its text is") {
    for (const std::size_t longest : {std::size_t{1}, std::size_t{40}, std::size_t{1000}}) {
        const meter_limits limits{longest, 3, 50, 60};
        meter m(limits);
        // A backslash stands before each quote; two characters tell the names apart.
        const auto name = [&](std::size_t i) {
            return longest == 1 ? std::string(1, static_cast<char>('0' + i))
                                : std::string(longest - 2, '"') + static_cast<char>('0' + i / 10) +
                                      static_cast<char>('0' + i % 10);
        };
        constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
        for (std::size_t adapter = 0; adapter < 4; ++adapter) {
            for (std::size_t client = 0; client < 51; ++client) {
                m.record(name(adapter), name(client), {most, most, most, most, most, most});
            }
        }
        const meter_snapshot before = m.snapshot();
        REQUIRE(before.series.size() >= 60);
        for (const int indent : {-1, 0, 4, 16}) {
            const std::string text = meter_json(before, indent);
            CHECK(text.size() <= longest_meter_json(limits));
            CHECK(read_meter_json(text, "counters", limits) == before);
        }
        CHECK(contains(refusal_of(meter_json(before), {longest, 1, 1, 1}), "counters.json"));
    }
}
