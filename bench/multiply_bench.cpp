// Ciphertext times plaintext, in place: both polynomials, every limb.

#include "common.hpp"

namespace {

template <class P>
void multiply_plain(benchmark::State& state) {
    const tensafe::exec::host here;
    tensafe::random::generator generator;
    const tensafe::ckks::secret_key<P> key(generator);
    const auto message = tensafe::ckks::encode_slots<P>(here, bench::random_slots<P>());
    auto ciphertext = tensafe::ckks::expand(here, tensafe::ckks::encrypt(here, key, message, generator));
    const auto weights = tensafe::ckks::forward(here, message);
    for (auto _ : state) {
        tensafe::ckks::multiply_plain(here, ciphertext, weights);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, P::degree * P::limbs * 5);
}
TENSAFE_BENCH_PARAMETER_SETS(multiply_plain);

}  // namespace
