#pragma once

#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>
#include <tensafe/serving/forecast.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <vector>

#include "phase_clock.hpp"

namespace bench {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
namespace ckks = tensafe::ckks;

namespace detail {

template <class F>
double milliseconds(F f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

inline lora::matrix ones(std::size_t rows, std::size_t columns) {
    lora::matrix m(rows, columns);
    std::fill(m.values.begin(), m.values.end(), 1.0F);
    return m;
}

/// The milliseconds of a block of tokens, both sides, all phases; the best of a few runs.
template <ckks::parameter_set P, class Protection>
double measure_block(std::size_t rows, std::size_t d, std::size_t tokens) {
    const lora::server<P, lora::token_blocks, Protection> server(ones(rows, d), tokens,
                                                                 lora::trusts_clients{});
    const std::vector<float> state(d, 1.0F);
    lora::client<P> client;
    const tensafe::random::seed nonce = tensafe::random::fresh_nonce();
    auto pool = server.pool(nonce, client.rerandomization_key(nonce));
    lora::block_workspace<P> work;
    lora::token_query query;
    lora::token_reply reply;
    std::vector<double> answers(rows);
    std::vector<lora::client_block<P, Protection>> blocks;  // as in a model, none has the memory of another
    std::vector<lora::server_block<P>> at_servers(5);
    double least = std::numeric_limits<double>::infinity();
    for (lora::server_block<P>& at_server : at_servers) {
        least = std::fmin(least, milliseconds([&] {
                              auto& block = blocks.emplace_back(client.prepare(server.plan()));
                              lora::block_reply ahead;
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
serving::unit_times measure_block_units(std::size_t tokens) {
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
serving::unit_times measure_units(std::size_t rows, std::size_t d) {
    using server_type = lora::server<P, Packing, Protection>;
    const server_type server(ones(rows, d));
    const auto& plan = server.plan();
    const lora::matrix states = ones(1, d);
    lora::client<P> client;
    const tensafe::random::seed nonce = tensafe::random::fresh_nonce();
    lora::rerandomization_pool<P> pool = server.pool(nonce, client.rerandomization_key(nonce));
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

/// Milliseconds of a product with B for each of its entries: the best of a few runs.
inline double measure_delta() {
    lora::adapter_site site;
    site.b = ones(512, 32);
    const std::vector<double> product(site.b.columns, 1.0);
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < 5; ++run) {
        best = std::fmin(best, milliseconds([&] { static_cast<void>(lora::apply_b(site, product)); }));
    }
    return best / static_cast<double>(site.b.values.size());
}

}  // namespace detail

/// Times of this machine for model_forecast, measured for some milliseconds, and for each length of hidden
/// states when a forecast first asks for it. One thread at a time.
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
serving::machine_times times_of_this_machine(std::size_t tokens_ahead = 0) {
    serving::machine_times times;
    times.of_requests = [known = std::map<std::size_t, serving::unit_times>()](std::size_t entries) mutable {
        const auto [found, is_first] = known.try_emplace(entries);
        if (is_first) {
            found->second = detail::measure_units<P, Packing, Protection>(1, entries);
        }
        return found->second;
    };
    if (tokens_ahead > 0) {
        times.of_blocks = detail::measure_block_units<P, lora::block_protection<Protection>>(tokens_ahead);
    }
    times.entry_of_delta = detail::measure_delta();
    return times;
}

}  // namespace bench
