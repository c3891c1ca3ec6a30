// Slot encoding: slots to residues of every limb, coefficient form.

#include "common.hpp"

namespace {

template <class P>
void encode_slots(benchmark::State& state) {
    const auto slots = bench::random_slots<P>();
    for (auto _ : state) {
        benchmark::DoNotOptimize(tensafe::ckks::encode_slots<P>(tensafe::exec::host{}, slots));
    }
    bench::count_bytes(state, P::degree * (1 + P::limbs));
}
TENSAFE_BENCH_PARAMETER_SETS(encode_slots);

}  // namespace
