// An adapter of a whole model: all layers and sites behind one object on either side, one request for each
// input that sites share. Says beforehand what that will cost, then generates tokens and measures it.
//
//   whole_model                            40 layers of seven sites, rank 32 (random values)
//   whole_model --protect 0-9,30-39        the other layers go to the client in the clear
//   whole_model --tokens-ahead 128         larger blocks of tokens, prepared before they exist; 1: no blocks
//   whole_model --tokens 500 --memory 800  the tokens of a block that cost the fewest bytes

#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/serving/forecast.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>
#include <tensafe/wire/message.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../bench/machine_times.hpp"
#include "common/whole_model.hpp"

namespace {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
namespace session = tensafe::session;
using params = tensafe::ckks::private_n4096;
using examples::cost;

void print(const char* what, const cost& predicted, const cost& measured) {
    std::printf("%-36s %4zu %11zu %11zu %9.2f %9.2f\n", what, measured.requests, predicted.bytes,
                measured.bytes, predicted.milliseconds, measured.milliseconds);
}

/// A server_session that counts the bytes of messages.
struct counting_server {
    using workspace = session::server_session<params>::workspace;

    void answer(const tensafe::wire::envelope& of, const auto& request, workspace& work, auto& reply) {
        counted.answer(of, request, work, reply);
        bytes += request.bytes() + reply.bytes();
    }

