#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::rns::limb {

using arith::word;

/// Products of residues that can be added up, with one more residue, before `reduce_fully`: their sum stays
/// below 2^(63 + least_bits).
template <arith::modulus M>
inline constexpr std::size_t lazy_terms = (std::size_t{1} << std::min(63 + M::least_bits - 2 * M::bits, 20)) -
                                          1;

/// The loops of limb.hpp in standard C++; the other back-ends inherit those that they do no better, and leave
/// to these what is behind their last whole vector (hence `column`, where a loop over columns starts).
struct portable_loops {
    template <arith::modulus M>
    static void add(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
        const word q = m.value();
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = arith::subtract_if_not_below(a[k] + b[k], q);
        }
    }

    template <arith::modulus M>
    static void subtract(M m, std::span<word> out, std::span<const word> a,
                         std::span<const word> b) noexcept {
        const word q = m.value();
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = arith::subtract_if_not_below(a[k] + q - b[k], q);
        }
    }

    template <arith::modulus M>
    static void multiply(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                         std::span<const word> b) noexcept {
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = p.reduce_fully(arith::mul_wide(a[k], b[k]));
        }
    }

    template <arith::modulus M>
    static void multiply_add(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                             std::span<const word> b, std::span<const word> c) noexcept {
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = p.reduce_fully(arith::mul_wide(a[k], b[k]) + c[k]);
        }
    }

    template <arith::modulus M>
    static void subtract_product(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                                 std::span<const word> b, std::span<const word> c) noexcept {
        const word q = p.modulus().value();
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = arith::subtract_if_not_below(c[k] + q - p.reduce_fully(arith::mul_wide(a[k], b[k])), q);
        }
    }

    template <arith::modulus M>
    static void block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a,
                           std::span<const word> b, std::span<const word> c) noexcept {
        // Each term adds less than q^2 + q <= 2^(2*bits): this many fit 128 bits, with room for what is
        // carried over.
        constexpr std::size_t terms = M::bits > 57 ? std::size_t{1} << (2 * (64 - M::bits) - 1) : 4096;
        const std::size_t block = a.size() / sums.size();
        for (std::size_t i = 0; i < sums.size(); ++i) {
            word total = 0;
            for (std::size_t k = i * block; k < (i + 1) * block;) {
                const std::size_t end = std::min(k + terms, (i + 1) * block);
                arith::wide sum = total;
                for (; k < end; ++k) {
                    sum += arith::mul_wide(a[k], b[k]) + c[k];
                }
                total = p.reduce_any(sum);
            }
            sums[i] = total;
        }
    }

    template <arith::modulus M>
    static void add_block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a,
                               std::span<const word> b) noexcept {
        const std::size_t block = a.size() / sums.size();
        for (std::size_t i = 0; i < sums.size(); ++i) {
            word total = sums[i];
            for (std::size_t k = i * block; k < (i + 1) * block;) {
                const std::size_t end = std::min(k + lazy_terms<M>, (i + 1) * block);
                arith::wide sum = total;
                for (; k < end; ++k) {
                    sum += arith::mul_wide(a[k], b[k]);
                }
                total = p.reduce_fully(sum);
            }
            sums[i] = total;
        }
    }

    template <arith::modulus M>
    static void sum_products(arith::barrett<M> p, std::span<word> out, std::span<const word* const> a,
                             std::span<const word* const> b, std::size_t column = 0) noexcept {
        for (std::size_t first = 0; first < a.size(); first += lazy_terms<M>) {
            const std::size_t end = std::min(a.size(), first + lazy_terms<M>);
            for (std::size_t k = column; k < out.size(); ++k) {
                arith::wide sum = first == 0 ? 0 : out[k];
                for (std::size_t i = first; i < end; ++i) {
                    sum += arith::mul_wide(a[i][k], b[i][k]);
                }
                out[k] = p.reduce_fully(sum);
            }
        }
    }

    template <arith::modulus M>
    static void add_scaled(arith::barrett<M> p, std::span<word> out, std::span<const word* const> a,
                           std::span<const word> factors, std::size_t column = 0) noexcept {
        for (std::size_t first = 0; first < a.size(); first += lazy_terms<M>) {
            const std::size_t end = std::min(a.size(), first + lazy_terms<M>);
            for (std::size_t k = column; k < out.size(); ++k) {
                arith::wide sum = out[k];
                for (std::size_t i = first; i < end; ++i) {
                    sum += arith::mul_wide(a[i][k], factors[i]);
                }
                out[k] = p.reduce_fully(sum);
            }
        }
    }

    template <arith::modulus M>
    static void add_small(M m, std::span<word> out, std::span<const std::int8_t> small) noexcept {
        const word q = m.value();
        for (std::size_t k = 0; k < out.size(); ++k) {
            const auto x = static_cast<std::int64_t>(small[k]);
            const word lifted = static_cast<word>(x) + (q & static_cast<word>(x >> 63));
            out[k] = arith::subtract_if_not_below(out[k] + lifted, q);
        }
    }

    template <arith::modulus M>
    static void round_reals(arith::shoup<M> p, std::span<word> out, std::span<const double> reals) noexcept {
        const word q = p.modulus().value();
        const auto one = p.prepare(1);
        const auto power = p.prepare((word{1} << 50) % q);
        // The double below 1/2: with 1/2 itself, the double below 1/2 would be rounded up to 1.
        constexpr double almost_half = 0x1.fffffffffffffp-2;
        for (std::size_t k = 0; k < out.size(); ++k) {
            const double magnitude = std::fabs(reals[k]);
            const auto high = static_cast<std::int64_t>(magnitude * 0x1p-50);
            const auto low =
                static_cast<std::int64_t>(magnitude - static_cast<double>(high) * 0x1p50 + almost_half);
            const auto high_part = p.multiply_word(static_cast<word>(high), power);
            const auto low_part = p.reduce_word(static_cast<word>(low), one);
            const word r = arith::reduce<1>(p.modulus(), high_part + low_part).value;
            const word negative = word{0} - static_cast<word>(std::signbit(reals[k]));
            out[k] = arith::subtract_if_not_below((r ^ negative) - negative + (q & negative), q);
        }
    }

    template <arith::modulus M>
    static void reduce_shifted(arith::shoup<M> p, std::span<word> out, std::span<const word> words,
                               word shift) noexcept {
        const word q = p.modulus().value();
        const auto one = p.prepare(1);
        for (std::size_t k = 0; k < out.size(); ++k) {
            const word r = arith::reduce<1>(p.modulus(), p.reduce_word(words[k], one)).value;
            out[k] = arith::subtract_if_not_below(r + q - shift, q);
        }
    }

    template <arith::modulus M>
    static void scale_difference(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                                 std::span<const word> b, typename arith::shoup<M>::factor w) noexcept {
        const word q = p.modulus().value();
        for (std::size_t k = 0; k < out.size(); ++k) {
            const arith::below<2, M> difference{a[k] + q - b[k]};
            out[k] = arith::reduce<1>(p.modulus(), p.multiply(difference, w)).value;
        }
    }

    template <arith::modulus M>
    static void add_constant(M m, std::span<word> out, std::span<const word> a, word c) noexcept {
        const word q = m.value();
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = arith::subtract_if_not_below(a[k] + c, q);
        }
    }

    template <arith::modulus M>
    static void scale(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                      typename arith::shoup<M>::factor w) noexcept {
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = arith::reduce<1>(p.modulus(), p.multiply_word(a[k], w)).value;
        }
    }

    static bool all_below(word q, std::span<const word> words) noexcept {
        bool below = true;
        for (const word x : words) {
            below &= x < q;
        }
        return below;
    }

  protected:
    /// total + the sum of a * b, and of c if WithAddends: for what is behind the last whole vector of a
    /// block.
    template <bool WithAddends, arith::modulus M>
    static word add_terms(arith::barrett<M> p, word total, std::span<const word> a, std::span<const word> b,
                          std::span<const word> c) noexcept {
        for (std::size_t k = 0; k < a.size(); ++k) {
            total = p.reduce_fully(arith::mul_wide(a[k], b[k]) + total);
            if constexpr (WithAddends) {
                total = arith::subtract_if_not_below(total + c[k], p.modulus().value());
            }
        }
        return total;
    }
};

}  // namespace tensafe::rns::limb
