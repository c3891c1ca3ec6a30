#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::lora {

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
    token_cost cost;      ///< bytes, products, transforms, statistical distance
    row_statistics rows;  ///< the norms of the matrix that is served
    /// Deviation of the error of the answers over their norm, for hidden states without a preferred
    /// direction; rows of unequal norms make it larger than `cost.relative_error`.
    double relative_error = 0;
    double milliseconds = 0;  ///< a hidden state, client and server, on one core of this machine
};

/// The row statistics of a matrix.  O(rows * columns).  @throws as lora::server for entries not finite
inline row_statistics statistics_of(const matrix& a) {
    row_statistics result;
    result.largest_norm = detail::largest_row_norm(a);
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

namespace detail {

template <class F>
double milliseconds(F f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Milliseconds of one input, one product and one output on this machine.
struct unit_times {
    double input = 0;
    double product = 0;
    double output = 0;
};

inline matrix ones(std::size_t rows, std::size_t columns) {
    matrix m(rows, columns);
    std::fill(m.values.begin(), m.values.end(), 1.0F);
    return m;
}

/// The milliseconds of a block of tokens, both sides, all phases; the best of a few runs.
template <ckks::parameter_set P, class Protection>
double measure_block(std::size_t rows, std::size_t d, std::size_t tokens) {
    const server<P, token_blocks, Protection> server(ones(rows, d), tokens, trusts_clients{});
    const std::vector<float> state(d, 1.0F);
    lora::client<P> client;
    const random::seed nonce = random::fresh_seed();
    auto pool = server.pool(nonce, client.rerandomization_key(nonce));
    block_workspace<P> work;
    token_query query;
    token_reply reply;
    std::vector<double> answers(rows);
    std::vector<client_block<P, Protection>> blocks;  // as in a model, none has the memory of another
    std::vector<server_block<P>> at_servers(5);
    double least = std::numeric_limits<double>::infinity();
    for (server_block<P>& at_server : at_servers) {
        least = std::fmin(least, milliseconds([&] {
                              auto& block = blocks.emplace_back(client.prepare(server.plan()));
                              block_reply ahead;
                              server.prepare(block.request(), pool, work, at_server, ahead);
                              client.accept(block, ahead);
                              for (std::size_t t = 0; t < tokens; ++t) {
                                  block.encrypt(state, query);
                                  server.answer(at_server, query.request, work, reply);
                                  block.decrypt(reply, query, answers);
                              }
                          }));
    }
    return least;
}

/// Measures blocks: from the times of four shapes, as what a product takes is the most of it.
template <ckks::parameter_set P, class Protection>
unit_times measure_block_units(std::size_t tokens) {
    constexpr std::size_t few = 8;
    constexpr std::size_t many = 32;
    constexpr auto more = static_cast<double>(many - few);
    const std::size_t columns = P::degree / tokens;
    const double both = measure_block<P, Protection>(few, few * columns, tokens);
    const double rows = measure_block<P, Protection>(many, few * columns, tokens);
    const double inputs = measure_block<P, Protection>(few, many * columns, tokens);
    const double all = measure_block<P, Protection>(many, many * columns, tokens);
    // Differences of times on a busy machine may be anything.
    const double product = std::clamp((all - rows - inputs + both) / (more * more), 0.0, all / (many * many));
    return {std::fmax((inputs - both) / more - few * product, 0.0), product,
            std::fmax((rows - both) / more - few * product, 0.0)};
}

/// Measures requests of a small matrix of ones.
template <ckks::parameter_set P, class Packing, class Protection>
unit_times measure_units(std::size_t rows, std::size_t d) {
    using server_type = server<P, Packing, Protection>;
    const server_type server(ones(rows, d));
    const auto& plan = server.plan();
    const matrix states = ones(1, d);
    lora::client<P> client;
    const random::seed nonce = random::fresh_seed();
    rerandomization_pool<P> pool = server.pool(nonce, client.rerandomization_key(nonce));
    typename server_type::plan_type::query_type query;
    typename server_type::workspace work;
    typename server_type::reply_type reply;
    // The best of a few runs, for each step by itself.
    constexpr double longest = std::numeric_limits<double>::infinity();
    double encrypted = longest;
    double expanded = longest;
    double multiplied = longest;
    double rest = longest;
    for (int run = 0; run < 5; ++run) {
        phase_clock clock;
        encrypted = std::fmin(encrypted, milliseconds([&] { client.encrypt(plan, states.row(0), query); }));
        if constexpr (Protection::protects) {
            server.apply(query.request, pool, work, reply, clock);
        } else {
            server.apply(query.request, work, reply, clock);
        }
        clock.stop();
        const double decrypted = milliseconds([&] { static_cast<void>(client.decrypt(plan, reply, query)); });
        expanded = std::fmin(expanded, clock.milliseconds(server_phase::expand));
        multiplied = std::fmin(multiplied, clock.milliseconds(server_phase::multiply));
        rest = std::fmin(rest, clock.milliseconds(server_phase::protect) +
                                   clock.milliseconds(server_phase::serialize) + decrypted);
    }
    const auto inputs = static_cast<double>(plan.inputs());
    const auto outputs = static_cast<double>(plan.outputs());
    return {(encrypted + expanded) / inputs, multiplied / (inputs * outputs), rest / outputs};
}

inline double milliseconds_of(const token_cost& cost, const unit_times& units) noexcept {
    const auto inputs = static_cast<double>(cost.inputs);
    const auto outputs = static_cast<double>(cost.outputs);
    return inputs * units.input + inputs * outputs * units.product + outputs * units.output;
}

}  // namespace detail

/// Forecasts serving a site. Mode `client_held_b` means a normalized site (normalize_rows). Measures
/// this machine for some milliseconds.
/// @throws parameter_error, naming the site, if the set cannot hold the replies; as lora::server otherwise
template <ckks::parameter_set P, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
site_estimate estimate(const adapter_site& site, lora::mode mode = lora::mode::client_held_b) {
    site_estimate forecast;
    forecast.site = site.name;
    forecast.rows = statistics_of(mode == lora::mode::blind ? merge(site) : normalize_rows(site).a);
    detail::unit_times units;
    try {
        forecast.cost = cost_of<P, Packing, Protection>(site.shape(), mode);
        if constexpr (std::is_same_v<Packing, token_blocks>) {
            units = detail::measure_block_units<P, Protection>(forecast.cost.hidden_states);
        } else {  // one row, and as many entries as one input holds
            const std::size_t held = packing_plan<P, Packing, Protection>(1, 1, 1).entries_per_input();
            units = detail::measure_units<P, Packing, Protection>(1, std::min(site.d_in(), held));
        }
    } catch (const parameter_error& e) {
        throw parameter_error({"estimate: site ", in_quotes(site.name), ": ", e.what()});
    }
    forecast.relative_error =
        forecast.rows.mean_square_norm > 0
            ? forecast.cost.relative_error * forecast.rows.largest_norm / forecast.rows.mean_square_norm
            : 0;
    forecast.milliseconds =
        detail::milliseconds_of(forecast.cost, units) / static_cast<double>(forecast.cost.hidden_states);
    return forecast;
}

/// Forecasts serving every site of an adapter, in its order.
/// @throws parameter_error, naming the site, if the set cannot hold the replies; as lora::server otherwise
template <ckks::parameter_set P, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
std::vector<site_estimate> estimate(const lora::adapter& adapter,
                                    lora::mode mode = lora::mode::client_held_b) {
    std::vector<site_estimate> forecasts;
    for (const adapter_site& site : adapter.sites) {
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
            adapter_site site;
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

/// The forecast of serving one input of a model.
struct group_forecast {
    std::string input;
    std::optional<std::size_t> layer;  ///< layer_of the input
    std::vector<std::string> sites;
    std::size_t packed_bytes = 0;   ///< bytes of the server's memory
    token_cost decode;              ///< the cost of one hidden state
    double milliseconds = 0;        ///< one hidden state, client and server, without a filled pool
    double delta_milliseconds = 0;  ///< a product with B, in client_held_b; decrypting leaves it out
    token_cost block;               ///< the cost of one block of tokens; all 0 without blocks
    double block_milliseconds = 0;
};

/// Sums over groups: one generated token, and one block of tokens, through all of them.
struct forecast_totals {
    std::size_t requests = 0;  ///< requests, as many as there are groups
    std::size_t sites = 0;
    std::size_t packed_bytes = 0;
    std::size_t zeros = 0;  ///< encryptions of zero
    std::size_t bytes_up = 0;
    std::size_t bytes_down = 0;
    double milliseconds = 0;
    double delta_milliseconds = 0;
    std::size_t block_tokens = 0;
    std::size_t block_bytes_up = 0;
    std::size_t block_bytes_down = 0;
    double block_milliseconds = 0;

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
            sum.milliseconds += g.milliseconds;
            sum.delta_milliseconds += g.delta_milliseconds;
            sum.statistical_distance =
                std::fmin(std::hypot(sum.statistical_distance, g.decode.statistical_distance), 1);
            sum.block_bytes_up += g.block.bytes_up;
            sum.block_bytes_down += g.block.bytes_down;
            sum.block_milliseconds += g.block_milliseconds;
        }
        return sum;
    }
};

namespace detail {

/// The milliseconds that a product with B takes for each of its entries: the best of a few runs.
inline double measure_delta() {
    const matrix b(512, 32);
    const std::vector<double> product(b.columns, 1.0);
    std::vector<double> delta(b.rows);
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < 5; ++run) {
        best =
            std::fmin(best, milliseconds([&] {
                          detail::multiply(b, 1, std::span<const double>(product), std::span<double>(delta));
                      }));
    }
    return best / static_cast<double>(b.values.size());
}

}  // namespace detail

/// Forecasts serving a model with these options, before anything is packed: bytes, which come true
/// exactly, errors, and times on one core of this machine, measured for some milliseconds for each length of
/// hidden states. Looks at names, shapes and scales only. The error of a group is decode.relative_error
/// (normalized rows; in mode blind for the largest).
/// @throws as model_server for names and shapes; parameter_error, naming the input, if the set cannot hold
///         the replies
template <ckks::parameter_set P, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
forecast_of_model model_forecast(const lora::adapter& shapes, const lora::model_options& options = {}) {
    using decode_layout = layout<P, Packing, Protection>;
    using hidden = block_protection<Protection>;
    using block_layout = layout<P, token_blocks, hidden>;
    const lora::model_layout model = detail::group_sites(shapes, options).layout;
    detail::check_tokens_ahead<P, Protection>(options.tokens_ahead, options.trusts_clients);
    forecast_of_model result;
    result.block_tokens = options.tokens_ahead;
    std::map<std::size_t, detail::unit_times> units;
    std::optional<detail::unit_times> block_units;
    const std::size_t held = packing_plan<P, Packing, Protection>(1, 1, 1).entries_per_input();
    const double delta_unit = detail::measure_delta();
    for (const auto& group : model.groups) {
        detail::naming_input("model_forecast", group, [&] {
            group_forecast forecast;
            forecast.input = group.input;
            forecast.layer = layer_of(group.input);
            double delta_products = 0;
            for (const auto& site : group.sites) {
                forecast.sites.push_back(site.name);
                delta_products += static_cast<double>(site.rank) * static_cast<double>(site.d_out);
            }
            // The rows of a group as those of one site that the server applies alone.
            const std::size_t rows = group.rows(options.mode);
            const site_shape stacked{rows, group.d, rows};
            forecast.decode = cost_of<P, Packing, Protection>(stacked);
            forecast.packed_bytes = detail::packed_bytes(decode_layout{rows, group.d, 1});
            const auto [found, is_first] = units.try_emplace(std::min(group.d, held));
            if (is_first) {
                found->second = detail::measure_units<P, Packing, Protection>(1, found->first);
            }
            forecast.milliseconds = detail::milliseconds_of(forecast.decode, found->second);
            forecast.delta_milliseconds =
                options.mode == lora::mode::client_held_b ? delta_products * delta_unit : 0;
            if (result.block_tokens > 0) {
                if (!block_units) {
                    block_units = detail::measure_block_units<P, hidden>(result.block_tokens);
                }
                forecast.block =
                    cost_of<P, token_blocks, hidden>(stacked, lora::mode::client_held_b, result.block_tokens);
                forecast.packed_bytes +=
                    detail::packed_bytes(block_layout{{rows, group.d, 1}, result.block_tokens});
                forecast.block_milliseconds = detail::milliseconds_of(forecast.block, *block_units);
            }
            result.groups.push_back(std::move(forecast));
        });
    }
    return result;
}

}  // namespace tensafe::lora
