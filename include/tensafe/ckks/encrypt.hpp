#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/rns/limb.hpp>

#include <complex>
#include <cstdint>
#include <utility>
#include <vector>

namespace tensafe::ckks {

/// Memory for encryptions, kept by the caller. Holds no secret between calls.
template <parameter_set P>
struct encryption_workspace {
    memory::secret_buffer<std::int8_t> error{P::degree, memory::uninitialized};
    memory::buffer<arith::word> c1{P::degree, memory::uninitialized};
};

/// Computes c0 of a secret-key encryption, m + e - c1*s, in the memory of the message; c1 is the uniform
/// polynomial that the lanes first_lane + I of a public seed stand for. One NTT for each limb. Takes one
/// fresh seed; allocates nothing.
/// @pre no other encryption under any key has used these lanes of the seed
template <parameter_set P, class Basis>
rns::secret_poly<Basis, rns::evaluation_form> encrypt_c0(
    const secret_key<P>& key, rns::secret_poly<Basis, rns::coefficient_form> message,
    random::generator& generator, const random::seed& seed, std::uint32_t first_lane,
    encryption_workspace<P>& work) {
    random::seed error_seed = generator.next_seed();
    memory::wipe_guard guard(error_seed);
    random::sample_error(error_seed, random::stream_domain::error, 0, work.error.span());
    add_small(work.error.span(), message);
    memory::wipe(work.error.data(), work.error.size());
    auto hidden = rns::forward(std::move(message));
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        random::sample_uniform<q>(seed, random::stream_domain::uplink,
                                  first_lane + static_cast<std::uint32_t>(I), work.c1.span());
        const auto c0 = hidden.template limb<I>();
        rns::limb::subtract_product(rns::variable_arithmetic<q>, c0, work.c1.span(),
                                    key.value().template limb<I>(), c0);
    });
    return hidden;
}

/// Encrypts with the secret key and a seed of its own. Every call takes two fresh seeds.
template <parameter_set P, int Level>
seeded_ciphertext<P, Level> encrypt(const secret_key<P>& key,
                                    plaintext<P, rns::coefficient_form, Level> message,
                                    random::generator& generator) {
    const double scale = message.scale;
    const auto hedging = generator.hedge(message.value.words(), key.identity());
    const random::seed seed = generator.next_nonce();
    encryption_workspace<P> work;
    auto c0 = encrypt_c0(key, std::move(message.value), generator, seed, 0, work);
    return {rns::poly<typename P::template basis_at<Level>, rns::evaluation_form>(
                std::move(c0).take().declassify()),
            seed, scale};
}

/// Public-key encryption (b*v + e0 + m, a*v + e1) with a fresh ternary v. Every call takes one fresh seed.
template <parameter_set P, int Level>
ciphertext<P, Level> encrypt(const public_key<P>& key, plaintext<P, rns::coefficient_form, Level> message,
                             random::generator& generator) {
    using basis = typename P::template basis_at<Level>;
    using form = rns::poly<basis, rns::evaluation_form>;
    const auto hedging = generator.hedge(message.value.words(), key.b().words());
    random::seed seed = generator.next_seed();
    memory::wipe_guard guard(seed);
    memory::secret_buffer<std::int8_t> small(P::degree, memory::uninitialized);
    random::sample_ternary(seed, random::stream_domain::zero, 0, small.span());
    const auto v = transform_of_small<basis>(small.span());
    random::sample_error(seed, random::stream_domain::error, 0, small.span());
    add_small(small.span(), message.value);
    const auto e0 = rns::forward(std::move(message.value));
    random::sample_error(seed, random::stream_domain::error, 1, small.span());
    const auto e1 = transform_of_small<basis>(small.span());

    ciphertext<P, Level> result{form(memory::uninitialized), form(memory::uninitialized), message.scale};
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr auto policy = rns::variable_arithmetic<basis::template prime<I>>;
        rns::limb::multiply_add(policy, result.c0.template limb<I>(), key.b().template limb<I>(),
                                v.template limb<I>(), e0.template limb<I>());
        rns::limb::multiply_add(policy, result.c1.template limb<I>(), key.a().template limb<I>(),
                                v.template limb<I>(), e1.template limb<I>());
    });
    return result;
}

template <class Key, parameter_set P, class F, int L>
void encrypt(const Key&, plaintext<P, F, L>, random::generator&) = delete;  // inverse() it first

/// Decrypts to c0 + c1*s: the message with its noise, at the ciphertext's scale. Whoever publishes decrypted
/// values publishes their noise, and with enough of it the key: keep them, or flood them first (Li and
/// Micciancio, 2021).
template <parameter_set P, int Level>
plaintext<P, rns::evaluation_form, Level> decrypt(const secret_key<P>& key, const ciphertext<P, Level>& c) {
    using basis = typename P::template basis_at<Level>;
    plaintext<P, rns::evaluation_form, Level> result{
        rns::secret_poly<basis, rns::evaluation_form>(memory::uninitialized), c.scale};
    rns::for_each_limb<basis>([&]<int I>() {
        rns::limb::multiply_add(rns::variable_arithmetic<basis::template prime<I>>,
                                result.value.template limb<I>(), c.c1.template limb<I>(),
                                key.value().template limb<I>(), c.c0.template limb<I>());
    });
    return result;
}

/// The N/2 slots of a ciphertext: decrypt, inverse and decode_slots in one call.
template <parameter_set P, int Level>
std::vector<std::complex<double>> decrypt_slots(const secret_key<P>& key, const ciphertext<P, Level>& c) {
    return decode_slots(inverse(decrypt(key, c)));
}

}  // namespace tensafe::ckks
