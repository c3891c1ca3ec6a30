#pragma once

#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/rotate.hpp>
#include <tensafe/wire/ciphertext.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

#include "common.hpp"

/// What every library of CKKS does, at the top level of a set, under a secret key.
namespace bench {

namespace ckks = tensafe::ckks;
using slots = std::vector<std::complex<double>>;

/// The column error: the largest difference to f of a slot's number.
template <class F>
void count_error(benchmark::State& state, const slots& got, std::size_t size, F f) {
    double error = 0;
    for (std::size_t j = 0; j < size; ++j) {
        const double apart = std::abs(got[j] - f(j));
        error = apart <= error ? error : apart;  // NaN too
    }
    state.counters["error"] = error;
}

template <class P>
struct client {
    tensafe::random::generator generator;
    ckks::secret_key<P> secret{generator};
    ckks::relinearization_key<P> relinearization{secret, generator};
    ckks::galois_keys<P, ckks::rotations<1>> galois{secret, generator};
    slots x = random_slots<P>();
    ckks::ciphertext<P> a = ckks::expand(ckks::encrypt(secret, ckks::encode_slots<P>(x), generator));

    template <class Ciphertext, class F>
    void count_error(benchmark::State& state, const Ciphertext& c, F f) const {
        bench::count_error(state, ckks::decrypt_slots(secret, c), P::slots, f);
    }
};

template <class P>
void encode_encrypt(benchmark::State& state) {
    client<P> c;
    for (auto _ : state) {
        benchmark::DoNotOptimize(ckks::encrypt(c.secret, ckks::encode_slots<P>(c.x), c.generator));
    }
    state.counters["bytes"] = static_cast<double>(tensafe::wire::seeded_ciphertext_bytes<P, P::limbs - 1>);
}

/// Not rescaled. The copy that is multiplied is part of the time.
template <class P>
void multiply_plain(benchmark::State& state) {
    const client<P> c;
    const auto weights = ckks::forward(ckks::encode_slots<P>(c.x));
    auto product = c.a;
    for (auto _ : state) {
        product = c.a;
        ckks::multiply_plain(product, weights);
        benchmark::ClobberMemory();
    }
    c.count_error(state, ckks::rescale(product), [&](std::size_t j) { return c.x[j] * c.x[j]; });
}

template <class P>
void multiply_rescale(benchmark::State& state) {
    const client<P> c;
    for (auto _ : state) {
        benchmark::DoNotOptimize(ckks::multiply_rescale(c.a, c.a, c.relinearization));
    }
    c.count_error(state, ckks::multiply_rescale(c.a, c.a, c.relinearization),
                  [&](std::size_t j) { return c.x[j] * c.x[j]; });
}

template <class P>
void rotate(benchmark::State& state) {
    const client<P> c;
    for (auto _ : state) {
        benchmark::DoNotOptimize(ckks::rotate<1>(c.a, c.galois));
    }
    c.count_error(state, ckks::rotate<1>(c.a, c.galois),
                  [&](std::size_t j) { return c.x[(j + 1) % P::slots]; });
}

template <class P>
void decrypt_decode(benchmark::State& state) {
    const client<P> c;
    for (auto _ : state) {
        benchmark::DoNotOptimize(ckks::decrypt_slots(c.secret, c.a));
    }
    c.count_error(state, c.a, [&](std::size_t j) { return c.x[j]; });
}

}  // namespace bench
