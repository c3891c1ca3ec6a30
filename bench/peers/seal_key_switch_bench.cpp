// Operations at the top level of our sets, SEAL's and ours; products of ciphertexts are relinearized and
// rescaled. SEAL has the chain of ours and one special prime. Before anything is timed, with the same primes
// for both, SEAL computes on our ciphertexts with our keys, and we on its ciphertexts.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <iostream>
#include <seal/seal.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "../operations.hpp"
#include "ratios.hpp"

namespace {

namespace ckks = tensafe::ckks;
using tensafe::arith::word;

/// SEAL with the chain of a set, and one special prime.
template <class P>
struct peer {
    static seal::EncryptionParameters parameters() {
        seal::EncryptionParameters p(seal::scheme_type::ckks);
        p.set_poly_modulus_degree(P::degree);
        std::vector<seal::Modulus> chain(P::basis::primes.begin(), P::basis::primes.end());
        chain.emplace_back(P::special_primes[0]);
        p.set_coeff_modulus(chain);
        return p;
    }

    seal::SEALContext context{parameters(), true, seal::sec_level_type::none};
    seal::KeyGenerator generator{context};
    seal::Evaluator evaluator{context};
    seal::CKKSEncoder encoder{context};

    seal::Ciphertext encrypt(const std::vector<std::complex<double>>& slots, const seal::SecretKey& secret) {
        seal::Plaintext encoded;
        encoder.encode(slots, P::scale, encoded);
        seal::Ciphertext result;
        seal::Encryptor(context, secret).encrypt_symmetric(encoded, result);
        return result;
    }
};

using with_one_special_prime = ckks::n8192_depth2;

/// Whether both understand each other's ciphertexts and SEAL our keys.
class interoperation {
    using P = with_one_special_prime;

  public:
    void check() {
        const auto slots = bench::random_slots<P>();
        const auto a = ckks::expand(ckks::encrypt(secret_, ckks::encode_slots<P>(slots), generator_));
        const auto exact = [&](auto f) {
            std::vector<std::complex<double>> result(P::slots);
            for (std::size_t j = 0; j < P::slots; ++j) {
                result[j] = f(j);
            }
            return result;
        };
        const auto squares = exact([&](std::size_t j) { return slots[j] * slots[j]; });
        const auto turned = exact([&](std::size_t j) { return slots[(j + 3) % P::slots]; });

        // Our ciphertext and our keys there. Its automorphism comes before the switch, so its keys are moved.
        seal::Ciphertext theirs = as_theirs(a);
        peer_.evaluator.square_inplace(theirs);
        peer_.evaluator.relinearize_inplace(theirs, relinearization_keys());
        peer_.evaluator.rescale_to_next_inplace(theirs);
        expect("SEAL's product with our key", squares, ckks::decrypt_slots(secret_, as_ours<1>(theirs)));
        theirs = as_theirs(a);
        const word exponent = galois_.find(3)->move.exponent();
        peer_.evaluator.apply_galois_inplace(theirs, static_cast<std::uint32_t>(exponent),
                                             galois_keys(exponent));
        expect("SEAL's rotation with our key", turned, ckks::decrypt_slots(secret_, as_ours<2>(theirs)));

        // What we computed, decrypted there, and its ciphertext here: the polynomial is what both agree on.
        const auto product = ckks::multiply_rescale(a, a, relinearization_);
        seal::Decryptor decryptor(peer_.context, secret_there());
        seal::Plaintext polynomial;
        decryptor.decrypt(as_theirs(product), polynomial);
        const auto here = ckks::decrypt(secret_, product);
        if (!std::equal(here.value.words().begin(), here.value.words().end(), polynomial.data())) {
            throw std::runtime_error("our product decrypts otherwise in SEAL");
        }
        const auto of_seal = as_ours<2>(peer_.encrypt(slots, secret_there()));
        const auto before = ckks::decrypt_slots(secret_, of_seal);
        const auto after = ckks::decrypt_slots(secret_, ckks::rotate<3>(of_seal, galois_));
        expect("our rotation of SEAL's ciphertext",
               exact([&](std::size_t j) { return before[(j + 3) % P::slots]; }), after);
        std::cout
            << "SEAL computes with our keys on our ciphertexts, decrypts what we computed, and we rotate its "
               "ciphertext: equal\n";
    }

