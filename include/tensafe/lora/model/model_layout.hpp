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
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tensafe::lora {

/// The protection of a model's blocks; a model of bare replies has none.
template <class Protection>
using block_protection = std::conditional_t<Protection::protects, Protection, protects_adapter_rows<>>;

/// Is told after each group that `done` of `total` groups of an adapter are packed, by the packing thread;
/// what it throws ends the packing. May be empty.
using pack_progress = std::function<void(std::size_t done, std::size_t total)>;

/// The way a whole adapter is served: the same for model_server, client_part and model_forecast. Both
/// functions must always give the same answer about a site.
struct model_options {
    lora::mode mode = lora::mode::client_held_b;
    /// The tokens of a block; the matrices are then kept for token_blocks as well. 0: no
    /// blocks.
    /// At most most_targets of the set, N with trusts_clients, and 0 for a set without room for the replies
    /// (offers_blocks).
    std::size_t tokens_ahead = 0;
    /// Whether no client cheats: see lora::trusts_clients.
    bool trusts_clients = false;
    /// Whether the server keeps this site to itself; the client gets the others whole. Empty: every site.
    std::function<bool(const adapter_site&)> protect;
    /// Whether each column of the matrices is scaled by a power of two, **which all clients see**, so that
    /// deltas stay precise for hidden states with a few huge entries that the adapter hardly reads (the
    /// massive activations of language models). The powers show the norm of each column within a factor 1.5.
    bool column_scales = false;
    /// The name of a site's input; sites with the same input share one request. Empty: lora::shared_input.
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

/// Whether a merged site can have this scale: a power of two that matrices of floats lead to.
inline bool is_scale_of_merged(double scale) noexcept {
    constexpr int largest_exponent = 256;
    int exponent = 0;
    return std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5 && exponent - 1 >= -largest_exponent &&
           exponent - 1 <= largest_exponent;
}

/// Throws the error in flight again, with this in front of its message; as it is if it is none of ours.
[[noreturn]] inline void throw_again(std::initializer_list<text_part> before) {
    try {
        throw;
    } catch (const shape_error& e) {
        throw shape_error(text_of(before) + e.what());
    } catch (const parameter_error& e) {
        throw parameter_error(text_of(before) + e.what());
    } catch (const encoding_error& e) {
        throw encoding_error(text_of(before) + e.what());
    } catch (const range_exceeded_error& e) {
        throw range_exceeded_error(text_of(before) + e.what());
    } catch (const format_error& e) {
        throw format_error(text_of(before) + e.what());
    }
}

/// Checks a name that all messages echo afterwards.  @throws parameter_error
inline void check_name(std::string_view name, const char* what, std::size_t longest) {
    require<parameter_error>(
        !name.empty() && name.size() <= longest,
        {"model_layout: got ", what, " with a name of ", name.size(), " bytes, expected 1 to ", longest});
    require<parameter_error>(is_printable_utf8(name),
                             {"model_layout: got ", what, " with a name of ", name.size(),
                              " bytes that cannot be shown, expected UTF-8 without control characters"});
}

}  // namespace detail

/// The shape of a served model, which both sides know: the sites, which of them share an input, and how their
/// answers stand in a product. Public. A plain value type; `check()` one that came from somebody else.
struct model_layout {
    /// A site that the server applies.
    struct site {
        std::string name;
        std::size_t rank = 0;
        std::size_t d_out = 0;
        /// The client multiplies with this in the end. client_held_b: the LoRA scale. blind: the power of two
        /// that the server took out, so that all sites of a group have rows of about one size; 1 if all is 0.
        double scale = 1;

        friend bool operator==(const site&, const site&) = default;
    };
    /// Sites that share an input: one request and one reply for all. Their rows stand one after the other.
    struct group {
        std::string input;    ///< the name of the input
        std::size_t d = 0;    ///< entries of the hidden state
        double row_norm = 1;  ///< the largest norm of a row, as lora::layout has it
        std::vector<model_layout::site> sites;
        /// The server holds column t times 2^column_exponents[t], so the client divides entry t of a hidden
        /// state by as much: d of them, or none if no column is scaled.
        std::vector<std::int8_t> column_exponents = {};

        /// The rows of the stacked matrix, as many as a product has entries.
        std::size_t rows(lora::mode m) const noexcept {
            std::size_t sum = 0;
            for (const auto& s : sites) {
                sum += served_rows(m, s.rank, s.d_out);
            }
            return sum;
        }
        friend bool operator==(const group&, const group&) = default;
    };
    /// The place of a site.
    struct place {
        std::size_t group = 0;
        std::size_t site = 0;

        friend bool operator==(const place&, const place&) = default;
    };

    lora::mode mode = lora::mode::client_held_b;
    std::size_t tokens_ahead = 0;  ///< tokens of a block; 0: there are no blocks
    std::vector<model_layout::group> groups;

    friend bool operator==(const model_layout&, const model_layout&) = default;

    // Limits for layouts from outside.
    static constexpr std::size_t most_sites = std::size_t{1} << 20;
    static constexpr std::size_t longest_name = 4096;

    /// Finds the place of the site of this name. Goes through all of them: keep the result.
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

    /// The place of a site that must be there.  @throws parameter_error if it is not
    place at(std::string_view name) const {
        const std::optional<place> found = find(name);
        if (!found) {
            std::string some;  // one is enough to see how names look here
            if (!groups.empty() && !groups.front().sites.empty()) {
                some = ", as " + quote(groups.front().sites.front().name);
            }
            throw parameter_error({"model_layout: got site ", in_quotes(name),
                                   ", expected the full name of a protected one of the ", groups.size(),
                                   " groups of this model", some});
        }
        return *found;
    }

    /// The group of this number.  @throws parameter_error if there is no such group
    const model_layout::group& at(std::size_t number) const {
        require<parameter_error>(
            number < groups.size(),
            {"model_layout: got group ", number, ", expected one of the ", groups.size(), " of this model"});
        return groups[number];
    }

    /// Throws for a layout that no model_server has. What depends on the parameter set, model_client checks.
    /// @throws shape_error or parameter_error, naming the input or the site
    void check() const {
        require<parameter_error>(
            mode == lora::mode::client_held_b || mode == lora::mode::blind,
            {"model_layout: got mode number ", static_cast<int>(mode), ", expected client_held_b or blind"});
        std::size_t sites = 0;
        std::set<std::string_view> inputs;
        std::set<std::string_view> names;
        for (const auto& g : groups) {
            detail::check_name(g.input, "an input", longest_name);
            require<parameter_error>(inputs.insert(g.input).second,
                                     {"model_layout: two groups have the input ", in_quotes(g.input)});
            require<shape_error>(!g.sites.empty(),
                                 {"model_layout: input ", in_quotes(g.input), " has no site"});
            sites += g.sites.size();
            require<shape_error>(sites <= most_sites, {"model_layout: got more than ", most_sites, " sites"});
            require<shape_error>(
                g.column_exponents.empty() || g.column_exponents.size() == g.d,
                {"model_layout: input ", in_quotes(g.input), " has ", g.column_exponents.size(),
                 " column exponents, expected ", g.d, " or none"});
            for (const std::int8_t e : g.column_exponents) {
                require<parameter_error>(std::abs(e) <= detail::largest_column_exponent,
                                         {"model_layout: input ", in_quotes(g.input),
                                          " has the column exponent ", int{e}, ", expected -120 to 120"});
            }
            std::size_t rows = 0;
            for (const auto& s : g.sites) {
                check_site(s, names);
                const std::size_t more = served_rows(mode, s.rank, s.d_out);
                rows += std::min(more, detail::largest_dimension + 1 - rows);  // one too many is too many
            }
            try {
                detail::check_shape(rows, g.d, g.row_norm);
            } catch (const error&) {
                detail::throw_again({"model_layout: input ", in_quotes(g.input), ": "});
            }
        }
    }

  private:
    void check_site(const site& s, std::set<std::string_view>& names) const {
        detail::check_name(s.name, "a site", longest_name);
        require<parameter_error>(names.insert(s.name).second,
                                 {"model_layout: site ", in_quotes(s.name), " is there twice"});
        require<shape_error>(s.rank != 0 && s.d_out != 0 && s.rank <= detail::largest_dimension &&
                                 s.d_out <= detail::largest_dimension,
                             {"model_layout: site ", in_quotes(s.name), " has rank ", s.rank, " and ",
                              s.d_out, " outputs, expected 1 to ", detail::largest_dimension, " of both"});
        require<parameter_error>(mode == lora::mode::blind || detail::is_scale(s.scale),
                                 {"model_layout: site ", in_quotes(s.name), " has the scale ", s.scale,
                                  ", expected 0 or a magnitude from 2^-64 to 2^64"});
        require<parameter_error>(mode != lora::mode::blind || detail::is_scale_of_merged(s.scale),
                                 {"model_layout: site ", in_quotes(s.name), " has the scale ", s.scale,
                                  ", expected a power of two from 2^-256 to 2^256 in mode blind"});
    }
};

namespace detail {

/// Whether the server keeps this site.
inline bool is_protected(const model_options& options, const adapter_site& site) {
    return !options.protect || options.protect(site);
}

/// Calls f and names the input in what it throws. Costs nothing unless it throws.
template <class F>
decltype(auto) naming_input(const char* who, const model_layout::group& group, F&& f) {
    try {
        return f();
    } catch (const error&) {
        throw_again({who, ": input ", in_quotes(group.input), ": "});
    }
}

}  // namespace detail

/// The groups of an adapter, and which sites of it stand in them.
struct grouped_sites {
    model_layout layout;                          ///< row norms of 1; LoRA scales, in mode blind 1
    std::vector<std::vector<std::size_t>> sites;  ///< the sites of each group, as places in the adapter
};

/// Groups the protected sites of an adapter by their input, in the order in which inputs occur, as
/// model_server does. Looks at names, shapes and scales only: the matrices may be without values.
/// @throws as model_layout::check; shape_error also if sites of one input have other lengths of hidden
///         states, or B does not have rank columns
inline grouped_sites group_sites(const adapter& from, const model_options& options) {
    grouped_sites result;
    result.layout.mode = options.mode;
    std::map<std::string, std::size_t> known;
    for (std::size_t i = 0; i < from.sites.size(); ++i) {
        const adapter_site& site = from.sites[i];
        if (!detail::is_protected(options, site)) {
            continue;
        }
        detail::check_name(site.name, "a site", model_layout::longest_name);
        require<shape_error>(site.b.columns == site.rank(),
                             {"model: site ", in_quotes(site.name), " has a B of ", site.b.columns,
                              " columns, expected ", site.rank(), ", the rank"});
        require<parameter_error>(std::isfinite(site.scale), {"model: site ", in_quotes(site.name),
                                                             " has a scale that is no finite number"});
        const std::string input = options.input_of ? options.input_of(site.name) : shared_input(site.name);
        detail::check_name(input, "an input", model_layout::longest_name);
        const auto [found, is_first] = known.try_emplace(input, known.size());
        if (is_first) {
            result.layout.groups.push_back({input, site.d_in(), 1, {}});
            result.sites.emplace_back();
        }
        auto& group = result.layout.groups[found->second];
        if (group.d != site.d_in()) {
            throw shape_error({"model: site ", in_quotes(site.name), " has ", site.d_in(),
                               " inputs, expected ", group.d, " as site ",
                               in_quotes(group.sites.front().name), ", which shares the input ",
                               in_quotes(input)});
        }
        const double scale = options.mode == mode::blind ? 1 : site.scale;
        group.sites.push_back({site.name, site.rank(), site.d_out(), scale});
        result.sites[found->second].push_back(i);
    }
    result.layout.check();
    return result;
}

}  // namespace tensafe::lora