    session::server_session<params> counted;
    std::size_t bytes = 0;
};

/// With which so many tokens cost the fewest bytes.
/// @param memory  of the client, in bytes, for the blocks that a session has of each group
std::size_t best_tokens_ahead(const lora::adapter& shapes, const lora::model_options& options,
                              std::size_t tokens, std::size_t memory) {
    std::vector<lora::site_shape> inputs;
    for (const auto& group : lora::group_sites(shapes, options).layout.groups) {
        const std::size_t rows = group.rows(options.mode);
        inputs.push_back({rows, group.d, rows});
    }
    const std::size_t best = lora::best_tokens_ahead<params>(inputs, tokens, memory / session::most_blocks,
                                                             options.mode, params::degree);
    std::printf("%zu tokens ahead\n", best);
    return std::max<std::size_t>(best, 1);
}

/// @param tokens_ahead  1: tokens are sent one by one
void run(const serving::transformer_shape& shape, lora::model_options options, std::size_t tokens_ahead,
         std::size_t tokens) {
    options.tokens_ahead = tokens_ahead == 1 ? 0 : tokens_ahead;
    tokens = (tokens - 1) / tokens_ahead * tokens_ahead + tokens_ahead;  // whole blocks
    const auto forecast = serving::model_forecast<params>(
        serving::sites_of(shape), options, bench::times_of_this_machine<params>(options.tokens_ahead));
    const lora::adapter adapter = examples::random_values(serving::sites_of(shape));

    // The server packs the adapter; the client gets its part of it and the public layout.
    const auto server = std::make_shared<const lora::model_server<params>>(adapter, options);
    const auto client =
        std::make_shared<lora::model_client<params>>(server->layout(), lora::client_part(adapter, options));
    const auto nonce = tensafe::random::fresh_nonce();
    // One key for all groups. Blocks are asked for where they cost fewer bytes, before they are needed.
    const session::block_policy policy{tokens, tokens_ahead};
    session::client_session<params> mine(client, policy);
    counting_server theirs{{server, nonce, client->rerandomization_key(nonce)}};
    counting_server::workspace work;
    std::printf("%zu sites, %zu of them in the clear; %.0f MB packed, %zu requests a token\n",
                adapter.sites.size(), client->in_the_clear().size(),
                static_cast<double>(server->bytes()) / 1e6, server->layout().groups.size());

    std::map<std::string, cost> predicted;
    std::map<std::string, cost> measured;
    double distance = 0;
    for (const auto& group : forecast.groups) {
        const bool in_blocks = mine.has_blocks() && policy.is_worth(group.decode, group.block, 0, 0);
        const lora::token_cost& of_group = in_blocks ? group.block : group.decode;
        const auto states = static_cast<double>(of_group.hidden_states);
        const double of_messages = in_blocks ? group.milliseconds->block : group.milliseconds->decode;
        predicted[examples::kind_of(group.input)] +=
            cost{tokens, of_group.bytes() * (tokens / of_group.hidden_states),
                 (of_messages / states + group.milliseconds->delta) * static_cast<double>(tokens)};
        distance = std::hypot(
            distance, of_group.budget.statistical_distance(of_group.targets / of_group.hidden_states));
    }
    double worst = 0;
    lora::model_client<params>::site_deltas deltas;
    for (std::size_t token = 0; token < tokens; ++token) {
        for (std::size_t g = 0; g < server->layout().groups.size(); ++g) {
            const auto& group = server->layout().groups[g];
            const auto h = examples::random_state(group.d);
            const std::size_t before = theirs.bytes;
            const std::clock_t start = std::clock();
            session::call one(g, 1, [&](std::size_t) { return std::span<const float>(h); });
            session::answer_in_process(mine, theirs, work, one, [] {});
            client->deltas(g, one.product(0), deltas);  // of each site of the group
            measured[examples::kind_of(group.input)] +=
                {1, theirs.bytes - before, examples::milliseconds_since(start)};
            worst = std::fmax(worst, examples::worst_error(adapter, group, deltas, h));
        }
    }

    std::printf("\n%-36s %4s %23s %19s\n%-36s %4s %11s %11s %9s %9s\n", "a generated token", "", "bytes",
                "ms of one core", "input", "", "predicted", "measured", "predicted", "measured");
    cost all_predicted;
    cost all_measured;
    for (auto& [kind, of_kind] : measured) {
        of_kind = of_kind / tokens;
        const cost of_forecast = predicted[kind] / tokens;
        print(kind.c_str(), of_forecast, of_kind);
        all_predicted += of_forecast;
        all_measured += of_kind;
    }
    print("together", all_predicted, all_measured);
    std::printf("\nrelative error  %.1e against plaintext LoRA (worst site and token)\n", worst);
    std::printf("distance 2^%.1f after 2^20 tokens, of all replies from such as are made of answers alone\n",
                std::log2(std::min(distance, 1.0)));
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Serves a LoRA adapter of a whole model, encrypted");
    serving::transformer_shape shape;
    lora::model_options options;
    std::size_t tokens_ahead = 32;
    std::size_t tokens = 2;
    std::size_t megabytes = 0;
    std::string layers;
    app.add_option("--layers", shape.layers, "layers of the model")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000));
    app.add_option("--rank", shape.rank, "of every site")->capture_default_str()->check(CLI::Range(1, 1024));
    app.add_option("--tokens", tokens, "tokens to generate; rounded up to whole blocks")
        ->capture_default_str()
        ->check(CLI::Range(1, 100000));
    auto* const ahead = app.add_option("--tokens-ahead", tokens_ahead,
                                       "tokens of a block, prepared before they exist; 1: no blocks")
                            ->capture_default_str()
                            ->check(CLI::Range(1, 4096));
    app.add_option(
           "--memory", megabytes,
           "MB that the client has for blocks: chooses --tokens-ahead for the fewest bytes of --tokens")
        ->excludes(ahead)
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--protect", layers, "layers whose matrices the server keeps, as 0-9,30-39; default: all");
    options.trusts_clients = true;  // it is one's own
    CLI11_PARSE(app, argc, argv);
    try {
        if (!layers.empty()) {
            options.protect = [chosen = examples::layer_list(layers)](const lora::adapter_site& site) {
                return chosen.contains(lora::layer_of(site.name).value_or(0));
            };
        }
        if (megabytes > 0) {
            tokens_ahead =
                best_tokens_ahead(serving::sites_of(shape), options, tokens, megabytes * 1'000'000);
        }
        run(shape, options, tokens_ahead, tokens);
        return 0;
    } catch (const tensafe::error& e) {
        std::fprintf(stderr, "whole_model: %s\n", e.what());
        return 1;
    }
}
