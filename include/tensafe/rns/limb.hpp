#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/rns/limb_loops.hpp>
#include <tensafe/rns/limb_sums.hpp>
#include <tensafe/simd/dispatch.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// Loops over one limb. They take the modulus as an argument, so that all primes of a width share one
/// instantiation. Residues are in [0, q) unless a bound says otherwise; spans have equal sizes; `out` may be
/// one of the inputs. No branch and no index depends on a value. All back-ends give the same words.
namespace tensafe::rns::limb {

using arith::word;

namespace detail {

/// Applies the step with the target of the active back-end.
template <class Step, class M, class Policy, class... Args>
TENSAFE_INLINE void run(Policy p, std::span<word> out, Args... args) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&apply<decltype(target), Step, M, Policy, Args...>>(p, out, args...);
    });
}

}  // namespace detail

/// out = a + b.
template <arith::modulus M>
void add(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
    detail::run<detail::add, M>(m, out, a.data(), b.data());
}

/// out = a - b.
template <arith::modulus M>
void subtract(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
    detail::run<detail::subtract, M>(m, out, a.data(), b.data());
}

/// out = a * b.
template <arith::modulus M>
void multiply(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
              std::span<const word> b) noexcept {
    detail::run<detail::multiply, M>(p, out, a.data(), b.data());
}

/// out = a * b + c.
template <arith::modulus M>
void multiply_add(arith::barrett<M> p, std::span<word> out, std::span<const word> a, std::span<const word> b,
                  std::span<const word> c) noexcept {
    detail::run<detail::multiply_add, M>(p, out, a.data(), b.data(), c.data());
}

/// out = c - a * b.
template <arith::modulus M>
void subtract_product(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                      std::span<const word> b, std::span<const word> c) noexcept {
    detail::run<detail::subtract_product, M>(p, out, a.data(), b.data(), c.data());
}

/// sums[i] = the sum over block i of a * b + c, for sums.size() blocks of equal length; sums of many products
/// are reduced once.
/// @pre  sums is not empty, and a.size() is a multiple of its size
template <arith::modulus M>
void block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a, std::span<const word> b,
                std::span<const word> c) noexcept {
    if (a.size() == sums.size()) {
        return multiply_add(p, sums, a, b, c);
    }
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::sum_blocks<decltype(target), false, true, M>>(
            p, sums, a.size() / sums.size(), a.data(), b.data(), c.data());
    });
}

/// sums[i] += the sum over block i of a * b, for sums.size() blocks of equal length.
/// @pre  sums is not empty, and a.size() is a multiple of its size
template <arith::modulus M>
void add_block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a,
                    std::span<const word> b) noexcept {
    if (a.size() == sums.size()) {
        return multiply_add(p, sums, a, b, std::span<const word>(sums));
    }
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::sum_blocks<decltype(target), true, false, M>>(
            p, sums, a.size() / sums.size(), a.data(), b.data(), nullptr);
    });
}

/// out[k] = the sum over i of a[i][k] * b[i][k], of out.size() residues each: products are added up without
/// reduction, and each sum is reduced once (once for every `lazy_terms` products, if there are more).
/// @pre  a is not empty
template <arith::modulus M>
void sum_products(arith::barrett<M> p, std::span<word> out, std::span<const word* const> a,
                  std::span<const word* const> b) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::sum_columns<decltype(target), false, M, detail::rows>>(
            p, out, a, detail::rows{b.data()});
    });
}

/// out[k] += the sum over i of a[i][k] * factors[i], reduced like sum_products.
template <arith::modulus M>
void add_scaled(arith::barrett<M> p, std::span<word> out, std::span<const word* const> a,
                std::span<const word> factors) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::sum_columns<decltype(target), true, M, detail::constants>>(
            p, out, a, detail::constants{factors.data()});
    });
}

/// out += small, for small signed integers of magnitude below q.
template <arith::modulus M>
void add_small(M m, std::span<word> out, std::span<const std::int8_t> small) noexcept {
    detail::run<detail::add_small, M>(m, out, out.data(), small.data());
}

/// out = round(real), ties away from zero, for |real| < 2^112: two words hold the integer part.
template <arith::modulus M>
void round_reals(arith::shoup<M> p, std::span<word> out, std::span<const double> reals) noexcept {
    detail::run<detail::round_reals, M>(p, out, reals.data());
}

/// out = words - shift, for any words and shift in [0, q).
template <arith::modulus M>
void reduce_shifted(arith::shoup<M> p, std::span<word> out, std::span<const word> words,
                    word shift) noexcept {
    detail::run<detail::reduce_shifted, M>(p, out, words.data(), shift);
}

/// out = (a - b) * w.
template <arith::modulus M>
void scale_difference(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                      std::span<const word> b, typename arith::shoup<M>::factor w) noexcept {
    detail::run<detail::scale_difference, M>(p, out, a.data(), b.data(), w);
}

/// out = a + c, for c in [0, q).
template <arith::modulus M>
void add_constant(M m, std::span<word> out, std::span<const word> a, word c) noexcept {
    detail::run<detail::add_constant, M>(m, out, a.data(), c);
}

/// out = a * w.
template <arith::modulus M>
void scale(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
           typename arith::shoup<M>::factor w) noexcept {
    detail::run<detail::scale, M>(p, out, a.data(), w);
}

/// Whether all words, of any size, are below q. Looks at all of them, whatever it finds.  @pre q > 0
inline bool all_below(word q, std::span<const word> words) noexcept {
    return simd::on_active_target(
        [&](auto target) { return target.template kernel<&detail::all_below<decltype(target)>>(q, words); });
}

}  // namespace tensafe::rns::limb
