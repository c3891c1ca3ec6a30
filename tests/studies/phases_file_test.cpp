#include "../../studies/roofline/phases_file.hpp"

#include <cstdio>
#include <regex>

#include "../../studies/roofline/roofline.hpp"
#include "../io/file_builder.hpp"

using namespace tests;
using doctest::Approx;

namespace {

const std::string demo =
    R"({"parameter_set":"private_n4096","back_end":"avx512","packing":"coefficient_tiles","rows":4,)"
    R"("protection":"protected","pooled":false,"ms_per_token":0.5784405,"phases":{"encrypt":0.0798035,)"
    R"("expand":0.0273105,"multiply":0.051747,"protect":0.298444,"pack":0.014717,"decrypt":0.024872,)"
    R"("b":0.079889},"bytes":189696})";

std::string row(const std::string& step, const std::string& kind, double time, const std::string& unit) {
    const std::string name = "protected_step/" + step + "/rank:32/d:2048";
    return R"({"name":")" + name + "_" + kind + R"(","run_name":")" + name + R"(","run_type":")" +
           (kind == "iteration" ? "iteration" : "aggregate") + R"(","aggregate_name":")" + kind +
           R"(","real_time":)" + std::to_string(time) + R"(,"time_unit":")" + unit + R"("})";
}

std::string benchmark(const std::string& extra = "") {
    return R"({"context":{"num_cpus":2},"benchmarks":[)" + extra + row("encrypt", "mean", 900, "us") + "," +
           row("encrypt", "median", 63, "us") + "," + row("encrypt", "cv", 0.02, "us") + "," +
           row("expand", "iteration", 21000, "ns") + "," + row("expand", "iteration", 5, "ms") + "," +
           row("multiply", "median", 0.035, "ms") + "," + row("make_zeros", "median", 158, "us") + "," +
           row("protect_pooled", "median", 94, "us") + "," + row("finish", "median", 11, "us") + "," +
           row("decrypt", "iteration", 900, "us") + "," + row("decrypt", "median", 16, "us") + "]}";
}

std::string refused(const std::string& text) {
    try {
        static_cast<void>(studies::parse_phases(text, "\"run.txt\""));
    } catch (const tensafe::format_error& e) {
        CHECK(std::string(e.what()).starts_with("\"run.txt\": "));
        return e.what();
    }
    return "accepted";
}

}  // namespace

TEST_CASE("the demo's JSON is read, alone or below its table") {
    for (const std::string& text :
         {demo, demo + "\n", "site   q_proj, rank 32\n\nphase  ms\n" + demo + "\r\n"}) {
        const studies::phase_times times = studies::parse_phases(text, "\"run.txt\"");
        CHECK(times.phases.encrypt == 0.0798035);
        CHECK(times.phases.expand == 0.0273105);
        CHECK(times.phases.multiply == 0.051747);
        CHECK(times.phases.protect == 0.298444);
        CHECK(times.phases.pack == 0.014717);
        CHECK(times.phases.decrypt == 0.024872);
        CHECK(times.phases.b == 0.079889);
        CHECK(times.source == "private_n4096, coefficient_tiles, protected, avx512");
    }
    const std::string blocks = R"({"phases":{"client_prepare":1,"server_prepare":2,"accept":4,"encrypt":8,)"
                               R"("answer":16,"decrypt":32,"b":64}})";
    const auto phases = studies::parse_phases(blocks, "f").phases;
    CHECK(phases.client() == 1 + 4 + 8 + 32 + 64);
    CHECK(phases.server() == 2 + 16);
    // Bare replies have no phase protect, and pipelines leave out what took no time.
    const std::string bare = replaced(demo, R"("protect":0.298444,)", "");
    CHECK(studies::parse_phases(bare, "f").phases.protect == 0);
}

TEST_CASE("Google Benchmark's JSON is read: medians before runs, in any unit") {
    const studies::phase_times times = studies::parse_phases(benchmark(), "\"bench.json\"");
    CHECK(times.phases.encrypt == Approx(0.063));
    CHECK(times.phases.expand == Approx(0.021));
    CHECK(times.phases.multiply == Approx(0.035));
    CHECK(times.phases.protect == Approx(0.158 + 0.094));
    CHECK(times.phases.pack == Approx(0.011));
    CHECK(times.phases.decrypt == Approx(0.016));
    CHECK(times.phases.b == 0);
    CHECK(contains(times.source, "without b"));
    CHECK(studies::parse_phases(benchmark("7, {}, {\"run_name\": 3},"), "f").phases.pack == Approx(0.011));
}

