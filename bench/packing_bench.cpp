// Packing an adapter against loading it from a cache, and what loading is made of. One site of rank 32:
// 2048 entries in, 2048 out; `client_held_b` packs A (32 x 2048), `blind` scale * B * A (2048 x 2048). No
// prefill. The cache is a folder of the system's temporary directory, and what is loaded was read before: a
// file that is not in the system's memory takes as long as the disk takes for it in addition.

#include <tensafe/io/packed_cache.hpp>
#include <tensafe/io/packed_key.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/model/model_server.hpp>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "common.hpp"

namespace {

namespace io = tensafe::io;
namespace lora = tensafe::lora;

/// A folder that goes away with the object.
class temporary_folder {
  public:
    temporary_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "tensafe-bench-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("cannot make a temporary folder");
        }
        path_ = name;
    }
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

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

/// Hashes the adapter, reads, checks.
template <int Rows, lora::mode Mode>
void load(benchmark::State& state) {
    const temporary_folder folder;
    const lora::adapter adapter = one_site();
    io::packed_cache<model<Rows>> cache(folder.path(), options<Mode>());
    benchmark::DoNotOptimize(cache.pack(adapter));
    for (auto _ : state) {
        benchmark::DoNotOptimize(cache.pack(adapter));
    }
    if (cache.counts().packed != 1 || cache.counts().problems != 0) {
        state.SkipWithError("the cache did not load");
    }
}

/// Packs and writes the file: what the first time costs with a cache.
template <int Rows, lora::mode Mode>
void pack_and_keep(benchmark::State& state) {
    const temporary_folder folder;
    const lora::adapter adapter = one_site();
    io::packed_cache<model<Rows>> cache(folder.path(), options<Mode>());
    for (auto _ : state) {
        benchmark::DoNotOptimize(cache.pack(adapter));
        state.PauseTiming();
        std::filesystem::remove(cache.file_of(adapter));
        state.ResumeTiming();
    }
}

void key(benchmark::State& state) {
    const lora::adapter adapter = one_site();
    for (auto _ : state) {
        benchmark::DoNotOptimize(io::packed_key("identity", adapter));
    }
}

/// SHA-256 alone, over bytes in memory.
void sha256(benchmark::State& state) {
    const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{1});
    for (auto _ : state) {
        benchmark::DoNotOptimize(io::sha256::of(bytes));
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
TENSAFE_BENCH_PACKING(load);
TENSAFE_BENCH_PACKING(pack_and_keep);
BENCHMARK(key)->Name("packing/key/32x2048_and_2048x32")->Unit(benchmark::kMillisecond);
BENCHMARK(sha256)->Name("packing/sha256")->Arg(1 << 20)->Arg(1 << 26)->Unit(benchmark::kMillisecond);

}  // namespace
