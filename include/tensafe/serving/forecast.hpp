#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/cost.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// The norms of a matrix's rows, on which the integers that stand for it depend.
struct row_statistics {
    double smallest_norm = 0;     ///< the least Euclidean norm of a row
    double largest_norm = 0;      ///< the largest one, for which the integers are scaled
    double mean_square_norm = 0;  ///< root of the mean square
    /// The largest answer over its usual size when h is one entry alone: what an average-case range has to
    /// hold if single entries of h can outweigh all others together.
    double range_factor = 0;
};

/// The forecast of serving one site.
struct site_estimate {
    std::string site;
    lora::token_cost cost;  ///< bytes, products, transforms, statistical distance
    row_statistics rows;    ///< the norms of the matrix that is served
    /// Deviation of the error of the answers over their norm, for hidden states without a preferred
    /// direction; rows of unequal norms make it larger than `cost.relative_error`.
    double relative_error = 0;
};

/// The row statistics of a matrix.  O(rows * columns).  @throws as lora::server for entries not finite
inline row_statistics statistics_of(const lora::matrix& a) {
    row_statistics result;
    result.largest_norm = lora::detail::largest_row_norm(a);
    result.smallest_norm = result.largest_norm;
    double squares_of_all = 0;
    for (std::size_t r = 0; r < a.rows; ++r) {
        const double norm = std::sqrt(encoding::sum_of_squares<float>(a.row(r)));
        double largest = 0;
        for (const float x : a.row(r)) {
            largest = std::fmax(largest, std::fabs(static_cast<double>(x)));
        }
        squares_of_all += norm * norm;
        result.smallest_norm = std::fmin(result.smallest_norm, norm);
        if (norm > 0) {
            const double ratio = largest / norm * std::sqrt(static_cast<double>(a.columns));
            result.range_factor = std::fmax(result.range_factor, ratio);
        }
    }
    if (a.rows > 0) {
        result.mean_square_norm = std::sqrt(squares_of_all / static_cast<double>(a.rows));
    }
    return result;
}

/// Milliseconds that one input, one product and one output of a message take on some machine, both sides
/// together.
struct unit_times {
    double input = 0;
    double product = 0;
    double output = 0;
};

/// What some machine takes for its part of a forecast, in milliseconds of one core.
struct machine_times {
    /// Of the messages of single hidden states, each input of which holds so many entries of a hidden state.
    std::function<unit_times(std::size_t entries)> of_requests;
    unit_times of_blocks;       ///< of the messages of blocks with the model's tokens_ahead
    double entry_of_delta = 0;  ///< of a product with B, for each entry of B
};

namespace detail {

inline double milliseconds_of(const lora::token_cost& cost, const unit_times& units) noexcept {
    const auto inputs = static_cast<double>(cost.inputs);
    const auto outputs = static_cast<double>(cost.outputs);
    return inputs * units.input + inputs * outputs * units.product + outputs * units.output;
}

}  // namespace detail

/// Forecasts serving a site. Mode `client_held_b` means a normalized site (normalize_rows).
/// @throws parameter_error, naming the site, if the set cannot hold the replies; as lora::server otherwise
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
site_estimate estimate(const lora::adapter_site& site, lora::mode mode = lora::mode::client_held_b) {
    site_estimate forecast;
    forecast.site = site.name;
    forecast.rows =
        statistics_of(mode == lora::mode::blind ? lora::merge(site) : lora::normalize_rows(site).a);
    try {
        forecast.cost = lora::cost_of<P, Packing, Protection>(site.shape(), mode);
    } catch (const parameter_error& e) {
        throw parameter_error({"estimate: site ", in_quotes(site.name), ": ", e.what()});
    }
    forecast.relative_error =
        forecast.rows.mean_square_norm > 0
            ? forecast.cost.relative_error * forecast.rows.largest_norm / forecast.rows.mean_square_norm
            : 0;
    return forecast;
}

