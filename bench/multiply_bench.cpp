// Ciphertext times plaintext, in place: both polynomials, every limb.

#include "common.hpp"

namespace {

template <class P>
void multiply_plain(benchmark::State& state) {
    tensafe::random::generator generator;
    const tensafe::ckks::secret_key<P> key(generator);
    const auto message = tensafe::ckks::encode_slots<P>(bench::random_slots<P>());
    auto ciphertext = tensafe::ckks::expand(tensafe::ckks::encrypt(key, message, generator));
    const auto weights = tensafe::ckks::forward(message);
    for (auto _ : state) {
        tensafe::ckks::multiply_plain(ciphertext, weights);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, P::degree * P::limbs * 5);
}
TENSAFE_BENCH_PARAMETER_SETS(multiply_plain);

}  // namespace
