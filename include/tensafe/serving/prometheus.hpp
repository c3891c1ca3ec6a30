#pragma once

#include <tensafe/serving/meter.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tensafe::serving {

/// The names in an export's labels. Names of clients are personal data, and many of them are many series.
enum class metric_labels { adapter_and_client, adapter };

/// Escapes a label's value: backslash, quotation mark and line feed.
inline std::string prometheus_label(std::string_view value) {
    std::string escaped;
    escaped.reserve(value.size());
    for (const char c : value) {
        escaped.append(c == '\\' || c == '"' || c == '\n' ? 1 : 0, '\\') += c == '\n' ? 'n' : c;
    }
    return escaped;
}

/// Writes the counters as a page for Prometheus to scrape: text exposition format 0.0.4, to be served as
/// `text/plain; version=0.0.4; charset=utf-8`. Families in a fixed order, series in the order of the
/// snapshot; a snapshot of a meter gives valid text whatever names clients gave themselves. Source:
/// https://prometheus.io/docs/instrumenting/exposition_formats/
inline std::string prometheus_text(const meter_snapshot& counters,
                                   metric_labels labels = metric_labels::adapter_and_client) {
    struct family {
        std::string_view name;
        std::string_view help;
        std::uint64_t usage::*counter;
    };
    constexpr family families[] = {
        {"tensafe_requests_total", "Encrypted requests answered.", &usage::requests},
        {"tensafe_refused_requests_total", "Requests not answered.", &usage::refused},
        {"tensafe_tokens_total",
         "Hidden states answered; a generated token of a whole model is one for each of its inputs.",
         &usage::tokens},
        {"tensafe_products_total", "Products of plaintexts and ciphertexts.", &usage::products},
        {"tensafe_request_bytes_total", "Bytes of requests, refused ones included.", &usage::bytes_up},
        {"tensafe_reply_bytes_total", "Bytes of replies.", &usage::bytes_down}};
    const meter_snapshot sums = labels == metric_labels::adapter ? counters.by_adapter() : meter_snapshot();
    const meter_snapshot& shown = labels == metric_labels::adapter ? sums : counters;
    std::string text;
    for (const family& each : families) {
        text.append("# HELP ").append(each.name).append(" ").append(each.help).append("\n");
        text.append("# TYPE ").append(each.name).append(" counter\n");
        for (const meter_series& series : shown.series) {
            text.append(each.name).append("{adapter=\"").append(prometheus_label(series.adapter));
            if (labels == metric_labels::adapter_and_client) {
                text.append("\",client=\"").append(prometheus_label(series.client));
            }
            text.append("\"} ").append(std::to_string(series.used.*each.counter)).append("\n");
        }
    }
    return text;
}

}  // namespace tensafe::serving
