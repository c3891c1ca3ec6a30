#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
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

/// Which answers of a stack belong to which site: all that a client needs of it.
class stack_parts {
  public:
    /// @param ranks  of the sites, in their order
    explicit stack_parts(std::span<const std::size_t> ranks) : first_rows_{0} {
        for (const std::size_t rank : ranks) {
            first_rows_.push_back(first_rows_.back() + rank);
        }
    }
    stack_parts(std::initializer_list<std::size_t> ranks)
        : stack_parts(std::span(ranks.begin(), ranks.size())) {}

    std::size_t sites() const noexcept { return first_rows_.size() - 1; }
    std::size_t rows() const noexcept { return first_rows_.back(); }

    /// The part of a stacked product that belongs to site i.
    /// @throws shape_error if there is no such site or the product does not have one entry for each row
    std::span<const double> part(std::span<const double> product, std::size_t i) const {
        if (i >= sites() || product.size() != rows()) {
            throw shape_error("stack_parts::part: got site " + std::to_string(i) + " and " +
                              std::to_string(product.size()) + " entries, expected a site below " +
                              std::to_string(sites()) + " and " + std::to_string(rows()) + " entries");
        }
        return product.subspan(first_rows_[i], first_rows_[i + 1] - first_rows_[i]);
    }

  private:
    std::vector<std::size_t> first_rows_;
};

/// Several sites with one common input, their A matrices stacked by rows: one encrypted h serves them all,
/// and each takes its rows of the product. q, k and v projections of a layer are the usual case.
///
/// Owns copies of the rows; immutable and safe to share between threads.
class site_stack {
  public:
    /// `site_stack qkv({q, k, v});` for three sites.
    /// @throws shape_error if there is no site, the input dimensions differ, or a matrix has not rows *
    /// columns values
    explicit site_stack(std::initializer_list<std::reference_wrapper<const adapter_site>> sites)
        : site_stack(std::span(sites.begin(), sites.size())) {}
    explicit site_stack(std::span<const std::reference_wrapper<const adapter_site>> sites)
        : parts_(ranks_of(sites)) {
        if (sites.empty()) {
            throw shape_error("site_stack: got no site, expected at least one");
        }
        rows_.columns = sites.front().get().d_in();
        for (const adapter_site& site : sites) {
            if (site.d_in() != rows_.columns) {
                throw shape_error("site_stack: site " + site.name + " has " + std::to_string(site.d_in()) +
                                  " inputs, expected " + std::to_string(rows_.columns) + " as site " +
                                  sites.front().get().name);
            }
            site.a.check("site_stack: site " + site.name);
            rows_.values.insert(rows_.values.end(), site.a.values.begin(), site.a.values.end());
            rows_.rows += site.rank();
        }
    }

    /// All rows: sum of ranks x d_in.
    const matrix& rows() const noexcept { return rows_; }
    std::size_t sites() const noexcept { return parts_.sites(); }

    /// What splits rows() * h into the sites' products; a client that does not know A makes its own from
    /// ranks.
    const stack_parts& parts() const noexcept { return parts_; }
    /// @throws as stack_parts::part
    std::span<const double> part(std::span<const double> product, std::size_t i) const {
        return parts_.part(product, i);
    }

  private:
    static stack_parts ranks_of(std::span<const std::reference_wrapper<const adapter_site>> sites) {
        std::vector<std::size_t> ranks;
        for (const adapter_site& site : sites) {
            ranks.push_back(site.rank());
        }
        return stack_parts(ranks);
    }

    matrix rows_;
    stack_parts parts_;
};

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
