// Throughput of many sequences against their number, the first argument. A: 32 x 2048, in blocks of
// `tokens_ahead`: more than 32 are for clients that do not cheat, as of the same process. The server computes
// on `threads`. A forward takes `forward_us` and leaves the processor alone, as one on a GPU does. Items per
// second are tokens.

#include <tensafe/exec/host_parallel.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/session/sequences.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>

#include "common.hpp"

namespace {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
namespace session = tensafe::session;
using params = ckks::private_n4096;
using protocol = session::lora_protocol<params, lora::coefficient_tiles<4>, lora::protects_adapter_rows<>,
                                        tensafe::exec::host_parallel>;

void tokens_of_sequences(benchmark::State& state) {
    const auto count = static_cast<std::size_t>(state.range(0));
    const std::chrono::microseconds forward(state.range(1));
    const auto tokens_ahead = static_cast<std::size_t>(state.range(2));
    const tensafe::exec::host_parallel threads(static_cast<int>(state.range(3)));
    lora::adapter adapter;
    adapter.sites.emplace_back();
    adapter.sites[0].name = "layers.0.self_attn.q_proj";
    adapter.sites[0].a = bench::random_matrix(32, 2048, 1);
    adapter.sites[0].b = bench::random_matrix(8, 32, 3);
    adapter.sites[0].scale = 1;
    lora::model_options options;
    options.tokens_ahead = tokens_ahead;
    options.trusts_clients = tokens_ahead > 32;
    const auto model = std::make_shared<const lora::model_server<params>>(adapter, options);
    const auto keys =
        std::make_shared<lora::model_client<params>>(model->layout(), lora::client_part(adapter, options));
    const auto nonce = tensafe::random::fresh_nonce();
    session::basic_server_session<protocol> server(model, nonce, keys->rerandomization_key(nonce));
    session::basic_client_session<protocol> client(keys);
    session::in_process answers(client, server, 1, protocol::workspace(threads));
    const lora::matrix h = bench::random_matrix(1, 2048, 2);
    constexpr int tokens = 100;
    for (auto _ : state) {
        // So that a simulated GPU takes them all at once.
        session::sequences running(answers, forward.count() == 0 ? 1 : count);
        for (std::size_t s = 0; s < count; ++s) {
            static_cast<void>(running.submit([&, token = 0](std::span<const double>) mutable {
                if (token++ == tokens) {
                    return session::step::end();
                }
                if (forward.count() > 0) {
                    std::this_thread::sleep_for(forward);
                }
                return session::step::ask(0, h.row(0));
            }));
        }
        running.close();
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count) * tokens);
}

}  // namespace

BENCHMARK(tokens_of_sequences)
    ->ArgNames({"sequences", "forward_us", "tokens_ahead", "threads"})
    ->ArgsProduct({{1, 8, 16}, {0, 1000, 4000}, {32}, {1}})
    ->ArgsProduct({{16}, {0}, {64}, {1, 2}})
    ->Args({16, 0, 32, 2})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
