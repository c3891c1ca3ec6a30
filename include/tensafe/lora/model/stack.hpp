#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
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

}  // namespace tensafe::lora