/// Forecasts serving every site of an adapter, in its order.
/// @throws parameter_error, naming the site, if the set cannot hold the replies; as lora::server otherwise
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
std::vector<site_estimate> estimate(const lora::adapter& adapter,
                                    lora::mode mode = lora::mode::client_held_b) {
    std::vector<site_estimate> forecasts;
    for (const lora::adapter_site& site : adapter.sites) {
        forecasts.push_back(estimate<P, Packing, Protection>(site, mode));
    }
    return forecasts;
}

/// A model of equal layers with seven adapter sites each, whose files nobody needs to have. The defaults are
/// those of the example data: Qwen3.5-35B-A3B with one adapted expert.
struct transformer_shape {
    std::size_t layers = 40;
    std::size_t d_model = 2048;
    std::size_t d_query = 4096;  ///< outputs of q_proj, inputs of o_proj
    std::size_t d_key = 512;     ///< outputs of k_proj and v_proj
    std::size_t d_mlp = 512;     ///< outputs of gate_proj and up_proj, inputs of down_proj
    std::size_t rank = 32;
    double scale = 2;
    std::string mlp = "mlp.experts.7";  ///< the place of gate_proj, up_proj and down_proj in a layer
};

/// The sites of such a model, layer after layer, with matrices that have rows and columns but no values.
inline lora::adapter sites_of(const transformer_shape& shape) {
    lora::adapter result;
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
        const auto add = [&](const std::string& name, std::size_t d_in, std::size_t d_out) {
            lora::adapter_site site;
            site.name = "model.layers." + std::to_string(layer) + "." + name;
            site.a.rows = shape.rank;
            site.a.columns = d_in;
            site.b.rows = d_out;
            site.b.columns = shape.rank;
            site.scale = shape.scale;
            result.sites.push_back(std::move(site));
        };
        add("self_attn.q_proj", shape.d_model, shape.d_query);
        add("self_attn.k_proj", shape.d_model, shape.d_key);
        add("self_attn.v_proj", shape.d_model, shape.d_key);
        add("self_attn.o_proj", shape.d_query, shape.d_model);
        add(shape.mlp + ".gate_proj", shape.d_model, shape.d_mlp);
        add(shape.mlp + ".up_proj", shape.d_model, shape.d_mlp);
        add(shape.mlp + ".down_proj", shape.d_mlp, shape.d_model);
    }
    return result;
}

/// The milliseconds that client and server take together on one core.
struct forecast_times {
    double decode = 0;  ///< of a hidden state, with zeros made on the spot
    double delta = 0;   ///< of its product with B, in client_held_b: what `decode` does not include
    double block = 0;   ///< of one block of tokens; 0 without blocks
};

/// The forecast of serving one input of a model.
struct group_forecast {
    std::string input;
    std::optional<std::size_t> layer;  ///< layer_of the input
    std::vector<std::string> sites;
    std::size_t packed_bytes = 0;                ///< bytes of the server's memory
    lora::token_cost decode;                     ///< the cost of one hidden state
    lora::token_cost block;                      ///< the cost of one block of tokens; all 0 without blocks
    std::optional<forecast_times> milliseconds;  ///< nothing without machine_times
};

/// Sums over groups: one generated token, and one block of tokens, through all of them.
struct forecast_totals {
    std::size_t requests = 0;  ///< requests, as many as there are groups
    std::size_t sites = 0;
    std::size_t packed_bytes = 0;
    std::size_t zeros = 0;  ///< encryptions of zero
    std::size_t bytes_up = 0;
    std::size_t bytes_down = 0;
    std::size_t block_tokens = 0;
    std::size_t block_bytes_up = 0;
    std::size_t block_bytes_down = 0;
    std::optional<forecast_times> milliseconds;  ///< nothing without machine_times or groups

    /// The distance of the replies to default_replies generated tokens, of all groups together, from replies
    /// made of the answers alone: reply_budget::statistical_distance of a whole model. The root of the sum of
    /// squares of the groups' distances, which come from Hellinger distances of independent floods: their
    /// squares add up (ckks::flood). 1 for bare replies; without blocks.
    double statistical_distance = 0;

    std::size_t bytes() const noexcept { return bytes_up + bytes_down; }
};

/// The forecast of serving a model, group by group in its order.
struct forecast_of_model {
    std::vector<group_forecast> groups;
    std::size_t block_tokens = 0;  ///< tokens in a block

