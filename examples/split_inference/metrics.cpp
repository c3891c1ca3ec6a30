#include "metrics.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/serving/prometheus.hpp>

#include <algorithm>

namespace split {

namespace {

void family(std::string& to, const std::string& name, const char* type, const char* help) {
    to.append("# HELP ").append(name).append(" ").append(help).append("\n");
    to.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void single(std::string& to, const std::string& name, const char* type, const char* help,
            std::uint64_t value) {
    family(to, name, type, help);
    to.append(name).append(" ").append(std::to_string(value)).append("\n");
}

}  // namespace

void metrics::answered(std::chrono::steady_clock::duration computing) noexcept {
    const auto us = static_cast<std::uint64_t>(
        std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(computing).count(), 0));
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), us) - bounds.begin();
    ++latencies_[static_cast<std::size_t>(bucket)];
    microseconds_ += us;
}

std::string metrics::text(const tensafe::serving::meter_snapshot& used, std::size_t sessions,
                          std::size_t pool_size, bool draining) const {
    std::string to = tensafe::serving::prometheus_text(used, tensafe::serving::metric_labels::adapter);
    single(to, "tensafe_split_connections", "gauge", "WebSocket connections.", connections_);
    single(to, "tensafe_split_connections_refused_total", "counter",
           "Connections closed as they came: there were as many as there may be.", connections_refused_);
    single(to, "tensafe_split_sessions", "gauge", "Sessions, those that wait for their client included.",
           sessions);
    single(to, "tensafe_split_sessions_opened_total", "counter", "Sessions opened.", opened_);
    single(to, "tensafe_split_sessions_resumed_total", "counter", "Sessions resumed.", resumed_);
    single(to, "tensafe_split_zeros_stored", "gauge", "Encryptions of zero made ahead, of 70 KB each.",
           pool_size);
    single(to, "tensafe_split_draining", "gauge", "1 while the server stops.", draining ? 1 : 0);
    family(to, "tensafe_split_refusals_total", "counter", "Errors sent to clients.");
    for (std::size_t code = 0; code < error_codes; ++code) {
        to.append("tensafe_split_refusals_total{code=\"")
            .append(to_string(static_cast<error_code>(code)))
            .append("\"} ")
            .append(std::to_string(refusals_[code].load()))
            .append("\n");
    }
    family(to, "tensafe_split_compute_seconds", "histogram",
           "Computing a reply; without waiting for a thread, reading and writing.");
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i <= bounds.size(); ++i) {
        sum += latencies_[i].load();
        const std::string bound = i < bounds.size()
                                      ? tensafe::shortest_text(static_cast<double>(bounds[i]) / 1e6)
                                      : std::string("+Inf");
        to.append("tensafe_split_compute_seconds_bucket{le=\"").append(bound).append("\"} ");
        to.append(std::to_string(sum)).append("\n");
    }
    to.append("tensafe_split_compute_seconds_sum ")
        .append(tensafe::shortest_text(static_cast<double>(microseconds_.load()) / 1e6))
        .append("\n");
    to.append("tensafe_split_compute_seconds_count ").append(std::to_string(sum)).append("\n");
    family(to, "tensafe_build_info", "gauge", "The library's version.");
    to.append("tensafe_build_info{version=\"")
        .append(std::to_string(TENSAFE_VERSION_MAJOR))
        .append(".")
        .append(std::to_string(TENSAFE_VERSION_MINOR))
        .append(".")
        .append(std::to_string(TENSAFE_VERSION_PATCH))
        .append("\"} 1\n");
    return to;
}

}  // namespace split
