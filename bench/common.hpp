#pragma once

#include <tensafe/tensafe.hpp>

#include <benchmark/benchmark.h>

#include <complex>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace bench {

/// Registers f<P>, in microseconds, for every named parameter set.
#define TENSAFE_BENCH_PARAMETER_SETS(f)                                    \
    BENCHMARK(f<tensafe::ckks::n8192_l4>)->Unit(benchmark::kMicrosecond);  \
    BENCHMARK(f<tensafe::ckks::n16384_l4>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(f<tensafe::ckks::n16384_l5>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(f<tensafe::ckks::n32768_l4>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(f<tensafe::ckks::n32768_l5>)->Unit(benchmark::kMicrosecond)

/// Slots with normal real parts, as hidden states have; the same in every run.
template <class P>
std::vector<std::complex<double>> random_slots() {
    std::mt19937_64 engine(1);
    std::normal_distribution<double> normal;
    std::vector<std::complex<double>> slots(P::slots);
    for (auto& z : slots) {
        z = normal(engine);
    }
    return slots;
}

/// Words the operation reads and writes, for the bytes-per-second column.
inline void count_bytes(benchmark::State& state, std::size_t words) {
    state.SetBytesProcessed(state.iterations() *
                            static_cast<std::int64_t>(words * sizeof(tensafe::arith::word)));
}

}  // namespace bench
