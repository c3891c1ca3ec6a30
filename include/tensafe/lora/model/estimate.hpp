#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace tensafe::lora {

/// What a matrix asks of the integers that stand for it.
struct row_statistics {
    double smallest_norm = 0;     ///< Euclidean norms of rows
    double largest_norm = 0;      ///< the integers are scaled for this one
    double mean_square_norm = 0;  ///< root of the mean square
    /// The largest answer over its usual size when h is one entry alone: what an average-case range has to
    /// hold if single entries of h can outweigh all others together.
    double range_factor = 0;
};

/// What serving one site will be like.
struct site_estimate {
    std::string site;
    token_cost cost;      ///< bytes, products, transforms, statistical distance
    row_statistics rows;  ///< of the matrix that is served
    /// Deviation of the error of the answers over their norm, for hidden states without a preferred
    /// direction; rows of unequal norms make it larger than `cost.relative_error`.
    double relative_error = 0;
    double milliseconds =
        0;  ///< a hidden state, client and server with kept workspaces, one core of this machine
};

/// O(rows * columns).  @throws as lora::server for entries that are no finite numbers
inline row_statistics statistics_of(const matrix& a) {
    row_statistics result;
    result.largest_norm = detail::largest_row_norm(a);
    result.smallest_norm = result.largest_norm;
    double squares_of_all = 0;
    for (std::size_t r = 0; r < a.rows; ++r) {
        double squares = 0;
        double largest = 0;
        for (const float x : a.row(r)) {
            squares += static_cast<double>(x) * static_cast<double>(x);
            largest = std::fmax(largest, std::fabs(static_cast<double>(x)));
        }
        squares_of_all += squares;
        result.smallest_norm = std::fmin(result.smallest_norm, std::sqrt(squares));
        if (squares > 0) {
            result.range_factor =
                std::fmax(result.range_factor,
                          largest / std::sqrt(squares) * std::sqrt(static_cast<double>(a.columns)));
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

/// Measures requests of so many tokens for a small matrix of ones.
template <ckks::parameter_set P, class Packing, class Protection>
unit_times measure_units(std::size_t rows, std::size_t d, std::size_t tokens = 1) {
    using server_type = server<P, Packing, Protection>;
    const auto ones = [](std::size_t height, std::size_t width) {
        matrix m(height, width);
        std::fill(m.values.begin(), m.values.end(), 1.0F);
        return m;
    };
    const server_type server(ones(rows, d));
    const auto& plan = server.plan();
    const matrix states = ones(tokens, d);
    lora::client<P> client;
    rerandomization_pool<P> pool = [&] {
        const random::seed nonce = random::fresh_seed();
        return rerandomization_pool<P>(nonce, client.rerandomization_key(nonce), plan.subring_log_n());
    }();
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
        encrypted = std::fmin(encrypted, milliseconds([&] {
                                  if constexpr (std::is_same_v<Packing, column_batched>) {
                                      client.encrypt(plan, states, query);
                                  } else {
                                      client.encrypt(plan, states.row(0), query);
                                  }
                              }));
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

/// What serving a site will be like. Mode `client_held_b` means a balanced site (normalize_rows). Measures
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
        // One row, and as many entries as one input holds.
        constexpr bool batched = std::is_same_v<Packing, column_batched>;
        const std::size_t held =
            batched ? 32 : packing_plan<P, Packing, Protection>(1, 1, 1).entries_per_input();
        units = detail::measure_units<P, Packing, Protection>(1, std::min(site.d_in(), held));
    } catch (const parameter_error& e) {
        throw parameter_error({"estimate: site ", site.name, ": ", e.what()});
    }
    forecast.relative_error =
        forecast.rows.mean_square_norm > 0
            ? forecast.cost.relative_error * forecast.rows.largest_norm / forecast.rows.mean_square_norm
            : 0;
    forecast.milliseconds =
        detail::milliseconds_of(forecast.cost, units) / static_cast<double>(forecast.cost.hidden_states);
    return forecast;
}

/// The same for every site of an adapter, in its order.
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

}  // namespace tensafe::lora
