// A whole LoRA token with protected replies, client and server on one thread, and its steps. A: rank x d,
// normal entries; rows of the axes are those of coefficient_tiles. "pooled" takes encryptions of zero that
// were made before. A column batch is timed whole; items per second are hidden states.

#include <tensafe/exec/host_parallel.hpp>

#include <utility>
#include <vector>

#include "common.hpp"

namespace {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
using tensafe::exec::host;

using worst_case = lora::protects_adapter_rows<>;
using average_case = lora::protects_adapter_rows<lora::average_case<6>>;
using reduced = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
using bare = lora::reveals_adapter_rows;

/// Server, client and pool for the shape of a benchmark's arguments.
template <class P, class Packing, class Protection>
struct setting {
    using server_type = lora::server<P, Packing, Protection>;

    explicit setting(const benchmark::State& state)
        : server(bench::random_matrix(static_cast<std::size_t>(state.range(0)),
                                      static_cast<std::size_t>(state.range(1)), 2),
                 lora::trusts_clients{}),
          h(bench::random_matrix(1, static_cast<std::size_t>(state.range(1)), 3)),
          key_seed(tensafe::random::fresh_seed()),
          client(ckks::secret_key<P>(key_seed)),
          nonce(tensafe::random::fresh_seed()),
          zeros(nonce, client.rerandomization_key(nonce), server.layout().subring_log_n()) {}

