// A whole LoRA token with protected replies, client and server on one thread, and its steps. A: rank x d,
// normal entries; rows of the axes are those of coefficient_tiles. "pooled" takes encryptions of zero that
// were made before. A column batch is timed whole; items per second are hidden states.

#include <cmath>

#include "common.hpp"

namespace {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
using tensafe::exec::host;

using rigorous = lora::protects_adapter_rows<>;
using calibrated = lora::protects_adapter_rows<lora::calibrated<6>>;
using reduced = lora::protects_adapter_rows<lora::calibrated<5>, lora::reduced_precision>;
using bare = lora::reveals_adapter_rows;

lora::matrix random_matrix(std::size_t rows, std::size_t columns, unsigned seed = 2) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(columns)));
    lora::matrix m(rows, columns);
    for (float& x : m.values) {
        x = normal(engine);
    }
    return m;
}

/// Server, client and pool for the shape of a benchmark's arguments.
template <class P, class Packing, class Protection>
struct setting {
    using server_type = lora::server<P, Packing, Protection>;

    explicit setting(const benchmark::State& state)
        : server(random_matrix(static_cast<std::size_t>(state.range(0)),
                               static_cast<std::size_t>(state.range(1)))),
          h(random_matrix(1, static_cast<std::size_t>(state.range(1)), 3)),
          nonce(tensafe::random::fresh_seed()),
          zeros(nonce, client.zero_key(host{}, nonce), server.layout().fold_log_n()) {}

    server_type server;
    lora::client<P> client;
    lora::matrix h;
    tensafe::random::seed nonce;
    lora::zero_pool<P> zeros;
    typename server_type::workspace work;
    typename server_type::reply_type reply;
};

template <class P, class Packing, class Protection, bool Pooled = false>
void token(benchmark::State& state) {
    const host here;
    setting<P, Packing, Protection> s(state);
    std::size_t bytes_up = 0;
    for (auto _ : state) {
        if constexpr (Pooled) {
            state.PauseTiming();
            s.zeros.fill(here, s.server.layout().outputs());
            state.ResumeTiming();
        }
        const auto query = s.client.encrypt(here, s.server.layout(), s.h.row(0));
        if constexpr (Protection::protects) {
            s.server.apply(here, query.request, s.zeros, s.work, s.reply);
        } else {
            s.server.apply(here, query.request, s.work, s.reply);
        }
        benchmark::DoNotOptimize(s.client.decrypt(here, s.server.layout(), s.reply, query.scale));
        bytes_up = query.request.bytes();
    }
    state.counters["bytes_up"] = static_cast<double>(bytes_up);
    state.counters["bytes_down"] = static_cast<double>(s.reply.bytes());
    state.counters["products"] =
        static_cast<double>(s.server.layout().inputs() * s.server.layout().outputs());
}

template <class P>
void batch(benchmark::State& state) {
    const host here;
    setting<P, lora::column_batched, rigorous> s(state);
    const lora::matrix states = random_matrix(P::degree, static_cast<std::size_t>(state.range(1)), 3);
    for (auto _ : state) {
        const auto query = s.client.encrypt(here, s.server.layout(), states);
        s.server.apply(here, query.request, s.zeros, s.work, s.reply);
        benchmark::DoNotOptimize(s.client.decrypt(here, s.server.layout(), s.reply, query.scales));
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(P::degree));
}

// The steps of a token of private_n4096 with four rows in a plaintext.
using steps = setting<ckks::private_n4096, lora::coefficient_tiles<4>, rigorous>;

