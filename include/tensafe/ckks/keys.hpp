#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/samplers.hpp>
#include <tensafe/rns/pointwise.hpp>
#include <tensafe/rns/poly.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace tensafe::ckks {

/// Adds small signed coefficients to a polynomial. Time does not depend on them.
template <class Basis, class R>
void add_small(std::span<const std::int8_t> coefficients,
               rns::poly<Basis, rns::coefficient_form, memory::host_space, R>& p) noexcept {
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        rns::limb::add_small(rns::modulus_of<q>(q), p.template limb<I>(), coefficients);
    });
}

/// The transform of a secret polynomial of small coefficients, in memory that is overwritten.
template <class Basis>
rns::secret_poly<Basis, rns::evaluation_form> transform_of_small(
    std::span<const std::int8_t> coefficients,
    rns::secret_poly<Basis, rns::coefficient_form> p =
        rns::secret_poly<Basis, rns::coefficient_form>(memory::uninitialized)) {
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        const auto limb = p.template limb<I>();
        const auto& plan = rns::shared_plan<Basis::log_n, q>();
        if (!plan.vector_tables().template transform<ntt::direction::forward>(coefficients.data(),
                                                                              limb.data())) {
            rns::limb::set_small(rns::modulus_of<q>(q), limb, coefficients);
            ntt::forward(plan, limb);
        }
    });
    return rns::secret_poly<Basis, rns::evaluation_form>(std::move(p).take());
}

/// The client's only secret: a uniform ternary polynomial, in evaluation form modulo the whole chain and as
/// small integers. Move-only; wiped on release. Thread-safe for concurrent reads.
template <parameter_set P>
class secret_key {
  public:
    /// Draws a fresh key, from one seed of the generator.
    explicit secret_key(random::generator& generator) : secret_key(fresh(generator)) {}

    /// Makes the key that a seed stands for: 32 secret bytes to store, used for nothing else.
    /// @throws parameter_error if all bytes are 0: a seed that was never filled
    explicit secret_key(const random::seed& seed) : secret_key(expand(checked(seed))) {}

    /// Makes the key with the given coefficients, for known-answer tests and for keys made elsewhere.
    /// @throws shape_error unless there are N of them; parameter_error if one is not -1, 0 or 1
    explicit secret_key(std::span<const std::int8_t> ternary)
        : value_(lift(ternary)), ternary_(ternary.size(), memory::uninitialized) {
        std::copy(ternary.begin(), ternary.end(), ternary_.begin());
    }

    secret_key(secret_key&&) noexcept = default;
    secret_key& operator=(secret_key&&) noexcept = default;
    secret_key(const secret_key&) = delete;  // one owner: move it, or lend it by const reference
    secret_key& operator=(const secret_key&) = delete;

    const rns::secret_poly<typename P::basis, rns::evaluation_form>& value() const noexcept { return value_; }
    /// Its N coefficients, each -1, 0 or 1. As secret as the key.
    std::span<const std::int8_t> coefficients() const noexcept { return ternary_.span(); }
    /// The words by which random::generator::hedge knows the key; they are as secret as the key.
    std::span<const arith::word> identity() const noexcept { return value_.template limb<0>().first(8); }

  private:
    using form = rns::secret_poly<typename P::basis, rns::evaluation_form>;

    static const random::seed& checked(const random::seed& seed) {
        std::uint8_t any = 0;
        for (const std::uint8_t byte : seed.bytes) {
            any |= byte;
        }
        if (any == 0) {
            throw parameter_error("secret_key: got a seed of zeros, expected 32 secret bytes");
        }
        return seed;
    }
    static memory::secret_buffer<std::int8_t> expand(const random::seed& seed) {
        memory::secret_buffer<std::int8_t> ternary(P::degree, memory::uninitialized);
        random::sample_ternary(seed, random::stream_domain::secret_key, 0, ternary.span());
        return ternary;
    }
    static memory::secret_buffer<std::int8_t> fresh(random::generator& generator) {
        random::seed seed = generator.next_seed();
        memory::wipe_guard guard(seed);
        return expand(seed);
    }
    explicit secret_key(const memory::secret_buffer<std::int8_t>& ternary) : secret_key(ternary.span()) {}

    static form lift(std::span<const std::int8_t> ternary) {
        check_count("secret_key: got ", ternary.size(), " coefficients, expected N = ", P::degree);
        bool valid = true;
        for (const std::int8_t t : ternary) {
            valid &= t >= -1 && t <= 1;
        }
        if (!valid) {
            throw parameter_error("secret_key: every coefficient must be -1, 0 or 1");
        }
        return transform_of_small<typename P::basis>(ternary);
    }

    form value_;
    memory::secret_buffer<std::int8_t> ternary_;
};

namespace detail {

/// The uniform half `a` of a public key, which its seed stands for.
template <class Basis>
rns::poly<Basis, rns::evaluation_form> expand_public_key(const random::seed& seed) {
    rns::poly<Basis, rns::evaluation_form> a(memory::uninitialized);
    expand_uniform(seed, random::stream_domain::public_key, a);
    return a;
}

/// The public half b = e - a*s that belongs to `a`, with a fresh error. Takes one fresh seed.
template <int Level, parameter_set P>
rns::poly<typename P::template basis_at<Level>, rns::evaluation_form> hide_with_error(
    const rns::poly<typename P::template basis_at<Level>, rns::evaluation_form>& a, const secret_key<P>& s,
    random::generator& generator) {
    using basis = typename P::template basis_at<Level>;
    const auto hedging = generator.hedge(a.template limb<0>().first(8), s.identity());
    random::seed seed = generator.next_seed();
    memory::wipe_guard guard(seed);
    memory::secret_buffer<std::int8_t> error(P::degree, memory::uninitialized);
    random::sample_error(seed, random::stream_domain::error, 0, error.span());
    // a is public, so a*s without the error is as secret as s: it is never written down.
    auto b = transform_of_small<basis>(error.span());
    rns::for_each_limb<basis>([&]<int I>() {
        rns::limb::subtract_product(rns::variable_arithmetic<basis::template prime<I>>, b.template limb<I>(),
                                    a.template limb<I>(), s.value().template limb<I>(), b.template limb<I>());
    });
    return rns::poly<basis, rns::evaluation_form>(std::move(b).take().declassify());
}

}  // namespace detail

/// An encryption of zero that lets anybody encrypt: (b, a) with b = e - a*s, `a` expanded from a seed.
///
/// Immutable; safe to share between threads.
template <parameter_set P>
class public_key {
  public:
    using form = rns::poly<typename P::basis, rns::evaluation_form>;

    public_key(const secret_key<P>& s, random::generator& generator)
        : seed_(generator.next_nonce()),
          a_(detail::expand_public_key<typename P::basis>(seed_)),
          b_(detail::hide_with_error<P::max_level>(a_, s, generator)) {}
    /// Makes the key that was sent: `a` is expanded again. wire::read_public_key reads one from bytes.
    /// @pre  each residue of b is below its prime
    public_key(const random::seed& seed, form b)
        : seed_(seed), a_(detail::expand_public_key<typename P::basis>(seed_)), b_(std::move(b)) {}

    const form& b() const noexcept { return b_; }
    const form& a() const noexcept { return a_; }
    /// The seed of `a`, which is lane I of its public_key stream for limb I.
    const random::seed& seed() const noexcept { return seed_; }

  private:
    random::seed seed_;
    form a_;
    form b_;
};

}  // namespace tensafe::ckks
