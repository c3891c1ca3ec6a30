#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/samplers.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/limb_sums.hpp>
#include <tensafe/rns/limb_table.hpp>
#include <tensafe/rns/poly.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensafe::ckks {

namespace detail {

/// The limbs of a set's evaluation keys: the chain, then the special primes. Thread-safe.
template <parameter_set P>
rns::limb_table key_limbs() {
    static const auto limbs = [] {
        std::array<const rns::limb_operations*, P::basis::primes.size() + P::special_primes.size()> result{};
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            ((result[I] = &rns::shared_operations<P::log_n, P::basis::primes[I]>()), ...);
        }
        (std::make_index_sequence<P::basis::primes.size()>{});
        [&]<std::size_t... J>(std::index_sequence<J...>) {
            ((result[P::limbs + J] = &rns::shared_operations<P::log_n, P::special_primes[J]>()), ...);
        }
        (std::make_index_sequence<P::special_primes.size()>{});
        return result;
    }();
    return limbs;
}

/// The words of a key as key switching reads them: for each limb N/8 blocks, of `digits` times eight residues
/// of b and eight of a.
struct key_words {
    std::span<const arith::word> words;
    std::size_t chain;   ///< limbs of the key's chain; special ones follow
    std::size_t digits;  ///< of the key: a ciphertext of a lower level has fewer
    std::size_t degree;

    const arith::word* row(std::size_t limb) const noexcept {
        return words.data() + limb * 2 * digits * degree;
    }
    /// Copies a limb of b, or of a where `half` is 1, of one digit.
    void copy(std::size_t digit, std::size_t limb, std::size_t half,
              std::span<arith::word> to) const noexcept {
        constexpr std::size_t pairs = rns::limb::interleaved_pairs;
        const arith::word* from = row(limb) + (2 * digit + half) * pairs;
        for (std::size_t k = 0; k < degree; k += pairs, from += 2 * digits * pairs) {
            std::copy_n(from, pairs, to.data() + k);
        }
    }
};

/// The sizes by which the words and the streams of a key are numbered.
struct key_shape {
    std::size_t degree;
    std::size_t digits;
    std::size_t chain;         ///< limbs of the key's chain; special ones follow
    std::size_t chain_of_set;  ///< limbs of the set's chain; special ones follow
    std::size_t limbs_of_set;  ///< special ones too

    /// Draws a limb of a of one digit, in evaluation form: a lane of the seed's evaluation_key stream.
    void expand(const random::seed& seed, std::size_t digit, std::size_t limb, arith::word q,
                std::span<arith::word> a) const {
        const std::size_t number = limb < chain ? limb : limb - chain + chain_of_set;
        random::sample_uniform(seed, random::stream_domain::evaluation_key,
                               static_cast<std::uint32_t>(digit * limbs_of_set + number), q, a);
    }
    /// Writes a limb of b and of a of one digit to their places among the words of a key.
    void interleave(std::size_t digit, std::size_t limb, const arith::word* b, const arith::word* a,
                    std::span<arith::word> words) const noexcept {
        constexpr std::size_t pairs = rns::limb::interleaved_pairs;
        arith::word* to = words.data() + limb * 2 * digits * degree + digit * 2 * pairs;
        for (std::size_t k = 0; k < degree; k += pairs, to += 2 * digits * pairs) {
            std::copy_n(b + k, pairs, to);
            std::copy_n(a + k, pairs, to + pairs);
        }
    }
};

/// What makes an evaluation key.
struct key_recipe {
    key_shape shape;
    rns::limb_table chain;
    rns::limb_table special;
    std::size_t per_digit;
    std::span<const std::int8_t> secret;  ///< under which ciphertexts are afterwards
};

/// The small secret modulo one prime, in evaluation form.
inline void lift_secret(const rns::limb_operations& limb, std::span<const std::int8_t> secret,
                        std::span<arith::word> out) noexcept {
    limb.set_small(out, secret);
    limb.forward(out);
}

/// Writes b = e + g s' - a s for each digit, and a beside it: g is P modulo the primes of the digit, else 0.
/// @param seed  of a
/// @param from  called as from(limb, out): writes s' modulo a limb of the chain, in evaluation form
template <class From>
void write_key(const key_recipe& of, const random::seed& seed, random::generator& generator,
               std::span<arith::word> out, From from) {
    const std::size_t n = of.shape.degree;
    const std::size_t digits = of.shape.digits;
    memory::secret_buffer<std::int8_t> errors(digits * n, memory::uninitialized);
    for (std::size_t d = 0; d < digits; ++d) {
        random::seed error_seed = generator.next_seed();
        memory::wipe_guard guard(error_seed);
        random::sample_error(error_seed, random::stream_domain::error, 0, errors.span().subspan(d * n, n));
    }
    memory::secret_buffer<arith::word> secret(n, memory::uninitialized);
    memory::secret_buffer<arith::word> source(n, memory::uninitialized);
    memory::secret_buffer<arith::word> b(n, memory::uninitialized);
    memory::buffer<arith::word> a(n, memory::uninitialized);
    for (std::size_t m = 0; m < of.chain.size() + of.special.size(); ++m) {
        const bool is_special = m >= of.chain.size();
        const rns::limb_operations& limb = is_special ? *of.special[m - of.chain.size()] : *of.chain[m];
        const arith::word q = limb.prime();
        lift_secret(limb, of.secret, secret.span());
        for (std::size_t d = 0; d < digits; ++d) {
            of.shape.expand(seed, d, m, q, a.span());
            lift_secret(limb, errors.span().subspan(d * n, n), b.span());
            limb.subtract_product(b.span(), a.data(), secret.data(), b.data());
            if (!is_special && m / of.per_digit == d) {
                arith::word p = 1;
                for (const rns::limb_operations* const each : of.special) {
                    p = arith::multiply_mod(p, each->prime() % q, q);
                }
                from(limb, source.span());
                limb.scale(source.span(), source.data(), p);
                limb.add(b.span(), b.data(), source.data());
            }
            of.shape.interleave(d, m, b.data(), a.data(), out);
        }
    }
}

