#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/rns/limb_loops.hpp>
#include <tensafe/simd/dispatch.hpp>

#include <cstddef>
#include <span>
#include <utility>

/// Sums of several limbs modulo one prime, reduced once: what key switching is made of.
namespace tensafe::rns::limb {

using arith::word;

/// The number of residues that lie together where two polynomials are interleaved.
inline constexpr std::size_t interleaved_pairs = 8;

/// Sums of products with two polynomials at a time: sums[h][k] = the sum over t < terms of x[t][k] times
/// polynomial h of pair t, for h of 0 and 1, and w * addends[h][k] more where there are addends[h]. Of the
/// pairs, eight residues of the first polynomial are followed by eight of the second, and those by the next
/// pair's: block k / 8 begins at pairs + 16 * stride * (k / 8).
struct pair_sums {
    std::span<word> sums[2];
    const word* const* x = nullptr;
    std::size_t terms = 0;
    const word* pairs = nullptr;
    std::size_t stride = 0;  ///< pairs of a block
    const word* addends[2] = {nullptr, nullptr};
    word w = 0;
};

namespace detail {

/// The sum as a residue, also where it is of more products than lazy sums hold, of factors below 2^61.
template <class Arithmetic>
TENSAFE_INLINE auto reduce_wide_sum(const Arithmetic& mod, const typename Arithmetic::sum& s) noexcept {
    if constexpr (requires { mod.reduce_any(s); }) {
        return typename Arithmetic::words{mod.reduce_any(s)};
    } else {
        return mod.reduce(s);
    }
}

/// Sums of as many vectors as there are v, beginning at k.
template <class Arithmetic, std::size_t... v>
TENSAFE_INLINE void sum_multiples_at(const Arithmetic& mod, std::size_t k, std::span<word> out,
                                     const word* const* from, std::span<const word> factors, word offset,
                                     std::index_sequence<v...>) noexcept {
    constexpr std::size_t width = Arithmetic::words::width;
    // Sums of 128 bits hold all that there can be.
    constexpr std::size_t room = requires(Arithmetic a, typename Arithmetic::sum s) {
        a.reduce_any(s);
    }
    ? std::size_t{63} : Arithmetic::terms;
    typename Arithmetic::sum s[] = {(static_cast<void>(v), mod.zero())...};
    (mod.add_residue(s[v], mod.as_operand(mod.spread(offset))), ...);
    std::size_t left = room;
    for (std::size_t i = 0; i < factors.size(); ++i) {
        if (--left == 0) {
            (mod.normalize(s[v]), ...);
            left = room - 1;
        }
        const typename Arithmetic::operand factor = mod.as_operand(mod.spread(factors[i]));
        const word* const x = from[i] + k;
        (mod.add_product(s[v], load_operand(mod, x + v * width), factor), ...);
    }
    (reduce_wide_sum(mod, s[v]).store(&out[k + v * width]), ...);
}
template <class Arithmetic, class Policy>
TENSAFE_INLINE std::size_t sum_multiples_from(std::size_t k, Policy p, std::span<word> out,
                                              const word* const* from, std::span<const word> factors,
                                              word offset) noexcept {
    constexpr std::size_t width = Arithmetic::words::width;
    const auto mod = arithmetic_for<Arithmetic>(p);
    for (; k + 4 * width <= out.size(); k += 4 * width) {
        sum_multiples_at(mod, k, out, from, factors, offset, std::make_index_sequence<4>());
    }
    for (; k + width <= out.size(); k += width) {
        sum_multiples_at(mod, k, out, from, factors, offset, std::make_index_sequence<1>());
    }
    return k;
}
template <class Target, arith::modulus M>
TENSAFE_INLINE void sum_multiples(arith::barrett<M> p, std::span<word> out, const word* const* from,
                                  std::span<const word> factors, word offset) noexcept {
    using vectors = typename lanes_of<Target>::template products<M>;
    std::size_t k = 0;
    if constexpr (vectors::words::width > 1) {
        k = sum_multiples_from<vectors>(k, p, out, from, factors, offset);
    }
    sum_multiples_from<typename one_by_one::template products<M>>(k, p, out, from, factors, offset);
}

template <class Target, arith::modulus M>
TENSAFE_INLINE void sum_pairs(arith::barrett<M> p, const pair_sums* of) noexcept {
    using arithmetic = typename lanes_of<Target>::template products<M>;
    constexpr std::size_t width = arithmetic::words::width;
    const auto mod = arithmetic_for<arithmetic>(p);
    const auto w = mod.as_operand(mod.spread(of->w));
    const std::size_t size = of->sums[0].size();
    for (std::size_t k = 0; k < size; k += width) {
        const word* pair =
            of->pairs + k / interleaved_pairs * 2 * interleaved_pairs * of->stride + k % interleaved_pairs;
        typename arithmetic::sum sums[] = {mod.zero(), mod.zero()};
        std::size_t left = arithmetic::terms - 1;
        if (of->addends[0] != nullptr) {
            mod.add_product(sums[0], load_operand(mod, of->addends[0] + k), w);
        }
        if (of->addends[1] != nullptr) {
            mod.add_product(sums[1], load_operand(mod, of->addends[1] + k), w);
        }
        for (std::size_t t = 0; t < of->terms; ++t) {
            if (--left == 0) {
                mod.normalize(sums[0]);
                mod.normalize(sums[1]);
                left = arithmetic::terms - 1;
            }
            const auto x = load_operand(mod, of->x[t] + k);
            mod.add_product(sums[0], x, load_operand(mod, pair));
            mod.add_product(sums[1], x, load_operand(mod, pair + interleaved_pairs));
            pair += 2 * interleaved_pairs;
        }
        mod.reduce(sums[0]).store(&of->sums[0][k]);
        mod.reduce(sums[1]).store(&of->sums[1][k]);
    }
}

}  // namespace detail

/// Sums multiples of limbs: out = offset + the sum over i of factors[i] * from[i]. The limbs may be of other
/// primes.
/// @pre  at most 62 of them; all words below 2^61, and below 2^50 where q is; factors and offset below q
template <arith::modulus M>
void sum_multiples(arith::barrett<M> p, std::span<word> out, const word* const* from,
                   std::span<const word> factors, word offset) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::sum_multiples<decltype(target), M>>(p, out, from, factors, offset);
    });
}

/// Computes sums of products with pairs.
/// @pre  residues are below q; a multiple of eight of them
template <arith::modulus M>
void sum_pairs(arith::barrett<M> p, const pair_sums& of) noexcept {
    simd::on_active_target(
        [&](auto target) { target.template kernel<&detail::sum_pairs<decltype(target), M>>(p, &of); });
}

}  // namespace tensafe::rns::limb
