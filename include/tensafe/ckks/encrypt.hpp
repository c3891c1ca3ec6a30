#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/random/generator.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tensafe::ckks {

/// Secret-key encryption: c1 uniform from a fresh public seed, c0 = m + e - c1*s. The message and the error
/// go through one NTT together, in the memory of the message, which becomes c0. Every call takes two fresh
/// seeds.
template <parameter_set P, int Level>
seeded_ciphertext<P, Level> encrypt(exec::host where, const secret_key<P>& key,
                                    plaintext<P, rns::coefficient_form, Level> message,
                                    random::generator& generator) {
    using basis = typename P::template basis_at<Level>;
    random::seed error_seed = generator.next_seed();
    memory::wipe_guard guard(error_seed);
    memory::secret_buffer<std::int8_t> error(P::degree, memory::uninitialized);
    random::sample_centred_binomial(error_seed, random::stream_domain::error, 0, error.span());
    add_small(error.span(), message.value);
    auto hidden = rns::forward(where, std::move(message.value));

    const random::seed seed = generator.next_seed();
    memory::buffer<arith::word> c1(P::degree, memory::uninitialized);
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr arith::word q = basis::template prime<I>;
        constexpr auto policy = rns::variable_arithmetic<q>;
        random::sample_uniform(seed, random::stream_domain::uplink, static_cast<std::uint32_t>(I), q,
                               c1.span());
        arith::word* c0 = hidden.template limb<I>().data();
        const arith::word* s = key.value().template limb<I>().data();
        for (std::size_t k = 0; k < P::degree; ++k) {
            c0[k] = arith::subtract_if_not_below(
                c0[k] + q - policy.reduce_fully(arith::mul_wide(c1[k], s[k])), q);
        }
    });
    return {rns::poly<basis, rns::evaluation_form>(std::move(hidden).take().declassify()), seed,
            message.scale};
}

/// Public-key encryption: (b*v + e0 + m, a*v + e1) with a fresh ternary v. Every call takes one fresh seed.
template <parameter_set P, int Level>
ciphertext<P, Level> encrypt(exec::host where, const public_key<P>& key,
                             plaintext<P, rns::coefficient_form, Level> message,
                             random::generator& generator) {
    using basis = typename P::template basis_at<Level>;
    using secret = rns::secret_poly<basis, rns::coefficient_form>;
    using form = rns::poly<basis, rns::evaluation_form>;
    random::seed seed = generator.next_seed();
    memory::wipe_guard guard(seed);
    memory::secret_buffer<std::int8_t> small(P::degree, memory::uninitialized);
    const auto forward_of_small = [&](secret p) {
        add_small(small.span(), p);
        return rns::forward(where, std::move(p));
    };
    random::sample_ternary(seed, random::stream_domain::zero, 0, small.span());
    const auto v = forward_of_small({});
    random::sample_centred_binomial(seed, random::stream_domain::error, 0, small.span());
    const auto e0 = forward_of_small(std::move(message.value));
    random::sample_centred_binomial(seed, random::stream_domain::error, 1, small.span());
    const auto e1 = forward_of_small({});

    ciphertext<P, Level> result{form(memory::uninitialized), form(memory::uninitialized), message.scale};
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr auto policy = rns::variable_arithmetic<basis::template prime<I>>;
        const auto combine = [&](const auto& k_poly, const auto& e, auto& out) {
            const arith::word* k = k_poly.template limb<I>().data();
            const arith::word* x = v.template limb<I>().data();
            const arith::word* y = e.template limb<I>().data();
            arith::word* to = out.template limb<I>().data();
            for (std::size_t j = 0; j < P::degree; ++j) {
                to[j] = policy.reduce_fully(arith::mul_wide(k[j], x[j]) + y[j]);
            }
        };
        combine(key.b(), e0, result.c0);
        combine(key.a(), e1, result.c1);
    });
    return result;
}

/// c0 + c1*s: the message with its noise, at the ciphertext's scale.
template <parameter_set P, int Level>
plaintext<P, rns::evaluation_form, Level> decrypt(exec::host, const secret_key<P>& key,
                                                  const ciphertext<P, Level>& c) {
    using basis = typename P::template basis_at<Level>;
    plaintext<P, rns::evaluation_form, Level> result{{}, c.scale};
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr auto policy = rns::variable_arithmetic<basis::template prime<I>>;
        const arith::word* c0 = c.c0.template limb<I>().data();
        const arith::word* c1 = c.c1.template limb<I>().data();
        const arith::word* s = key.value().template limb<I>().data();
        arith::word* m = result.value.template limb<I>().data();
        for (std::size_t k = 0; k < P::degree; ++k) {
            m[k] = policy.reduce_fully(arith::mul_wide(c1[k], s[k]) + c0[k]);
        }
    });
    return result;
}

}  // namespace tensafe::ckks
