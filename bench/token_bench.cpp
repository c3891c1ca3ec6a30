// A whole LoRA token of the classic packing, whose replies reveal A: client and server on one thread: encode,
// encrypt, expand, multiply, (rescale,) decrypt, trace. A: rank x d normal entries. Requests, replies and the
// server's workspace keep their memory.

#include <span>

#include "common.hpp"

namespace {

namespace lora = tensafe::lora;

template <class P, class Packing>
void token(benchmark::State& state) {
    const auto rank = static_cast<std::size_t>(state.range(0));
    const auto d = static_cast<std::size_t>(state.range(1));
    const lora::slot_server<P, Packing> server(bench::random_matrix(rank, d, 2));
    lora::client<P> client;
    const lora::matrix h = bench::random_matrix(1, d, 3);
    typename lora::slot_server<P, Packing>::workspace work;
    typename lora::slot_server<P, Packing>::reply_type reply;
    lora::slot_request<P> request;
    for (auto _ : state) {
        client.encrypt(server.plan(), h.row(0), request);
        server.apply(request, work, reply);
        benchmark::DoNotOptimize(client.decrypt(server.plan(), reply));
    }
    state.counters["bytes_up"] = static_cast<double>(request.bytes());
    state.counters["bytes_down"] = static_cast<double>(reply.bytes());
    state.counters["products"] = static_cast<double>(server.layout().inputs * server.layout().outputs);
}

using pairs = lora::replicated_slots<lora::paired_rows>;
using singles = lora::replicated_slots<lora::single_rows>;
using rescaled_pairs = lora::replicated_slots<lora::paired_rows, lora::rescaled_replies>;

#define TENSAFE_BENCH_TOKEN(set, packing)         \
    BENCHMARK(token<tensafe::ckks::set, packing>) \
        ->Name("token/" #set "/" #packing)        \
        ->ArgNames({"rank", "d"})                 \
        ->Args({32, 2048})                        \
        ->Unit(benchmark::kMillisecond)

TENSAFE_BENCH_TOKEN(n16384_l4, pairs)->Args({16, 2048})->Args({32, 1536})->Args({32, 4096});
TENSAFE_BENCH_TOKEN(n16384_l4, singles);
TENSAFE_BENCH_TOKEN(n16384_l4, rescaled_pairs);
TENSAFE_BENCH_TOKEN(n8192_l4, pairs);
TENSAFE_BENCH_TOKEN(n16384_l5, pairs);
TENSAFE_BENCH_TOKEN(n32768_l4, pairs);
TENSAFE_BENCH_TOKEN(n32768_l5, pairs);

}  // namespace
