// Key stream and samplers, 16384 coefficients: the randomness of one limb or one error polynomial.

#include <tensafe/random/samplers.hpp>

#include <cstdint>
#include <span>

#include "common.hpp"

namespace {

namespace random = tensafe::random;

constexpr std::size_t degree = 16384;

void chacha20(benchmark::State& state) {
    const random::chacha20_stream stream(random::fresh_seed(), random::stream_domain::uplink, 0);
    std::vector<std::uint8_t> bytes(1 << 17);
    for (auto _ : state) {
        stream.generate(0, bytes);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

void uniform(benchmark::State& state) {
    const random::seed seed = random::fresh_seed();
    const std::uint64_t q =
        tensafe::arith::ntt_prime_below(std::uint64_t{1} << static_cast<int>(state.range(0)), 14);
    std::vector<std::uint64_t> out(degree);
    for (auto _ : state) {
        random::sample_uniform(seed, random::stream_domain::uplink, 0, q, out);
        benchmark::ClobberMemory();
    }
}

void centred_binomial(benchmark::State& state) {
    const random::seed seed = random::fresh_seed();
    std::vector<std::int8_t> out(degree);
    for (auto _ : state) {
        random::sample_centred_binomial(seed, random::stream_domain::error, 0, out);
        benchmark::ClobberMemory();
    }
}

void ternary(benchmark::State& state) {
    const random::seed seed = random::fresh_seed();
    std::vector<std::int8_t> out(degree);
    for (auto _ : state) {
        random::sample_ternary(seed, random::stream_domain::zero, 0, out);
        benchmark::ClobberMemory();
    }
}

BENCHMARK(chacha20)->Unit(benchmark::kMicrosecond);
BENCHMARK(uniform)->ArgName("bits")->Arg(40)->Arg(50)->Arg(60)->Unit(benchmark::kMicrosecond);
BENCHMARK(centred_binomial)->Unit(benchmark::kMicrosecond);
BENCHMARK(ternary)->Unit(benchmark::kMicrosecond);

}  // namespace