TEST_CASE("hostile text, and benchmarks that lack a step or speak of another unit, are refused by name") {
    const auto changed = [](const char* from, const char* to) { return replaced(demo, from, to); };
    const std::string of_benchmark = benchmark();
    const std::string last = R"("time_unit":"ms"},{"name":"protected_step/make)";
    for (const refused_text& one : std::initializer_list<refused_text>{
             {"", "not valid JSON"},
             {"no JSON at all\n", "not valid JSON"},
             {"[1, 2]", "got an array, expected an object"},
             {"{}", "expected an object \"phases\""},
             {R"({"phases": [1]})", "expected an object \"phases\""},
             {R"({"phases": {}})", "expected times above 0"},
             {changed("\"expand\"", "\"expnd\""), "phase \"expnd\" is not known"},
             {changed("0.0798035", "-1"), "phase \"encrypt\": got \"-1\""},
             {changed("0.0798035", "\"1\""), "expected milliseconds"},
             {changed("0.0798035", "3.7e6"), "expected milliseconds"},
             {changed("0.0798035", "1e999"), "not valid JSON"},
             {changed("0.0798035", "null"), "expected milliseconds"},
             {changed("0.0798035", "0"), "expected times above 0"},
             {changed("0.051747", "0"), "expected times above 0"},
             {changed("0.024872", "0"), "expected times above 0"},
             {changed("\"b\"", "\"encrypt\""), "duplicate key"},
             {std::string(100000, '['), "nested deeper"},
             {demo + std::string(1, '\0'), "zero byte"},
             {changed("private_n4096", "\xFF"), "not valid JSON"},
             {R"({"benchmarks": []})", "no benchmark protected_step/encrypt/rank:32/d:2048"},
             {std::regex_replace(of_benchmark, std::regex("/finish/"), "/other/"),
              "no benchmark protected_step/finish"},
             {replaced(of_benchmark, last, replaced(last, "ms", "h")),
              "got time_unit \"h\", expected ns, us or ms"},
             {replaced(of_benchmark, "\"real_time\":63", "\"other\":63"), "no benchmark"},
             {replaced(of_benchmark, "\"real_time\":63", "\"real_time\":-63"), "expected milliseconds"}}) {
        CAPTURE(one.piece);
        CHECK(contains(refused(one.text), one.piece));
    }
}

TEST_CASE("a file is read whole, and one that is missing or too long is refused") {
    const temporary_directory folder;
    const auto path = folder.put("run.txt", "table\n" + demo + "\n");
    const studies::phase_times times = studies::read_phases(path);
    CHECK(times.phases.total() == Approx(0.576783));
    CHECK(times.source == "\"run.txt\": private_n4096, coefficient_tiles, protected, avx512");
    std::filesystem::resize_file(path, (std::size_t{4} << 20) + 1);
    CHECK_THROWS_AS(studies::read_phases(path), tensafe::format_error);
    CHECK_THROWS_AS(studies::read_phases(folder.path()), tensafe::io_error);
    CHECK_THROWS_AS(studies::read_phases(folder.path() / "none"), tensafe::io_error);
}

TEST_CASE("recorded phases are those on the page of benchmarks") {
    const auto page =
        std::filesystem::path(TENSAFE_TEST_DATA).parent_path().parent_path() / "docs" / "benchmarks.md";
    std::ifstream file(page);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::string header =
        "| | encrypt | expand | multiply | make 8 zeros | protect, pooled | pack | decrypt |\n";
    const std::size_t at = text.find(header);
    REQUIRE(at != text.npos);
    const std::size_t line = text.find("| AVX-512 | ", at);
    REQUIRE(line != text.npos);
    double us[7] = {};
    REQUIRE(std::sscanf(text.c_str() + line, "| AVX-512 | %lf | %lf | %lf | %lf | %lf | %lf | %lf |", &us[0],
                        &us[1], &us[2], &us[3], &us[4], &us[5], &us[6]) == 7);
    const auto& recorded = studies::recorded_phases;
    CHECK(recorded.encrypt == Approx(us[0] / 1000));
    CHECK(recorded.expand == Approx(us[1] / 1000));
    CHECK(recorded.multiply == Approx(us[2] / 1000));
    CHECK(recorded.protect == Approx((us[3] + us[4]) / 1000));
    CHECK(studies::recorded_pooled_phases.protect == Approx(us[4] / 1000));
    CHECK(recorded.pack == Approx(us[5] / 1000));
    CHECK(recorded.decrypt == Approx(us[6] / 1000));
    CHECK(studies::recorded_pooled_phases.total() == Approx(recorded.total() - us[3] / 1000));
}

TEST_CASE("a long name is cut between characters, so that what is printed of it stays UTF-8") {
    for (const std::string& name :
         {std::string(39, 'x') + "\xC3\xA9 and more", std::string(37, 'x') + "\xF0\x9F\x98\x80!",
          std::string(38, 'x') + "\xC3\xA9", std::string(50, 'x')}) {
        const std::string source = studies::parse_phases(replaced(demo, "private_n4096", name), "f").source;
        const std::string head = source.substr(0, source.find(", "));
        CAPTURE(head);
        CHECK(head.size() >= 37);
        CHECK(head.size() <= 40);
        CHECK(name.starts_with(head));
        CHECK(tensafe::is_printable_utf8(head));
        CHECK((head.size() == 40) == (tensafe::is_printable_utf8(name.substr(0, 40))));
    }
    CHECK(contains(studies::parse_phases(replaced(demo, "private_n4096", "a\\u001b[2J"), "f").source,
                   R"("a\u001b[2J")"));
}
