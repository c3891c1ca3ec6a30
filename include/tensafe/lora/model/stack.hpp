#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
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

/// Tells which answers of a stack belong to which site: all that a client needs of it.
class stack_parts {
  public:
    /// @param ranks  of the sites, in their order in the stack
    explicit stack_parts(std::span<const std::size_t> ranks) : first_rows_{0} {
        for (const std::size_t rank : ranks) {
            first_rows_.push_back(first_rows_.back() + rank);
        }
    }
    stack_parts(std::initializer_list<std::size_t> ranks = {})
        : stack_parts(std::span(ranks.begin(), ranks.size())) {}

    std::size_t sites() const noexcept { return first_rows_.size() - 1; }
    std::size_t rows() const noexcept { return first_rows_.back(); }

    /// The part of a stacked product that belongs to site i.
    /// @throws shape_error if there is no such site or the product does not have one entry for each row
    std::span<const double> part(std::span<const double> product, std::size_t i) const {
        require<shape_error>(i < sites() && product.size() == rows(),
                             {"stack_parts::part: got site ", i, " and ", product.size(),
                              " entries, expected a site below ", sites(), " and ", rows(), " entries"});
        return product.subspan(first_rows_[i], first_rows_[i + 1] - first_rows_[i]);
    }

  private:
    std::vector<std::size_t> first_rows_;
};

/// Several sites with one common input, as q, k and v of a layer, their A matrices stacked by rows: one
/// encrypted h serves them all, and each takes its rows of the product. Owns copies of the rows; immutable.
class site_stack {
  public:
    /// Stacks sites: `site_stack qkv({q, k, v});` for three.
    /// @throws shape_error if there is no site, one has another d_in, or not rows * columns values
    explicit site_stack(std::initializer_list<std::reference_wrapper<const adapter_site>> sites)
        : site_stack(std::span(sites.begin(), sites.size())) {}
    explicit site_stack(std::span<const std::reference_wrapper<const adapter_site>> sites) {
        require<shape_error>(!sites.empty(), {"site_stack: got no site, expected at least one"});
        rows_.columns = sites.front().get().d_in();
        std::vector<std::size_t> ranks;
        for (const adapter_site& site : sites) {
            require<shape_error>(
                site.d_in() == rows_.columns,
                {"site_stack: site ", in_quotes(site.name), " has ", site.d_in(), " inputs, expected ",
                 rows_.columns, " as site ", in_quotes(sites.front().get().name)});
            site.a.check("site_stack: site " + quote(site.name));
            rows_.values.insert(rows_.values.end(), site.a.values.begin(), site.a.values.end());
            rows_.rows += site.rank();
            ranks.push_back(site.rank());
        }
        parts_ = stack_parts(ranks);
    }

    /// All rows: sum of ranks x d_in.
    const matrix& rows() const noexcept { return rows_; }
    std::size_t sites() const noexcept { return parts_.sites(); }

    /// Splits rows() * h into the sites' products; a client makes its own stack_parts from ranks.
    const stack_parts& parts() const noexcept { return parts_; }
    /// The part of a stacked product that belongs to site i.  @throws as stack_parts::part
    std::span<const double> part(std::span<const double> product, std::size_t i) const {
        return parts_.part(product, i);
    }

  private:
    matrix rows_;
    stack_parts parts_{};
};

/// An adapter with the name that its sites get in a stack. A temporary does not compile.
struct named_adapter {
    std::string name;
    std::reference_wrapper<const lora::adapter> sites;
};

/// A name of a stack taken apart: "legal/model.layers.0.self_attn.q_proj".
struct stacked_name {
    std::string_view adapter;  ///< "legal"; empty where the name has none
    std::string_view site;     ///< "model.layers.0.self_attn.q_proj"
};

/// Splits a name of a stack; the parts refer to `name`.
inline stacked_name split_stacked_name(std::string_view name) noexcept {
    const std::size_t slash = name.find('/');
    if (slash == name.npos) {
        return {{}, name};
    }
    return {name.substr(0, slash), name.substr(slash + 1)};
}

/// Makes one adapter of several of one base model: attention adapters, experts, tenants. Their sites are
/// called "<adapter>/<site>", in the order of the adapters; those with the same shared_input share one
/// request. Matrices and scales are copied as they are, so deltas are those without a stack.
/// @throws parameter_error if there is no adapter, a name is empty, has a '/' or comes twice, or a site's
///         name has a '/' or comes twice in one adapter
inline adapter stack_adapters(std::span<const named_adapter> adapters) {
    require<parameter_error>(!adapters.empty(), {"stack_adapters: got no adapter, expected at least one"});
    std::set<std::string_view> names;
    adapter result;
    for (const named_adapter& each : adapters) {
        require<parameter_error>(!each.name.empty() && each.name.find('/') == each.name.npos,
                                 {"stack_adapters: got an adapter called ", in_quotes(each.name),
                                  ", expected a name without '/' that is not empty"});
        require<parameter_error>(names.insert(each.name).second,
                                 {"stack_adapters: got two adapters called ", in_quotes(each.name),
                                  ", expected a name of its own for each"});
        std::set<std::string_view> sites;
        for (const adapter_site& site : each.sites.get().sites) {
            const bool plain = site.name.find('/') == site.name.npos;
            require<parameter_error>(
                plain && sites.insert(site.name).second,
                {"stack_adapters: adapter ", in_quotes(each.name), " has a site called ",
                 in_quotes(site.name), plain ? " twice" : ", expected a name without '/'"});
            result.sites.push_back(site);
            result.sites.back().name.insert(0, each.name + "/");
        }
    }
    return result;
}

/// Stacks adapters: `stack_adapters({{"attention", attention}, {"banking", banking}})`.
inline adapter stack_adapters(std::initializer_list<named_adapter> adapters) {
    return stack_adapters(std::span(adapters.begin(), adapters.size()));
}

/// A delta and how much of it counts: the weight that a model's router gives an expert, or 1.
struct weighted_delta {
    double weight = 1;
    std::span<const double> delta;  ///< the delta from apply_b, with its site's own scale
};

/// Returns the sum of weight * delta, which several adapters add to the output of one site. In double
/// precision, in the order given, which decides how the sum is rounded.
/// @throws shape_error if there is no delta or their lengths differ; parameter_error unless weights are
///         finite
inline std::vector<double> sum_of_deltas(std::span<const weighted_delta> deltas) {
    require<shape_error>(!deltas.empty(), {"sum_of_deltas: got no delta, expected at least one"});
    for (std::size_t i = 0; i < deltas.size(); ++i) {
        require<shape_error>(deltas[i].delta.size() == deltas.front().delta.size(),
                             {"sum_of_deltas: delta ", i, " has ", deltas[i].delta.size(),
                              " entries, expected ", deltas.front().delta.size(), " as the first one has"});
        require<parameter_error>(std::isfinite(deltas[i].weight),
                                 {"sum_of_deltas: the weight of delta ", i, " is not finite"});
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
