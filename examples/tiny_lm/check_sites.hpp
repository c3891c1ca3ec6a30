#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <torch/torch.h>

#include <map>
#include <string>

#include "transformer.hpp"

namespace examples::tiny_lm {

/// Once, after loading: a site that no linear asks for would go unnoticed, and so would a delta of one entry,
/// which torch adds to all.
/// @throws tensafe::parameter_error, naming the site, unless the adapter's sites are all linears of the
/// layers
/// @throws tensafe::shape_error, naming it, for a site of another size than its linear
inline void check_sites(const language_model& model, const tensafe::lora::adapter& adapter) {
    std::map<std::string, at::Tensor> weights;  // [d_out, d_in]
    for (const auto& parameter : model.named_parameters()) {
        if (parameter.key().starts_with("model.layers.") && parameter.value().dim() == 2) {
            weights.emplace(parameter.key().substr(0, parameter.key().rfind('.')), parameter.value());
        }
    }
    const auto size = [](auto d_out, auto d_in) {
        return std::to_string(d_out) + " outputs and " + std::to_string(d_in) + " inputs";
    };
    for (const auto& site : adapter.sites) {
        const auto found = weights.find(site.name);
        if (found == weights.end()) {
            throw tensafe::parameter_error("check_sites: the adapter has site \"" + site.name +
                                           "\", expected a linear of the model, each once");
        }
        const std::string expected = size(found->second.size(0), found->second.size(1));
        if (const std::string got = size(site.d_out(), site.d_in()); got != expected) {
            throw tensafe::shape_error("check_sites: site \"" + site.name + "\" of the adapter: got " + got +
                                       ", expected the linear's " + expected);
        }
        weights.erase(found);
    }
    if (!weights.empty()) {
        throw tensafe::parameter_error("check_sites: the adapter has no site \"" + weights.begin()->first +
                                       "\", expected one for each of the model's linears");
    }
}

}  // namespace examples::tiny_lm
