#pragma once

#include <tensafe/ckks/evaluation_key.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/rns/base_conversion.hpp>
#include <tensafe/rns/limb_table.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace tensafe::ckks::detail {

/// Hybrid key switching at one level: x s' becomes u0 + u1 s. One body for all sets and levels, over limbs.
///
/// x is cut into digits, the residues modulo PrimesPerDigit primes of the chain each, and every digit is
/// raised to all primes, also the special ones; the sum of digits times the pairs of the key is P x s' and
/// noise, and is divided by P. Han and Ki, "Better bootstrapping for approximate homomorphic encryption"
/// (2020); bounds in docs/design/noise.md. (digits + 2) (limbs + special primes) transforms of a limb.
///
/// Immutable; thread-safe.
class key_switch {
  public:
    using word = arith::word;
    using buffer = memory::buffer<word>;

    /// @param chain    the limbs of the ciphertext's level
    /// @param special  the special primes of the key
    key_switch(rns::limb_table chain, rns::limb_table special, int primes_per_digit)
        : limbs_(chain.begin(), chain.end()),
          chain_(chain.size()),
          degree_(chain.front()->degree()),
          per_digit_(static_cast<std::size_t>(primes_per_digit)),
          division_(special, chain) {
        limbs_.insert(limbs_.end(), special.begin(), special.end());
        for (std::size_t first = 0; first < chain_; first += per_digit_) {
            digits_.emplace_back(chain.subspan(first, std::min(per_digit_, chain_ - first)), limbs_);
        }
        for (const rns::limb_operations* const limb : chain) {
            special_.push_back(product(special, limb->prime()));
        }
        if (chain_ > 1) {
            // The last prime of the chain first, as it stands among the limbs.
            rescaling_.emplace(rns::limb_table(limbs_).subspan(chain_ - 1), chain.first(chain_ - 1));
        }
    }

    /// The digits of x, a polynomial of the chain in evaluation form, raised to all limbs: coefficients.
    buffer decompose(std::span<const word> x) const {
        buffer raised(digits_.size() * limbs_.size() * degree_, memory::uninitialized);
        buffer digit(std::min(per_digit_, chain_) * degree_, memory::uninitialized);
        std::vector<const word*> from(per_digit_);
        std::vector<word*> to(limbs_.size());
        for (std::size_t d = 0; d < digits_.size(); ++d) {
            const std::size_t first = d * per_digit_;
            const std::size_t count = digits_[d].sources();
            for (std::size_t i = 0; i < count; ++i) {
                const auto limb = row(digit, i);
                std::copy_n(x.data() + (first + i) * degree_, degree_, limb.data());
                limbs_[first + i]->inverse(limb);
                digits_[d].prepare(i, limb);
                from[i] = limb.data();
            }
            for (std::size_t m = 0; m < limbs_.size(); ++m) {
                to[m] = is_of_digit(m, d) ? nullptr : row(raised, d * limbs_.size() + m).data();
            }
            digits_[d].convert(std::span(from).first(count), to);
        }
        return raised;
    }

    /// What is multiplied by P and added to the sums: two polynomials of the chain.
    struct addends {
        std::span<const word> of[2];
    };

    /// The sums of the digits of x times the key: two polynomials of the chain and the special primes.
    /// @param raised  by `decompose` of x; is transformed in its place
    std::array<buffer, 2> multiply(std::span<const word> x, buffer raised, const key_words& key,
                                   const addends* more = nullptr) const {
        std::array<buffer, 2> sums{buffer(limbs_.size() * degree_, memory::uninitialized),
                                   buffer(limbs_.size() * degree_, memory::uninitialized)};
        std::vector<const word*> rows(digits_.size());
        for (std::size_t m = 0; m < limbs_.size(); ++m) {
            for (std::size_t d = 0; d < digits_.size(); ++d) {
                if (is_of_digit(m, d)) {
                    rows[d] = x.data() + m * degree_;  // the digit is x, modulo its own primes
                } else {
                    const auto limb = row(raised, d * limbs_.size() + m);
                    limbs_[m]->forward(limb);
                    rows[d] = limb.data();
                }
            }
            rns::limb::pair_sums of{{row(sums[0], m), row(sums[1], m)},
                                    rows.data(),
                                    rows.size(),
                                    key.row(m < chain_ ? m : key.chain + m - chain_),
                                    key.digits};
            if (more != nullptr && m < chain_) {
                of.addends[0] = more->of[0].data() + m * degree_;
                of.addends[1] = more->of[1].data() + m * degree_;
                of.w = special_[m];
            }
            limbs_[m]->sum_pairs(of);
        }
        return sums;
    }

