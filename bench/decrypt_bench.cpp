// Decryption: all limbs to a plaintext in evaluation form, and the trace of two limbs to the 8 numbers that a
// rank-32 reply carries in one ciphertext.

#include "common.hpp"

namespace {

namespace ckks = tensafe::ckks;

template <class P>
ckks::ciphertext<P> sample(const ckks::secret_key<P>& key, tensafe::random::generator& generator) {
    return ckks::expand(ckks::encrypt(key, ckks::encode_slots<P>(bench::random_slots<P>()), generator));
}

template <class P>
void decrypt(benchmark::State& state) {
    tensafe::random::generator generator;
    const ckks::secret_key<P> key(generator);
    const auto ciphertext = sample(key, generator);
    for (auto _ : state) {
        benchmark::DoNotOptimize(ckks::decrypt(key, ciphertext));
    }
    bench::count_bytes(state, P::degree * P::limbs * 4);
}

template <class P>
void decrypt_trace(benchmark::State& state) {
    tensafe::random::generator generator;
    const ckks::secret_key<P> key(generator);
    const auto ciphertext = sample(key, generator);
    for (auto _ : state) {
        benchmark::DoNotOptimize(ckks::decode_trace(ckks::decrypt_trace<2>(key, ciphertext, 3)));
    }
    bench::count_bytes(state, P::degree * 2 * 3);
}

TENSAFE_BENCH_PARAMETER_SETS(decrypt);
TENSAFE_BENCH_PARAMETER_SETS(decrypt_trace);

}  // namespace
