// Decoding all slots of a plaintext in evaluation form: inverse NTT, CRT of every limb, slot transform.

#include "common.hpp"

namespace {

template <class P>
void decode_slots(benchmark::State& state) {
    const tensafe::exec::host here;
    const auto plaintext =
        tensafe::ckks::forward(here, tensafe::ckks::encode_slots<P>(here, bench::random_slots<P>()));
    for (auto _ : state) {
        benchmark::DoNotOptimize(tensafe::ckks::decode_slots(here, tensafe::ckks::inverse(here, plaintext)));
    }
    bench::count_bytes(state, P::degree * (1 + P::limbs));
}
TENSAFE_BENCH_PARAMETER_SETS(decode_slots);

}  // namespace
