// Trains the model of examples/tiny_lm.cpp: a small language model of characters on one text, then a LoRA
// adapter for it on another. examples/data/tiny_lm/README.md tells where the texts come from.
//
//   train_tiny_lm --base-text jargon.txt --out DIR                   writes DIR/base.safetensors
//   train_tiny_lm --lora-text bible.txt --base DIR/base.safetensors --out DIR    writes DIR/adapter

#include <tensafe/interop/torch_safetensors.hpp>
#include <tensafe/io/safetensors.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "tiny_lm/bits_per_character.hpp"
#include "tiny_lm/texts.hpp"
#include "tiny_lm/trainable_lora.hpp"
#include "tiny_lm/training.hpp"

namespace {

using namespace studies;

struct files {
    std::string base_text;
    std::string lora_text;
    std::string base;
    std::string out = ".";
};

void train_base(const files& paths, const training_options& options) {
    const parts_of_text text(jargon_text(read_text(paths.base_text)));
    const auto model = std::make_shared<language_model>();
    shared_training<language_model> training(
        model, [] { return std::make_shared<language_model>(); }, options, text.learned,
        [](language_model& copy, const at::Tensor& inputs, const at::Tensor& targets) {
            return loss_of(copy.forward(inputs), targets);
        });
    std::filesystem::create_directories(paths.out);
    training.run(reporter(
        [&] {
            tensafe::io::safetensors_writer writer;
            tensafe::interop::add_parameters(writer, *model, tensafe::io::dtype::f16);
            writer.write(std::filesystem::path(paths.out) / "base.safetensors");
        },
        [&] { return bits_per_character(*model, {}, text.held_out); }));
}

void train_lora(const files& paths, const training_options& options, std::int64_t rank, double alpha) {
    parts_of_text text(verses(read_text(paths.lora_text)));
    text.held_out.resize(std::min<std::size_t>(text.held_out.size(), 65536));  // enough to measure with
    language_model base;
    tensafe::interop::load_parameters(base, tensafe::io::safetensors_file::open(paths.base));
    for (auto& parameter : base.parameters()) {
        parameter.set_requires_grad(false);
    }
    const auto make = [&] { return std::make_shared<trainable_lora>(base.shape(), rank, alpha); };
    const auto lora = make();
    std::printf("held out, without LoRA: %.3f bits per character\n",
                bits_per_character(base, {}, text.held_out));
    shared_training<trainable_lora> training(
        lora, make, options, text.learned,
        [&](trainable_lora& copy, const at::Tensor& inputs, const at::Tensor& targets) {
            return loss_of(base.forward(inputs, copy.deltas()), targets);
        });
    training.run(reporter([&] { lora->save_adapter(std::filesystem::path(paths.out) / "adapter"); },
                          [&] { return bits_per_character(base, lora->deltas(), text.held_out); }));
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Trains the tiny language model, or a LoRA adapter for it");
    files paths;
    training_options options;
    std::int64_t rank = 16;
    double alpha = 32;
    auto* base_text = app.add_option("--base-text", paths.base_text, "jargon.txt: trains the base model");
    auto* lora_text = app.add_option("--lora-text", paths.lora_text, "bible.txt: trains a LoRA adapter");
    app.add_option("--base", paths.base, "base.safetensors, for a LoRA adapter");
    app.add_option("--out", paths.out, "where weights go")->capture_default_str();
    app.add_option("--steps", options.steps)->capture_default_str()->check(CLI::PositiveNumber);
    app.add_option("--minutes", options.minutes, "the schedule ends here if steps take longer")
        ->check(CLI::PositiveNumber);
    app.add_option("--rate", options.rate, "the highest learning rate")->capture_default_str();
    app.add_option("--decay", options.decay, "weight decay")->capture_default_str();
    app.add_option("--sequences", options.sequences, "of a step")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("--threads", options.threads)->capture_default_str()->check(CLI::Range(1, 256));
    app.add_option("--seed", options.seed)->capture_default_str();
    app.add_option("--rank", rank, "of the adapter")->capture_default_str()->check(CLI::Range(1, 256));
    app.add_option("--alpha", alpha, "of the adapter")->capture_default_str()->check(CLI::PositiveNumber);
    base_text->excludes(lora_text);
    CLI11_PARSE(app, argc, argv);
    try {
        torch::manual_seed(options.seed);
        if (!paths.base_text.empty()) {
            train_base(paths, options);
        } else if (!paths.lora_text.empty()) {
            train_lora(paths, options, rank, alpha);
        } else {
            std::fprintf(stderr, "train_tiny_lm: expected --base-text or --lora-text\n");
            return 1;
        }
        return 0;
    } catch (const std::exception& e) {  // torch has errors of its own
        std::fprintf(stderr, "train_tiny_lm: %s\n", e.what());
        return 1;
    }
}