  private:
    static void expect(const char* what, const std::vector<std::complex<double>>& expected,
                       const std::vector<std::complex<double>>& got) {
        double error = 0;
        for (std::size_t j = 0; j < expected.size(); ++j) {
            error = std::max(error, std::abs(expected[j] - got[j]));
        }
        if (!(error < 1e-4)) {
            throw std::runtime_error(std::string(what) + " is off by " + std::to_string(error));
        }
    }

    template <int Level>
    seal::Ciphertext as_theirs(const ckks::ciphertext<P, Level>& c) {
        auto context = peer_.context.first_context_data();
        while (context->parms().coeff_modulus().size() > Level + 1) {
            context = context->next_context_data();
        }
        seal::Ciphertext result(peer_.context, context->parms_id());
        result.resize(2);
        result.is_ntt_form() = true;
        result.scale() = c.scale;
        std::copy(c.c0.words().begin(), c.c0.words().end(), result.data(0));
        std::copy(c.c1.words().begin(), c.c1.words().end(), result.data(1));
        return result;
    }
    template <int Level>
    ckks::ciphertext<P, Level> as_ours(const seal::Ciphertext& c) {
        ckks::ciphertext<P, Level> result;
        std::copy_n(c.data(0), result.c0.words().size(), result.c0.mutable_words().data());
        std::copy_n(c.data(1), result.c1.words().size(), result.c1.mutable_words().data());
        result.scale = c.scale();
        return result;
    }

    seal::SecretKey secret_there() {
        seal::SecretKey result = peer_.generator.secret_key();
        const auto limbs = ckks::detail::key_limbs<P>();
        for (std::size_t m = 0; m < limbs.size(); ++m) {
            ckks::detail::lift_secret(*limbs[m], secret_.coefficients(),
                                      {result.data().data() + m * P::degree, P::degree});
        }
        return result;
    }

    /// Overwrites a key of SEAL's with ours, its values moved by X -> X^g.
    void write(const ckks::detail::key_words& key, word exponent, std::vector<seal::PublicKey>& to) {
        const tensafe::ntt::automorphism move(P::log_n, exponent);
        std::vector<word> limb(P::degree);
        for (std::size_t d = 0; d < key.digits; ++d) {
            for (std::size_t half = 0; half < 2; ++half) {
                for (std::size_t m = 0; m < key.digits + 1; ++m) {
                    for (std::size_t k = 0; k < P::degree; ++k) {
                        limb[k] = key.row(m)[((k / 8 * key.digits + d) * 2 + half) * 8 + k % 8];
                    }
                    move.apply(limb.data(), to[d].data().data(half) + m * P::degree);
                }
            }
        }
    }
    seal::RelinKeys relinearization_keys() {
        seal::RelinKeys keys;
        peer_.generator.create_relin_keys(keys);
        write(relinearization_.key().words(), 1, keys.data()[0]);
        return keys;
    }
    seal::GaloisKeys galois_keys(word exponent) {
        seal::GaloisKeys keys;
        peer_.generator.create_galois_keys(std::vector<std::uint32_t>{static_cast<std::uint32_t>(exponent)},
                                           keys);
        write(galois_.find(3)->key.words(), exponent,
              keys.data()[seal::GaloisKeys::get_index(static_cast<std::uint32_t>(exponent))]);
        return keys;
    }

    peer<P> peer_;
    tensafe::random::generator generator_;
    ckks::secret_key<P> secret_{generator_};
    ckks::relinearization_key<P> relinearization_{secret_, generator_};
    ckks::galois_keys<P, ckks::rotations<3>> galois_{secret_, generator_};
};

/// What SEAL computes with.
template <class P>
struct their_client {
    their_client() {
        of.generator.create_relin_keys(relinearization);
        of.generator.create_galois_keys(std::vector<int>{1}, galois);
        of.encoder.encode(x, P::scale, weights);
    }
    template <class F>
    void count_error(benchmark::State& state, const seal::Ciphertext& c, F f) {
        bench::slots got;
        decrypt(c, got);
        bench::count_error(state, got, P::slots, f);
    }
    void decrypt(const seal::Ciphertext& c, bench::slots& to) {
        seal::Plaintext plain;
        decryptor.decrypt(c, plain);
        of.encoder.decode(plain, to);
    }

