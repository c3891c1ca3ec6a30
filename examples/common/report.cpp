#include "report.hpp"

#include <tensafe/exec/backend.hpp>

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

/// "label text", the text in lines of at most 80 columns under each other.
void print_paragraph(const std::string& label, const std::string& text) {
    constexpr std::size_t indent = 20;
    constexpr std::size_t width = 60;
    std::printf("%-*s", static_cast<int>(indent), label.c_str());
    std::size_t start = 0;
    while (text.size() - start > width) {
        const std::size_t end = text.rfind(' ', start + width);
        std::printf("%s\n%*s", text.substr(start, end - start).c_str(), static_cast<int>(indent), "");
        start = end + 1;
    }
    std::printf("%s\n", text.substr(start).c_str());
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

void report::compare(std::span<const double> delta, std::span<const double> expected, double error_norm) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < delta.size(); ++i) {
        difference += (delta[i] - expected[i]) * (delta[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
    if (!(error <= relative_error)) {  // so that a NaN stays
        relative_error = error;
        predicted_relative_error = error_norm / std::sqrt(norm);
    }
    within_tolerance = within_tolerance && std::sqrt(difference) <= tolerance * error_norm;
}

double report::ms_of_phase(std::size_t p) const {
    return median(watch.times(p)) / static_cast<double>(batch);
}

double report::ms_per_token() const {
    std::vector<double> totals(watch.times(0).size());
    for (std::size_t p = 0; p < phase_names.size(); ++p) {
        for (std::size_t t = 0; t < totals.size(); ++t) {
            totals[t] += watch.times(p)[t];
        }
    }
    return median(std::move(totals)) / static_cast<double>(batch);
}

void report::print_table() const {
    const bool batched = args.packing == "column_batched";
    std::printf("site            %s, rank %zu\n", site.c_str(), rank);
    std::printf("parameter set   %s\n", args.params.c_str());
    std::printf("packing         %s", args.packing.c_str());
    if (predicted.rows > 0) {
        std::printf(", %zu rows in a plaintext", predicted.rows);
    }
    std::printf("%s\n", args.rescale ? ", rescaled" : "");
    std::printf("replies         %s, %s%s\n", args.mode.c_str(), args.protection.c_str(),
                args.pooled ? ", from a filled pool" : "");

    std::printf("inner loops     %s\n",
                std::string(tensafe::exec::name(tensafe::exec::active_backend())).c_str());

    if (batched) {
        std::printf("\nphase        ms a token (one batch of %zu tokens)\n", batch);
    } else {
        std::printf("\nphase        ms (median of %zu tokens)\n", args.tokens);
    }
    for (std::size_t p = 0; p < phase_names.size(); ++p) {
        if (ms_of_phase(p) >= 0.0005) {
            std::printf("  %-10s %8.3f\n", std::string(phase_names[p]).c_str(), ms_of_phase(p));
        }
    }
    std::printf("  %-10s %8.3f   %.1f tokens/s, client and server on one core\n\n", "token", ms_per_token(),
                1000 / ms_per_token());

    const char* const bytes_of = batched ? " for the whole batch" : "";
    std::printf("bytes up        %zu%s\n", bytes_up, bytes_of);
    std::printf("bytes down      %zu\n", bytes_down);
    std::printf("bytes           %zu", bytes_up + bytes_down);
    if (batched) {
        std::printf(", %zu a token", (bytes_up + bytes_down) / batch);
    }
    if (predicted.session_bytes > 0) {
        std::printf(", and %zu once per session", predicted.session_bytes);
    }
    std::printf("\nrelative error  %.2e against plaintext LoRA (worst token%s", relative_error,
                within_tolerance ? "" : ": TOO LARGE");
    if (args.protection == "protected") {
        std::printf("; typical for it: %.2e", predicted_relative_error);
    }
    std::printf(")\n");
    if (predicted.average_case) {
        std::printf("sent again      %zu times in %zu tokens\n", retries, args.tokens);
    }

    const knowledge learnt = what_each_side_learns(args, predicted);
    std::printf("\n");
    print_paragraph("the server learns", learnt.server);
    print_paragraph("the client learns", learnt.client);
}

void report::print_json() const {
    nlohmann::ordered_json phases;
    for (std::size_t p = 0; p < phase_names.size(); ++p) {
        if (ms_of_phase(p) > 0) {
            phases[std::string(phase_names[p])] = ms_of_phase(p);
        }
    }
    const knowledge learnt = what_each_side_learns(args, predicted);
    nlohmann::ordered_json object{{"parameter_set", args.params},
                                  {"back_end", tensafe::exec::name(tensafe::exec::active_backend())},
                                  {"packing", args.packing},
                                  {"rows", predicted.rows},
                                  {"mode", args.mode},
                                  {"protection", args.protection},
                                  {"pooled", args.pooled},
                                  {"rescaled", args.rescale},
                                  {"site", site},
                                  {"rank", rank},
                                  {"tokens", args.tokens},
                                  {"batch", batch},
                                  {"ms_per_token", ms_per_token()},
                                  {"tokens_per_second", 1000 / ms_per_token()},
                                  {"phases", phases},
                                  {"bytes_up", bytes_up},
                                  {"bytes_down", bytes_down},
                                  {"bytes", bytes_up + bytes_down},
                                  {"session_bytes", predicted.session_bytes},
                                  {"relative_error", relative_error},
                                  {"within_tolerance", within_tolerance},
                                  {"retries", retries},
                                  {"server_learns", learnt.server},
                                  {"client_learns", learnt.client}};
    if (args.protection == "protected") {
        object["predicted_relative_error"] = predicted_relative_error;
        object["log2_statistical_distance"] = std::log2(predicted.distance);  // 0: no guarantee
        object["log2_statistical_distance_of_one_reply"] = std::log2(predicted.distance_of_one);
    }
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
