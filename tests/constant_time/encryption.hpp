#pragma once

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/rotate.hpp>
#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/ckks/trace.hpp>
#include <tensafe/encoding/norm.hpp>

#include "sampling.hpp"

namespace tests {

/// Both kinds of primes in one chain: 45 bits and 60.
using general = ckks::parameters<10, ckks::limb_bits<60, 45>, 40, ckks::insecure_for_tests>;

/// The same kinds, with a special prime.
using switching = ckks::parameters<10, ckks::limb_bits<60, 45>, 40, ckks::insecure_for_tests,
                                   ckks::key_switching<1, ckks::special_bits<61>>>;

template <class Basis, class Form, class R>
bool poly_secret(const rns::poly<Basis, Form, memory::host_space, R>& p) {
    return all_secret(p.words());
}

inline std::vector<double> secret_reals(std::size_t count) {
    std::vector<double> result(count, -0.75);
    make_secret(result);
    return result;
}

inline void check_encryption(program& p) {
    static constexpr std::size_t n = general::degree;

    p.check("secret_key from a seed", [] {
        const ckks::secret_key<general> key(secret_seed());
        return poly_secret(key.value());
    });
    random::generator generator;
    const ckks::secret_key<general> key(generator);
    entropy::next_are_public(1);
    p.check("public_key", [&] {
        const ckks::public_key<general> pair(key, generator);
        return poly_secret(pair.b());
    });
    const ckks::secret_key<switching> switched(generator);
    p.check("relinearization_key and galois_keys", [&] {
        const ckks::relinearization_key<switching> relinearization(switched, generator);
        const ckks::galois_keys<switching, ckks::rotations<3>, ckks::conjugation> galois(switched, generator);
        // The first block of b; that of a, behind it, is public.
        return all_secret(relinearization.key().words().words.first(8)) &&
               all_secret(galois.find(3)->key.words().words.first(8)) &&
               all_secret(galois.of_conjugation().key.words().words.first(8));
    });

    p.check("sum_of_squares", [] {
        std::vector<float> h(300, 0.5F);
        make_secret(h);
        return all_secret(std::array{encoding::sum_of_squares(std::span<const float>(h))});
    });
    p.check("encode_coefficients and decode_coefficients", [&] {
        const auto encoded = ckks::encode_coefficients<general>(secret_reals(n));
        std::vector<double> decoded(n - 3);
        encoding::decode_coefficients(encoded.value, encoded.scale, decoded);
        return poly_secret(encoded.value) && all_secret(decoded);
    });
    p.check("encode_slots and decode_slots", [&] {
        std::vector<std::complex<double>> slots(general::slots, {0.5, -0.25});
        make_secret(slots);
        const auto encoded = ckks::encode_slots<general>(slots);
        return poly_secret(encoded.value) && all_secret(ckks::decode_slots(encoded));
    });

    ckks::seeded_ciphertext<general, general::max_level> seeded;
    p.check("encrypt with the secret key", [&] {
        auto message = ckks::encode_coefficients<general>(secret_reals(n));
        seeded = ckks::encrypt(key, std::move(message), generator);
        return poly_secret(seeded.c0);
    });
    make_public(seeded.c0.words());
    p.check("decrypt", [&] { return poly_secret(ckks::decrypt(key, ckks::expand(seeded)).value); });
    p.check("decrypt_trace and decode_trace", [&] {
        bool reached = true;
        for (int log_n = 1; log_n <= general::log_n; ++log_n) {
            reached &= all_secret(
                ckks::decode_trace(ckks::decrypt_trace<general::limbs>(key, ckks::expand(seeded), log_n)));
        }
        return reached;
    });

    entropy::next_are_public(1);
    const ckks::public_key<general> pair(key, generator);
    make_public(pair.b().words());
    p.check("encrypt with the public key", [&] {
        auto message = ckks::encode_coefficients<general>(secret_reals(n));
        const auto c = ckks::encrypt(pair, std::move(message), generator);
        return poly_secret(c.c0) && poly_secret(c.c1);
    });
}

}  // namespace tests
