#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/model/shared_input.hpp>
#include <tensafe/lora/packing/layout.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tensafe::lora {

/// How far packing an adapter has come: `done` of `total` groups are packed; total > 0, and the last call has
/// done == total. Called from the packing thread, after each group. It may throw: packing stops with that
/// exception, and what was packed is released. Empty: nobody asks.
using pack_progress = std::function<void(std::size_t done, std::size_t total)>;

/// How a whole adapter is served: the same for model_server, client_part and lora::model_forecast. Both
/// functions must give the same answer whenever they are asked about a site.
struct model_options {
    lora::mode mode = lora::mode::client_held_b;
    /// Hidden states of a batch, at most, in prefill: the matrices are then packed for column_batched as
    /// well. 0: no prefill. N at most, and 0 for a set that has no room for the replies (offers_prefill):
    /// more is refused. So are longer batches; docs/security.md says whom to give more than N/32, 128 of
    /// private_n4096.
    std::size_t largest_prefill = 0;
    /// Whether the server keeps this site to itself; the client gets the others whole. Empty: every site.
    std::function<bool(const adapter_site&)> protect;
    /// Sites with the same input share one request. Empty: lora::shared_input.
    std::function<std::string(std::string_view)> input_of;
};

/// The number of a site's layer: the first part between dots that is a number, as 3 in
/// "model.layers.3.mlp.experts.7.up_proj". None if there is no such part.
inline std::optional<std::size_t> layer_of(std::string_view site_name) noexcept {
    for (std::size_t first = 0; first <= site_name.size();) {
        const std::size_t end = std::min(site_name.find('.', first), site_name.size());
        std::size_t number = 0;
        const char* const last = site_name.data() + end;
        const auto [stop, problem] = std::from_chars(site_name.data() + first, last, number);
        if (problem == std::errc() && stop == last) {
            return number;
        }
        first = end + 1;
    }
    return std::nullopt;
}

namespace detail {

/// Whether a merged site can have this for a scale: a power of two, and not beyond what matrices of floats
/// lead to.
inline bool is_scale_of_merged(double scale) noexcept {
    constexpr int largest_exponent = 256;
    int exponent = 0;
    return std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5 && exponent - 1 >= -largest_exponent &&
           exponent - 1 <= largest_exponent;
}

/// For all messages that echo the name afterwards.
inline void check_name(std::string_view name, const char* what, std::size_t longest) {
    if (name.empty() || name.size() > longest) {
        throw parameter_error("model_layout: got " + std::string(what) + " with a name of " +
                              std::to_string(name.size()) + " bytes, expected 1 to " +
                              std::to_string(longest));
    }
    if (!is_printable_utf8(name)) {
        throw parameter_error("model_layout: got " + std::string(what) + " with a name of " +
                              std::to_string(name.size()) +
                              " bytes that cannot be shown, expected UTF-8 without control characters");
    }
}

}  // namespace detail

/// What both sides know of a served model: which sites there are, which of them share an input, and how their
/// answers stand in a product. Public. A plain value type; `check()` one that came from somebody else.
struct model_layout {
    /// A site that the server applies.
    struct site {
        std::string name;
        std::size_t rank = 0;
        std::size_t d_out = 0;
        /// What the client multiplies with in the end. client_held_b: the site's LoRA scale. blind: the power
        /// of two, 2^-256 to 2^256, that the server took out, so that the rows of all sites of a group have
        /// about one size; 1 of a site that is all zero.
        double scale = 1;

        friend bool operator==(const site&, const site&) = default;
    };
    /// Sites that share an input: one request and one reply for all of them. Their rows stand one after the
    /// other.
    struct group {
        std::string input;    ///< its name
        std::size_t d = 0;    ///< entries of the hidden state
        double row_norm = 1;  ///< of the rows together, as lora::layout has it
        std::vector<model_layout::site> sites;

