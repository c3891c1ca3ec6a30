#include "../../examples/tiny_lm/character_model.hpp"

#include <tensafe/io/peft.hpp>
#include <tensafe/lora/adapter/plain.hpp>

#include "../test.hpp"

using namespace tests;
using namespace examples::tiny_lm;
namespace io = tensafe::io;
namespace lora = tensafe::lora;

namespace {

const std::string data = TENSAFE_EXAMPLE_DATA "/tiny_lm";

std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    REQUIRE(in.good());
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Reads a text, and adds the likeliest characters.
std::string continued(character_model& model, std::string text, std::size_t characters,
                      const lora::adapter* adapter) {
    const auto read = [&](char c) {
        for (model.begin(tokens_of(std::string(1, c)).front()); !model.sites().empty();) {
            std::vector<std::vector<float>> deltas;
            for (const std::string& site :
                 adapter == nullptr ? std::span<const std::string>() : model.sites()) {
                const auto delta = lora::plain_delta(adapter->site(site), model.input());
                deltas.emplace_back(delta.begin(), delta.end());
            }
            model.resume(std::vector<std::span<const float>>(deltas.begin(), deltas.end()));
        }
    };
    for (const char c : text) {
        read(c);
    }
    text.clear();
    while (text.size() < characters) {
        text += character_of(model.likeliest());
        read(text.back());
    }
    return text;
}

}  // namespace

TEST_CASE("the model writes what libtorch's writes, beyond its window too") {
    character_model model(io::safetensors_file::open(data + "/base.safetensors"));
    const lora::adapter adapter = io::load_peft(data + "/adapter");
    const std::string expected = bytes_of(data + "/job_hath_spoken.txt");
    REQUIRE(expected.size() == 500);
    CHECK(continued(model, "Job hath spoken", 500, &adapter) == expected);
    model.clear();
    const std::string base = continued(model, "Job hath spoken", 40, nullptr);
    CHECK(base != expected.substr(0, 40));
    model.clear();
    CHECK(continued(model, "Job hath spoken", 40, &adapter) == expected.substr(0, 40));
}

TEST_CASE("weights of another model are refused, and deltas of another length") {
    const std::string file = bytes_of(data + "/base.safetensors");
    const auto model_of = [](const std::string& bytes) {
        character_model(io::safetensors_file::parse(std::as_bytes(std::span(bytes)), "weights"));
    };
    CHECK(contains(refusal<format_error>([&] {
                       model_of(replaced(file, "layers.1.self_attn.k_proj", "layers.1.self_attn.k_prox"));
                   }),
                   "model.layers.1.self_attn.k_proj.weight"));
    CHECK(contains(refusal<shape_error>([&] { model_of(replaced(file, "[1024, 256]", "[256, 1024]")); }),
                   "model.layers.0.mlp.up_proj.weight"));
    character_model model(io::safetensors_file::open(data + "/base.safetensors"));
    model.begin(1);
    const std::vector<float> one(256);
    const std::vector<std::span<const float>> two(2, one);
    CHECK(contains(refusal<shape_error>([&] { model.resume(two); }),
                   "expected 256 entries for each of 3 sites"));
}
