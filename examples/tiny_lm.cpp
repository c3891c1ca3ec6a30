// A language model of characters that writes a text three ways: the base model alone, with a LoRA adapter in
// the clear, and with the same adapter on a server that sees nothing but ciphertexts. The last two must be
// the same, character by character.
//
//   tiny_lm                                              "In the beginning", the three ways
//   tiny_lm --prompt "And he said" --characters 500 --way encrypted
//   tiny_lm --temperature 0.7 --seed 3                   with chance, the same for all ways

#include <tensafe/interop/torch_safetensors.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "tiny_lm/check_sites.hpp"
#include "tiny_lm/figures.hpp"
#include "tiny_lm/generation.hpp"
#include "tiny_lm/plain_lora.hpp"
#include "tiny_lm/two_sides.hpp"

namespace {

using namespace examples::tiny_lm;
namespace lora = tensafe::lora;

/// Prints characters as they come.
generated_text write(const char* title, language_model& model, const generation_options& options,
                     const adapter_deltas& deltas, figures& took) {
    std::printf("--- %s ---\n%s", title, options.prompt.c_str());
    const timed here(took.milliseconds);
    auto result = generate(model, options, deltas, [](char c) {
        std::fputc(c, stdout);
        std::fflush(stdout);
    });
    std::printf("\n\n");
    return result;
}

int run(const std::filesystem::path& data, const std::string& way, const generation_options& options) {
    language_model model;
    tensafe::interop::load_parameters(model, tensafe::io::safetensors_file::open(data / "base.safetensors"));
    const lora::adapter adapter = tensafe::io::load_peft(data / "adapter");
    check_sites(model, adapter);
    const bool all = way == "all";
    std::map<std::string, generated_text> texts;
    std::map<std::string, figures> took;
    if (all || way == "base") {
        write("base model", model, options, {}, took["base"]);
    }
    if (all || way == "plain") {
        texts["plain"] = write("LoRA in the clear", model, options, plain_lora(adapter), took["plain"]);
    }
    if (all || way == "encrypted") {
        adapter_side server(adapter);
        text_side client(server, lora::client_part(adapter));
        figures& f = took["encrypted"];
        texts["encrypted"] = write("encrypted LoRA", model, options, client.deltas(), f);
        f.client = client.milliseconds() - server.milliseconds();
        f.server = server.milliseconds();
        f.bytes_up = server.bytes_up();
        f.bytes_down = server.bytes_down();
    }
    print_title();
    for (const char* name : {"base", "plain", "encrypted"}) {
        if (took.contains(name)) {
            // The last character is written and not read.
            print(name, took[name], options.prompt.size() + options.characters - 1);
        }
    }
    if (!all) {
        return 0;
    }
    const comparison c(texts["plain"], texts["encrypted"]);
    const bool same = c.equal == options.characters;
    const char* const verdict = same                      ? "the same text"
                                : options.temperature > 0 ? "a draw fell between their probabilities"
                                                          : "DIFFERENT";
    std::printf("\nencrypted and plaintext LoRA: %s (%zu of %zu characters)\n", verdict, c.equal,
                options.characters);
    std::printf("largest difference of a logit %.1e, smallest margin of the likeliest character %.1e\n",
                c.largest_logit_difference, c.smallest_margin);
    return same || options.temperature > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Writes a text with a base model, with LoRA in the clear, and with encrypted LoRA");
    generation_options options;
    std::string way = "all";
    std::string data = TENSAFE_EXAMPLE_DATA "/tiny_lm";
    app.add_option("--prompt", options.prompt, "newlines and printable ASCII")->capture_default_str();
    app.add_option("--characters", options.characters, "to write")
        ->capture_default_str()
        ->check(CLI::Range(1, 100000));
    app.add_option("--way", way)
        ->capture_default_str()
        ->check(CLI::IsMember({"base", "plain", "encrypted", "all"}));
    app.add_option("--temperature", options.temperature, "0: always the likeliest character")
        ->capture_default_str();
    app.add_option("--seed", options.seed, "of the draws, with a temperature")->capture_default_str();
    app.add_option("--data", data, "with base.safetensors and adapter/")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        return run(data, way, options);
    } catch (const std::exception& e) {  // torch has errors of its own
        std::fprintf(stderr, "tiny_lm: %s\n", e.what());
        return 1;
    }
}
