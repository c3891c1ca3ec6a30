#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensafe::lora {

/// An adapter with the name that its sites get in a stack. Refers to the adapter: a temporary does not
/// compile.
struct named_adapter {
    std::string name;
    std::reference_wrapper<const lora::adapter> sites;
};

/// A name of a stack taken apart: "legal/model.layers.0.self_attn.q_proj".
struct stacked_name {
    std::string_view adapter;  ///< "legal"; empty where the name has none
    std::string_view site;     ///< "model.layers.0.self_attn.q_proj"
};

/// The parts refer to `name`.
inline stacked_name split_stacked_name(std::string_view name) noexcept {
    const std::size_t slash = name.find('/');
    if (slash == name.npos) {
        return {{}, name};
    }
    return {name.substr(0, slash), name.substr(slash + 1)};
}

/// Several adapters of one base model as one: attention adapters, experts, tenants. Their sites are called
/// "<adapter>/<site>" and stand in the order of the adapters. Sites with the same shared_input have the same
/// encrypted input, whatever adapter they belong to: one request serves them all.
///
/// Matrices and scales are copied as they are. In mode client_held_b a server sees A alone: each site's
/// scale, alpha / rank or alpha / sqrt(rank), is applied by apply_b in double precision after decryption,
/// exactly as without a stack and without encryption.
/// @throws parameter_error if there is no adapter, a name is empty, has a '/' or comes twice, or a site's
///         name has a '/' or comes twice in one adapter
inline adapter stack_adapters(std::span<const named_adapter> adapters) {
    if (adapters.empty()) {
        throw parameter_error("stack_adapters: got no adapter, expected at least one");
    }
    std::set<std::string_view> names;
    std::size_t sites = 0;
    for (const named_adapter& each : adapters) {
        if (each.name.empty() || each.name.find('/') != each.name.npos) {
            throw parameter_error("stack_adapters: got an adapter called \"" + each.name +
                                  "\", expected a name without '/' that is not empty");
        }
        if (!names.insert(each.name).second) {
            throw parameter_error("stack_adapters: got two adapters called \"" + each.name +
                                  "\", expected a name of its own for each");
        }
        std::set<std::string_view> sites_of_adapter;
        for (const adapter_site& site : each.sites.get().sites) {
            if (site.name.find('/') != site.name.npos || !sites_of_adapter.insert(site.name).second) {
                throw parameter_error(
                    "stack_adapters: adapter \"" + each.name + "\" has a site called \"" + site.name + "\"" +
                    (site.name.find('/') != site.name.npos ? ", expected a name without '/'" : " twice"));
            }
        }
        sites += sites_of_adapter.size();
    }
    adapter result;
    result.sites.reserve(sites);
    for (const named_adapter& each : adapters) {
        for (const adapter_site& site : each.sites.get().sites) {
            result.sites.push_back(site);
            result.sites.back().name.insert(0, each.name + "/");
        }
    }
    return result;
}

/// `stack_adapters({{"attention", attention}, {"banking", banking}})`
inline adapter stack_adapters(std::initializer_list<named_adapter> adapters) {
    return stack_adapters(std::span(adapters.begin(), adapters.size()));
}

/// A delta and how much of it counts: the weight that a model's router gives an expert, or 1.
struct weighted_delta {
    double weight = 1;
    std::span<const double> delta;  ///< from apply_b, with its site's own scale
};

/// What several adapters add to the output of one site: the sum of weight * delta, in double precision, term
/// by term in the order given, which decides how the sum is rounded.
/// @throws shape_error if there is no delta or their lengths differ; parameter_error for a weight that is not
///         finite
inline std::vector<double> sum_of_deltas(std::span<const weighted_delta> deltas) {
    if (deltas.empty()) {
        throw shape_error("sum_of_deltas: got no delta, expected at least one");
    }
    for (std::size_t i = 0; i < deltas.size(); ++i) {
        if (deltas[i].delta.size() != deltas.front().delta.size()) {
            throw shape_error("sum_of_deltas: delta " + std::to_string(i) + " has " +
                              std::to_string(deltas[i].delta.size()) + " entries, expected " +
                              std::to_string(deltas.front().delta.size()) + " as the first one has");
        }
        if (!std::isfinite(deltas[i].weight)) {
            throw parameter_error("sum_of_deltas: the weight of delta " + std::to_string(i) +
                                  " is not finite");
        }
    }
    std::vector<double> sum(deltas.front().delta.size());
    for (const weighted_delta& each : deltas) {
        for (std::size_t k = 0; k < sum.size(); ++k) {
            sum[k] += each.weight * each.delta[k];
        }
    }
    return sum;
}
inline std::vector<double> sum_of_deltas(std::initializer_list<weighted_delta> deltas) {
    return sum_of_deltas(std::span(deltas.begin(), deltas.size()));
}

}  // namespace tensafe::lora
