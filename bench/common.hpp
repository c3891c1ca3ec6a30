#pragma once

#include <tensafe/exec/backend.hpp>
#include <tensafe/tensafe.hpp>

#include <benchmark/benchmark.h>

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace bench {

/// Registers f<P>, in microseconds, for every named parameter set.
#define TENSAFE_BENCH_PARAMETER_SETS(f)                                    \
    BENCHMARK(f<tensafe::ckks::n8192_l4>)->Unit(benchmark::kMicrosecond);  \
    BENCHMARK(f<tensafe::ckks::n16384_l4>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(f<tensafe::ckks::n16384_l5>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(f<tensafe::ckks::n32768_l4>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(f<tensafe::ckks::n32768_l5>)->Unit(benchmark::kMicrosecond)

/// Forces a back-end for the length of a scope.
class forced_backend {
  public:
    explicit forced_backend(tensafe::exec::backend b) : before_(tensafe::exec::active_backend()) {
        tensafe::exec::use_backend(b);
    }
    ~forced_backend() { tensafe::exec::use_backend(before_); }
    forced_backend(const forced_backend&) = delete;
    forced_backend& operator=(const forced_backend&) = delete;

  private:
    tensafe::exec::backend before_;
};

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

/// A rows x columns with normal entries, rows of norm about 1; the same in every run.
inline tensafe::lora::matrix random_matrix(std::size_t rows, std::size_t columns, unsigned seed) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(columns)));
    tensafe::lora::matrix m(rows, columns);
    for (float& x : m.values) {
        x = normal(engine);
    }
    return m;
}

/// A limb of residues modulo q that look random; the same in every run.
inline tensafe::memory::buffer<tensafe::arith::word> mixed_residues(std::size_t size,
                                                                    tensafe::arith::word q) {
    tensafe::memory::buffer<tensafe::arith::word> limb(size);
    for (std::size_t i = 0; i < size; ++i) {
        limb[i] = tensafe::arith::multiply_mod(i + 1, 0x9e3779b97f4a7c15, q);
    }
    return limb;
}

/// The column ns_per_butterfly of a transform: the time over N/2 * log2(N).
inline void count_butterflies(benchmark::State& state, int log_n) {
    const double butterflies = std::ldexp(log_n, log_n - 1);
    state.counters["ns_per_butterfly"] = benchmark::Counter(
        butterflies * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

/// Words the operation reads and writes, for the bytes-per-second column.
inline void count_bytes(benchmark::State& state, std::size_t words) {
    state.SetBytesProcessed(state.iterations() *
                            static_cast<std::int64_t>(words * sizeof(tensafe::arith::word)));
}

}  // namespace bench
