#include "metrics.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/serving/prometheus.hpp>

#include <algorithm>

namespace split {

namespace {

void family(std::string& to, const std::string& name, const char* type, const char* help) {
    to += tensafe::text_of({"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"});
}

const std::string prefix = "tensafe_split_";

}  // namespace

void metrics::answered(std::chrono::steady_clock::duration computing) noexcept {
    const auto us = static_cast<std::uint64_t>(
        std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(computing).count(), 0));
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), us) - bounds.begin();
    ++latencies_[static_cast<std::size_t>(bucket)];
    microseconds_ += us;
}

std::string metrics::text(const tensafe::serving::meter_snapshot& used, std::size_t sessions,
                          std::size_t pool_size, std::size_t block_bytes, bool draining) const {
    std::string to = tensafe::serving::prometheus_text(used, tensafe::serving::metric_labels::adapter);
    const struct {
        const char* name;
        const char* type;
        const char* help;
        std::uint64_t value;
    } singles[] = {
        {"connections", "gauge", "WebSocket connections.", connections},
        {"connections_refused_total", "counter",
         "Connections closed: there were as many as there may be, or too many came.", connections_refused},
        {"sessions", "gauge", "Sessions, those that wait for their client included.", sessions},
        {"sessions_opened_total", "counter", "Sessions opened.", sessions_opened},
        {"sessions_resumed_total", "counter", "Sessions resumed.", sessions_resumed},
        {"zeros_stored", "gauge", "Encryptions of zero made ahead, of 70 KB each.", pool_size},
        {"block_bytes", "gauge", "Memory of blocks that are not used up, and of kept replies.", block_bytes},
        {"draining", "gauge", "1 while the server stops.", draining ? 1u : 0u}};
    for (const auto& each : singles) {
        family(to, prefix + each.name, each.type, each.help);
        to += tensafe::text_of({prefix, each.name, " ", each.value, "\n"});
    }
    family(to, prefix + "refusals_total", "counter", "Errors sent to clients.");
    for (std::size_t code = 0; code < error_codes; ++code) {
        to += tensafe::text_of({prefix, "refusals_total{code=\"", to_string(static_cast<error_code>(code)),
                                "\"} ", refusals_[code].load(), "\n"});
    }
    const std::string compute = prefix + "compute_seconds";
    family(to, compute, "histogram", "Computing a reply; without waiting for a thread, reading and writing.");
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i <= bounds.size(); ++i) {
        sum += latencies_[i];
        const tensafe::text_part bound =
            i < bounds.size() ? tensafe::text_part(static_cast<double>(bounds[i]) / 1e6) : "+Inf";
        to += tensafe::text_of({compute, "_bucket{le=\"", bound, "\"} ", sum, "\n"});
    }
    to += tensafe::text_of(
        {compute, "_sum ", static_cast<double>(microseconds_) / 1e6, "\n", compute, "_count ", sum, "\n"});
    family(to, "tensafe_build_info", "gauge", "The library's version.");
    const tensafe::version version;
    to += tensafe::text_of(
        {"tensafe_build_info{version=\"", version.major, ".", version.minor, ".", version.patch, "\"} 1\n"});
    return to;
}

}  // namespace split
