// Rescaling a ciphertext at the top level.

#include "common.hpp"

namespace {

template <class P>
void rescale(benchmark::State& state) {
    tensafe::random::generator generator;
    const tensafe::ckks::secret_key<P> key(generator);
    const auto ciphertext = tensafe::ckks::expand(
        tensafe::ckks::encrypt(key, tensafe::ckks::encode_slots<P>(bench::random_slots<P>()), generator));
    for (auto _ : state) {
        benchmark::DoNotOptimize(tensafe::ckks::rescale(ciphertext));
    }
    bench::count_bytes(state, P::degree * (2 * P::limbs - 1) * 2);
}
TENSAFE_BENCH_PARAMETER_SETS(rescale);

}  // namespace
