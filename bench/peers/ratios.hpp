#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <iomanip>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace bench {

/// Google Benchmark 1.8 has another name for it.
template <class Run>
bool failed(const Run& run) {
    if constexpr (requires { run.error_occurred; }) {
        return run.error_occurred;
    } else {
        return run.skipped != 0;
    }
}

/// Prints what the console reporter prints and, at the end, how long this library takes for a job over how
/// long its peer takes. A benchmark's name is "<job>/<who>", and ours begin with "tensafe". Medians where
/// there are repetitions.
class ratio_reporter : public benchmark::ConsoleReporter {
  public:
    ratio_reporter() : ConsoleReporter(OO_Tabular) {}

    void ReportRuns(const std::vector<Run>& runs) override {
        ConsoleReporter::ReportRuns(runs);
        for (const Run& run : runs) {
            if (failed(run) || (run.run_type == Run::RT_Aggregate && run.aggregate_name != "median")) {
                continue;
            }
            const std::string name = run.run_name.str();
            const std::size_t slash = name.rfind('/');
            // The median comes after the repetitions and takes their place. Time of the processor: the core
            // may be shared.
            microseconds_[name.substr(0, slash)][name.substr(slash + 1)] =
                run.GetAdjustedCPUTime() / benchmark::GetTimeUnitMultiplier(run.time_unit) * 1e6;
        }
    }

    void Finalize() override {
        std::ostream& out = GetOutputStream();
        out << std::fixed << std::setprecision(2) << "\nours / peer, CPU times in us\n";
        for (const auto& [job, times] : microseconds_) {
            for (const auto& [ours, our_time] : times) {
                for (const auto& [peer, peer_time] : times) {
                    if (is_ours(ours) && !is_ours(peer)) {
                        out << std::setw(8) << our_time / peer_time << "  " << job << ": " << ours << ' '
                            << our_time << ", " << peer << ' ' << peer_time << '\n';
                    }
                }
            }
        }
    }

  private:
    static bool is_ours(const std::string& who) { return who.starts_with("tensafe"); }

    std::map<std::string, std::map<std::string, double>> microseconds_;
};

/// The body of main, once the benchmarks are registered.
inline int run_with_ratios(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    ratio_reporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    return 0;
}

}  // namespace bench
