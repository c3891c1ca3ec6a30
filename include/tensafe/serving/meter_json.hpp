#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/serving/meter.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace tensafe::serving {

namespace detail {

/// The most series that a meter keeps.
constexpr std::size_t most_meter_series(const meter_limits& limits) noexcept {
    // No memory holds 2^40; below it nothing that is computed from it overflows.
    constexpr std::size_t largest = std::size_t{1} << 40;
    return std::min(limits.most_series, largest) + std::min(limits.most_adapters, largest) + 1;
}

struct usage_member {
    const char* name;
    std::uint64_t usage::*counter;
};
inline constexpr std::array<usage_member, 6> usage_members = {{{"requests", &usage::requests},
                                                               {"refused", &usage::refused},
                                                               {"tokens", &usage::tokens},
                                                               {"products", &usage::products},
                                                               {"bytes_up", &usage::bytes_up},
                                                               {"bytes_down", &usage::bytes_down}}};

inline nlohmann::ordered_json usage_json(nlohmann::ordered_json object, const usage& used) {
    for (const usage_member& member : usage_members) {
        object[member.name] = used.*member.counter;
    }
    return object;
}

inline usage usage_from(const io::json_value& object, const std::string& where) {
    usage used;
    for (const usage_member& member : usage_members) {
        used.*member.counter = object.at(member.name, where).checked_count(where + ": " + member.name);
    }
    return used;
}

/// The JSON values of a text: each series, its names and counters; the total and its own; four members.
constexpr std::size_t most_meter_values(const meter_limits& limits) noexcept {
    return most_meter_series(limits) * (3 + usage_members.size()) + usage_members.size() + 5;
}

}  // namespace detail

/// The longest text that read_meter_json takes for a meter with such limits, in bytes: 134 MB for the default
/// ones. No meter_json of it is longer, if it is indented by at most 16.
constexpr std::size_t longest_meter_json(const meter_limits& limits = {}) noexcept {
    // Of a series: two names, in which a backslash stands before every character at worst, and 816 for the
    // rest: six numbers, eight keys, and with spaces the ends of ten lines.
    const std::size_t names = 4 * std::min(limits.longest_name, std::size_t{1} << 18);
    return detail::most_meter_series(limits) * (names + 816) + 2048;
}

/// Writes a meter's counters as JSON: {"format": "tensafe meter", "version": 1, "total": {...}, "series":
/// [{"adapter", "client", "requests", "refused", "tokens", "products", "bytes_up", "bytes_down"}, ...]}, in
/// the order of the snapshot. Bytes of names that are not UTF-8, which a meter does not take, are replaced.
/// @param indent  spaces for each level; -1: one line
inline std::string meter_json(const meter_snapshot& counters, int indent = -1) {
    nlohmann::ordered_json document;
    document["format"] = "tensafe meter";
    document["version"] = 1;
    document["total"] = detail::usage_json(nlohmann::ordered_json::object(), counters.total());
    auto series = nlohmann::ordered_json::array();
    for (const meter_series& each : counters.series) {
        nlohmann::ordered_json object;
        object["adapter"] = each.adapter;
        object["client"] = each.client;
        series.push_back(detail::usage_json(std::move(object), each.used));
    }
    document["series"] = std::move(series);
    return document.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Reads counters that meter_json wrote, to carry them over a restart:
/// `meter.merge(serving::read_meter_json(text))`.
/// @param text    treated as untrusted input
/// @param name    how messages call it
/// @param limits  those of the meter that wrote it: a longer text, or one of more values, than they allow is
///                refused before memory is taken for it. With the default ones that memory is some 300 MB at
///                most, beside the text
/// @throws format_error for text that is too long, not JSON or not of this form, a pair that comes twice, or
///         a total that is not the sum of the series
inline meter_snapshot read_meter_json(std::string_view text, std::string_view name = "meter JSON",
                                      const meter_limits& limits = {}) {
    const std::string file = quote(name);
    require<format_error>(
        text.size() <= longest_meter_json(limits),
        {file, ": got ", text.size(), " bytes, expected at most ", longest_meter_json(limits)});
    const io::json_value document = io::parse_strict_json(text, file, detail::most_meter_values(limits));
    document.check_members(4, file);
    const io::json_value& format = document.at("format", file);
    format.checked(format.is_string() && format.text == "tensafe meter", file + ": format",
                   "\"tensafe meter\"");
    const io::json_value& version = document.at("version", file);
    version.checked(version.is_count() && version.count == 1, file + ": version", "1");
    const auto& series = document.at("series", file).checked_array(file + ": series");
    meter_snapshot counters;
    counters.series.reserve(series.size());
    std::set<std::pair<std::string, std::string>> pairs;
    for (const io::json_value& each : series) {
        const std::string where = file + ": series " + std::to_string(counters.series.size());
        each.check_members(2 + detail::usage_members.size(), where);
        meter_series one{each.at("adapter", where).checked_string(where + ": adapter"),
                         each.at("client", where).checked_string(where + ": client"),
                         detail::usage_from(each, where)};
        require<format_error>(pairs.emplace(one.adapter, one.client).second,
                              {where, ": adapter ", in_quotes(one.adapter), " and client ",
                               in_quotes(one.client), " come twice"});
        counters.series.push_back(std::move(one));
    }
    const io::json_value& total = document.at("total", file);
    total.check_members(detail::usage_members.size(), file + ": total");
    require<format_error>(detail::usage_from(total, file + ": total") == counters.total(),
                          {file, ": \"total\" is not the sum of the series"});
    return counters;
}

}  // namespace tensafe::serving