    peer<P> of;
    bench::slots x = bench::random_slots<P>();
    seal::SecretKey secret = of.generator.secret_key();
    seal::Decryptor decryptor{of.context, secret};
    seal::RelinKeys relinearization;
    seal::GaloisKeys galois;
    seal::Plaintext weights;
    seal::Ciphertext a = of.encrypt(x, secret);
    seal::Ciphertext result;
};

template <class P>
void their_encode_encrypt(benchmark::State& state) {
    their_client<P> c;
    const seal::Encryptor encryptor(c.of.context, c.secret);
    for (auto _ : state) {
        c.of.encoder.encode(c.x, P::scale, c.weights);
        encryptor.encrypt_symmetric(c.weights, c.result);
        benchmark::DoNotOptimize(c.result.data());
    }
    state.counters["bytes"] =
        static_cast<double>(encryptor.encrypt_symmetric(c.weights).save_size(seal::compr_mode_type::none));
}

template <class P>
void their_multiply_plain(benchmark::State& state) {
    their_client<P> c;
    for (auto _ : state) {
        c.of.evaluator.multiply_plain(c.a, c.weights, c.result);
        benchmark::DoNotOptimize(c.result.data());
    }
    c.of.evaluator.rescale_to_next_inplace(c.result);
    c.count_error(state, c.result, [&](std::size_t j) { return c.x[j] * c.x[j]; });
}

template <class P>
void their_multiply_rescale(benchmark::State& state) {
    their_client<P> c;
    for (auto _ : state) {
        c.of.evaluator.multiply(c.a, c.a, c.result);
        c.of.evaluator.relinearize_inplace(c.result, c.relinearization);
        c.of.evaluator.rescale_to_next_inplace(c.result);
        benchmark::DoNotOptimize(c.result.data());
    }
    c.count_error(state, c.result, [&](std::size_t j) { return c.x[j] * c.x[j]; });
}

template <class P>
void their_rotate(benchmark::State& state) {
    their_client<P> c;
    for (auto _ : state) {
        c.of.evaluator.rotate_vector(c.a, 1, c.galois, c.result);
        benchmark::DoNotOptimize(c.result.data());
    }
    c.count_error(state, c.result, [&](std::size_t j) { return c.x[(j + 1) % P::slots]; });
}

template <class P>
void their_decrypt_decode(benchmark::State& state) {
    their_client<P> c;
    bench::slots got;
    for (auto _ : state) {
        c.decrypt(c.a, got);
        benchmark::DoNotOptimize(got.data());
    }
    c.count_error(state, c.a, [&](std::size_t j) { return c.x[j]; });
}

template <class P>
void add(const std::string& name) {
    const auto both = [&](const std::string& job, void (*ours)(benchmark::State&),
                          void (*theirs)(benchmark::State&)) {
        benchmark::RegisterBenchmark((job + "/" + name + "/tensafe").c_str(), ours)
            ->Unit(benchmark::kMicrosecond);
        benchmark::RegisterBenchmark((job + "/" + name + "/SEAL").c_str(), theirs)
            ->Unit(benchmark::kMicrosecond);
    };
    both("rotate", bench::rotate<P>, their_rotate<P>);
    both("multiply_rescale", bench::multiply_rescale<P>, their_multiply_rescale<P>);
    both("multiply_plain", bench::multiply_plain<P>, their_multiply_plain<P>);
    both("encode_encrypt", bench::encode_encrypt<P>, their_encode_encrypt<P>);
    both("decrypt_decode", bench::decrypt_decode<P>, their_decrypt_decode<P>);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        interoperation().check();
        add<ckks::n8192_depth2>("N:8192");
        add<ckks::n16384_depth5>("N:16384");
        add<ckks::n32768_depth10>("N:32768");
        benchmark::Initialize(&argc, argv);
        bench::ratio_reporter reporter;
        benchmark::RunSpecifiedBenchmarks(&reporter);
    } catch (const std::exception& e) {
        std::cerr << "seal_key_switch_bench: " << e.what() << '\n';
        return 1;
    }
}
