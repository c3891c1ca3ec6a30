// Key stream and samplers by back-end, 4096 and 16384 coefficients: the randomness of one limb or one error
// polynomial.

#include <tensafe/exec/backend.hpp>
#include <tensafe/random/samplers.hpp>

#include <cstdint>
#include <span>
#include <string>

#include "common.hpp"

namespace {

namespace exec = tensafe::exec;
namespace random = tensafe::random;

void chacha20(benchmark::State& state, exec::backend backend) {
    const bench::forced_backend forced(backend);
    const random::chacha20_stream stream(random::fresh_seed(), random::stream_domain::uplink, 0);
    std::vector<std::uint8_t> bytes(random::chacha20_block_bytes * static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        stream.generate(0, bytes);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

void uniform(benchmark::State& state, exec::backend backend) {
    const bench::forced_backend forced(backend);
    const random::seed seed = random::fresh_seed();
    const std::uint64_t q =
        tensafe::arith::ntt_prime_below(std::uint64_t{1} << static_cast<int>(state.range(0)), 14);
    std::vector<std::uint64_t> out(static_cast<std::size_t>(state.range(1)));
    for (auto _ : state) {
        random::sample_uniform(seed, random::stream_domain::uplink, 0, q, out);
        benchmark::ClobberMemory();
    }
}

/// Half of the draws are rejected.
void uniform_unlucky(benchmark::State& state, exec::backend backend) {
    const bench::forced_backend forced(backend);
    const random::seed seed = random::fresh_seed();
    std::vector<std::uint64_t> out(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        random::sample_uniform(seed, random::stream_domain::uplink, 0, (std::uint64_t{1} << 39) + 23, out);
        benchmark::ClobberMemory();
    }
}

void errors(benchmark::State& state, exec::backend backend) {
    const bench::forced_backend forced(backend);
    const random::seed seed = random::fresh_seed();
    std::vector<std::int8_t> out(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        random::sample_error(seed, random::stream_domain::error, 0, out);
        benchmark::ClobberMemory();
    }
}

void ternary(benchmark::State& state, exec::backend backend) {
    const bench::forced_backend forced(backend);
    const random::seed seed = random::fresh_seed();
    std::vector<std::int8_t> out(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        random::sample_ternary(seed, random::stream_domain::zero, 0, out);
        benchmark::ClobberMemory();
    }
}

benchmark::internal::Benchmark* add(const std::string& name, exec::backend backend,
                                    void (*f)(benchmark::State&, exec::backend)) {
    return benchmark::RegisterBenchmark((name + '/' + std::string(exec::name(backend))).c_str(), f, backend)
        ->Unit(benchmark::kMicrosecond);
}

[[maybe_unused]] const bool registered = [] {
    for (const exec::backend backend : exec::all_backends) {
        if (exec::is_supported(backend)) {
            add("chacha20", backend, chacha20)->ArgName("blocks")->Arg(1)->Arg(8)->Arg(16)->Arg(2048);
            add("uniform", backend, uniform)
                ->ArgNames({"bits", "n"})
                ->ArgsProduct({{40, 45, 50, 60}, {4096, 16384}});
            add("uniform_unlucky", backend, uniform_unlucky)->ArgName("n")->Arg(4096)->Arg(16384);
            add("errors", backend, errors)->ArgName("n")->Arg(64)->Arg(4096)->Arg(16384);
            add("ternary", backend, ternary)->ArgName("n")->Arg(64)->Arg(4096)->Arg(16384);
        }
    }
    return true;
}();

}  // namespace