    /// Divides by P: what is left is a polynomial of the chain. Rounds each coefficient to within
    /// (special primes + 1) / 2.
    /// @param converted  memory for the limbs of the chain
    /// @param write      called as write(limb operations, its number, limb): takes the N words of each limb,
    ///        which it may change, while they are in cache
    template <class Write>
    void divide(buffer& sum, std::span<word> converted, Write write) const {
        finish(division_, sum, chain_, converted, write);
    }
    /// Divides by P and by the last prime of the chain, which is gone then.
    /// @pre  the chain has two limbs at least
    void divide_and_rescale(buffer& sum, std::span<word> out) const {
        TENSAFE_PRECONDITION(rescaling_.has_value());
        finish(*rescaling_, sum, chain_ - 1, out, [&](const auto&, std::size_t i, std::span<word> limb) {
            std::copy(limb.begin(), limb.end(), out.data() + i * degree_);
        });
    }

  private:
    std::span<word> row(buffer& of, std::size_t limb) const noexcept {
        return of.span().subspan(limb * degree_, degree_);
    }

    static word product(rns::limb_table of, word q) noexcept {
        word result = 1 % q;
        for (const rns::limb_operations* const limb : of) {
            result = arith::multiply_mod(result, limb->prime() % q, q);
        }
        return result;
    }

    bool is_of_digit(std::size_t limb, std::size_t d) const noexcept {
        return limb < chain_ && limb / per_digit_ == d;
    }

    /// Divides the first limbs by the product of those from number `limbs` on.
    /// @param converted  memory for `limbs` limbs; limb i is free when `write` takes limb i
    template <class Write>
    void finish(const rns::base_conversion& from, buffer& sum, std::size_t limbs, std::span<word> converted,
                Write write) const {
        std::vector<const word*> rows(from.sources());
        for (std::size_t j = 0; j < rows.size(); ++j) {
            const auto limb = row(sum, limbs + j);
            limbs_[limbs + j]->inverse(limb);
            from.prepare(j, limb);
            rows[j] = limb.data();
        }
        std::vector<word*> to(limbs);
        for (std::size_t i = 0; i < limbs; ++i) {
            to[i] = converted.data() + i * degree_;
        }
        from.convert(rows, to);
        buffer quotient(degree_, memory::uninitialized);
        for (std::size_t i = 0; i < limbs; ++i) {
            from.divide(i, sum.data() + i * degree_, std::span(to[i], degree_), quotient.span());
            write(*limbs_[i], i, quotient.span());
        }
    }

    std::vector<const rns::limb_operations*> limbs_;  ///< of the chain, then special ones
    std::size_t chain_;                               ///< limbs of the chain
    std::size_t degree_;
    std::size_t per_digit_;
    std::vector<rns::base_conversion> digits_;  ///< from each to all limbs
    rns::base_conversion division_;
    std::optional<rns::base_conversion> rescaling_;
    std::vector<word> special_;  ///< P modulo each prime of the chain
};

/// That of ciphertexts of `Level` with keys for ciphertexts up to KeyLevel. Thread-safe.
template <parameter_set P, int KeyLevel, int Level>
const key_switch& shared_key_switch() {
    static_assert(Level <= KeyLevel,
                  "ckks: this key is for lower levels than the ciphertext's; make one for its level");
    static const key_switch result(key_limbs<P>().first(Level + 1),
                                   key_limbs<P>().subspan(P::limbs, P::template special_limbs<KeyLevel>),
                                   P::primes_per_digit);
    return result;
}

}  // namespace tensafe::ckks::detail
