#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/rns/limb_table.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::rns {

/// Converts coefficients from residues modulo some primes, whose product is D, to residues modulo others:
/// those of an integer that is x modulo D and at most n D / 2 in magnitude, n the number of the primes. For
/// one prime it is x in (-D/2, D/2) itself. Exact in integers, without floating point:
/// docs/design/key-switching.md.
///
/// Immutable; thread-safe.
class base_conversion {
  public:
    using word = arith::word;
    static constexpr std::size_t most_primes = 32;  ///< to convert from

    /// @pre  all limbs are of one degree, and those of `from` of distinct primes
    /// @throws parameter_error unless `from` has a limb and at most most_primes
    base_conversion(limb_table from, limb_table to) {
        require<parameter_error>(
            !from.empty() && from.size() <= most_primes,
            {"base_conversion: got ", from.size(), " primes, expected 1 to ", most_primes});
        for (const limb_operations* const limb : from) {
            const word q = limb->prime();
            const word other_primes = cofactor(from, limb, q);
            sources_.push_back({limb, arith::inverse_mod(other_primes, q), q / 2,
                                (q - arith::multiply_mod(q / 2, other_primes, q)) % q});
            widest_ = std::max(widest_, q);
        }
        for (const limb_operations* const limb : to) {
            const word q = limb->prime();
            target one{limb, 0, inverse_of(cofactor(from, nullptr, q), q), {}};
            for (const source& s : sources_) {
                one.factors.push_back(cofactor(from, s.limb, q));
                const word subtracted = arith::multiply_mod(s.half, one.factors.back(), q);
                one.offset = (one.offset + q - subtracted) % q;
            }
            targets_.push_back(std::move(one));
        }
    }

    std::size_t sources() const noexcept { return sources_.size(); }

    /// Prepares residues modulo prime i, of coefficients, for `convert`, in their place.
    void prepare(std::size_t i, std::span<word> x) const noexcept {
        const source& s = sources_[i];
        if (s.inverse != 1) {
            s.limb->scale_shifted(x, x.data(), s.shift, s.inverse);
        } else {
            s.limb->add_constant(x, x.data(), s.half);
        }
    }

    /// Writes the residues modulo each target.
    /// @param prepared  of all primes, in order, what `prepare` left
    /// @param outs      for each target where they go, N words, or null
    void convert(std::span<const word* const> prepared, std::span<word* const> outs) const noexcept {
        const word* rows[most_primes];
        const std::size_t degree = sources_.front().limb->degree();
        for (std::size_t k = 0; k < degree; k += chunk) {
            const std::size_t size = std::min(chunk, degree - k);
            for (std::size_t i = 0; i < sources_.size(); ++i) {
                rows[i] = prepared[i] + k;
            }
            for (std::size_t j = 0; j < targets_.size(); ++j) {
                if (outs[j] != nullptr) {
                    sum_up(targets_[j], rows, std::span(outs[j] + k, size));
                }
            }
        }
    }

    /// Writes (x - converted) / D modulo target j, for x and `out` in evaluation form.
    /// @param converted  what `convert` wrote; is transformed in its place, which `out` may be
    /// @pre  the target is none of the primes that are converted from
    void divide(std::size_t j, const word* x, std::span<word> converted, std::span<word> out) const noexcept {
        const target& to = targets_[j];
        to.limb->forward(converted);
        to.limb->scale_difference(out, x, converted.data(), to.inverse);
    }

  private:
    static constexpr word narrow = word{1} << 50;
    /// Words of a limb that are converted to all targets while they are in cache.
    static constexpr std::size_t chunk = 512;

    struct source {
        const limb_operations* limb;
        word inverse;  ///< of D / q modulo q
        word half;     ///< (q - 1) / 2, which centres a residue
        word shift;    ///< minus half times D / q, which becomes half when it is scaled by `inverse`
    };
    struct target {
        const limb_operations* limb;
        word offset;                ///< minus what the halves add
        word inverse;               ///< of D, if it has one
        std::vector<word> factors;  ///< D / q for each source
    };

    static word inverse_of(word x, word q) noexcept { return x == 0 ? 0 : arith::inverse_mod(x, q); }
    void sum_up(const target& to, const word* const* rows, std::span<word> out) const noexcept {
        if (widest_ < narrow || to.limb->prime() >= narrow) {
            to.limb->sum_multiples(out, rows, to.factors, to.offset);
            return;
        }
        // Kernels of narrow primes take narrow words.
        constexpr std::size_t few = 64;
        word reduced[most_primes][few];
        const word* narrow_rows[most_primes];
        for (std::size_t k = 0; k < out.size(); k += few) {
            const auto part = out.subspan(k, std::min(few, out.size() - k));
            for (std::size_t i = 0; i < sources_.size(); ++i) {
                to.limb->reduce(std::span(reduced[i], part.size()), rows[i] + k);
                narrow_rows[i] = reduced[i];
            }
            to.limb->sum_multiples(part, narrow_rows, to.factors, to.offset);
        }
    }

    /// The product of all primes but one, modulo q.
    static word cofactor(limb_table of, const limb_operations* but, word q) noexcept {
        word product = 1 % q;
        for (const limb_operations* const limb : of) {
            product = limb == but ? product : arith::multiply_mod(product, limb->prime() % q, q);
        }
        return product;
    }

    std::vector<source> sources_;
    std::vector<target> targets_;
    word widest_ = 0;
};

}  // namespace tensafe::rns
