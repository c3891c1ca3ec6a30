#include "metrics.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/serving/prometheus.hpp>

#include <algorithm>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace split {

namespace {

void family(std::string& to, const std::string& name, const char* type, const char* help) {
    to += tensafe::text_of({"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"});
}

const std::string prefix = "tensafe_split_";

/// @return seconds of processors and bytes of memory; of these 0 where there is no /proc
std::pair<double, std::uint64_t> used_by_process() {
    struct ::rusage used {};
    static_cast<void>(::getrusage(RUSAGE_SELF, &used));
    std::uint64_t all = 0;
    std::uint64_t resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    const auto seconds = [](const ::timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return {seconds(used.ru_utime) + seconds(used.ru_stime),
            resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
}

}  // namespace

void metrics::answered(std::chrono::steady_clock::duration computing) noexcept {
    const auto us = static_cast<std::uint64_t>(
        std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(computing).count(), 0));
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), us) - bounds.begin();
    ++latencies_[static_cast<std::size_t>(bucket)];
    microseconds_ += us;
}

std::string metrics::text(const tensafe::serving::meter_snapshot& used, const service_figures& now) const {
    std::string to = tensafe::serving::prometheus_text(used, tensafe::serving::metric_labels::adapter);
    const auto [seconds, bytes] = used_by_process();
    const struct {
        std::string name;
        const char* type;
        const char* help;
        tensafe::text_part value;
    } singles[] = {
        {prefix + "connections", "gauge", "WebSocket connections.", connections.load()},
        {prefix + "connections_refused_total", "counter",
         "Connections closed: there were as many as there may be, or too many came.",
         connections_refused.load()},
        {prefix + "sessions", "gauge", "Sessions, those that wait for their client included.", now.sessions},
        {prefix + "sessions_opened_total", "counter", "Sessions opened.", sessions_opened.load()},
        {prefix + "sessions_resumed_total", "counter", "Sessions resumed.", sessions_resumed.load()},
        {prefix + "zeros_stored", "gauge", "Encryptions of zero made ahead, of 70 KB each.", now.pool_size},
        {prefix + "block_bytes", "gauge", "Memory of blocks that are not used up, and of kept replies.",
         now.block_bytes},
        {prefix + "marked_bytes", "gauge", "Memory of A's with a tenant's marks.", now.marked.first},
        {prefix + "marked_packed_total", "counter",
         "Groups of such an A packed, for the first time or again.", now.marked.second},
        {prefix + "draining", "gauge", "1 while the server stops.", now.draining ? 1u : 0u},
        {prefix + "loading", "gauge", "1 while an adapter that should be served is not yet.",
         now.is_loading ? 1U : 0U},
        {prefix + "log_lines_lost_total", "counter", "Lines of the log that nobody took in time.",
         now.lines_lost},
        {"process_cpu_seconds_total", "counter", "Time of processors, in user and system mode.", seconds},
        {"process_resident_memory_bytes", "gauge", "Memory that the process holds.", bytes}};
    for (const auto& each : singles) {
        family(to, each.name, each.type, each.help);
        to += tensafe::text_of({each.name, " ", each.value, "\n"});
    }
    if (const std::int64_t until = certificate_until; until > 0) {
        const char* const name = "tensafe_certificate_not_after_seconds";
        family(to, name, "gauge", "When the certificate expires, since 1970.");
        to += tensafe::text_of({name, " ", until, "\n"});
    }
    family(to, "tensafe_adapter_info", "gauge", "An adapter that is served, by its version.");
    std::string ratios;
    for (const service_figures::adapter& each : now.adapters) {
        const std::string label = "{adapter=\"" + tensafe::serving::prometheus_label(each.name) + "\"";
        to += tensafe::text_of({"tensafe_adapter_info", label, ",version=\"", each.version, "\"} 1\n"});
        ratios +=
            each.used ? tensafe::text_of({"tensafe_adapter_used_ratio", label, "} ", *each.used, "\n"}) : "";
    }
    family(to, "tensafe_adapter_used_ratio", "gauge",
           "Used part of its limit for all clients, of the input with the most.");
    to += ratios;
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
    to += tensafe::text_of({"tensafe_build_info{version=\"", tensafe::version().text(), "\"} 1\n"});
    return to;
}

}  // namespace split