        /// Rows of the stacked matrix, which is as many as a product has entries.
        std::size_t rows(lora::mode m) const noexcept {
            std::size_t sum = 0;
            for (const auto& s : sites) {
                sum += served_rows(m, s.rank, s.d_out);
            }
            return sum;
        }
        friend bool operator==(const group&, const group&) = default;
    };
    /// Where a site stands.
    struct place {
        std::size_t group = 0;
        std::size_t site = 0;

        friend bool operator==(const place&, const place&) = default;
    };

    lora::mode mode = lora::mode::client_held_b;
    std::size_t largest_prefill = 0;  ///< hidden states of a prefill request, at most; 0: there is no prefill
    std::vector<model_layout::group> groups;

    friend bool operator==(const model_layout&, const model_layout&) = default;

    // Limits for layouts from outside.
    static constexpr std::size_t most_sites = std::size_t{1} << 20;
    static constexpr std::size_t longest_name = 4096;

    /// Where the site of this name stands. Goes through all of them: keep the result.
    std::optional<place> find(std::string_view name) const noexcept {
        for (std::size_t g = 0; g < groups.size(); ++g) {
            for (std::size_t s = 0; s < groups[g].sites.size(); ++s) {
                if (groups[g].sites[s].name == name) {
                    return place{g, s};
                }
            }
        }
        return std::nullopt;
    }

    /// The same for a site that must be there.
    /// @throws parameter_error if it is not
    place at(std::string_view name) const {
        const std::optional<place> found = find(name);
        if (!found) {
            std::string some;  // one is enough to see how names look here
            if (!groups.empty() && !groups.front().sites.empty()) {
                some = ", as " + quote(groups.front().sites.front().name);
            }
            throw parameter_error("model_layout: got site " + quote(name) +
                                  ", expected the full name of a protected one of the " +
                                  std::to_string(groups.size()) + " groups of this model" + some);
        }
        return *found;
    }

    /// @throws parameter_error if there is no such group
    const model_layout::group& at(std::size_t number) const {
        if (number >= groups.size()) {
            throw parameter_error("model_layout: got group " + std::to_string(number) +
                                  ", expected one of the " + std::to_string(groups.size()) +
                                  " of this model");
        }
        return groups[number];
    }

    /// Refuses what no model_server has. What depends on the parameter set, model_client checks.
    /// @throws shape_error or parameter_error, naming the input or the site
    void check() const {
        if (mode != lora::mode::client_held_b && mode != lora::mode::blind) {
            throw parameter_error("model_layout: got mode number " + std::to_string(static_cast<int>(mode)) +
                                  ", expected client_held_b or blind");
        }
        std::size_t sites = 0;
        std::set<std::string_view> inputs;
        std::set<std::string_view> names;
        for (const auto& g : groups) {
            detail::check_name(g.input, "an input", longest_name);
            if (!inputs.insert(g.input).second) {
                throw parameter_error("model_layout: two groups have the input " + quote(g.input));
            }
            if (g.sites.empty()) {
                throw shape_error("model_layout: input " + quote(g.input) + " has no site");
            }
            sites += g.sites.size();
            if (sites > most_sites) {
                throw shape_error("model_layout: got more than " + std::to_string(most_sites) + " sites");
            }
            std::size_t rows = 0;
            for (const auto& s : g.sites) {
                check_site(s, names);
                rows += served_rows(mode, s.rank, s.d_out);  // 2^20 sites of 2^24 at most
            }
            try {
                detail::check_shape(rows, g.d, g.row_norm);
            } catch (const shape_error& e) {
                throw shape_error("model_layout: input " + quote(g.input) + ": " + e.what());
            } catch (const parameter_error& e) {
                throw parameter_error("model_layout: input " + quote(g.input) + ": " + e.what());
            }
        }
    }