    server_type server;
    lora::matrix h;
    tensafe::random::seed key_seed;
    lora::client<P> client;
    tensafe::random::seed nonce;
    lora::rerandomization_pool<P> zeros;
    typename server_type::workspace work;
    typename server_type::reply_type reply;
    lora::query<P> query;
    lora::decryption_workspace<P> reading;
    std::vector<double> answers = std::vector<double>(server.layout().rank);
};

template <class P, class Packing, class Protection, bool Pooled = false>
void token(benchmark::State& state) {
    setting<P, Packing, Protection> s(state);
    for (auto _ : state) {
        if constexpr (Pooled) {
            state.PauseTiming();
            s.zeros.fill(s.server.plan().outputs());
            state.ResumeTiming();
        }
        s.client.encrypt(s.server.plan(), s.h.row(0), s.query);
        if constexpr (Protection::protects) {
            s.server.apply(s.query.request, s.zeros, s.work, s.reply);
        } else {
            s.server.apply(s.query.request, s.work, s.reply);
        }
        s.client.decrypt(s.server.plan(), s.reply, s.query, s.reading, s.answers);
        benchmark::ClobberMemory();
    }
    state.counters["bytes_up"] = static_cast<double>(s.query.request.bytes());
    state.counters["bytes_down"] = static_cast<double>(s.reply.bytes());
    state.counters["products"] = static_cast<double>(s.server.plan().inputs() * s.server.plan().outputs());
}

/// As many tokens at once as the third argument says, client and server.
template <class P, class Packing, class Protection, class Where>
void time_tokens(benchmark::State& state, const Where& here) {
    setting<P, Packing, Protection> s(state);
    const auto count = static_cast<std::size_t>(state.range(2));
    std::vector<lora::query<P>> queries(count);
    std::vector<typename lora::server<P, Packing, Protection>::reply_type> replies(count);
    std::vector<typename lora::server<P, Packing, Protection>::task> tasks;
    for (std::size_t t = 0; t < count; ++t) {
        tasks.push_back({&queries[t].request, &s.zeros, &replies[t]});
    }
    std::vector<lora::client<P>> clients;
    for (std::size_t i = 0; i < here.threads(); ++i) {
        clients.emplace_back(tensafe::ckks::secret_key<P>(s.key_seed));
    }
    std::vector<lora::decryption_workspace<P>> reading(here.threads());
    std::vector<std::vector<double>> answers(here.threads(), s.answers);
    for (auto _ : state) {
        here.for_each(count, [&](std::size_t t, std::size_t slot) {
            clients[slot].encrypt(s.server.plan(), s.h.row(0), queries[t]);
        });
        s.server.apply(here, tasks, s.work);
        here.for_each(count, [&](std::size_t t, std::size_t slot) {
            clients[slot].decrypt(s.server.plan(), replies[t], queries[t], reading[slot], answers[slot]);
        });
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
}

/// On as many threads as the fourth argument says.
template <class P, class Packing, class Protection>
void tokens(benchmark::State& state) {
    time_tokens<P, Packing, Protection>(state,
                                        tensafe::exec::host_parallel(static_cast<int>(state.range(3))));
}

/// On one thread, next to what cost.hpp expects: millions of word multiplications for one token.
template <class P, class Packing, class Protection>
void scaling(benchmark::State& state) {
    time_tokens<P, Packing, Protection>(state, host{});
    const auto rank = static_cast<std::size_t>(state.range(0));
    const auto d = static_cast<std::size_t>(state.range(1));
    state.counters["model"] =
        lora::cost_of<P, Packing, Protection>({rank, d, d}, lora::mode::client_held_b).word_multiplications /
        1e6;
}

template <class P>
void batch(benchmark::State& state) {
    setting<P, lora::column_batched, worst_case> s(state);
    const lora::matrix states = bench::random_matrix(P::degree, static_cast<std::size_t>(state.range(1)), 3);
    for (auto _ : state) {
        const auto query = s.client.encrypt(s.server.plan(), states);
        s.server.apply(query.request, s.zeros, s.work, s.reply);
        benchmark::DoNotOptimize(s.client.decrypt(s.server.plan(), s.reply, query));
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(P::degree));
}

// The steps of a token of private_n4096 with four rows in a plaintext.
using steps = setting<ckks::private_n4096, lora::coefficient_tiles<4>, worst_case>;

void encrypt(benchmark::State& state) {
    steps s(state);
    for (auto _ : state) {
        s.client.encrypt(s.server.plan(), s.h.row(0), s.query);
        benchmark::ClobberMemory();
    }
}
/// A phase of whole replies, from a filled pool: only it is timed.
template <lora::server_phase Phase>
void server_step(benchmark::State& state) {
    steps s(state);
    s.client.encrypt(s.server.plan(), s.h.row(0), s.query);
    for (auto _ : state) {
        s.zeros.fill(s.server.plan().outputs());
        lora::phase_clock clock;
        s.server.apply(s.query.request, s.zeros, s.work, s.reply, clock);
        clock.stop();
        state.SetIterationTime(clock.milliseconds(Phase) * 1e-3);
    }
}
void expand(benchmark::State& state) {
    server_step<lora::server_phase::expand>(state);
}
void multiply(benchmark::State& state) {
    server_step<lora::server_phase::multiply>(state);
}
void protect_pooled(benchmark::State& state) {
    server_step<lora::server_phase::protect>(state);
}
void finish(benchmark::State& state) {
    server_step<lora::server_phase::serialize>(state);
}
void make_zeros(benchmark::State& state) {
    steps s(state);
    for (auto _ : state) {
        for (std::size_t o = 0; o < s.server.layout().outputs(); ++o) {
            auto zero = s.zeros.acquire();
            benchmark::DoNotOptimize(zero);
            s.zeros.release(std::move(zero));
        }
    }
}
void decrypt(benchmark::State& state) {
    steps s(state);
    const auto query = s.client.encrypt(s.server.plan(), s.h.row(0));
    s.server.apply(query.request, s.zeros, s.work, s.reply);
    for (auto _ : state) {
        s.client.decrypt(s.server.plan(), s.reply, query, s.reading, s.answers);
        benchmark::ClobberMemory();
    }
}

using tiles_4 = lora::coefficient_tiles<4>;
using tiles_8 = lora::coefficient_tiles<8>;
using tiles_16 = lora::coefficient_tiles<16>;
using tiles_32 = lora::coefficient_tiles<32>;
using tiles_64 = lora::coefficient_tiles<64>;
using slots = lora::replicated_slots<>;

#define TENSAFE_BENCH_TOKEN(set, packing, protection)                \
    BENCHMARK(token<ckks::set, packing, protection>)                 \
        ->Name("protected_token/" #set "/" #packing "/" #protection) \
        ->ArgNames({"rank", "d"})                                    \
        ->Unit(benchmark::kMillisecond)                              \
        ->Args({32, 2048})

TENSAFE_BENCH_TOKEN(private_n4096, tiles_4, worst_case)->Args({16, 2048})->Args({32, 4096})->Args({32, 512});
TENSAFE_BENCH_TOKEN(private_n4096, tiles_4, bare);
TENSAFE_BENCH_TOKEN(private_n4096, tiles_8, worst_case);
TENSAFE_BENCH_TOKEN(private_n4096, tiles_16, worst_case);
TENSAFE_BENCH_TOKEN(private_n4096, slots, worst_case);
TENSAFE_BENCH_TOKEN(quantum_n4096, tiles_4, worst_case)->Args({32, 4096});
TENSAFE_BENCH_TOKEN(compact_n4096, tiles_4, average_case);
TENSAFE_BENCH_TOKEN(minimal_n2048, tiles_4, reduced);
BENCHMARK(token<ckks::private_n4096, tiles_4, worst_case, true>)
    ->Name("protected_token/private_n4096/tiles_4/worst_case/pooled")
    ->ArgNames({"rank", "d"})
    ->Unit(benchmark::kMillisecond)
    ->Args({32, 2048});
BENCHMARK(token<ckks::private_n4096, tiles_32, worst_case>)
    ->Name("protected_token/private_n4096/tiles_32/worst_case/blind")
    ->ArgNames({"rank", "d"})
    ->Unit(benchmark::kMillisecond)
    ->Args({2048, 2048});
#define TENSAFE_BENCH_TOKENS(packing, name)                                   \
    BENCHMARK(tokens<ckks::private_n4096, packing, worst_case>)               \
        ->Name("protected_tokens/private_n4096/" #packing "/worst_case" name) \
        ->ArgNames({"rank", "d", "batch", "threads"})                         \
        ->Unit(benchmark::kMillisecond)                                       \
        ->UseRealTime()

TENSAFE_BENCH_TOKENS(tiles_4, "")
    ->Args({32, 2048, 1, 1})
    ->Args({32, 2048, 16, 1})
    ->Args({32, 2048, 1, 2})
    ->Args({32, 2048, 16, 2});
TENSAFE_BENCH_TOKENS(tiles_16, "/blind")->Args({2048, 2048, 1, 1})->Args({2048, 2048, 16, 1});
TENSAFE_BENCH_TOKENS(tiles_32, "/blind")
    ->Args({2048, 2048, 1, 1})
    ->Args({2048, 2048, 16, 1})
    ->Args({2048, 2048, 16, 2});
TENSAFE_BENCH_TOKENS(tiles_64, "/blind")->Args({2048, 2048, 1, 1})->Args({2048, 2048, 16, 1});

// One axis at a time, away from A of 32 x 2048 and one token of private_n4096; scripts/plot_bench draws them.
#define TENSAFE_BENCH_SCALING(axis, set, protection)   \
    BENCHMARK(scaling<ckks::set, tiles_4, protection>) \
        ->Name("protected_scaling/" #axis "/" #set)    \
        ->ArgNames({"rank", "d", "batch"})             \
        ->Unit(benchmark::kMillisecond)

TENSAFE_BENCH_SCALING(d, private_n4096, worst_case)->ArgsProduct({{32}, {512, 1024, 2048, 4096, 8192}, {1}});
TENSAFE_BENCH_SCALING(rank, private_n4096, worst_case)->ArgsProduct({{8, 16, 32, 64, 128}, {2048}, {1}});
TENSAFE_BENCH_SCALING(batch, private_n4096, worst_case)->ArgsProduct({{32}, {2048}, {1, 2, 4, 8, 16}});
TENSAFE_BENCH_SCALING(set, minimal_n2048, reduced)->Args({32, 2048, 1});
TENSAFE_BENCH_SCALING(set, compact_n4096, average_case)->Args({32, 2048, 1});
TENSAFE_BENCH_SCALING(set, private_n4096, worst_case)->Args({32, 2048, 1});
TENSAFE_BENCH_SCALING(set, n8192_l4, worst_case)->Args({32, 2048, 1});

BENCHMARK(batch<ckks::private_n4096>)
    ->Name("protected_batch/private_n4096/column_batched/worst_case")
    ->ArgNames({"rank", "d"})
    ->Unit(benchmark::kMillisecond)
    ->Args({32, 2048})
    ->Iterations(1);

#define TENSAFE_BENCH_STEP(step)        \
    BENCHMARK(step)                     \
        ->Name("protected_step/" #step) \
        ->ArgNames({"rank", "d"})       \
        ->Unit(benchmark::kMicrosecond) \
        ->Args({32, 2048})

TENSAFE_BENCH_STEP(encrypt);
TENSAFE_BENCH_STEP(expand)->UseManualTime();
TENSAFE_BENCH_STEP(multiply)->UseManualTime();
TENSAFE_BENCH_STEP(make_zeros);
TENSAFE_BENCH_STEP(protect_pooled)->UseManualTime();
TENSAFE_BENCH_STEP(finish)->UseManualTime();
TENSAFE_BENCH_STEP(decrypt);

}  // namespace
