// Slots, or the 1024 coefficients of a tile, to residues of every limb, coefficient form; the slot transform.

#include <vector>

#include "common.hpp"

namespace {

template <class P>
void encode_slots(benchmark::State& state) {
    const auto slots = bench::random_slots<P>();
    for (auto _ : state) {
        benchmark::DoNotOptimize(tensafe::ckks::encode_slots<P>(slots));
    }
    bench::count_bytes(state, P::degree * (1 + P::limbs));
}
TENSAFE_BENCH_PARAMETER_SETS(encode_slots);

template <class P>
void encode_coefficients(benchmark::State& state) {
    std::vector<double> values(1024, 0.75);
    for (auto _ : state) {
        benchmark::DoNotOptimize(tensafe::ckks::encode_coefficients<P>(values));
    }
    bench::count_bytes(state, values.size() + P::degree * P::limbs);
}
TENSAFE_BENCH_PARAMETER_SETS(encode_coefficients);

template <class P>
void to_coefficients(benchmark::State& state) {
    const auto& transform = tensafe::encoding::shared_slot_transform(P::log_n);
    const auto slots = bench::random_slots<P>();
    std::vector<double> coefficients(P::degree);
    for (auto _ : state) {
        transform.to_coefficients(slots, coefficients);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, 2 * P::degree);
}
TENSAFE_BENCH_PARAMETER_SETS(to_coefficients);

}  // namespace
