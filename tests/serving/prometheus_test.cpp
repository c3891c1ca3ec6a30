#include <tensafe/serving/meter.hpp>
#include <tensafe/serving/prometheus.hpp>

#include "../test.hpp"

using namespace tests;
using namespace tensafe::serving;

namespace {

/// A quoted value from the front of `rest`, with its escapes undone.
std::string take_quoted(std::string_view& rest) {
    REQUIRE(rest.starts_with('"'));
    std::string value;
    std::size_t k = 1;
    while (rest.at(k) != '"') {
        if (rest[k] == '\\') {
            ++k;
            REQUIRE((rest.at(k) == 'n' || rest.at(k) == '"' || rest.at(k) == '\\'));
            value += rest[k] == 'n' ? '\n' : rest[k];
        } else {
            value += rest[k];
        }
        ++k;
    }
    rest.remove_prefix(k + 1);
    return value;
}

using sample = std::tuple<std::string, std::string, std::string>;  // metric, adapter, client

/// What the format's page says a reader does: lines, comments, then name, labels and value.
std::map<sample, std::uint64_t> parse(const std::string& text) {
    REQUIRE((text.empty() || text.back() == '\n'));
    std::map<sample, std::uint64_t> samples;
    std::istringstream lines(text);
    std::string line;
    std::string family;
    while (std::getline(lines, line)) {
        if (line.starts_with("# TYPE ")) {
            family = line.substr(7, line.find(' ', 7) - 7);
            CHECK(line == "# TYPE " + family + " counter");
            continue;
        }
        if (line.starts_with("# HELP ")) {
            continue;
        }
        std::string_view rest = line;
        REQUIRE(rest.starts_with(family + "{adapter="));
        rest.remove_prefix(family.size() + 9);
        const std::string adapter = take_quoted(rest);
        std::string client;
        if (rest.starts_with(",client=")) {
            rest.remove_prefix(8);
            client = take_quoted(rest);
        }
        REQUIRE(rest.starts_with("} "));
        const bool added =
            samples.emplace(sample{family, adapter, client}, std::stoull(std::string(rest.substr(2)))).second;
        CHECK(added);  // a series that comes twice makes Prometheus refuse the page
    }
    return samples;
}

}  // namespace

TEST_CASE("the text of a snapshot is this one") {
    const meter_snapshot counters{{{"banking", "ann", {1, 2, 3, 4, 5, 6}}}};
    CHECK(prometheus_text(counters) ==
          "# HELP tensafe_requests_total Encrypted requests answered.\n"
          "# TYPE tensafe_requests_total counter\n"
          "tensafe_requests_total{adapter=\"banking\",client=\"ann\"} 1\n"
          "# HELP tensafe_refused_requests_total Requests not answered.\n"
          "# TYPE tensafe_refused_requests_total counter\n"
          "tensafe_refused_requests_total{adapter=\"banking\",client=\"ann\"} 2\n"
          "# HELP tensafe_tokens_total Hidden states answered; a generated token of a whole model is one for "
          "each of its inputs.\n"
          "# TYPE tensafe_tokens_total counter\n"
          "tensafe_tokens_total{adapter=\"banking\",client=\"ann\"} 3\n"
          "# HELP tensafe_products_total Products of plaintexts and ciphertexts.\n"
          "# TYPE tensafe_products_total counter\n"
          "tensafe_products_total{adapter=\"banking\",client=\"ann\"} 4\n"
          "# HELP tensafe_request_bytes_total Bytes of requests, refused ones included.\n"
          "# TYPE tensafe_request_bytes_total counter\n"
          "tensafe_request_bytes_total{adapter=\"banking\",client=\"ann\"} 5\n"
          "# HELP tensafe_reply_bytes_total Bytes of replies.\n"
          "# TYPE tensafe_reply_bytes_total counter\n"
          "tensafe_reply_bytes_total{adapter=\"banking\",client=\"ann\"} 6\n");
}

TEST_CASE("an empty meter has families without series") {
    CHECK(parse(prometheus_text({})).empty());
    CHECK(contains(prometheus_text({}), "# TYPE tensafe_tokens_total counter\n"));
}

TEST_CASE("backslashes, quotation marks and line feeds of names are escaped, and nothing else") {
    const meter_snapshot counters{
        {{"a\\n\"b", "x\ny} 7", {1, 0, 0, 0, 0, 0}}, {"{,=#}", "\xC3\xA9\t", {2, 0, 0, 0, 0, 0}}}};
    const std::string text = prometheus_text(counters);
    CHECK(contains(text, "{adapter=\"a\\\\n\\\"b\",client=\"x\\ny} 7\"} 1\n"));
    CHECK(contains(text, "{adapter=\"{,=#}\",client=\"\xC3\xA9\t\"} 2\n"));
    const auto samples = parse(text);
    CHECK(samples.at({"tensafe_requests_total", "a\\n\"b", "x\ny} 7"}) == 1);
}

TEST_CASE("a page of a meter reads back as its counters, whatever clients call themselves") {
    meter m({.longest_name = 40, .most_adapters = 3, .most_clients = 5, .most_series = 12});
    const std::vector<std::string> names = {"plain",
                                            "\"} 1\ntensafe_tokens_total{adapter=\"x",
                                            "\\",
                                            "\\\"",
                                            "\xFF",
                                            "other",
                                            "",
                                            std::string(50, 'x'),
                                            "caf\xC3\xA9",
                                            "# TYPE x"};
    std::uint64_t k = 1;
    for (const std::string& adapter : names) {
        for (const std::string& client : names) {
            m.record(adapter, client, {1, 0, k, 2 * k, 3 * k, std::numeric_limits<std::uint64_t>::max()});
            ++k;
        }
    }
    const meter_snapshot counters = m.snapshot();
    const auto samples = parse(prometheus_text(counters));
    CHECK(samples.size() == 6 * counters.series.size());
    for (const auto& each : counters.series) {
        CHECK(samples.at({"tensafe_tokens_total", each.adapter, each.client}) == each.used.tokens);
        CHECK(samples.at({"tensafe_refused_requests_total", each.adapter, each.client}) == each.used.refused);
        CHECK(samples.at({"tensafe_reply_bytes_total", each.adapter, each.client}) == each.used.bytes_down);
    }
}

TEST_CASE("without client labels each adapter has one series, the sum of its clients") {
    meter m;
    m.record("a", "secret-name", {1, 0, 1, 0, 0, 0});
    m.record("a", "bob", {1, 0, 2, 0, 0, 0});
    m.record("b", "bob", {1, 0, 4, 0, 0, 0});
    const std::string text = prometheus_text(m.snapshot(), metric_labels::adapter);
    CHECK_FALSE(contains(text, "secret-name"));
    CHECK_FALSE(contains(text, "client"));
    const auto samples = parse(text);
    CHECK(samples.size() == 6 * 2);
    CHECK(samples.at({"tensafe_tokens_total", "a", ""}) == 3);
    CHECK(samples.at({"tensafe_tokens_total", "b", ""}) == 4);
}
