#pragma once

#include <tensafe/interop/torch.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transformer.hpp"

namespace examples::tiny_lm {

/// LoRA as everybody computes it: scale * (x A^T) B^T in single precision, of the matrices as io::load_peft
/// gives them.
/// @param noise  deviation of an error that answers x A^T get, relative to norm(x) / sqrt(d) times the
///               largest norm of a row, as in lora::reply_budget: normal, of torch's generator
/// @throws tensafe::parameter_error when called for a site that the adapter does not have
inline adapter_deltas plain_lora(tensafe::lora::adapter adapter, double noise = 0) {
    const auto kept = std::make_shared<const tensafe::lora::adapter>(std::move(adapter));
    return [kept, noise](const std::vector<std::string>& sites, const at::Tensor& x) {
        std::vector<at::Tensor> results;
        for (const std::string& name : sites) {
            const auto& site = kept->site(name);
            const at::Tensor a = tensafe::interop::as_tensor(site.a);
            const at::Tensor b = tensafe::interop::as_tensor(site.b);
            at::Tensor answers = torch::matmul(x, a.t());
            if (noise > 0) {
                const double unit = noise / std::sqrt(static_cast<double>(site.d_in()));
                answers =
                    answers + torch::randn_like(answers) * x.norm(2, -1, true) * a.norm(2, 1).max() * unit;
            }
            results.push_back(torch::matmul(answers, b.t()) * site.scale);
        }
        return results;
    };
}

}  // namespace examples::tiny_lm
