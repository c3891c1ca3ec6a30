#pragma once

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

/// Bars of one colour, one for each category; 0 draws none.
struct bar_series {
    std::string name;
    std::vector<double> values;
};

/// Groups of bars over a logarithmic axis.
struct bar_chart {
    std::string title;
    std::string subtitle;
    std::string axis;  ///< what the values are
    std::vector<std::string> categories;
    std::vector<bar_series> series;
    std::vector<std::string> notes;  ///< lines below
};

/// Three digits, or all those before the point: "0.25", "7.69", "81.9", "1321".
inline std::string short_number(double value) {
    std::array<char, 400> digits{};  // the largest double has 309 before the point
    const double size = std::fabs(value);
    const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    const auto end = size > 0 && size < 0.01 ? std::to_chars(digits.data(), digits.data() + digits.size(),
                                                             value, std::chars_format::scientific, 1)
                                             : std::to_chars(digits.data(), digits.data() + digits.size(),
                                                             value, std::chars_format::fixed, decimals);
    return std::string(digits.data(), end.ptr);
}

namespace detail {

/// Bytes of the well-formed UTF-8 character at the start of `text` that XML allows; 0 if there is none.
inline std::size_t character_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) {
        return lead >= 0x20 || lead == '\t' || lead == '\n' || lead == '\r' ? 1 : 0;
    }
    const std::size_t length = lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : 4;
    if (lead < 0xC2 || lead > 0xF4 || text.size() < length) {
        return 0;
    }
    unsigned code = lead & (0xFFU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0U) != 0x80U) {
            return 0;
        }
        code = code << 6 | (byte(i) & 0x3FU);
    }
    const bool overlong = code < (length == 4 ? 0x10000U : length == 3 ? 0x800U : 0x80U);
    const bool forbidden = (code >= 0xD800U && code < 0xE000U) || code == 0xFFFEU || code == 0xFFFFU;
    return overlong || forbidden || code > 0x10FFFFU ? 0 : length;
}

}  // namespace detail

/// `text` as the content of an element or attribute, whoever wrote it: what XML does not allow becomes
/// U+FFFD.
inline std::string xml_text(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const std::size_t length = detail::character_length(text);
        switch (length == 1 ? text.front() : '\0') {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&quot;";
                break;
            case '\'':
                result += "&#39;";
                break;
            default:
                result += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
        }
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return result;
}

namespace detail {

/// Where on the page a chart stands, and how its values become heights.
struct chart_frame {
    static constexpr double width = 1000;
    static constexpr double left = 70;
    static constexpr double right = 980;
    static constexpr double plot_height = 340;
    double top = 0;
    int low = 0;  ///< the axis starts at 10^low
    double most = 1;

    double bottom() const { return top + plot_height; }
    double y(double value) const {
        return bottom() - plot_height * (std::log10(value) - low) / (std::log10(most) - low);
    }
};

inline std::string coordinate(double value) {
    std::array<char, 32> digits{};
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed, 1);
    return std::string(digits.data(), end.ptr);
}

/// Text at (x, y); `attributes` are the rest of the tag.
inline std::string text_at(double x, double y, std::string_view attributes, std::string_view words) {
    return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" " + std::string(attributes) + ">" +
           xml_text(words) + "</text>\n";
}

inline std::string rectangle(double x, double y, double width, double height, std::string_view attributes) {
    return "<rect x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" width=\"" + coordinate(width) +
           "\" height=\"" + coordinate(height) + "\" " + std::string(attributes);
}

/// 10^exponent in digits.
inline std::string power_of_ten(int exponent) {
    const auto zeros = static_cast<std::size_t>(std::abs(exponent));
    if (exponent < 0) {
        return "0." + std::string(zeros - 1, '0') + "1";
    }
    std::string digits = "1" + std::string(zeros, '0');
    for (std::size_t i = digits.size(); i > 3; i -= 3) {
        digits.insert(i - 3, ",");
    }
    return digits;
}

// Okabe and Ito's colours, distinct for colour-blind readers too; those that show on white and on black.
inline constexpr std::array<std::string_view, 7> series_colours{"#8A8A8A", "#E69F00", "#0072B2", "#56B4E9",
                                                                "#009E73", "#D55E00", "#CC79A7"};

inline void check(const bar_chart& chart) {
    if (chart.categories.empty() || chart.categories.size() > 32 || chart.series.empty() ||
        chart.series.size() > series_colours.size()) {
        throw tensafe::shape_error("bar_chart: got " + std::to_string(chart.categories.size()) +
                                   " categories and " + std::to_string(chart.series.size()) +
                                   " series, expected 1 to 32 and 1 to " +
                                   std::to_string(series_colours.size()));
    }
    for (const bar_series& one : chart.series) {
        if (one.values.size() != chart.categories.size()) {
            throw tensafe::shape_error("bar_chart: got " + std::to_string(one.values.size()) + " values in " +
                                       one.name + ", expected " + std::to_string(chart.categories.size()));
        }
        for (const double value : one.values) {
            if (!(value == 0 || (value >= 1e-6 && value <= 1e9))) {
                throw tensafe::parameter_error("bar_chart: got " + std::to_string(value) + " in " + one.name +
                                               ", expected 0 or 1e-6 to 1e9");
            }
        }
    }
}

