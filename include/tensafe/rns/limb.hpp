#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/rns/limb_portable.hpp>
#include <tensafe/rns/x86/limb_avx2.hpp>
#include <tensafe/rns/x86/limb_avx512.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// Loops over one limb. They take the modulus as an argument, so that all primes of a width share one
/// instantiation. Residues are in [0, q) unless a bound says otherwise; spans have equal sizes; `out` may be
/// one of the inputs. No branch and no index depends on a value. All back-ends give the same words.
namespace tensafe::rns::limb {

namespace detail {

/// Calls f with the loops of the active back-end.
template <class F>
TENSAFE_INLINE void on_active_backend(F f) noexcept {
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return f(avx512_loops{});
        case exec::backend::avx2:
            return f(avx2_loops{});
        case exec::backend::portable:
            break;
    }
#endif
    f(portable_loops{});
}

}  // namespace detail

/// out = a + b.
template <arith::modulus M>
void add(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
    detail::on_active_backend([&](auto loops) { loops.add(m, out, a, b); });
}

/// out = a - b.
template <arith::modulus M>
void subtract(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
    detail::on_active_backend([&](auto loops) { loops.subtract(m, out, a, b); });
}

/// out = a * b.
template <arith::modulus M>
void multiply(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
              std::span<const word> b) noexcept {
    detail::on_active_backend([&](auto loops) { loops.multiply(p, out, a, b); });
}

/// out = a * b + c.
template <arith::modulus M>
void multiply_add(arith::barrett<M> p, std::span<word> out, std::span<const word> a, std::span<const word> b,
                  std::span<const word> c) noexcept {
    detail::on_active_backend([&](auto loops) { loops.multiply_add(p, out, a, b, c); });
}

/// out = c - a * b.
template <arith::modulus M>
void subtract_product(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                      std::span<const word> b, std::span<const word> c) noexcept {
    detail::on_active_backend([&](auto loops) { loops.subtract_product(p, out, a, b, c); });
}

/// sums[i] = the sum over block i of a * b + c, for sums.size() blocks of equal length; sums of many products
/// are reduced once.
/// @pre  sums is not empty, and a.size() is a multiple of its size
template <arith::modulus M>
void block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a, std::span<const word> b,
                std::span<const word> c) noexcept {
    detail::on_active_backend([&](auto loops) { loops.block_sums(p, sums, a, b, c); });
}

/// sums[i] += the sum over block i of a * b, for sums.size() blocks of equal length.
/// @pre  sums is not empty, and a.size() is a multiple of its size
template <arith::modulus M>
void add_block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a,
                    std::span<const word> b) noexcept {
    detail::on_active_backend([&](auto loops) { loops.add_block_sums(p, sums, a, b); });
}

/// out[k] = the sum over i of a[i][k] * b[i][k], of out.size() residues each: products are added up without
/// reduction, and each sum is reduced once (once for every `lazy_terms` products, if there are more).
/// @pre  a is not empty
template <arith::modulus M>
void sum_products(arith::barrett<M> p, std::span<word> out, std::span<const word* const> a,
                  std::span<const word* const> b) noexcept {
    detail::on_active_backend([&](auto loops) { loops.sum_products(p, out, a, b); });
}

/// out[k] += the sum over i of a[i][k] * factors[i], reduced like sum_products.
template <arith::modulus M>
void add_scaled(arith::barrett<M> p, std::span<word> out, std::span<const word* const> a,
                std::span<const word> factors) noexcept {
    detail::on_active_backend([&](auto loops) { loops.add_scaled(p, out, a, factors); });
}

/// out += small, for small signed integers of magnitude below q.
template <arith::modulus M>
void add_small(M m, std::span<word> out, std::span<const std::int8_t> small) noexcept {
    detail::on_active_backend([&](auto loops) { loops.add_small(m, out, small); });
}

/// out = round(real), ties away from zero, for |real| < 2^112: two words hold the integer part.
template <arith::modulus M>
void round_reals(arith::shoup<M> p, std::span<word> out, std::span<const double> reals) noexcept {
    detail::on_active_backend([&](auto loops) { loops.round_reals(p, out, reals); });
}

/// out = words - shift, for any words and shift in [0, q).
template <arith::modulus M>
void reduce_shifted(arith::shoup<M> p, std::span<word> out, std::span<const word> words,
                    word shift) noexcept {
    detail::on_active_backend([&](auto loops) { loops.reduce_shifted(p, out, words, shift); });
}

/// out = (a - b) * w.
template <arith::modulus M>
void scale_difference(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                      std::span<const word> b, typename arith::shoup<M>::factor w) noexcept {
    detail::on_active_backend([&](auto loops) { loops.scale_difference(p, out, a, b, w); });
}

/// out = a + c, for c in [0, q).
template <arith::modulus M>
void add_constant(M m, std::span<word> out, std::span<const word> a, word c) noexcept {
    detail::on_active_backend([&](auto loops) { loops.add_constant(m, out, a, c); });
}

/// out = a * w.
template <arith::modulus M>
void scale(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
           typename arith::shoup<M>::factor w) noexcept {
    detail::on_active_backend([&](auto loops) { loops.scale(p, out, a, w); });
}

/// Whether all words, of any size, are below q. Looks at all of them, whatever it finds.  @pre q > 0
inline bool all_below(word q, std::span<const word> words) noexcept {
    bool below = false;
    detail::on_active_backend([&](auto loops) { below = loops.all_below(q, words); });
    return below;
}

}  // namespace tensafe::rns::limb
