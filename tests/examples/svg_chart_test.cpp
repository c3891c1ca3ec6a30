#include "../../examples/common/svg_chart.hpp"

#include <tensafe/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// What is wrong with `xml`; empty if every tag is closed in order, attributes are quoted, and & starts an
/// entity.
std::string fault_in(std::string_view xml) {
    std::vector<std::string> open;
    bool root_closed = false;
    for (std::size_t i = 0; i < xml.size();) {
        if (xml[i] == '&') {
            const std::string_view rest = xml.substr(i);
            if (!rest.starts_with("&amp;") && !rest.starts_with("&lt;") && !rest.starts_with("&gt;") &&
                !rest.starts_with("&quot;") && !rest.starts_with("&#39;")) {
                return "a bare &: " + std::string(rest.substr(0, 20));
            }
        }
        if (static_cast<unsigned char>(xml[i]) < 0x20 && xml[i] != '\n') {
            return "a control character";
        }
        if (xml[i] != '<') {
            if (open.empty() && std::isspace(static_cast<unsigned char>(xml[i])) == 0) {
                return "text outside of the root";
            }
            ++i;
            continue;
        }
        std::size_t end = i + 1;
        for (bool quoted = false; end < xml.size() && (quoted || xml[end] != '>'); ++end) {
            quoted = quoted != (xml[end] == '"');
            if (xml[end] == '<') {
                return "a < within a tag";
            }
        }
        if (end == xml.size()) {
            return "a tag without end";
        }
        const std::string_view tag = xml.substr(i + 1, end - i - 1);
        const std::string name(tag.substr(tag.starts_with('/') ? 1 : 0,
                                          tag.find_first_of(" /", 1) - (tag.starts_with('/') ? 1 : 0)));
        if (tag.starts_with('/')) {
            if (open.empty() || open.back() != tag.substr(1)) {
                return "closed but not open: " + std::string(tag);
            }
            open.pop_back();
            root_closed = open.empty();
        } else {
            if (root_closed) {
                return "a second root";
            }
            if (!tag.ends_with('/')) {
                open.push_back(name);
            }
        }
        i = end + 1;
    }
    return !open.empty() ? "still open: " + open.back() : root_closed ? "" : "no root";
}

std::size_t count_of(std::string_view text, std::string_view part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) {
        ++count;
    }
    return count;
}

/// The number after `key="`, searched from `at` on.
double attribute(std::string_view svg, std::size_t at, std::string_view key) {
    const std::size_t start = svg.find(" " + std::string(key) + "=\"", at);
    REQUIRE(start != svg.npos);
    return std::stod(std::string(svg.substr(start + key.size() + 3, 20)));
}

/// The bar whose tooltip this is: the start of its tag.
std::size_t bar_at(std::string_view svg, const std::string& tooltip) {
    const std::size_t at = svg.find("<title>" + tooltip + "</title>");
    REQUIRE(at != svg.npos);
    return svg.rfind("<rect", at);
}

examples::bar_chart small_chart() {
    return {"Tokens a second",
            "two GPUs",
            "tokens/s",
            {"first", "second"},
            {{"published", {12.3, 25.5}}, {"measured", {0, 833}}},
            {"a note", "another"}};
}

}  // namespace

TEST_CASE("the checker of this test finds what is not well-formed") {
    CHECK(fault_in("<a><b x=\"1>2\"/></a>\n") == "");
    for (const char* bad : {"<a>", "<a></b>", "<a><b></a></b>", "<a/>x", "<a>&x</a>", "<a x=\"<\"/>", "x",
                            "<a", "<a></a><b></b>", "<a>\x01</a>"}) {
        INFO(bad);
        CHECK(fault_in(bad) != "");
    }
}

