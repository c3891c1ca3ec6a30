#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

/// Loops over one limb. They take the modulus as an argument, so that all primes of a width share one
/// instantiation. Residues are in [0, q) unless a bound says otherwise; spans have equal sizes; `out` may be
/// one of the inputs. No branch and no index depends on a value.
namespace tensafe::rns::limb {

using arith::word;

/// out = a + b.
template <arith::modulus M>
void add(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
    const word q = m.value();
    for (std::size_t k = 0; k < out.size(); ++k) {
        out[k] = arith::subtract_if_not_below(a[k] + b[k], q);
    }
}

/// out = a - b.
template <arith::modulus M>
void subtract(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
    const word q = m.value();
    for (std::size_t k = 0; k < out.size(); ++k) {
        out[k] = arith::subtract_if_not_below(a[k] + q - b[k], q);
    }
}

/// out = a * b.
template <arith::modulus M>
void multiply(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
              std::span<const word> b) noexcept {
    for (std::size_t k = 0; k < out.size(); ++k) {
        out[k] = p.reduce_fully(arith::mul_wide(a[k], b[k]));
    }
}

/// out = a * b + c.
template <arith::modulus M>
void multiply_add(arith::barrett<M> p, std::span<word> out, std::span<const word> a, std::span<const word> b,
                  std::span<const word> c) noexcept {
    for (std::size_t k = 0; k < out.size(); ++k) {
        out[k] = p.reduce_fully(arith::mul_wide(a[k], b[k]) + c[k]);
    }
}

/// out = c - a * b.
template <arith::modulus M>
void subtract_product(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                      std::span<const word> b, std::span<const word> c) noexcept {
    const word q = p.modulus().value();
    for (std::size_t k = 0; k < out.size(); ++k) {
        out[k] = arith::subtract_if_not_below(c[k] + q - p.reduce_fully(arith::mul_wide(a[k], b[k])), q);
    }
}

/// sums[i] = the sum over block i of a * b + c, for sums.size() blocks of equal length; sums of many products
/// are reduced once.
template <arith::modulus M>
void block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a, std::span<const word> b,
                std::span<const word> c) noexcept {
    // Each term adds less than q^2 + q <= 2^(2*bits): this many fit 128 bits, with room for what is carried
    // over.
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

/// Products of residues that can be added up, with one more residue, before `reduce_fully`: their sum stays
/// below 2^63 * q.
template <arith::modulus M>
inline constexpr std::size_t lazy_terms = (std::size_t{1} << std::min(63 - M::bits, 20)) - 1;

/// sums[i] += the sum over block i of a * b, for sums.size() blocks of equal length.
template <arith::modulus M>
void add_block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a,
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

/// out[k] = the sum over i of a[i][k] * b[i][k], of out.size() residues each: products are added up without
/// reduction, and each sum is reduced once (once for every `lazy_terms` products, if there are more).
template <arith::modulus M>
void sum_products(arith::barrett<M> p, std::span<word> out, std::span<const word* const> a,
                  std::span<const word* const> b) noexcept {
    for (std::size_t first = 0; first < a.size(); first += lazy_terms<M>) {
        const std::size_t end = std::min(a.size(), first + lazy_terms<M>);
        for (std::size_t k = 0; k < out.size(); ++k) {
            arith::wide sum = first == 0 ? 0 : out[k];
            for (std::size_t i = first; i < end; ++i) {
                sum += arith::mul_wide(a[i][k], b[i][k]);
            }
            out[k] = p.reduce_fully(sum);
        }
    }
}

/// out[k] += the sum over i of a[i][k] * factors[i], reduced like sum_products.
template <arith::modulus M>
void add_scaled(arith::barrett<M> p, std::span<word> out, std::span<const word* const> a,
                std::span<const word> factors) noexcept {
    for (std::size_t first = 0; first < a.size(); first += lazy_terms<M>) {
        const std::size_t end = std::min(a.size(), first + lazy_terms<M>);
        for (std::size_t k = 0; k < out.size(); ++k) {
            arith::wide sum = out[k];
            for (std::size_t i = first; i < end; ++i) {
                sum += arith::mul_wide(a[i][k], factors[i]);
            }
            out[k] = p.reduce_fully(sum);
        }
    }
}

/// out += small, for small signed integers of magnitude below q.
template <arith::modulus M>
void add_small(M m, std::span<word> out, std::span<const std::int8_t> small) noexcept {
    const word q = m.value();
    for (std::size_t k = 0; k < out.size(); ++k) {
        const auto x = static_cast<std::int64_t>(small[k]);
        const word lifted = static_cast<word>(x) + (q & static_cast<word>(x >> 63));
        out[k] = arith::subtract_if_not_below(out[k] + lifted, q);
    }
}

/// out = round(real), ties away from zero, for |real| < 2^112: two words hold the integer part.
template <arith::modulus M>
void round_reals(arith::shoup<M> p, std::span<word> out, std::span<const double> reals) noexcept {
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

/// out = words - shift, for any words and shift in [0, q).
template <arith::modulus M>
void reduce_shifted(arith::shoup<M> p, std::span<word> out, std::span<const word> words,
                    word shift) noexcept {
    const word q = p.modulus().value();
    const auto one = p.prepare(1);
    for (std::size_t k = 0; k < out.size(); ++k) {
        const word r = arith::reduce<1>(p.modulus(), p.reduce_word(words[k], one)).value;
        out[k] = arith::subtract_if_not_below(r + q - shift, q);
    }
}

/// out = (a - b) * w.
template <arith::modulus M>
void scale_difference(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                      std::span<const word> b, typename arith::shoup<M>::factor w) noexcept {
    const word q = p.modulus().value();
    for (std::size_t k = 0; k < out.size(); ++k) {
        const arith::below<2, M> difference{a[k] + q - b[k]};
        out[k] = arith::reduce<1>(p.modulus(), p.multiply(difference, w)).value;
    }
}

}  // namespace tensafe::rns::limb