  private:
    void check_site(const site& s, std::set<std::string_view>& names) const {
        detail::check_name(s.name, "a site", longest_name);
        if (!names.insert(s.name).second) {
            throw parameter_error("model_layout: site " + quote(s.name) + " is there twice");
        }
        if (s.rank == 0 || s.d_out == 0 || s.rank > detail::largest_dimension ||
            s.d_out > detail::largest_dimension) {
            throw shape_error("model_layout: site " + quote(s.name) + " has rank " + std::to_string(s.rank) +
                              " and " + std::to_string(s.d_out) + " outputs, expected 1 to 2^24 of both");
        }
        if (!std::isfinite(s.scale)) {
            throw parameter_error("model_layout: site " + quote(s.name) +
                                  " has a scale that is no finite number");
        }
        if (mode == lora::mode::blind && !detail::is_scale_of_merged(s.scale)) {
            throw parameter_error("model_layout: site " + quote(s.name) + " has the scale " +
                                  std::to_string(s.scale) +
                                  ", expected a power of two from 2^-256 to 2^256 in mode blind");
        }
    }
};

namespace detail {

/// The groups of an adapter, and which sites of it stand in them.
struct grouped_sites {
    model_layout layout;                          ///< row norms of 1; LoRA scales, in mode blind 1
    std::vector<std::vector<std::size_t>> sites;  ///< of each group, as places in the adapter
};

/// Whether the server keeps this site.
inline bool is_protected(const model_options& options, const adapter_site& site) {
    return !options.protect || options.protect(site);
}

/// Looks at names, shapes and scales only: the matrices may be without values.
/// @throws shape_error or parameter_error as model_layout::check; shape_error also if the sites of an input
///         have hidden states of different lengths, or B does not have rank columns; naming the sites
inline grouped_sites group_sites(const adapter& from, const model_options& options) {
    grouped_sites result;
    result.layout.mode = options.mode;
    std::map<std::string, std::size_t> known;
    for (std::size_t i = 0; i < from.sites.size(); ++i) {
        const adapter_site& site = from.sites[i];
        if (!is_protected(options, site)) {
            continue;
        }
        check_name(site.name, "a site", model_layout::longest_name);
        if (site.b.columns != site.rank()) {
            throw shape_error("model: site " + site.name + " has a B of " + std::to_string(site.b.columns) +
                              " columns, expected " + std::to_string(site.rank()) + ", the rank");
        }
        if (!std::isfinite(site.scale)) {
            throw parameter_error("model: site " + site.name + " has a scale that is no finite number");
        }
        const std::string input = options.input_of ? options.input_of(site.name) : shared_input(site.name);
        check_name(input, "an input", model_layout::longest_name);
        const auto [found, is_first] = known.try_emplace(input, known.size());
        if (is_first) {
            result.layout.groups.push_back({input, site.d_in(), 1, {}});
            result.sites.emplace_back();
        }
        auto& group = result.layout.groups[found->second];
        if (group.d != site.d_in()) {
            throw shape_error("model: site " + site.name + " has " + std::to_string(site.d_in()) +
                              " inputs, expected " + std::to_string(group.d) + " as site " +
                              group.sites.front().name + ", which shares the input " + input);
        }
        const double scale = options.mode == mode::blind ? 1 : site.scale;
        group.sites.push_back({site.name, site.rank(), site.d_out(), scale});
        result.sites[found->second].push_back(i);
    }
    result.layout.check();
    return result;
}

/// Calls f; what it throws names the input. Costs nothing unless it throws.
template <class F>
decltype(auto) naming_input(const char* who, const model_layout::group& group, F&& f) {
    const auto text = [&](const error& e) {
        return std::string(who) + ": input " + group.input + ": " + e.what();
    };
    try {
        return f();
    } catch (const shape_error& e) {
        throw shape_error(text(e));
    } catch (const parameter_error& e) {
        throw parameter_error(text(e));
    } catch (const encoding_error& e) {
        throw encoding_error(text(e));
    } catch (const range_exceeded_error& e) {
        throw range_exceeded_error(text(e));
    } catch (const format_error& e) {
        throw format_error(text(e));
    }
}

}  // namespace detail

}  // namespace tensafe::lora
