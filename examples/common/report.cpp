#include "report.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace examples {

namespace {

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

progress_bar::progress_bar(std::size_t steps) : steps_(steps), visible_(isatty(STDERR_FILENO) != 0) {}

progress_bar::~progress_bar() {
    if (visible_) {
        std::fprintf(stderr, "\r\033[K");
    }
}

void progress_bar::advance() {
    ++done_;
    if (visible_) {
        const std::size_t width = 40 * done_ / steps_;
        std::fprintf(stderr, "\r[%-40s] %zu/%zu tokens", std::string(width, '=').c_str(), done_, steps_);
    }
}

void report::compare(std::span<const double> delta, std::span<const double> expected) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < delta.size(); ++i) {
        difference += (delta[i] - expected[i]) * (delta[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
    if (!(error <= relative_error)) {  // so that a NaN stays
        relative_error = error;
    }
}

double report::ms_per_token() const {
    std::vector<double> totals(watch.times(0).size());
    for (std::size_t p = 0; p < stopwatch::phases.size(); ++p) {
        for (std::size_t t = 0; t < totals.size(); ++t) {
            totals[t] += watch.times(p)[t];
        }
    }
    return median(std::move(totals));
}

void report::print_table() const {
    std::printf("site            %s, rank %zu\n", site.c_str(), rank);
    std::printf("parameter set   %s\n", args.params.c_str());
    std::printf("packing         %s, %s, %s%s\n", args.packing.c_str(), args.mode.c_str(),
                args.protection.c_str(), args.rescale ? ", rescaled" : "");
    std::printf("\nphase        ms (median of %zu tokens)\n", args.tokens);
    for (std::size_t p = 0; p < stopwatch::phases.size(); ++p) {
        if (stopwatch::phases[p] == "rescale" && !args.rescale) {
            continue;
        }
        std::printf("  %-10s %8.3f\n", std::string(stopwatch::phases[p]).c_str(), median(watch.times(p)));
    }
    std::printf("  %-10s %8.3f   %.1f tokens/s, client and server on one core\n\n", "token", ms_per_token(),
                1000 / ms_per_token());
    std::printf("bytes up        %zu\n", bytes_up);
    std::printf("bytes down      %zu\n", bytes_down);
    std::printf("relative error  %.2e against plaintext LoRA (worst token)%s\n", relative_error,
                within_tolerance() ? "" : ": TOO LARGE");
}

void report::print_json() const {
    nlohmann::ordered_json phases;
    for (std::size_t p = 0; p < stopwatch::phases.size(); ++p) {
        phases[std::string(stopwatch::phases[p])] = median(watch.times(p));
    }
    nlohmann::ordered_json object{{"parameter_set", args.params},
                                  {"packing", args.packing},
                                  {"mode", args.mode},
                                  {"protection", args.protection},
                                  {"rescaled", args.rescale},
                                  {"site", site},
                                  {"rank", rank},
                                  {"tokens", args.tokens},
                                  {"ms_per_token", ms_per_token()},
                                  {"tokens_per_second", 1000 / ms_per_token()},
                                  {"phases", phases},
                                  {"bytes_up", bytes_up},
                                  {"bytes_down", bytes_down},
                                  {"relative_error", relative_error}};
    if (!truncation.empty()) {
        object["svd"] = nlohmann::ordered_json::object();
        for (const auto& [name, value] : truncation) {
            object["svd"][name] = value;
        }
    }
    std::printf("%s\n", object.dump().c_str());
}

void report::print() const {
    print_table();
    if (args.json) {
        print_json();
    }
}

}  // namespace examples