TEST_CASE("a chart is well-formed, whole, and the same bytes each time") {
    const std::string svg = examples::to_svg(small_chart());
    CHECK(fault_in(svg) == "");
    CHECK(svg == examples::to_svg(small_chart()));
    CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    for (const char* words : {">Tokens a second</text>", ">two GPUs</text>", ">tokens/s (logarithmic)</text>",
                              ">first</text>", ">second</text>", ">published</text>", ">measured</text>",
                              ">a note</text>", ">another</text>", "prefers-color-scheme: dark"}) {
        INFO(words);
        CHECK(count_of(svg, words) == 1);
    }
    CHECK(count_of(svg, "<title>first, published: 12.3</title>") == 1);
    CHECK(count_of(svg, "<title>second, measured: 833</title>") == 1);
    CHECK(count_of(svg, ">833</text>") == 1);
    CHECK(count_of(svg, "href") == 0);  // nothing from elsewhere
}

TEST_CASE("a value of 0 has no bar") {
    const std::string svg = examples::to_svg(small_chart());
    CHECK(count_of(svg, "</title></rect>") == 3);
    CHECK(count_of(svg, "first, measured") == 0);
}

TEST_CASE("ticks stand at powers of ten, and bars reach as far as their values between them") {
    const std::string svg = examples::to_svg(small_chart());
    for (const char* tick : {">1</text>", ">10</text>", ">100</text>", ">1,000</text>"}) {
        CHECK(count_of(svg, tick) == 1);
    }
    CHECK(count_of(svg, ">10,000</text>") + count_of(svg, ">0.1</text>") == 0);  // the axis ends at 2,000
    const auto tick = [&](const char* words) {
        return attribute(svg, svg.rfind("<text", svg.find(words)), "y") - 4;
    };
    const double decade = tick(">100</text>") - tick(">1,000</text>");
    CHECK(tick(">10</text>") - tick(">100</text>") == doctest::Approx(decade).epsilon(0.002));
    for (const auto& [name, value] :
         std::vector<std::pair<std::string, double>>{{"first, published: 12.3", 12.3},
                                                     {"second, published: 25.5", 25.5},
                                                     {"second, measured: 833", 833}}) {
        const std::size_t bar = bar_at(svg, name);
        const double wanted = tick(">100</text>") - decade * (std::log10(value) - 2);
        CHECK(std::fabs(attribute(svg, bar, "y") - wanted) < 0.3);
        CHECK(attribute(svg, bar, "height") >= 4);
    }
    // All bars stand on the same line, none over another.
    const auto bottom = [&](const std::string& name) {
        return attribute(svg, bar_at(svg, name), "y") + attribute(svg, bar_at(svg, name), "height");
    };
    CHECK(std::fabs(bottom("first, published: 12.3") - bottom("second, measured: 833")) < 0.3);
    CHECK(std::fabs(bottom("second, measured: 833") - tick(">1</text>")) < 0.3);  // where the axis starts
    const std::size_t left = bar_at(svg, "second, published: 25.5");
    CHECK(attribute(svg, left, "x") + attribute(svg, left, "width") <
          attribute(svg, bar_at(svg, "second, measured: 833"), "x"));
}

TEST_CASE("every bar is within the page, for values of any size") {
    for (const double value : {1e-6, 0.001, 0.999, 1.0, 1.001, 9.99, 10.0, 99999.0, 1e9}) {
        examples::bar_chart chart = small_chart();
        chart.series = {{"one", {value, 2 * value > 1e9 ? value : 2 * value}}};
        const std::string svg = examples::to_svg(chart);
        INFO(value);
        CHECK(fault_in(svg) == "");
        CHECK(count_of(svg, "</title></rect>") == 2);
        for (std::size_t bar = svg.find("rx=\"1.5\""); bar != svg.npos;
             bar = svg.find("rx=\"1.5\"", bar + 1)) {
            const std::size_t tag = svg.rfind("<rect", bar);
            CHECK(attribute(svg, tag, "height") > 2);
            CHECK(attribute(svg, tag, "height") <= 340 - 25);  // the number stands above it
            CHECK(attribute(svg, tag, "y") > 80);
        }
    }
}

