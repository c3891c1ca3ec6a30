// One generated token of a whole model, client and server on one thread: the inputs of the seven sites of
// each layer, one request each. "pooled" takes encryptions of zero that were made before.

#include <tensafe/lora/model/forecast.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/server_zeros.hpp>

#include <optional>
#include <vector>

#include "common.hpp"

namespace {

namespace lora = tensafe::lora;
using tensafe::exec::host;
using params = tensafe::ckks::private_n4096;

lora::adapter random_adapter(std::size_t layers) {
    lora::transformer_shape shape;
    shape.layers = layers;
    lora::adapter result = lora::sites_of(shape);
    unsigned seed = 0;
    for (auto& site : result.sites) {
        site.a = bench::random_matrix(site.a.rows, site.a.columns, ++seed);
        site.b = bench::random_matrix(site.b.rows, site.b.columns, ++seed);
    }
    return result;
}

struct setting {
    setting(std::size_t layers, const lora::model_options& options)
        : setting(random_adapter(layers), options) {}
    setting(const lora::adapter& from, const lora::model_options& options)
        : server(from, options),
          client(server.layout(), lora::client_part(from, options)),
          nonce(tensafe::random::fresh_seed()),
          session(nonce, client.rerandomization_key(nonce)) {
        for (const auto& group : server.layout().groups) {
            states.push_back(bench::random_matrix(1, group.d, 3));
        }
    }

    lora::model_server<params> server;
    lora::model_client<params> client;
    tensafe::random::seed nonce;
    lora::server_zeros<params> session;
    std::vector<lora::matrix> states;
};

void token(benchmark::State& state, bool pooled) {
    setting s(static_cast<std::size_t>(state.range(0)), {});
    lora::query<params> query;
    lora::model_client<params>::reply_type reply;
    lora::decryption_workspace<params> reading;
    std::vector<double> product;
    lora::model_client<params>::site_deltas deltas;
    std::size_t bytes = 0;
    for (auto _ : state) {
        if (pooled) {
            state.PauseTiming();
            s.session.fill(s.server, 1);
            state.ResumeTiming();
        }
        bytes = 0;
        for (std::size_t g = 0; g < s.states.size(); ++g) {
            s.client.encrypt(g, s.states[g].row(0), query);
            s.session.apply(s.server, g, query.request, reply);
            s.client.decrypt(g, reply, query, reading, product);
            s.client.deltas(g, product, deltas);
            bytes += query.request.bytes() + reply.bytes();
        }
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["requests"] = static_cast<double>(s.states.size());
    state.counters["packed_bytes"] = static_cast<double>(s.server.bytes());
}

/// Whole blocks, all phases: times are a token's.
void blocks(benchmark::State& state) {
    lora::model_options options;
    options.tokens_ahead = static_cast<std::size_t>(state.range(1));
    options.trusts_clients = true;
    setting s(static_cast<std::size_t>(state.range(0)), options);
    std::vector<std::optional<lora::model_client<params>::block_type>> of_client(s.states.size());
    std::vector<lora::server_block<params>> of_server(s.states.size());
    lora::block_workspace<params> work;
    lora::block_reply ahead;
    lora::token_query query;
    lora::token_reply reply;
    std::vector<double> product;
    lora::model_client<params>::site_deltas deltas;
    std::size_t bytes = 0;
    while (state.KeepRunningBatch(state.range(1))) {
        bytes = 0;
        for (std::size_t g = 0; g < s.states.size(); ++g) {
            of_client[g] = s.client.prepare(g);
            s.session.prepare(host{}, s.server, g, of_client[g]->request(), work, of_server[g], ahead);
            s.client.accept(*of_client[g], ahead);
            bytes += of_client[g]->request().bytes() + ahead.bytes();
        }
        for (std::size_t t = 0; t < options.tokens_ahead; ++t) {
            for (std::size_t g = 0; g < s.states.size(); ++g) {
                of_client[g]->encrypt(s.states[g].row(0), query);
                s.server.blocks(g).answer(of_server[g], query.request, work, reply);
                product.resize(of_client[g]->plan().rank());
                of_client[g]->decrypt(reply, query, product);
                s.client.deltas(g, product, deltas);
                bytes += query.request.bytes() + reply.bytes();
            }
        }
    }
    state.counters["bytes"] = static_cast<double>(bytes) / static_cast<double>(state.range(1));
    state.counters["packed_bytes"] = static_cast<double>(s.server.bytes());
}

void pack(benchmark::State& state) {
    const lora::adapter from = random_adapter(1);
    for (auto _ : state) {
        const lora::model_server<params> server(from);
        benchmark::DoNotOptimize(server.bytes());
    }
}

BENCHMARK_CAPTURE(token, made, false)
    ->Name("model/token")
    ->ArgName("layers")
    ->Unit(benchmark::kMillisecond)
    ->Arg(1)
    ->Arg(40);
BENCHMARK_CAPTURE(token, stored, true)
    ->Name("model/token/pooled")
    ->ArgName("layers")
    ->Unit(benchmark::kMillisecond)
    ->Arg(1)
    ->Arg(40);
BENCHMARK(blocks)
    ->Name("model/token/blocks")
    ->ArgNames({"layers", "tokens"})
    ->Unit(benchmark::kMillisecond)
    ->ArgsProduct({{1, 40}, {32, 128}});
BENCHMARK(pack)->Name("model/pack_layer")->Unit(benchmark::kMillisecond);

}  // namespace
