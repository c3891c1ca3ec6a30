#pragma once

// Times on a GPU: medians of several runs, and what share of the machine's own limits they reach. A program
// is
//
//     int main(int argc, char** argv) {
//         return bench::run(argc, argv, [](const tensafe::device::cuda& where, bench::table& results) {
//             results.report("name", bench::median_microseconds(where, [&] { ... }), bytes, int_ops, goal);
//         });
//     }
//
// and takes [--json FILE] [--device-clock] [--once] [words...]: with words, only rows whose names contain one
// of them are measured, if the program asks `results.wants(name)`; with --device-clock none that the host
// times; with --once everything runs once, for a profiler. FILE gets a line of JSON for each row, at its end.

#include <tensafe/core/error.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/stream.cuh>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine_limits.cuh"

namespace bench {

namespace device = tensafe::device;
namespace memory = tensafe::memory;

/// Set by --once.
inline bool runs_once = false;

/// Microseconds of the GPU for one f(), which puts work into the stream and does not wait: the median of
/// `repetitions` runs, each of as many f() as take about 300 microseconds, after one run to warm up. Between
/// them, launches follow each other without a gap if the host keeps up.
template <class F>
double median_microseconds(const device::cuda& where, F&& f, int repetitions = 15) {
    device::event start(device::event_use::time);
    device::event end(device::event_use::time);
    const auto timed = [&](int times) {
        start.record(where);
        for (int i = 0; i < times; ++i) {
            f();
        }
        end.record(where);
        end.wait();
        return device::microseconds_between(start, end) / times;
    };
    const double first = timed(1);
    if (runs_once) {
        return first;
    }
    const double warm = std::min(first, timed(2));
    const int times = static_cast<int>(std::clamp(300.0 / std::max(warm, 0.1), 1.0, 200.0));
    std::vector<double> values;
    for (int i = 0; i < repetitions; ++i) {
        values.push_back(timed(times));
    }
    std::nth_element(values.begin(), values.begin() + repetitions / 2, values.end());
    return values[static_cast<std::size_t>(repetitions / 2)];
}

/// As above, with f(where) recorded once and run as a graph: what the host's launches cost is left out.
template <class F>
double median_microseconds_in_graph(const device::cuda& where, F&& f, int repetitions = 15) {
    f(where);  // once outside: what is set up at the first call may wait for the device
    where.wait();
    const device::graph recorded = device::capture(where, f);
    const double result = median_microseconds(
        where, [&] { recorded.launch(where); }, repetitions);
    where.wait();
    return result;
}

/// Microseconds on the host's clock from before f() until the stream is done: what a caller waits for one
/// call.
template <class F>
double median_microseconds_of_caller(const device::cuda& where, F&& f, int repetitions = 51) {
    f();
    where.wait();
    repetitions = runs_once ? 1 : repetitions;
    std::vector<double> values;
    for (int i = 0; i < repetitions; ++i) {
        const auto start = std::chrono::steady_clock::now();
        f();
        where.wait();
        values.push_back(
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(values.begin(), values.begin() + repetitions / 2, values.end());
    return values[static_cast<std::size_t>(repetitions / 2)];
}

struct row {
    std::string name;
    double microseconds = 0;
    double bytes = 0;     ///< read and written in the GPU's memory, at least
    double int_ops = 0;   ///< 32-bit multiply-adds
    double fp64_ops = 0;  ///< multiply-adds of doubles
    double goal = 0;      ///< microseconds to beat; 0: none
};

/// The results of one program: printed and written as JSON row by row.
class table {
  public:
    /// @param json  where lines of JSON go, or nullptr
    table(const machine_limits& limits, std::vector<std::string> words, bool host_clock, std::FILE* json)
        : limits_(limits), words_(std::move(words)), host_clock_(host_clock), json_(json) {}

    /// Whether the command line asks for this row.
    bool wants(std::string_view name) const {
        return words_.empty() || std::any_of(words_.begin(), words_.end(), [&](const std::string& word) {
                   return name.find(word) != std::string_view::npos;
               });
    }

    /// Whether rows that the host times are measured.
    bool host_clock() const noexcept { return host_clock_; }

    /// @param bytes     that must pass between the GPU and its memory; 0 if that says nothing
    /// @param int_ops   32-bit integer multiply-adds (a 64-bit mul_hi is about 4 or more); 0 likewise
    /// @param goal      microseconds to beat; 0: none
    /// @param fp64_ops  multiply-adds of doubles
    void report(std::string name, double microseconds, double bytes = 0, double int_ops = 0, double goal = 0,
                double fp64_ops = 0) {
        const row r{std::move(name), microseconds, bytes, int_ops, fp64_ops, goal};
        print(r);
        if (json_ != nullptr) {
            write_json(r);
        }
    }

    const machine_limits& limits() const noexcept { return limits_; }

    /// Share of a limit, in percent; 0 if nothing was counted.
    static double percent(double count, double microseconds, double rate) {
        return rate > 0 && microseconds > 0 ? 100 * count / (1e-6 * microseconds) / rate : 0;
    }

    static void print_head() {
        std::printf("%-58s %12s %7s %7s %7s %10s\n", "", "us", "memory", "int32", "fp64", "goal us");
    }

  private:
    void print(const row& r) const {
        const auto share = [](double value) {
            if (value > 0) {
                std::printf(" %6.1f%%", value);
            } else {
                std::printf(" %7s", "");
            }
        };
        std::printf("%-58s %12.3f", r.name.c_str(), r.microseconds);
        share(percent(r.bytes, r.microseconds, limits_.copy_bytes));
        share(percent(r.int_ops, r.microseconds, limits_.int_multiply_adds));
        share(percent(r.fp64_ops, r.microseconds, limits_.fp64_multiply_adds));
        if (r.goal > 0) {
            std::printf(" %10.3f %s", r.goal, r.microseconds <= r.goal ? "met" : "missed");
        }
        std::printf("\n");
        std::fflush(stdout);
    }
    void write_json(const row& r) const {
        std::fprintf(json_,
                     "{\"name\": \"%s\", \"microseconds\": %.4f, \"bytes\": %.0f, \"int_ops\": %.0f, "
                     "\"fp64_ops\": %.0f, \"goal\": %.4f, \"percent_of_copy_rate\": %.1f, "
                     "\"percent_of_int_rate\": %.1f, \"percent_of_fp64_rate\": %.1f}\n",
                     r.name.c_str(), r.microseconds, r.bytes, r.int_ops, r.fp64_ops, r.goal,
                     percent(r.bytes, r.microseconds, limits_.copy_bytes),
                     percent(r.int_ops, r.microseconds, limits_.int_multiply_adds),
                     percent(r.fp64_ops, r.microseconds, limits_.fp64_multiply_adds));
        std::fflush(json_);
    }

    machine_limits limits_;
    std::vector<std::string> words_;
    bool host_clock_;
    std::FILE* json_;
};

/// Measures the machine's limits, then runs f(where, table). Says "no device" and succeeds where there is
/// none.
template <class F>
int run(int argc, char** argv, F&& f) {
    const char* path = nullptr;
    std::vector<std::string> words;
    bool host_clock = true;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            path = argv[++i];
        } else if (std::strcmp(argv[i], "--device-clock") == 0) {
            host_clock = false;
        } else if (std::strcmp(argv[i], "--once") == 0) {
            runs_once = true;
        } else if (argv[i][0] == '-') {
            std::fprintf(stderr, "%s: unknown option '%s' (known: --json FILE, --device-clock, --once)\n",
                         argv[0], argv[i]);
            return 2;
        } else {
            words.emplace_back(argv[i]);
        }
    }
    if (device::device_count() == 0) {
        std::puts("no device");
        return 0;
    }
    std::FILE* json = nullptr;
    if (path != nullptr && (json = std::fopen(path, "a")) == nullptr) {
        std::fprintf(stderr, "%s: cannot write %s\n", argv[0], path);
        return 1;
    }
    try {
        const device::stream stream;
        const device::cuda where = stream.where();
        table results(runs_once ? machine_limits{} : measure_limits(where), std::move(words), host_clock,
                      json);
        table::print_head();
        f(where, results);
        where.wait();
        return json == nullptr || std::fclose(json) == 0 ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}

}  // namespace bench