    /// The sums over the groups that `choose` says yes to: "what if only these layers were protected?"
    forecast_totals totals(const std::function<bool(const group_forecast&)>& choose = {}) const {
        forecast_totals sum;
        sum.block_tokens = block_tokens;
        for (const group_forecast& g : groups) {
            if (choose && !choose(g)) {
                continue;
            }
            ++sum.requests;
            sum.sites += g.sites.size();
            sum.packed_bytes += g.packed_bytes;
            sum.zeros += g.decode.pooled_transforms > 0 ? g.decode.outputs : 0;
            sum.bytes_up += g.decode.bytes_up;
            sum.bytes_down += g.decode.bytes_down;
            sum.statistical_distance =
                std::fmin(std::hypot(sum.statistical_distance, g.decode.statistical_distance), 1);
            sum.block_bytes_up += g.block.bytes_up;
            sum.block_bytes_down += g.block.bytes_down;
            if (g.milliseconds) {
                const forecast_times before = sum.milliseconds.value_or(forecast_times{});
                sum.milliseconds = {before.decode + g.milliseconds->decode,
                                    before.delta + g.milliseconds->delta,
                                    before.block + g.milliseconds->block};
            }
        }
        return sum;
    }
};

/// Forecasts serving a model with these options, before anything is packed: bytes, which come true
/// exactly, errors, and times on one core of the machine that `times` tells of, if it is given. Looks at
/// names, shapes and scales only. The error of a group is decode.relative_error (normalized rows; in mode
/// blind for the largest).
/// @throws as model_server for names and shapes; parameter_error, naming the input, if the set cannot hold
///         the replies, or for times without of_requests
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
forecast_of_model model_forecast(const lora::adapter& shapes, const lora::model_options& options = {},
                                 const std::optional<machine_times>& times = std::nullopt) {
    require<parameter_error>(!times || times->of_requests != nullptr,
                             {"model_forecast: got machine_times without of_requests"});
    using decode_layout = lora::layout<P, Packing, Protection>;
    using hidden = lora::block_protection<Protection>;
    using block_layout = lora::layout<P, lora::token_blocks, hidden>;
    const lora::model_layout model = lora::group_sites(shapes, options).layout;
    lora::check_tokens_ahead<P, Protection>(options.tokens_ahead, options.trusts_clients);
    forecast_of_model result;
    result.block_tokens = options.tokens_ahead;
    const std::size_t held = lora::packing_plan<P, Packing, Protection>(1, 1, 1).entries_per_input();
    for (const auto& group : model.groups) {
        lora::detail::naming_input("model_forecast", group, [&] {
            group_forecast forecast;
            forecast.input = group.input;
            forecast.layer = lora::layer_of(group.input);
            double delta_products = 0;
            for (const auto& site : group.sites) {
                forecast.sites.push_back(site.name);
                delta_products += static_cast<double>(site.rank) * static_cast<double>(site.d_out);
            }
            // The rows of a group as those of one site that the server applies alone.
            const std::size_t rows = group.rows(options.mode);
            const lora::site_shape stacked{rows, group.d, rows};
            forecast.decode = lora::cost_of<P, Packing, Protection>(stacked);
            forecast.packed_bytes = lora::detail::packed_bytes(decode_layout{rows, group.d, 1});
            if (result.block_tokens > 0) {
                forecast.block = lora::cost_of<P, lora::token_blocks, hidden>(
                    stacked, lora::mode::client_held_b, result.block_tokens);
                forecast.packed_bytes +=
                    lora::detail::packed_bytes(block_layout{{rows, group.d, 1}, result.block_tokens});
            }
            if (times) {
                forecast.milliseconds = {
                    detail::milliseconds_of(forecast.decode, times->of_requests(std::min(group.d, held))),
                    options.mode == lora::mode::client_held_b ? delta_products * times->entry_of_delta : 0,
                    detail::milliseconds_of(forecast.block, times->of_blocks)};
            }
            result.groups.push_back(std::move(forecast));
        });
    }
    return result;
}

}  // namespace tensafe::serving
