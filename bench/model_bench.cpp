// One generated token of a whole model, client and server on one thread: the inputs of the seven sites of
// each layer, one call of a session each. "pooled" takes encryptions of zero that were made before.

#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/tracing/marked_models.hpp>
#include <tensafe/serving/forecast.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>
#include <tensafe/wire/message.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "common.hpp"

namespace {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
namespace session = tensafe::session;
using params = tensafe::ckks::private_n4096;

lora::adapter random_adapter(std::size_t layers) {
    serving::transformer_shape shape;
    shape.layers = layers;
    lora::adapter result = serving::sites_of(shape);
    unsigned seed = 0;
    for (auto& site : result.sites) {
        site.a = bench::random_matrix(site.a.rows, site.a.columns, ++seed);
        site.b = bench::random_matrix(site.b.rows, site.b.columns, ++seed);
    }
    return result;
}

struct setting {
    using workspace = session::server_session<params>::workspace;

    setting(std::size_t layers, const lora::model_options& options)
        : setting(random_adapter(layers), options) {}
    setting(const lora::adapter& from, const lora::model_options& options)
        : setting(from, options, std::make_shared<const lora::model_server<params>>(from, options)) {}
    setting(const lora::adapter& from, const lora::model_options& options,
            std::shared_ptr<const lora::model_server<params>> of)
        : server(std::move(of)),
          client(std::make_shared<lora::model_client<params>>(server->layout(),
                                                              lora::client_part(from, options))),
          nonce(tensafe::random::fresh_nonce()),
          mine(client, {std::numeric_limits<std::size_t>::max(), options.tokens_ahead}),
          theirs(server, nonce, client->rerandomization_key(nonce)) {
        for (const auto& group : server->layout().groups) {
            states.push_back(bench::random_matrix(1, group.d, 3));
        }
    }

    /// As a server_session does; counts bytes.
    void answer(const tensafe::wire::envelope& of, const auto& request, workspace& memory, auto& reply) {
        const auto began = std::chrono::steady_clock::now();
        theirs.answer(of, request, memory, reply);
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(request)>, lora::token_request>) {
            time += std::chrono::steady_clock::now() - began;
        }
        bytes += request.bytes() + reply.bytes();
    }
    /// Through all groups.
    void send_token() {
        for (std::size_t g = 0; g < states.size(); ++g) {
            session::call one(g, 1, [&](std::size_t) { return states[g].row(0); });
            session::answer_in_process(mine, *this, work, one, [] {});
            client->deltas(g, one.product(0), deltas);
        }
    }

    std::shared_ptr<const lora::model_server<params>> server;
    std::shared_ptr<lora::model_client<params>> client;
    tensafe::random::seed nonce;
    session::client_session<params> mine;
    session::server_session<params> theirs;
    workspace work;
    std::vector<lora::matrix> states;
    lora::model_client<params>::site_deltas deltas;
    std::size_t bytes = 0;
    std::chrono::nanoseconds time{0};  ///< of answers to tokens of blocks
};

void token(benchmark::State& state, bool pooled) {
    setting s(static_cast<std::size_t>(state.range(0)), {});
    for (auto _ : state) {
        if (pooled) {
            state.PauseTiming();
            s.theirs.zeros().fill(*s.server, 1);
            state.ResumeTiming();
        }
        s.send_token();
    }
    state.counters["bytes"] = static_cast<double>(s.bytes) / static_cast<double>(state.iterations());
    state.counters["requests"] = static_cast<double>(s.states.size());
    state.counters["packed_bytes"] = static_cast<double>(s.server->bytes());
}

/// Whole blocks, all phases: times are a token's. Each block is asked for while the one before is in use.
void blocks(benchmark::State& state) {
    lora::model_options options;
    options.tokens_ahead = static_cast<std::size_t>(state.range(1));
    options.trusts_clients = true;
    setting s(static_cast<std::size_t>(state.range(0)), options);
    for (std::size_t t = 0; t < options.tokens_ahead; ++t) {
        s.send_token();  // with the first block, and the request for the second
    }
    s.bytes = 0;
    while (state.KeepRunningBatch(state.range(1))) {
        for (std::size_t t = 0; t < options.tokens_ahead; ++t) {
            s.send_token();
        }
    }
    state.counters["bytes"] = static_cast<double>(s.bytes) / static_cast<double>(state.iterations());
    state.counters["packed_bytes"] = static_cast<double>(s.server->bytes());
}

/// Tokens of as many tenants in turn, in blocks, each with an A of its own or (0) one without marks: the time
/// of the server's answers. Where `kept` is 0 each is packed again.
void tenants(benchmark::State& state) {
    const auto count = static_cast<std::size_t>(state.range(0));
    lora::model_options options;
    options.tokens_ahead = 38;
    const lora::adapter from = random_adapter(2);
    const auto memory = std::make_shared<lora::marked_memory>(state.range(1) == 0 ? 0 : std::size_t{1} << 40);
    const lora::marked_models<params> all(from, options, memory);
    std::vector<std::unique_ptr<setting>> each;
    for (std::size_t tenant = 0; tenant < std::max<std::size_t>(count, 1); ++tenant) {
        tensafe::random::seed seed;
        seed.bytes.fill(static_cast<std::uint8_t>(tenant));
        each.push_back(count == 0 ? std::make_unique<setting>(from, options)
                                  : std::make_unique<setting>(from, options, all.of(lora::marks(seed))));
        each.back()->send_token();
    }
    for (auto _ : state) {
        std::chrono::nanoseconds time{0};
        for (auto& one : each) {
            one->time = {};
            one->send_token();
            time += one->time;
        }
        state.SetIterationTime(std::chrono::duration<double>(time).count() /
                               static_cast<double>(each.size() * each[0]->states.size()));
    }
    state.counters["marked_bytes"] = static_cast<double>(memory->bytes());
}

void pack(benchmark::State& state) {
    const lora::adapter from = random_adapter(1);
    for (auto _ : state) {
        const lora::model_server<params> server(from);
        benchmark::DoNotOptimize(server.bytes());
    }
}

BENCHMARK(tenants)
    ->ArgNames({"tenants", "kept"})
    ->ArgsProduct({{0, 1, 16, 64}, {1}})
    ->Args({1, 0})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
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
