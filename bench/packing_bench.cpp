// Packing an adapter. One site of rank 32: 2048 entries in, 2048 out; `client_held_b` packs A (32 x 2048),
// `blind` scale * B * A (2048 x 2048). Beside it the SHA-256 of bytes in memory, which the
// signature of an adapter takes.

#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/model/model_server.hpp>

#include <memory>
#include <span>
#include <vector>

#include "common.hpp"

namespace {

namespace keystore = tensafe::keystore;
namespace lora = tensafe::lora;

lora::adapter one_site() {
    return {{{"layers.0.self_attn.q_proj", bench::random_matrix(32, 2048, 1),
              bench::random_matrix(2048, 32, 2), 1.0}}};
}

template <int Rows>
using model = lora::model_server<tensafe::ckks::private_n4096, lora::coefficient_tiles<Rows>>;

template <lora::mode Mode>
lora::model_options options() {
    lora::model_options result;
    result.mode = Mode;
    return result;
}

template <int Rows, lora::mode Mode>
void pack(benchmark::State& state) {
    const lora::adapter adapter = one_site();
    for (auto _ : state) {
        benchmark::DoNotOptimize(std::make_shared<const model<Rows>>(adapter, options<Mode>()));
    }
    state.counters["packed_MB"] =
        static_cast<double>(model<Rows>::bytes_for(adapter, options<Mode>())) * 1e-6;
}

/// SHA-256 alone, over bytes in memory.
void sha256(benchmark::State& state) {
    const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{1});
    for (auto _ : state) {
        benchmark::DoNotOptimize(keystore::sha256::of(bytes));
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}

constexpr lora::mode held = lora::mode::client_held_b;
constexpr lora::mode blind = lora::mode::blind;

#define TENSAFE_BENCH_PACKING(what)                       \
    BENCHMARK(what<4, held>)                              \
        ->Name("packing/" #what "/client_held_b/32x2048") \
        ->Unit(benchmark::kMillisecond)                   \
        ->UseRealTime();                                  \
    BENCHMARK(what<32, blind>)                            \
        ->Name("packing/" #what "/blind/2048x2048")       \
        ->Unit(benchmark::kMillisecond)                   \
        ->UseRealTime()

TENSAFE_BENCH_PACKING(pack);
BENCHMARK(sha256)->Name("packing/sha256")->Arg(1 << 20)->Arg(1 << 26)->Unit(benchmark::kMillisecond);

}  // namespace
