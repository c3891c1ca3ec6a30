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
    const lora::server<P, Packing, lora::reveals_adapter_rows> server(bench::random_matrix(rank, d, 2));
    lora::client<P> client;
    const lora::matrix h = bench::random_matrix(1, d, 3);
    typename decltype(server)::workspace work;
    typename decltype(server)::reply_type reply;
    typename decltype(server)::plan_type::query_type query;
    for (auto _ : state) {
        client.encrypt(server.plan(), h.row(0), query);
        server.apply(query.request, work, reply);
        benchmark::DoNotOptimize(client.decrypt(server.plan(), reply, query));
    }
    state.counters["bytes_up"] = static_cast<double>(query.request.bytes());
    state.counters["bytes_down"] = static_cast<double>(reply.bytes());
    state.counters["products"] = static_cast<double>(server.plan().inputs() * server.plan().outputs());
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
