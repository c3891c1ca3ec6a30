#include "report.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "published_figures.hpp"
#include "short_number.hpp"

namespace studies {

namespace {

namespace published = roofline::published;

std::string as_printed(const published::printed_number& number) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number.value,
                                   std::chars_format::fixed, number.decimals);
    return std::string(digits.data(), end.ptr);
}

/// "18.2" where the formula gives the same, "107.5* 82.0 (10)" where it does not.
std::string cell(const published::figure& one) {
    const std::string printed = as_printed(one.printed);
    return one.agrees() ? printed
                        : printed + "* " + short_number(one.formula) + " (" + std::to_string(one.note) + ")";
}

void print_padded(std::string_view text, std::size_t width) {
    std::printf("%.*s%*s", static_cast<int>(text.size()), text.data(),
                static_cast<int>(width > text.size() ? width - text.size() : 1), "");
}

/// Names in the order of their first appearance.
std::vector<std::string_view> names_of(published::table in, std::string_view published::figure::*which) {
    std::vector<std::string_view> names;
    for (const published::figure& one : published::figures) {
        if (one.in == in && std::find(names.begin(), names.end(), one.*which) == names.end()) {
            names.push_back(one.*which);
        }
    }
    return names;
}

void print_table(published::table in) {
    constexpr std::size_t cell_width = 20;
    const auto columns = names_of(in, &published::figure::column);
    const auto rows = names_of(in, &published::figure::row);
    std::size_t name_width = 0;
    for (const std::string_view row : rows) {
        name_width = std::max(name_width, row.size() + 2);
    }
    const std::string_view title = published::table_titles[static_cast<std::size_t>(in)];
    std::printf("\n%.*s\n", static_cast<int>(title.size()), title.data());
    print_padded("", name_width + 2);
    for (const std::string_view column : columns) {
        print_padded(column.empty() ? "printed* formula (note)" : column, cell_width);
    }
    std::printf("\n");
    for (const std::string_view row : rows) {
        std::printf("  ");
        print_padded(row, name_width);
        double encrypted = 0;
        double model = 0;
        for (const std::string_view column : columns) {
            const auto found = std::find_if(
                published::figures.begin(), published::figures.end(),
                [&](const published::figure& f) { return f.in == in && f.row == row && f.column == column; });
            const bool there = found != published::figures.end();
            print_padded(there ? cell(*found) : "", cell_width);
            encrypted = there ? found->encrypted_milliseconds : encrypted;
            model = there ? found->model_milliseconds : model;
        }
        if (columns.size() == 1 && encrypted > 0) {
            std::printf("T_model %s, T_HE %s ms", short_number(model).c_str(),
                        short_number(encrypted).c_str());
        }
        std::printf("\n");
    }
}

/// A token whose encryption runs on the GPU of the model; B stays on the cores.
double on_gpu(const roofline_question& question, double model_milliseconds, std::size_t sequences) {
    const roofline::stage device{model_milliseconds + predicted_gpu_milliseconds};
    const roofline::stage host{question.times.phases.b, question.cores};
    return roofline::tokens_per_second({device, host}, sequences, question.round_trip);
}

std::string sequences_name(const roofline_question& question) {
    return std::to_string(question.sequences) + (question.sequences == 1 ? " sequence" : " sequences");
}

std::string cores_name(const roofline_question& question) {
    return question.cores == 1 ? "one core" : std::to_string(question.cores) + " cores";
}

/// The published rates if only the link between GPU and host changed.
void print_links() {
    constexpr std::array<std::pair<const char*, roofline::interconnect>, 5> links{
        {{"PCIe 4", roofline::interconnect::pcie4},
         {"PCIe 5", roofline::interconnect::pcie5},
         {"UMA GH200", roofline::interconnect::gh200},
         {"UMA GB200", roofline::interconnect::gb200},
         {"UMA M4 Max", roofline::interconnect::m4_max}}};
    constexpr double others = published::h100_phases.total() - published::h100_phases.transfer;
    std::printf("\nTokens/s by the link to the host: T_HE = %.1f ms + its transfer (but see note 4)\n  %-10s",
                others, "");
    for (const auto& [name, link] : links) {
        const std::string label =
            std::string(name) + ", " + short_number(roofline::published_transfer_milliseconds(link)) + " ms";
        std::printf("%20s", label.c_str());
    }
    std::printf("\n");
    for (const published::rate_row& row : published::rate_table) {
        std::printf("  %-10s", std::string(row.device).c_str());
        for (const auto& [name, link] : links) {
            const double rate = roofline::serial_tokens_per_second(
                row.model_milliseconds.value, others + roofline::published_transfer_milliseconds(link));
            std::printf("%20s", short_number(rate).c_str());
        }
        std::printf("\n");
    }
}

}  // namespace

std::vector<roofline_row> predict(const roofline_question& question) {
    std::vector<roofline_row> rows;
    for (const published::rate_row& from : published::rate_table) {
        roofline_row row;
        row.device = from.device;
        row.model_milliseconds = from.model_milliseconds.value;
        row.plain = 1000 / row.model_milliseconds;
        row.published_serial = roofline::serial_tokens_per_second(row.model_milliseconds,
                                                                  from.improved.encrypted_milliseconds.value);
        row.published_printed = from.all_software.rate.value;
        row.published_formula = roofline::serial_tokens_per_second(
            row.model_milliseconds, from.all_software.encrypted_milliseconds.value);
        roofline::deployment one{row.model_milliseconds, question.times.phases, 1, 1,
                                 question.cores,         question.round_trip};
        row.site_serial = roofline::forecast(one);
        one.sites = question.sites();
        row.model_serial = roofline::forecast(one);
        one.sequences = question.sequences;
        row.model_overlapped = roofline::forecast(one);
        one.sites = 1;
        row.site_overlapped = roofline::forecast(one);
        if (question.predicted_gpu) {
            row.gpu_serial = on_gpu(question, row.model_milliseconds, 1);
            row.gpu_overlapped = on_gpu(question, row.model_milliseconds, question.sequences);
        }
        rows.push_back(row);
    }
    return rows;
}

