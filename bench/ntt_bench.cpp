// The negacyclic NTT of one limb, by degree, limb width, arithmetic policy and schedule. ns_per_butterfly is
// the time over N/2 * log2(N).

#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/ntt/transform.hpp>

#include "common.hpp"

namespace {

namespace arith = tensafe::arith;
namespace ntt = tensafe::ntt;
using tensafe::exec::host;

template <template <class> class Policy, int Bits, class Schedule, bool Forward>
void transform(benchmark::State& state) {
    const int log_n = static_cast<int>(state.range(0));
    using modulus = arith::runtime_modulus<Bits>;
    const arith::word q = arith::ntt_prime_below(arith::word{1} << Bits, log_n);
    const ntt::plan<Policy<modulus>> plan(Policy<modulus>(modulus(q)), log_n);
    tensafe::memory::buffer<arith::word> limb(plan.degree());
    for (std::size_t i = 0; i < limb.size(); ++i) {
        limb[i] = arith::multiply_mod(i + 1, 0x9e3779b97f4a7c15, q);
    }
    for (auto _ : state) {
        if constexpr (Forward) {
            ntt::forward<Schedule>(host{}, plan, limb.span());
        } else {
            ntt::inverse<Schedule>(host{}, plan, limb.span());
        }
        benchmark::ClobberMemory();
    }
    const double butterflies = static_cast<double>(plan.degree()) / 2 * log_n;
    state.counters["ns_per_butterfly"] = benchmark::Counter(
        butterflies * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
    bench::count_bytes(state, 2 * plan.degree());
}

#define TENSAFE_BENCH_NTT(policy, bits, schedule)               \
    BENCHMARK(transform<policy, bits, schedule, true>)          \
        ->Name("ntt/forward/" #policy "/q" #bits "/" #schedule) \
        ->ArgName("log_n")                                      \
        ->Unit(benchmark::kMicrosecond)                         \
        ->DenseRange(11, 15, 1);                                \
    BENCHMARK(transform<policy, bits, schedule, false>)         \
        ->Name("ntt/inverse/" #policy "/q" #bits "/" #schedule) \
        ->ArgName("log_n")                                      \
        ->Unit(benchmark::kMicrosecond)                         \
        ->DenseRange(11, 15, 1)

using arith::barrett;
using arith::fp64;
using arith::montgomery;
using arith::shoup;
using ntt::all_fused;
using ntt::stage_by_stage;
using split_2 = ntt::split_stages<2>;
using split_4 = ntt::split_stages<4>;

TENSAFE_BENCH_NTT(shoup, 60, all_fused);
TENSAFE_BENCH_NTT(shoup, 60, split_2);
TENSAFE_BENCH_NTT(shoup, 60, split_4);
TENSAFE_BENCH_NTT(shoup, 60, stage_by_stage);
TENSAFE_BENCH_NTT(shoup, 50, all_fused);
TENSAFE_BENCH_NTT(shoup, 40, all_fused);
TENSAFE_BENCH_NTT(montgomery, 60, all_fused);
TENSAFE_BENCH_NTT(barrett, 60, all_fused);
TENSAFE_BENCH_NTT(fp64, 49, all_fused);

}  // namespace
