// The small language model of examples/tiny_lm.cpp, with its adapter on a server that is elsewhere. The text,
// the model and the secret key are here; of the adapter, what the server hands out, which is no A.
//
//   split_tiny_lm --server wss://localhost:8443 --trust state/certificate.pem --adapter kjv
//                 --prompt "And he said" --characters 200

#include <tensafe/interop/torch_safetensors.hpp>
#include <tensafe/io/safetensors.hpp>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "../tiny_lm/check_sites.hpp"
#include "../tiny_lm/generation.hpp"
#include "../tiny_lm/two_sides.hpp"
#include "program_options.hpp"
#include "remote_model.hpp"

namespace {

using namespace examples::tiny_lm;
namespace lora = tensafe::lora;

/// Sites of the server's shapes, without a value: enough to see that each linear has one.
lora::adapter shapes_of(const lora::model_layout& layout) {
    lora::adapter shapes;
    for (const auto& group : layout.groups) {
        for (const auto& site : group.sites) {
            lora::adapter_site shape;
            shape.name = site.name;
            shape.a.rows = site.rank;
            shape.a.columns = group.d;
            shape.b.rows = site.d_out;
            shape.b.columns = site.rank;
            shapes.sites.push_back(std::move(shape));
        }
    }
    return shapes;
}

int run(const std::filesystem::path& data, const split::program_options& service,
        const generation_options& options) {
    language_model model;
    tensafe::interop::load_parameters(model, tensafe::io::safetensors_file::open(data / "base.safetensors"));
    split::remote_options how = service.remote();
    // The last character is written and not read.
    const std::size_t expected = options.prompt.size() + options.characters - 1;
    how.expected_tokens = expected;
    for (const auto& weight : model.named_parameters()) {
        const std::string& name = weight.key();
        if (name.ends_with(".weight")) {
            how.base_norms[name.substr(0, name.size() - 7)] = weight.value().norm().item<double>();
        }
    }
    split::remote_model remote(service.connector(), split::client_identity(service.identity), service.keys(),
                               std::move(how));
    check_sites(model, shapes_of(remote.layout()));
    std::fprintf(stderr, "%s: adapter %s, version %llu, %zu requests a character\n", service.server.c_str(),
                 service.adapter.c_str(), static_cast<unsigned long long>(remote.version()),
                 remote.layout().groups.size());

    text_side side(remote.client(),
                   [&](std::size_t group, auto h, double overflow_margin, std::vector<double>& product) {
                       return remote.ask_or_zeros(group, h, product, overflow_margin);
                   });
    const adapter_deltas deltas = side.deltas();
    const auto before = remote.counted();
    const auto start = std::chrono::steady_clock::now();
    std::printf("%s", options.prompt.c_str());
    std::fflush(stdout);
    generate(model, options, deltas, [](char c) {
        std::fputc(c, stdout);
        std::fflush(stdout);
    });
    std::printf("\n");
    std::fflush(stdout);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;

    const auto after = remote.counted();
    const auto tokens = static_cast<double>(expected);
    split::remote_model::message_bytes cost;
    for (std::size_t group = 0; group < remote.layout().groups.size(); ++group) {
        const auto each = remote.forecast(group, expected);
        cost.up += each.up / expected;
        cost.down += each.down / expected;
    }
    std::fprintf(stderr, "\n%.0f characters read or written, %.1f a second\n", tokens,
                 tokens / passed.count());
    std::fprintf(stderr, "bytes a character: up %.0f (cost model %zu), down %.0f (cost model %zu)\n",
                 static_cast<double>(after.wire.up - before.wire.up) / tokens, cost.up,
                 static_cast<double>(after.wire.down - before.wire.down) / tokens, cost.down);
    std::fprintf(stderr, "reconnections: %llu, %llu of them with a fresh session\n",
                 static_cast<unsigned long long>(after.resumed + after.sessions - 1),
                 static_cast<unsigned long long>(after.sessions - 1));
    if (side.overflows() > 0) {
        std::fprintf(stderr,
                     "%zu values overflowed on the way: the text means nothing, and the server may be "
                     "hostile\n",
                     side.overflows());
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Writes a text with a language model whose adapter is on a server");
    generation_options options;
    split::program_options service;
    std::string data = TENSAFE_EXAMPLE_DATA "/tiny_lm";
    service.add_to(app);
    app.add_option("--prompt", options.prompt, "newlines and printable ASCII")->capture_default_str();
    app.add_option("--characters", options.characters, "to write")
        ->capture_default_str()
        ->check(CLI::Range(1, 100000));
    app.add_option("--temperature", options.temperature, "0: always the likeliest character")
        ->capture_default_str();
    app.add_option("--seed", options.seed, "of the draws, with a temperature")->capture_default_str();
    app.add_option("--data", data, "with base.safetensors")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));  // a limit on file sizes is a full disk
    try {
        at::set_num_threads(1);  // a server beside it has the other cores
        return run(data, service, options);
    } catch (const std::exception& e) {  // torch has errors of its own
        std::fprintf(stderr, "split_tiny_lm: %s\n", e.what());
        return 1;
    }
}