TEST_CASE("text from outside stays text") {
    examples::bar_chart chart = small_chart();
    const std::string hostile = "<script>alert('1')</script>&\"\x01\xFF\xC0\x80\xED\xA0\x80 \xC3\xA9";
    chart.title = chart.subtitle = chart.axis = chart.categories[0] = chart.series[0].name = chart.notes[0] =
        hostile;
    const std::string svg = examples::to_svg(chart);
    CHECK(fault_in(svg) == "");
    CHECK(count_of(svg, "<script") == 0);
    CHECK(count_of(svg, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;") >= 6);
    CHECK(count_of(svg, "\x01") == 0);
    CHECK(count_of(svg, "\xFF") == 0);
    CHECK(count_of(svg, "\xC3\xA9") >= 6);
}

TEST_CASE("well-formed UTF-8 is kept and each byte of anything else is replaced") {
    const std::string replaced = "\xEF\xBF\xBD";
    for (const char* good : {"a~", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBD",
                             "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "\t\n\r"}) {
        CHECK(examples::xml_text(good) == good);
    }
    for (const char* bad : {"\x80", "\xC1", "\xF5", "\xC2", "\x1F", "\x08"}) {
        CHECK(examples::xml_text(bad) == replaced);
    }
    CHECK(examples::xml_text("\xE0\x9F\xBF") == replaced + replaced + replaced);  // overlong
    CHECK(examples::xml_text("\xED\xA0\x80") == replaced + replaced + replaced);  // half of a pair
    CHECK(examples::xml_text("\xEF\xBF\xBF") == replaced + replaced + replaced);  // U+FFFF
    CHECK(examples::xml_text("\xF0\x8F\xBF\xBF") == replaced + replaced + replaced + replaced);
    CHECK(examples::xml_text("\xF4\x90\x80\x80") == replaced + replaced + replaced + replaced);
    CHECK(examples::xml_text("\xC2"
                             "a") == replaced + "a");
    CHECK(examples::xml_text(std::string_view("\0", 1)) == replaced);
}

TEST_CASE("short numbers have three digits") {
    using examples::short_number;
    CHECK(short_number(0) == "0.00");
    CHECK(short_number(0.25) == "0.25");
    CHECK(short_number(7.694) == "7.69");
    CHECK(short_number(9.996) == "10.0");
    CHECK(short_number(81.967) == "82.0");
    CHECK(short_number(99.96) == "100");
    CHECK(short_number(1321.4) == "1321");
    CHECK(short_number(0.0013) == "1.3e-03");
    CHECK(short_number(std::numeric_limits<double>::max()).size() == 309);
}

TEST_CASE("a chart that cannot be drawn is refused, and the message says why") {
    const auto refused = [](auto change) {
        examples::bar_chart chart = small_chart();
        change(chart);
        try {
            static_cast<void>(examples::to_svg(chart));
        } catch (const tensafe::error& e) {
            return std::string(e.what());
        }
        return std::string("drawn");
    };
    CHECK(refused([](auto& c) { c.categories.clear(); }).find("got 0 categories") != std::string::npos);
    CHECK(refused([](auto& c) { c.series.clear(); }).find("0 series") != std::string::npos);
    CHECK(refused([](auto& c) { c.series.resize(8, c.series[0]); }).find("8 series") != std::string::npos);
    CHECK(refused([](auto& c) {
              c.series[1].values.pop_back();
          }).find("got 1 values in measured, expected 2") != std::string::npos);
    for (const double bad : {-1.0, 1e10, 1e-7, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
        CHECK(refused([&](auto& c) { c.series[0].values[1] = bad; }).find("in published, expected 0 or") !=
              std::string::npos);
    }
    CHECK(refused([](auto& c) { c.series.resize(7, c.series[0]); }) == "drawn");
}
