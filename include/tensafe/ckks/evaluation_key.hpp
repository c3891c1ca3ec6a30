#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/samplers.hpp>
#include <tensafe/rns/limb_table.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

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
};

/// What makes an evaluation key.
struct key_recipe {
    rns::limb_table chain;
    rns::limb_table special;
    std::size_t first_special;  ///< the number of the first special limb in streams
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
/// @param seed  of a: lane d * (limbs of the set) + limb of its evaluation_key stream
/// @param from  called as from(limb, out): writes s' modulo a limb of the chain, in evaluation form
template <class From>
void write_key(const key_recipe& of, const random::seed& seed, std::size_t limbs_of_set,
               random::generator& generator, std::span<arith::word> out, From from) {
    const std::size_t n = of.chain.front()->degree();
    const std::size_t digits = (of.chain.size() + of.per_digit - 1) / of.per_digit;
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
            const std::size_t lane =
                d * limbs_of_set + (is_special ? of.first_special + m - of.chain.size() : m);
            random::sample_uniform(seed, random::stream_domain::evaluation_key,
                                   static_cast<std::uint32_t>(lane), q, a.span());
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
            arith::word* to = out.data() + m * 2 * digits * n + d * 2 * rns::limb::interleaved_pairs;
            for (std::size_t k = 0; k < n; k += rns::limb::interleaved_pairs) {
                std::copy_n(b.data() + k, rns::limb::interleaved_pairs, to);
                std::copy_n(a.data() + k, rns::limb::interleaved_pairs, to + rns::limb::interleaved_pairs);
                to += 2 * digits * rns::limb::interleaved_pairs;
            }
        }
    }
}

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

  public:
    /// Makes a key from s' to the secret with the coefficients `to`, with seeds of `generator`: one, and one
    /// for each digit.
    /// @param purpose  a number that says what s' and `to` are, another one for other secrets of one `key`
    /// @param from     called as from(limb, out) for each limb of the chain: writes s' modulo its prime, in
    ///        evaluation form
    template <class From>
    evaluation_key(const secret_key<P>& key, arith::word purpose, std::span<const std::int8_t> to,
                   random::generator& generator, From from)
        : words_(2 * digits * limbs * P::degree, memory::uninitialized) {
        check_count("evaluation_key: got ", to.size(),
                    " coefficients of the secret, expected N = ", P::degree);
        const auto hedging = generator.hedge(distinction(purpose), key.identity());
        seed_ = generator.next_nonce();
        const rns::limb_table all = detail::key_limbs<P>();
        detail::write_key({all.first(Level + 1), all.subspan(P::limbs, special), P::limbs,
                           static_cast<std::size_t>(P::primes_per_digit), to},
                          seed_, all.size(), generator, words_.span(), from);
    }

    /// The seed of the uniform halves: lane digit * (limbs of Q and P) + limb of its evaluation_key stream.
    const random::seed& seed() const noexcept { return seed_; }
    detail::key_words words() const noexcept { return {words_.span(), Level + 1, digits, P::degree}; }

  private:
    static constexpr std::size_t special = static_cast<std::size_t>(P::template special_limbs<Level>);
    static constexpr std::size_t limbs = static_cast<std::size_t>(Level + 1) + special;

    /// What tells this key from all others of a secret: no two may share their randomness.
    static auto distinction(arith::word purpose) noexcept {
        constexpr std::size_t chain = P::basis::primes.size();
        std::array<arith::word, 3 + chain + P::special_primes.size()> result{
            purpose, static_cast<arith::word>(Level), static_cast<arith::word>(P::primes_per_digit)};
        std::copy(P::basis::primes.begin(), P::basis::primes.end(), result.begin() + 3);
        std::copy(P::special_primes.begin(), P::special_primes.end(), result.begin() + 3 + chain);
        return result;
    }
    static constexpr std::size_t digits =
        static_cast<std::size_t>((Level + P::primes_per_digit) / P::primes_per_digit);

    random::seed seed_;
    memory::buffer<arith::word> words_;
};

}  // namespace tensafe::ckks
