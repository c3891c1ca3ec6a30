// How many tokens a second encrypted adapters leave a GPU:
//
//   1. print the published throughput model, each figure beside what its own formula gives,
//   2. take phase times: those we recorded, or yours from `scripts/demo --json > run.txt`,
//   3. predict tokens/s for each GPU of the published tables, as tables or JSON; scripts/plot_bench draws the
//   JSON.
//
// The formulas are constant expressions in roofline/roofline.hpp; docs/benchmarks.md says what they leave
// out.

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <string>

#include "roofline/phases_file.hpp"
#include "roofline/published_figures.hpp"
#include "roofline/report.hpp"

namespace {

// The model in one line: what an H100 gives at best with our recorded phases at one site, for one sequence
// and for two. The compiler works it out.
constexpr auto alone = roofline::forecast({2.9, studies::recorded_phases, 1, 1});
constexpr auto two = roofline::forecast({2.9, studies::recorded_phases, 1, 2});
static_assert(alone.tokens_per_second > 290 && two.tokens_per_second > 340 && two.bound_by_model);

struct options {
    studies::roofline_question question;
    std::string phases;
    bool pooled = false;
    bool json = false;
};

void add_options(CLI::App& app, options& o) {
    const auto count = CLI::Range(std::size_t{1}, std::size_t{100000});
    app.set_help_flag("--help", "Print this help and exit");
    auto* phases = app.add_option("--phases", o.phases,
                                  "phase times: what scripts/demo --json printed, or build/bench/"
                                  "protected_token_bench.json; default: those in docs/benchmarks.md");
    phases->type_name("FILE");
    app.add_flag("--pooled", o.pooled, "recorded times with zeros made before the token")->excludes(phases);
    app.add_option("--sites-per-layer", o.question.sites_per_layer, "adapter sites in a layer")
        ->check(count)
        ->capture_default_str();
    app.add_option("--layers", o.question.layers, "layers of the model")->check(count)->capture_default_str();
    app.add_option("--sequences", o.question.sequences, "sequences served at a time")
        ->check(count)
        ->capture_default_str();
    app.add_option("--cores", o.question.cores, "cores for client and server together")
        ->check(count)
        ->capture_default_str();
    app.add_option("--round-trip", o.question.round_trip, "milliseconds of network for each site")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_flag("--predicted-gpu", o.question.predicted_gpu,
                 "also with the kernels of docs/gpu.md: predicted, not measured");
    app.add_flag("--json", o.json, "print one JSON object instead of tables");
}

void run(options& o) {
    if (!o.phases.empty()) {
        o.question.times = studies::read_phases(o.phases);
    } else {
        o.question.times = {
            std::string("docs/benchmarks.md, Zen 4 VM, one core") + (o.pooled ? ", pooled" : ""),
            o.pooled ? studies::recorded_pooled_phases : studies::recorded_phases};
    }
    const auto rows = studies::predict(o.question);
    if (o.json) {
        studies::print_json(o.question, rows);
    } else {
        studies::print_published();
        studies::print_predictions(o.question, rows);
    }
}

}  // namespace

int main(int argc, char** argv) {
    options o;
    CLI::App app("Predicts tokens/s of encrypted adapters, beside the published throughput model");
    try {
        add_options(app, o);
        app.parse(argc, argv);
        run(o);
        return 0;
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "roofline: %s\n", e.what());
        return 1;
    }
}
