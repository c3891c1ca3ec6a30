#include "report.hpp"

#include <tensafe/exec/backend.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <unistd.h>

namespace examples {

namespace {

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
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
    const std::vector<double>& times = watch.times(p);
    return median(times) * static_cast<double>(times.size()) / static_cast<double>(args.tokens);
}

double report::median_of_tokens(std::size_t end) const {
    std::vector<double> totals(args.tokens);
    for (std::size_t p = first_of_token; p < end; ++p) {
        std::ranges::transform(totals, watch.times(p), totals.begin(), std::plus());
    }
    return median(std::move(totals));
}

double report::ms_per_token() const {
    double sum = median_of_tokens(phase_names.size());
    for (std::size_t p = 0; p < first_of_token; ++p) {
        sum += ms_of_phase(p);
    }
    return sum;
}

void report::print_table() const {
    const bool in_blocks = args.tokens_ahead > 1;
    const auto online_part = [&](std::size_t bytes) {
        return in_blocks ? ", " + std::to_string(bytes) + " of them online" : std::string();
    };
    std::printf("site            %s, rank %zu\n", site.c_str(), rank);
    std::printf("parameter set   %s\n", args.params.c_str());
    std::printf("packing         %s", args.packing.c_str());
    if (predicted.rows > 0) {
        std::printf(", %zu rows in a plaintext", predicted.rows);
    }
    if (in_blocks) {
        std::printf(", %zu tokens ahead", args.tokens_ahead);
    }
    std::printf("%s\n", args.rescale ? ", rescaled" : "");
    std::printf("replies         %s, %s%s\n", args.mode.c_str(), args.protection.c_str(),
                args.pooled ? ", from a filled pool" : "");

    std::printf("inner loops     %s\n",
                std::string(tensafe::exec::name(tensafe::exec::active_backend())).c_str());

    std::printf("\nphase            ms a token (medians of %zu tokens)\n", args.tokens);
    for (std::size_t p = 0; p < phase_names.size(); ++p) {
        if (ms_of_phase(p) > 0) {
            std::printf("  %-14s %8.3f\n", std::string(phase_names[p]).c_str(), ms_of_phase(p));
        }
    }
    std::printf("  %-14s %8.3f   %.1f tokens/s, client and server on one core\n", "token", ms_per_token(),
                1000 / ms_per_token());
    if (in_blocks) {
        std::printf("  %-14s %8.3f   once its block is prepared, without B\n", "online", ms_online());
    }

    std::printf("\nbytes up        %zu%s\n", of_token(bytes_up), online_part(online_up).c_str());
    std::printf("bytes down      %zu%s\n", of_token(bytes_down), online_part(online_down).c_str());
    std::printf("bytes           %zu", of_token(bytes_up) + of_token(bytes_down));
    const tensafe::lora::token_cost& cost = predicted.cost;
    if (cost.bytes() > 0) {
        // Of a run without a token that was sent again; every block is paid for as a whole.
        const std::size_t blocks = (args.tokens - 1) / args.tokens_ahead + 1;
        const auto predicted_of = [&](std::size_t of_block, std::size_t online) {
            return of_token(blocks * (of_block - args.tokens_ahead * online) + args.tokens * online);
        };
        std::printf(" (predicted %zu)", predicted_of(cost.bytes_up, cost.online_up) +
                                            predicted_of(cost.bytes_down, cost.online_down));
    }
    if (cost.session_bytes > 0) {
        std::printf(", and %zu once per session", cost.session_bytes);
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
                                  {"tokens_ahead", args.tokens_ahead},
                                  {"ms_per_token", ms_per_token()},
                                  {"ms_online", ms_online()},
                                  {"tokens_per_second", 1000 / ms_per_token()},
                                  {"phases", phases},
                                  {"bytes_up", of_token(bytes_up)},
                                  {"bytes_down", of_token(bytes_down)},
                                  {"bytes", of_token(bytes_up) + of_token(bytes_down)},
                                  {"bytes_up_online", online_up},
                                  {"bytes_down_online", online_down},
                                  {"session_bytes", predicted.cost.session_bytes},
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