template <parameter_set P, std::size_t... I, std::size_t... J>
auto key_basis(std::index_sequence<I...>, std::index_sequence<J...>)
    -> rns::basis<P::log_n, P::basis::primes[I]..., P::special_primes[J]...>;

}  // namespace detail

/// A key that turns what is encrypted under one secret into the same under another: encryptions of P s' for
/// each digit of ciphertexts of up to `Level`, with uniform halves that a seed stands for. Whoever has it
/// learns nothing of either secret, assuming RLWE, and circular security where s' depends on s, as it does in
/// relinearization and Galois keys.
///
/// 16 N bytes for each digit and limb, special ones too. Immutable; thread-safe.
template <parameter_set P, int Level = P::max_level>
class evaluation_key {
    static_assert(P::switches_keys,
                  "ckks: this parameter set switches no keys; take one with key_switching<...>, as "
                  "n16384_depth5");
    static_assert(Level >= 0 && Level <= P::max_level,
                  "ckks::evaluation_key: the parameter set has no such level");

    static constexpr std::size_t chain = static_cast<std::size_t>(Level + 1);
    static constexpr std::size_t special = static_cast<std::size_t>(P::template special_limbs<Level>);

  public:
    /// The primes of the chain up to `Level`, then the special ones that the level needs.
    using basis = decltype(detail::key_basis<P>(std::make_index_sequence<chain>{},
                                                std::make_index_sequence<special>{}));
    using polynomial = rns::poly<basis, rns::evaluation_form>;
    static constexpr std::size_t digits = (chain + P::primes_per_digit - 1) / P::primes_per_digit;

    /// Makes a key from s' to the secret with the coefficients `to`, with seeds of `generator`: one, and one
    /// for each digit.
    /// @param purpose  a number that says what s' and `to` are, another one for other secrets of one `key`
    /// @param from     called as from(limb, out) for each limb of the chain: writes s' modulo its prime, in
    ///        evaluation form
    template <class From>
    evaluation_key(const secret_key<P>& key, arith::word purpose, std::span<const std::int8_t> to,
                   random::generator& generator, From from)
        : words_(words_of_a_key, memory::uninitialized) {
        check_count("evaluation_key: got ", to.size(),
                    " coefficients of the secret, expected N = ", P::degree);
        const auto hedging = generator.hedge(distinction(purpose), key.identity());
        seed_ = generator.next_nonce();
        const rns::limb_table all = detail::key_limbs<P>();
        detail::write_key({shape, all.first(chain), all.subspan(P::limbs, special),
                           static_cast<std::size_t>(P::primes_per_digit), to},
                          seed_, generator, words_.span(), from);
    }

    /// Makes the key that was sent: a is expanded again. wire/evaluation_key.hpp reads one from bytes.
    /// @param b  of each digit
    /// @pre  each residue of b is below its prime
    /// @throws shape_error unless there is one for each digit
    evaluation_key(const random::seed& seed, std::span<const polynomial> b)
        : seed_(seed), words_(words_of_a_key, memory::uninitialized) {
        check_count("evaluation_key: got ", b.size(), " polynomials b, expected one a digit: ", digits);
        memory::buffer<arith::word> a(P::degree, memory::uninitialized);
        for (std::size_t d = 0; d < digits; ++d) {
            for (std::size_t m = 0; m < limbs; ++m) {
                shape.expand(seed, d, m, basis::primes[m], a.span());
                shape.interleave(d, m, b[d].words().data() + m * P::degree, a.data(), words_.span());
            }
        }
    }

    /// The seed of the uniform halves: lane digit * (limbs of Q and P) + limb of its evaluation_key stream.
    const random::seed& seed() const noexcept { return seed_; }
    detail::key_words words() const noexcept { return {words_.span(), chain, digits, P::degree}; }
    /// A copy of b of one digit: with the seed, it makes the key.
    /// @pre  digit < digits
    polynomial b(std::size_t digit) const {
        polynomial result(memory::uninitialized);
        for (std::size_t m = 0; m < limbs; ++m) {
            words().copy(digit, m, 0, result.mutable_words().subspan(m * P::degree, P::degree));
        }
        return result;
    }

  private:
    static constexpr std::size_t limbs = chain + special;
    static constexpr std::size_t words_of_a_key = 2 * digits * limbs * P::degree;
    static constexpr detail::key_shape shape{P::degree, digits, chain, P::basis::primes.size(),
                                             P::basis::primes.size() + P::special_primes.size()};

    /// What tells this key from all others of a secret: no two may share their randomness.
    static auto distinction(arith::word purpose) noexcept {
        constexpr std::size_t all = P::basis::primes.size();
        std::array<arith::word, 3 + all + P::special_primes.size()> result{
            purpose, static_cast<arith::word>(Level), static_cast<arith::word>(P::primes_per_digit)};
        std::copy(P::basis::primes.begin(), P::basis::primes.end(), result.begin() + 3);
        std::copy(P::special_primes.begin(), P::special_primes.end(), result.begin() + 3 + all);
        return result;
    }

    random::seed seed_;
    memory::buffer<arith::word> words_;
};

}  // namespace tensafe::ckks
