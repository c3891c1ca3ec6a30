#pragma once

#include <tensafe/interop/torch.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transformer.hpp"

namespace examples::tiny_lm {

/// LoRA as everybody computes it: scale * (x A^T) B^T in single precision, of the matrices as io::load_peft
/// gives them.
/// @throws tensafe::parameter_error when called for a site that the adapter does not have
inline adapter_deltas plain_lora(tensafe::lora::adapter adapter) {
    const auto kept = std::make_shared<const tensafe::lora::adapter>(std::move(adapter));
    return [kept](const std::vector<std::string>& sites, const at::Tensor& x) {
        std::vector<at::Tensor> results;
        for (const std::string& name : sites) {
            const auto& site = kept->site(name);
            const at::Tensor a = tensafe::interop::as_tensor(site.a);
            const at::Tensor b = tensafe::interop::as_tensor(site.b);
            results.push_back(torch::matmul(torch::matmul(x, a.t()), b.t()) * site.scale);
        }
        return results;
    };
}

}  // namespace examples::tiny_lm
