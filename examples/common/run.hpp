#pragma once

// Runs tokens through one of the paths. Included by sets/*.cpp only, one for each parameter set or two, so
// that they compile side by side.

#include <tensafe/tensafe.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "batch_path.hpp"
#include "report.hpp"
#include "slot_path.hpp"
#include "token_path.hpp"

namespace examples {

inline report start(const tensafe::lora::adapter_site& site, const arguments& args) {
    report result;
    result.args = args;
    result.site = site.name;
    result.rank = site.rank();
    return result;
}

inline tensafe::lora::mode mode_of(const arguments& args) {
    return args.blind() ? tensafe::lora::mode::blind : tensafe::lora::mode::client_held_b;
}

template <class P, class Packing, class Protection>
prediction predict(const tensafe::lora::adapter_site& site, const arguments& args) {
    using layout = tensafe::lora::layout<P, Packing, Protection>;
    const auto cost = tensafe::lora::cost_of<P, Packing, Protection>(
        site.shape(), mode_of(args), std::min(args.tokens, layout::largest_batch));
    prediction result;
    result.d = site.d_in();
    result.session_bytes = cost.session_bytes;
    result.relative_error = cost.relative_error;
    result.distance = cost.statistical_distance;
    result.distance_of_one = cost.budget.statistical_distance(cost.wanted, 1);
    result.flood_ratio = cost.budget.flood.deviation() / cost.budget.leak_deviation();
    result.calibrated = Protection::range::can_wrap;
    return result;
}

/// The norm that the error of a delta has by prediction: errors of answers are relative to row_norm * norm(h)
/// / sqrt(d), the usual size of an answer, and independent of each other.
inline double error_norm(const tensafe::lora::adapter_site& site, const prediction& predicted,
                         double row_norm, bool blind, std::span<const float> h) {
    const auto norm = [](std::span<const float> x) {
        return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
    };
    const double answer = row_norm * norm(h) / std::sqrt(static_cast<double>(site.d_in()));
    const double answers_to_delta =
        blind ? std::sqrt(static_cast<double>(site.d_out())) : site.scale * norm(site.b.values);
    return predicted.relative_error * answer * answers_to_delta;
}

/// Protected replies, one hidden state after the other.
template <class P, class Packing, class Protection>
report run_protected(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                     const arguments& args) {
    token_path<P, Packing, Protection> path(site, args.blind());
    report result = start(site, args);
    result.predicted = predict<P, Packing, Protection>(site, args);
    const tensafe::lora::adapter_site balanced = tensafe::lora::balance(site);
    progress_bar bar(args.tokens);
    for (std::size_t token = 0; token < args.tokens; ++token) {
        if (args.pooled) {
            path.fill_pool();
        }
        result.watch.next_token();
        const auto h = hidden.row(token % hidden.rows);
        const std::vector<double> delta = path.run(h, result.watch);
        result.compare(delta, tensafe::lora::plain_delta(site, h),
                       path.overflow_margin() *
                           error_norm(balanced, result.predicted, path.layout().row_norm, args.blind(), h));
        bar.advance();
    }
    result.bytes_up = path.bytes_up();
    result.bytes_down = path.bytes_down();
    result.retries = path.retries();
    return result;
}

/// Their errors are about 1e-9 of a delta, 1e-7 if rescaled: no flood. This much would be wrong.
inline constexpr double bare_error = 1e-5 / report::tolerance;

/// Bare replies of the classic packing.
template <class P, class Packing>
report run_bare(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                const arguments& args) {
    slot_path<P, Packing> path(site);
    report result = start(site, args);
    progress_bar bar(args.tokens);
    for (std::size_t token = 0; token < args.tokens; ++token) {
        result.watch.next_token();
        const auto h = hidden.row(token % hidden.rows);
        const std::vector<double> delta = path.run(h, result.watch);
        const std::vector<double> expected = tensafe::lora::plain_delta(site, h);
        const double squares = std::inner_product(expected.begin(), expected.end(), expected.begin(), 0.0);
        result.compare(delta, expected, bare_error * std::sqrt(squares));
        bar.advance();
    }
    result.bytes_up = path.bytes_up();
    result.bytes_down = path.bytes_down();
    return result;
}

/// All hidden states at once.
template <class P, class Protection>
report run_batch(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                 const arguments& args) {
    batch_path<P, Protection> path(site);
    if (args.tokens > path.layout().largest_batch) {
        throw usage_error("a batch holds at most " + std::to_string(path.layout().largest_batch) +
                          " tokens; give a smaller --tokens");
    }
    report result = start(site, args);
    result.predicted = predict<P, tensafe::lora::column_batched, Protection>(site, args);
    result.batch = args.tokens;
    tensafe::lora::matrix states(args.tokens, site.d_in());
    for (std::size_t token = 0; token < args.tokens; ++token) {
        const auto h = hidden.row(token % hidden.rows);
        std::copy(h.begin(), h.end(), states.row(token).begin());
    }
    if (args.pooled) {
        path.fill_pool();
    }
    result.watch.next_token();
    const auto deltas = path.run(states, result.watch);
    const tensafe::lora::adapter_site balanced = tensafe::lora::balance(site);
    for (std::size_t token = 0; token < args.tokens; ++token) {
        const auto h = states.row(token);
        result.compare(deltas[token], tensafe::lora::plain_delta(site, h),
                       error_norm(balanced, result.predicted, path.layout().row_norm, false, h));
    }
    result.bytes_up = path.bytes_up();
    result.bytes_down = path.bytes_down();
    return result;
}

}  // namespace examples