void encrypt(benchmark::State& state) {
    steps s(state);
    for (auto _ : state) {
        benchmark::DoNotOptimize(s.client.encrypt(host{}, s.server.layout(), s.h.row(0)));
    }
}
void expand(benchmark::State& state) {
    steps s(state);
    const auto query = s.client.encrypt(host{}, s.server.layout(), s.h.row(0));
    for (auto _ : state) {
        s.server.expand(host{}, query.request, s.work);
        benchmark::ClobberMemory();
    }
}
void multiply(benchmark::State& state) {
    steps s(state);
    const auto query = s.client.encrypt(host{}, s.server.layout(), s.h.row(0));
    s.server.expand(host{}, query.request, s.work);
    for (auto _ : state) {
        s.server.multiply(host{}, query.request, s.work);
        benchmark::ClobberMemory();
    }
}
void make_zeros(benchmark::State& state) {
    steps s(state);
    for (auto _ : state) {
        for (std::size_t o = 0; o < s.server.layout().outputs(); ++o) {
            benchmark::DoNotOptimize(s.zeros.take(host{}));
        }
    }
}
void protect_pooled(benchmark::State& state) {
    steps s(state);
    const auto query = s.client.encrypt(host{}, s.server.layout(), s.h.row(0));
    s.server.expand(host{}, query.request, s.work);
    for (auto _ : state) {
        state.PauseTiming();
        s.server.multiply(host{}, query.request, s.work);
        s.zeros.fill(host{}, s.server.layout().outputs());
        state.ResumeTiming();
        s.server.protect(host{}, s.zeros, s.work);
        benchmark::ClobberMemory();
    }
}
void finish(benchmark::State& state) {
    steps s(state);
    const auto query = s.client.encrypt(host{}, s.server.layout(), s.h.row(0));
    s.server.expand(host{}, query.request, s.work);
    for (auto _ : state) {
        state.PauseTiming();
        s.server.multiply(host{}, query.request, s.work);
        s.server.protect(host{}, s.zeros, s.work);
        state.ResumeTiming();
        s.server.finish(host{}, s.work, s.reply);
        benchmark::ClobberMemory();
    }
}
void decrypt(benchmark::State& state) {
    steps s(state);
    const auto query = s.client.encrypt(host{}, s.server.layout(), s.h.row(0));
    s.server.apply(host{}, query.request, s.zeros, s.work, s.reply);
    for (auto _ : state) {
        benchmark::DoNotOptimize(s.client.decrypt(host{}, s.server.layout(), s.reply, query.scale));
    }
}

using tiles_4 = lora::coefficient_tiles<4>;
using tiles_8 = lora::coefficient_tiles<8>;
using tiles_16 = lora::coefficient_tiles<16>;
using tiles_32 = lora::coefficient_tiles<32>;
using slots = lora::replicated_slots<>;

#define TENSAFE_BENCH_TOKEN(set, packing, protection)                \
    BENCHMARK(token<ckks::set, packing, protection>)                 \
        ->Name("protected_token/" #set "/" #packing "/" #protection) \
        ->ArgNames({"rank", "d"})                                    \
        ->Unit(benchmark::kMillisecond)                              \
        ->Args({32, 2048})

TENSAFE_BENCH_TOKEN(private_n4096, tiles_4, rigorous)->Args({16, 2048})->Args({32, 4096})->Args({32, 512});
TENSAFE_BENCH_TOKEN(private_n4096, tiles_4, bare);
TENSAFE_BENCH_TOKEN(private_n4096, tiles_8, rigorous);
TENSAFE_BENCH_TOKEN(private_n4096, tiles_16, rigorous);
TENSAFE_BENCH_TOKEN(private_n4096, slots, rigorous);
TENSAFE_BENCH_TOKEN(compact_n4096, tiles_4, calibrated);
TENSAFE_BENCH_TOKEN(minimal_n2048, tiles_4, reduced);
BENCHMARK(token<ckks::private_n4096, tiles_4, rigorous, true>)
    ->Name("protected_token/private_n4096/tiles_4/rigorous/pooled")
    ->ArgNames({"rank", "d"})
    ->Unit(benchmark::kMillisecond)
    ->Args({32, 2048});
BENCHMARK(token<ckks::private_n4096, tiles_32, rigorous>)
    ->Name("protected_token/private_n4096/tiles_32/rigorous/blind")
    ->ArgNames({"rank", "d"})
    ->Unit(benchmark::kMillisecond)
    ->Args({2048, 2048});
BENCHMARK(batch<ckks::private_n4096>)
    ->Name("protected_batch/private_n4096/column_batched/rigorous")
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
TENSAFE_BENCH_STEP(expand);
TENSAFE_BENCH_STEP(multiply);
TENSAFE_BENCH_STEP(make_zeros);
TENSAFE_BENCH_STEP(protect_pooled);
TENSAFE_BENCH_STEP(finish);
TENSAFE_BENCH_STEP(decrypt);

}  // namespace
