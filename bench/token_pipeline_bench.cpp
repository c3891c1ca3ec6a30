// Throughput of a token pipeline against the number of sequences S, the first argument. A: 32 x 2048,
// protected replies. A forward takes `forward_us` and leaves the processor alone, as one on a GPU does. Items
// per second are tokens; `overlap` is the part of the time in which forward and encrypted work went on at
// once, `batch` what the engine got at once.

#include <tensafe/serving/host_engine.hpp>
#include <tensafe/serving/token_pipeline.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "common.hpp"

namespace {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
using params = ckks::private_n4096;

void pipeline(benchmark::State& state) {
    const auto sequences = static_cast<std::size_t>(state.range(0));
    const std::chrono::microseconds forward(state.range(1));
    const lora::server<params> server(bench::random_matrix(32, 2048, 1));
    const std::vector<const lora::server<params>*> groups{&server};
    lora::client<params> client;
    const auto nonce = tensafe::random::fresh_seed();
    auto zeros = server.pool(nonce, client.rerandomization_key(nonce));
    serving::host_engine<params> engine(client, groups, zeros);
    const lora::matrix h = bench::random_matrix(1, 2048, 2);
    constexpr int tokens = 50;
    serving::pipeline_report report;
    for (auto _ : state) {
        serving::pipeline_options options;
        options.forward_threads = sequences;  // so that a simulated GPU takes them all at once
        serving::token_pipeline<decltype(engine)> running(engine, options);
        for (std::size_t s = 0; s < sequences; ++s) {
            static_cast<void>(running.submit([&, token = 0](std::span<const double>) mutable {
                if (token++ == tokens) {
                    return serving::step::end();
                }
                std::this_thread::sleep_for(forward);
                return serving::step::ask_last(0, h.row(0));
            }));
        }
        running.close();
        report = running.report();
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(sequences) * tokens);
    state.counters["overlap"] = report.overlap();
    state.counters["batch"] = report.mean_batch();
    state.counters["token_p50_us"] = static_cast<double>(report.token.percentile(50).count()) / 1e3;
    state.counters["token_p99_us"] = static_cast<double>(report.token.percentile(99).count()) / 1e3;
}

}  // namespace

BENCHMARK(pipeline)
    ->ArgNames({"sequences", "forward_us"})
    ->ArgsProduct({{1, 2, 4, 8, 16}, {1000, 4000}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
