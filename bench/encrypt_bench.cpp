// Encryption of an encoded message: under the secret key (seeded) and under the public key. Copying the
// message, which encryption uses up, is part of the time.

#include "common.hpp"

namespace {

namespace ckks = tensafe::ckks;

template <class P>
void encrypt_secret_key(benchmark::State& state) {
    tensafe::random::generator generator;
    const ckks::secret_key<P> key(generator);
    const auto message = ckks::encode_slots<P>(bench::random_slots<P>());
    for (auto _ : state) {
        benchmark::DoNotOptimize(ckks::encrypt(key, message, generator));
    }
    bench::count_bytes(state, P::degree * P::limbs * 2);
}

template <class P>
void encrypt_public_key(benchmark::State& state) {
    tensafe::random::generator generator;
    const ckks::public_key<P> key(ckks::secret_key<P>(generator), generator);
    const auto message = ckks::encode_slots<P>(bench::random_slots<P>());
    for (auto _ : state) {
        benchmark::DoNotOptimize(ckks::encrypt(key, message, generator));
    }
    bench::count_bytes(state, P::degree * P::limbs * 5);
}

/// The uniform half of a seeded ciphertext, from its seed.
template <class P>
void expand_seed(benchmark::State& state) {
    const tensafe::random::seed seed = tensafe::random::fresh_seed();
    tensafe::rns::poly<typename P::basis, tensafe::rns::evaluation_form> c1;
    for (auto _ : state) {
        ckks::expand_uniform(seed, tensafe::random::stream_domain::uplink, c1);
        benchmark::ClobberMemory();
    }
    bench::count_bytes(state, P::degree * P::limbs);
}

TENSAFE_BENCH_PARAMETER_SETS(encrypt_secret_key);
TENSAFE_BENCH_PARAMETER_SETS(encrypt_public_key);
TENSAFE_BENCH_PARAMETER_SETS(expand_seed);

}  // namespace