void print_published() {
    std::printf(
        "The published throughput model (February 2026), recomputed\n\n"
        "A number alone is printed and agrees with its formula to the last digit.\n"
        "\"107.5* 82.0 (10)\" is printed as 107.5, but its formula gives 82.0: see note 10.\n");
    for (std::size_t t = 0; t < published::table_titles.size(); ++t) {
        print_table(static_cast<published::table>(t));
    }
    print_links();
    std::printf("\nNotes: where the published figures disagree with themselves\n");
    for (const published::contradiction& one : published::contradictions) {
        std::printf("%4d  ", one.number);
        std::string_view text = one.text;
        constexpr std::size_t width = 90;
        while (text.size() > width) {
            const std::size_t end = text.rfind(' ', width);
            std::printf("%.*s\n      ", static_cast<int>(end), text.data());
            text.remove_prefix(end + 1);
        }
        std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
    }
}

void print_predictions(const roofline_question& question, const std::vector<roofline_row>& rows) {
    const roofline::measured_phases& phases = question.times.phases;
    std::printf(
        "\nTokens/s with phases as measured: %.3f ms a site (client %.3f, server %.3f) on %s beside the "
        "GPU\n  from %s\n\n",
        phases.total(), phases.client(), phases.server(), cores_name(question).c_str(),
        question.times.source.c_str());
    const std::string sites = std::to_string(question.sites()) + " sites";
    const std::string many = sequences_name(question);
    std::printf("  %-10s %8s %10s %10s | %22s | %22s\n", "", "T_model", "without", "published", "1 site",
                sites.c_str());
    std::printf("  %-10s %8s %10s %10s | %8s %13s | %8s %13s%s\n", "", "ms", "encryption", "serial", "serial",
                many.c_str(), "serial", many.c_str(),
                question.predicted_gpu ? " | 1 site on the GPU: PREDICTED, NOT MEASURED" : "");
    for (const roofline_row& row : rows) {
        std::printf("  %-10s %8s %10s %10s | %8s %13s | %8s %13s", row.device.c_str(),
                    short_number(row.model_milliseconds).c_str(), short_number(row.plain).c_str(),
                    short_number(row.published_serial).c_str(),
                    short_number(row.site_serial.tokens_per_second).c_str(),
                    (short_number(row.site_overlapped.tokens_per_second) +
                     (row.site_overlapped.bound_by_model ? " g" : "  "))
                        .c_str(),
                    short_number(row.model_serial.tokens_per_second).c_str(),
                    (short_number(row.model_overlapped.tokens_per_second) +
                     (row.model_overlapped.bound_by_model ? " g" : "  "))
                        .c_str());
        if (question.predicted_gpu) {
            std::printf(" | %8s %13s", short_number(row.gpu_serial).c_str(),
                        short_number(row.gpu_overlapped).c_str());
        }
        std::printf("\n");
    }
    std::printf(
        "\n  g: the GPU is busy all the time. T_model and published: as published, one adapter a token. "
        "%s: %zu layers\n  with %zu sites, each like the measured one. Bounds from above: docs/benchmarks.md "
        "says what they leave out.\n",
        sites.c_str(), question.layers, question.sites_per_layer);
}

void print_json(const roofline_question& question, const std::vector<roofline_row>& rows) {
    using json = nlohmann::ordered_json;
    json figures = json::array();
    for (const published::figure& one : published::figures) {
        figures.push_back({{"table", published::table_titles[static_cast<std::size_t>(one.in)]},
                           {"row", one.row},
                           {"column", one.column},
                           {"printed", one.printed.value},
                           {"formula", one.formula},
                           {"agrees", one.agrees()},
                           {"note", one.note}});
    }
    json notes = json::object();
    for (const published::contradiction& one : published::contradictions) {
        notes[std::to_string(one.number)] = one.text;
    }
    const auto forecast = [](const roofline::deployment_forecast& one) {
        return json{{"tokens_per_second", one.tokens_per_second},
                    {"latency_ms", one.latency},
                    {"encrypted_ms", one.encrypted_milliseconds},
                    {"bound_by_model", one.bound_by_model}};
    };
    json predictions = json::array();
    for (const roofline_row& row : rows) {
        json one{{"gpu", row.device},
                 {"model_ms", row.model_milliseconds},
                 {"published_serial", row.published_serial},
                 {"published_best_printed", row.published_printed},
                 {"published_best_formula", row.published_formula},
                 {"site_serial", forecast(row.site_serial)},
                 {"site_overlapped", forecast(row.site_overlapped)},
                 {"model_serial", forecast(row.model_serial)},
                 {"model_overlapped", forecast(row.model_overlapped)}};
        if (question.predicted_gpu) {
            one["predicted_not_measured"] = {{"gpu_site_serial", row.gpu_serial},
                                             {"gpu_site_overlapped", row.gpu_overlapped}};
        }
        predictions.push_back(one);
    }
    const json object{{"source", question.times.source},
                      {"ms_per_site", question.times.phases.total()},
                      {"sites", question.sites()},
                      {"sequences", question.sequences},
                      {"cores", question.cores},
                      {"round_trip_ms", question.round_trip},
                      {"predictions", predictions},
                      {"published", figures},
                      {"notes", notes}};
    std::printf("%s\n", object.dump().c_str());
}

}  // namespace studies
