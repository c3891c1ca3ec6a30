#pragma once

#include <tensafe/core/text.hpp>
#include <tensafe/interop/torch_safetensors.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/io/safetensors_header.hpp>

#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/tiny_lm/transformer.hpp"

namespace studies {

using namespace examples::tiny_lm;

/// LoRA of all linears in all layers of a language_model, with gradients. As PEFT begins: A is random, B is
/// zero.
class trainable_lora : public torch::nn::Module {
  public:
    trainable_lora(const model_shape& shape, std::int64_t rank, double alpha) : rank_(rank), alpha_(alpha) {
        for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
            const std::string name = "model.layers." + std::to_string(layer);
            for (const char* site : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
                add(name + ".self_attn." + site, shape.d_model, shape.d_model);
            }
            add(name + ".mlp.up_proj", shape.d_model, shape.d_hidden);
            add(name + ".mlp.down_proj", shape.d_hidden, shape.d_model);
        }
    }

    adapter_deltas deltas() const {
        return [this](const std::vector<std::string>& sites, const at::Tensor& x) {
            std::vector<at::Tensor> results;
            for (const std::string& site : sites) {
                const auto& [a, b] = sites_.at(site);
                results.push_back(torch::matmul(torch::matmul(x, a.t()), b.t()) *
                                  (alpha_ / static_cast<double>(rank_)));
            }
            return results;
        };
    }

    /// Writes adapter_config.json and adapter_model.safetensors, as PEFT does.
    void save_adapter(const std::filesystem::path& directory) const {
        tensafe::io::safetensors_writer writer;
        for (const std::string& name : order_) {
            const auto& [a, b] = sites_.at(name);
            const std::string key = "base_model.model." + name;
            tensafe::interop::add_tensor(writer, key + ".lora_A.weight", a, tensafe::io::dtype::f16);
            tensafe::interop::add_tensor(writer, key + ".lora_B.weight", b, tensafe::io::dtype::f16);
        }
        std::filesystem::create_directories(directory);
        writer.write(directory / "adapter_model.safetensors");
        const std::string config =
            "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n"
            "  \"base_model_name_or_path\": \"tiny_lm\",\n  \"r\": " +
            std::to_string(rank_) + ",\n  \"lora_alpha\": " + tensafe::shortest_text(alpha_) +
            ",\n  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n"
            "  \"inference_mode\": true,\n  \"use_rslora\": false,\n  \"use_dora\": false,\n"
            "  \"rank_pattern\": {},\n  \"alpha_pattern\": {},\n  \"modules_to_save\": null,\n"
            "  \"target_modules\": [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"up_proj\", "
            "\"down_proj\"]\n}\n";
        tensafe::io::replace_file(directory / "adapter_config.json",
                                  std::as_bytes(std::span<const char>(config)));
    }

  private:
    void add(const std::string& site, std::int64_t d_in, std::int64_t d_out) {
        // Names of torch parameters have no dots.
        const std::string name = "site" + std::to_string(order_.size());
        const double bound = 1 / std::sqrt(static_cast<double>(d_in));
        // Copies: what register_parameter refers to moves when the next one comes.
        const at::Tensor a =
            register_parameter(name + "_a", torch::empty({rank_, d_in}).uniform_(-bound, bound));
        const at::Tensor b = register_parameter(name + "_b", torch::zeros({d_out, rank_}));
        order_.push_back(site);
        sites_.emplace(site, std::pair(a, b));
    }

    std::int64_t rank_;
    double alpha_;
    std::vector<std::string> order_;
    std::map<std::string, std::pair<at::Tensor, at::Tensor>> sites_;
};

}  // namespace studies
