// Decoding all slots of a plaintext in evaluation form: inverse NTT, CRT of every limb, slot transform; the
// slot transform alone.

#include <complex>
#include <vector>

#include "common.hpp"

namespace {

template <class P>
void decode_slots(benchmark::State& state) {
    const auto plaintext = tensafe::ckks::forward(tensafe::ckks::encode_slots<P>(bench::random_slots<P>()));
    for (auto _ : state) {
        benchmark::DoNotOptimize(tensafe::ckks::decode_slots(tensafe::ckks::inverse(plaintext)));
    }
    bench::count_bytes(state, P::degree * (1 + P::limbs));
}
TENSAFE_BENCH_PARAMETER_SETS(decode_slots);

template <class P>
void to_slots(benchmark::State& state) {
    const auto& transform = tensafe::encoding::shared_slot_transform(P::log_n);
    const std::vector<double> coefficients(P::degree, 0.75);
    std::vector<std::complex<double>> slots(P::slots);
    for (auto _ : state) {
        transform.to_slots(coefficients, slots);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, 2 * P::degree);
}
TENSAFE_BENCH_PARAMETER_SETS(to_slots);

}  // namespace