inline chart_frame frame_for(const bar_chart& chart, double top) {
    double least = 1e9;
    double most = 1e-6;
    for (const bar_series& one : chart.series) {
        for (const double value : one.values) {
            least = value > 0 ? std::min(least, value) : least;
            most = std::max(most, value);
        }
    }
    // The smallest bar must be seen, and the number over the largest has to fit.
    const int low = static_cast<int>(std::floor(std::log10(std::min(least, most) / 1.5)));
    double end = std::pow(10.0, low);
    for (int step = 0; end < most * 1.9; ++step) {  // 1, 2, 5, 10, ...
        end *= step % 3 == 1 ? 2.5 : 2;
    }
    return {top, low, end};
}

inline std::string axis_of(const bar_chart& chart, const chart_frame& frame) {
    std::string svg;
    const auto line = [&](double value, std::string_view kind) {
        const std::string y = coordinate(frame.y(value));
        svg += "<line class=\"" + std::string(kind) + "\" x1=\"" + coordinate(frame.left) + "\" x2=\"" +
               coordinate(frame.right) + "\" y1=\"" + y + "\" y2=\"" + y + "\"/>\n";
    };
    const double end = frame.most * 1.001;  // powers are rounded
    for (int exponent = frame.low; std::pow(10.0, exponent) <= end; ++exponent) {
        const double value = std::pow(10.0, exponent);
        line(value, "tick");
        svg += text_at(frame.left - 8, frame.y(value) + 4, "class=\"soft\" text-anchor=\"end\"",
                       power_of_ten(exponent));
        for (const double between : {2 * value, 5 * value}) {
            if (between <= end) {
                line(between, "half");
            }
        }
    }
    const double middle = frame.top + frame.plot_height / 2;
    return svg + text_at(18, middle,
                         "class=\"ink\" text-anchor=\"middle\" transform=\"rotate(-90 18 " +
                             coordinate(middle) + ")\"",
                         chart.axis + " (logarithmic)");
}

inline std::string bars_of(const bar_chart& chart, const chart_frame& frame) {
    std::string svg;
    const double group = (frame.right - frame.left) / static_cast<double>(chart.categories.size());
    const double bar = group * 0.86 / static_cast<double>(chart.series.size());
    for (std::size_t c = 0; c < chart.categories.size(); ++c) {
        const double start = frame.left + group * (static_cast<double>(c) + 0.07);
        for (std::size_t s = 0; s < chart.series.size(); ++s) {
            const double value = chart.series[s].values[c];
            if (value == 0) {
                continue;
            }
            const double x = start + bar * static_cast<double>(s);
            const double y = frame.y(value);
            svg += rectangle(x, y, bar * 0.9, frame.bottom() - y,
                             "rx=\"1.5\" fill=\"" + std::string(series_colours[s]) + "\"><title>") +
                   xml_text(chart.categories[c] + ", " + chart.series[s].name + ": " + short_number(value)) +
                   "</title></rect>\n";
            const std::string at = coordinate(x + bar * 0.45 + 3.5) + " " + coordinate(y - 4);
            svg += text_at(x + bar * 0.45 + 3.5, y - 4,
                           "class=\"value\" transform=\"rotate(-90 " + at + ")\"", short_number(value));
        }
        svg += text_at(start + group * 0.43, frame.bottom() + 20, "class=\"ink\" text-anchor=\"middle\"",
                       chart.categories[c]);
    }
    return svg;
}

}  // namespace detail

/// The chart as an SVG file that needs nothing else: fonts of the reader, colours for light and dark
/// backgrounds by the reader's preference. The same chart gives the same bytes.
/// @throws tensafe::shape_error or tensafe::parameter_error unless there are 1 to 32 categories, 1 to 7
/// series
///         of as many values, and each value is 0 or in [1e-6, 1e9]
inline std::string to_svg(const bar_chart& chart) {
    using namespace detail;
    check(chart);
    std::string legend;
    double x = chart_frame::left;
    double y = 84;
    for (std::size_t s = 0; s < chart.series.size(); ++s) {
        const double width = 40 + 6.9 * static_cast<double>(chart.series[s].name.size());
        if (x > chart_frame::left && x + width > chart_frame::right) {
            x = chart_frame::left;
            y += 20;
        }
        legend +=
            rectangle(x, y - 10, 12, 12, "rx=\"2\" fill=\"" + std::string(series_colours[s]) + "\"/>\n");
        legend += text_at(x + 18, y, "class=\"ink\"", chart.series[s].name);
        x += width;
    }
    const chart_frame frame = frame_for(chart, y + 24);
    const double height = frame.bottom() + 44 + 16 * static_cast<double>(chart.notes.size());
    std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 " + coordinate(height) +
                      "\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>" +
                      xml_text(chart.title) +
                      "</title>\n"
                      "<style>\n"
                      ".paper{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#57606a}"
                      ".value{fill:#57606a;font-size:10px}\n"
                      ".tick{stroke:#c4c9cf}.half{stroke:#eceef0}\n"
                      "@media (prefers-color-scheme: dark){.paper{fill:#0d1117}.ink{fill:#e6edf3}"
                      ".soft,.value{fill:#9da7b1}.tick{stroke:#3d444d}.half{stroke:#20262d}}\n"
                      "</style>\n";
    svg += rectangle(0, 0, chart_frame::width, height, "class=\"paper\"/>\n");
    svg += text_at(20, 32, "class=\"ink\" font-size=\"19\" font-weight=\"600\"", chart.title);
    svg += text_at(20, 56, "class=\"soft\"", chart.subtitle);
    svg += legend + axis_of(chart, frame) + bars_of(chart, frame);
    for (std::size_t n = 0; n < chart.notes.size(); ++n) {
        svg += text_at(20, frame.bottom() + 48 + 16 * static_cast<double>(n),
                       "class=\"soft\" font-size=\"12\"", chart.notes[n]);
    }
    return svg + "</svg>\n";
}

}  // namespace examples
