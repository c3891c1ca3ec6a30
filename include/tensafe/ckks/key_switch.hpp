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
#include <type_traits>
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
            last_.emplace(chain.last(1), chain.first(chain_ - 1));
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

    /// The digits of x in evaluation form, for many sums.
    buffer raise(std::span<const word> x) const {
        buffer raised = decompose(x);
        for (std::size_t m = 0; m < limbs_.size(); ++m) {
            transform(m, raised);
        }
        return raised;
    }

    /// Transforms limb m of all digits, of which `decompose` left coefficients.
    void transform(std::size_t m, buffer& raised) const noexcept {
        for (std::size_t d = 0; d < digits_.size(); ++d) {
            if (!is_of_digit(m, d)) {
                limbs_[m]->forward(row(raised, d * limbs_.size() + m));
            }
        }
    }

    /// What is multiplied by P and added to the sums: polynomials of the chain, or nothing.
    struct addends {
        std::span<const word> of[2];
    };

    /// Writes limb m of the sums of the digits of x times the key, modulo Q P.
    /// @param raised  the digits of x, limb m of them transformed
    void sum_products(std::size_t m, std::span<const word> x, const buffer& raised, const key_words& key,
                      const addends& more, const std::array<std::span<word>, 2>& sums) const {
        std::vector<const word*> rows(digits_.size());
        for (std::size_t d = 0; d < digits_.size(); ++d) {
            // Modulo its own primes the digit is x.
            rows[d] = is_of_digit(m, d) ? x.data() + m * degree_
                                        : raised.data() + (d * limbs_.size() + m) * degree_;
        }
        rns::limb::pair_sums of{{sums[0], sums[1]},
                                rows.data(),
                                digits_.size(),
                                key.row(m < chain_ ? m : key.chain + m - chain_),
                                key.digits};
        if (m < chain_) {
            for (const std::size_t half : {0U, 1U}) {
                of.addends[half] = more.of[half].empty() ? nullptr : more.of[half].data() + m * degree_;
            }
            of.w = special_[m];
        }
        limbs_[m]->sum_pairs(of);
    }

    /// Divides polynomials modulo Q P by P, and where it rescales also by the last prime of the chain, which
    /// is gone then. Rounds each coefficient to within half a unit for each prime that is divided by.
    /// Everything that needs a limb's factors is done one after the other.
    /// @param to      room for the limbs that are left, of each polynomial
    /// @param read    called once as read(limb, rows) for each limb, those that are divided by first: writes
    ///        it, in evaluation form
    /// @param finish  called as finish(limb, polynomial, words) for each limb that is left, with N words of
    ///        the result, in memory that is used again
    /// @pre  the chain has two limbs at least where it rescales
    template <bool rescales, std::size_t Polynomials, class Read, class Finish>
    void divide(const std::array<std::span<word>, Polynomials>& to, Read read, Finish finish) const {
        const std::size_t left = chain_ - (rescales ? 1 : 0);
        divide_by(rescales ? *rescaling_ : division_, left, limbs_.size() - left, to, read, finish);
    }
    /// Divides polynomials of the chain by its last prime alone, as `divide` but without special primes.
    /// @pre  the chain has two limbs at least
    template <std::size_t Polynomials, class Read>
    void rescale(const std::array<std::span<word>, Polynomials>& to, Read read) const {
        divide_by(*last_, chain_ - 1, 1, to, read, stays_in_place());
    }
    /// The `finish` that leaves the result where there is room for it.
    struct stays_in_place {};

    /// Switches x: the sums of its digits times the key and P times the addends, divided as by `divide`.
    template <bool rescales, class Finish>
    void run(std::span<const word> x, const key_words& key, const addends& more,
             const std::array<std::span<word>, 2>& to, Finish finish) const {
        buffer raised = decompose(x);
        divide<rescales>(
            to,
            [&](std::size_t m, const std::array<std::span<word>, 2>& sums) {
                transform(m, raised);
                sum_products(m, x, raised, key, more, sums);
            },
            finish);
    }

    /// The limbs of the chain, then the special ones.
    rns::limb_table limbs() const noexcept { return limbs_; }
    /// The number of those of the chain.
    std::size_t chain() const noexcept { return chain_; }
    /// P modulo prime i of the chain.
    word special(std::size_t i) const noexcept { return special_[i]; }

  private:
    template <std::size_t Polynomials, class Read, class Finish>
    void divide_by(const rns::base_conversion& division, std::size_t left, std::size_t divided,
                   const std::array<std::span<word>, Polynomials>& to, Read read, Finish finish) const {
        buffer words(Polynomials * divided * degree_, memory::uninitialized);
        const auto rows_of = [&](std::size_t j) {
            std::array<std::span<word>, Polynomials> rows;
            for (std::size_t each = 0; each < Polynomials; ++each) {
                rows[each] = row(words, each * divided + j);
            }
            return rows;
        };
        for (std::size_t j = 0; j < divided; ++j) {
            const auto rows = rows_of(j);
            read(left + j, rows);
            for (const auto& limb : rows) {
                limbs_[left + j]->inverse(limb);
                division.prepare(j, limb);
            }
        }
        std::vector<const word*> from(divided);
        std::vector<word*> converted(left);
        for (std::size_t each = 0; each < Polynomials; ++each) {
            for (std::size_t j = 0; j < divided; ++j) {
                from[j] = rows_of(j)[each].data();
            }
            for (std::size_t i = 0; i < left; ++i) {
                converted[i] = to[each].data() + i * degree_;
            }
            division.convert(from, converted);
        }
        for (std::size_t i = 0; i < left; ++i) {
            const auto rows = rows_of(0);
            read(i, rows);
            for (std::size_t each = 0; each < Polynomials; ++each) {
                const auto out = to[each].subspan(i * degree_, degree_);
                if constexpr (std::is_same_v<Finish, stays_in_place>) {
                    division.divide(i, rows[each].data(), out, out);
                } else {
                    division.divide(i, rows[each].data(), out, rows[each]);
                    finish(i, each, rows[each]);
                }
            }
        }
    }
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

    std::vector<const rns::limb_operations*> limbs_;  ///< of the chain, then special ones
    std::size_t chain_;                               ///< limbs of the chain
    std::size_t degree_;
    std::size_t per_digit_;
    std::vector<rns::base_conversion> digits_;  ///< from each to all limbs
    rns::base_conversion division_;
    std::optional<rns::base_conversion> rescaling_;  ///< by the last prime too
    std::optional<rns::base_conversion> last_;       ///< by it alone
    std::vector<word> special_;                      ///< P modulo each prime of the chain
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
