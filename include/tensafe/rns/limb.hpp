#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/limb_loops.hpp>
#include <tensafe/simd/dispatch.hpp>
#include <tensafe/simd/transpose.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// Loops over one limb. They take the modulus as an argument, so that all primes of a width share one
/// instantiation. Residues are in [0, q) unless a bound says otherwise; spans have equal sizes; `out` may be
/// one of the inputs. No branch and no index depends on a value. All back-ends give the same words.
namespace tensafe::rns::limb {

using arith::word;

namespace detail {

// Sums of products: bodies of kernels, like those of limb_loops.hpp.

/// The ways in which two sums of lanes become one: see simd/transpose.hpp.
enum class joined { lanes, neighbours, pairs, halves };
template <joined how, class Lanes>
TENSAFE_INLINE Lanes join_lanes(const Lanes& a, const Lanes& b) noexcept {
    if constexpr (how == joined::lanes) {
        return a + b;
    } else if constexpr (how == joined::neighbours) {
        return simd::add_neighbours(a, b);
    } else if constexpr (how == joined::pairs) {
        return simd::add_pairs(a, b);
    } else {
        return simd::halve(a, b);
    }
}
template <joined how, class Sum, std::size_t... part>
TENSAFE_INLINE Sum join(const Sum& a, const Sum& b, std::index_sequence<part...>) noexcept {
    return {{join_lanes<how>(a.parts[part], b.parts[part])...}};
}
template <joined how, class Sum>
TENSAFE_INLINE Sum join(const Sum& a, const Sum& b) noexcept {
    return join<how>(a, b, std::make_index_sequence<sizeof(a.parts) / sizeof(a.parts[0])>());
}

/// The terms whose blocks are summed: a * b, and + c if with_addends.
template <bool with_addends, class Arithmetic>
struct block_terms {
    using sum = typename Arithmetic::sum;
    static constexpr std::size_t width = Arithmetic::words::width;
    Arithmetic mod;
    const word* a;
    const word* b;
    const word* c;

    TENSAFE_INLINE void add_to(sum& s, std::size_t k) const noexcept {
        if constexpr (with_addends) {
            mod.add_product(s, load_operand(mod, a + k), load_operand(mod, b + k), load_operand(mod, c + k));
        } else {
            mod.add_product(s, load_operand(mod, a + k), load_operand(mod, b + k));
        }
    }

    /// The sums of blocks of two.
    TENSAFE_INLINE sum pairs(std::size_t k) const noexcept {
        sum s0 = mod.zero();
        sum s1 = mod.zero();
        add_to(s0, k);
        add_to(s1, k + width);
        return join<joined::halves>(s0, s1);
    }

    /// Adds terms of `length` numbers to each of several sums, from k = first on, `step` further each time;
    /// each sum starts `stride` after the one before.
    template <std::size_t step, std::size_t... v>
    TENSAFE_INLINE void add_terms(sum (&s)[sizeof...(v)], std::size_t first, std::size_t length,
                                  std::size_t stride, std::index_sequence<v...>) const noexcept {
        constexpr std::size_t room = step / width * Arithmetic::block_terms(with_addends);
        for (std::size_t k = first; k < first + length;) {
            const std::size_t end = std::min(first + length, k + room);
            for (; k + step <= end; k += step) {
                (add_to(s[v], k + v * stride), ...);
            }
            if constexpr (step > width) {
                if (k < end) {
                    add_to(s[0], k);
                    k += width;
                }
            }
            if (Arithmetic::joins_residues || k < first + length) {
                (mod.normalize(s[v]), ...);
            }
        }
    }

    /// The sum of one long block, spread over the lanes.
    TENSAFE_INLINE sum one_block(std::size_t first, std::size_t length) const noexcept {
        sum s[] = {mod.zero(), mod.zero()};
        add_terms<2 * width>(s, first, length, width, std::make_index_sequence<2>());
        return join<joined::lanes>(s[0], s[1]);
    }

    /// Sums of four blocks of whole vectors, `stride` apart: of eight lanes, each in two that are two apart.
    TENSAFE_INLINE sum four_blocks(std::size_t first, std::size_t stride, std::size_t length) const noexcept {
        sum s[] = {mod.zero(), mod.zero(), mod.zero(), mod.zero()};
        add_terms<width>(s, first, length, stride, std::make_index_sequence<4>());
        return join<joined::pairs>(join<joined::neighbours>(s[0], s[1]),
                                   join<joined::neighbours>(s[2], s[3]));
    }

    /// The sums of as many blocks as there are lanes, `stride` apart.
    TENSAFE_INLINE sum blocks(std::size_t first, std::size_t stride, std::size_t length) const noexcept {
        if constexpr (width == 4) {
            return four_blocks(first, stride, length);
        } else {
            return join<joined::pairs>(four_blocks(first, stride, length),
                                       four_blocks(first + 4 * stride, stride, length));
        }
    }
};

/// Returns total + the terms of numbers [k, end), one residue at a time.
template <bool reduces_any, class Terms>
TENSAFE_INLINE word add_up(const Terms& terms, word total, std::size_t k, std::size_t end) noexcept {
    const auto& mod = terms.mod;
    using arithmetic = decltype(terms.mod);
    constexpr std::size_t at_once = reduces_any ? arithmetic::any_terms : arithmetic::terms - 1;
    while (k < end) {
        auto s = mod.zero();
        mod.add_residue(s, {total});
        for (const std::size_t stop = std::min(k + at_once, end); k < stop; ++k) {
            terms.add_to(s, k);
        }
        total = reduces_any ? mod.reduce_any(s) : mod.reduce(s).v;
    }
    return total;
}

/// Stores the sums of as many blocks as there are lanes as residues, added to those at `to` if told so.
template <bool accumulate, class Arithmetic>
TENSAFE_INLINE void store_sums(const Arithmetic& mod, const typename Arithmetic::sum& sum,
                               word* to) noexcept {
    typename Arithmetic::sum s = sum;
    if constexpr (accumulate) {
        mod.add_residue(s, load_operand(mod, to));
    }
    mod.reduce(s).store(to);
}

/// Sums each block: sums[i] = (sums[i] +) the sum over block i. As many blocks at a time as there are lanes,
/// if they are whole vectors or 2 or 4 long; then one at a time.
template <class Target, bool accumulate, bool with_addends, arith::modulus M>
TENSAFE_INLINE void sum_blocks(arith::barrett<M> p, std::span<word> sums, std::size_t block, const word* a,
                               const word* b, const word* c) noexcept {
    using arithmetic = typename lanes_of<Target>::template products<M>;
    using scalar = typename one_by_one::template products<M>;
    constexpr std::size_t width = arithmetic::words::width;
    const block_terms<with_addends, scalar> single{arithmetic_for<scalar>(p), a, b, c};
    std::size_t i = 0;
    if constexpr (width > 1) {
        const block_terms<with_addends, arithmetic> terms{arithmetic_for<arithmetic>(p), a, b, c};
        const auto& mod = terms.mod;
        const std::size_t whole = block / width * width;
        if (block == 2) {
            for (; i + width <= sums.size(); i += width) {
                store_sums<accumulate>(mod, terms.pairs(2 * i), &sums[i]);
            }
        } else if (width == 8 && block == 4) {
            for (; i + width <= sums.size(); i += width) {
                const auto s = join<joined::halves>(terms.pairs(4 * i), terms.pairs(4 * i + 2 * width));
                store_sums<accumulate>(mod, s, &sums[i]);
            }
        } else if (block == whole) {
            for (; i + width <= sums.size(); i += width) {
                store_sums<accumulate>(mod, terms.blocks(i * block, block, block), &sums[i]);
            }
        }
        for (; i < sums.size(); ++i) {
            // The residues of all lanes fit a word.
            const auto of_lanes = simd::add_lanes(mod.reduce(terms.one_block(i * block, whole)));
            const word total = p.reduce_fully(arith::uint128{of_lanes} + (accumulate ? sums[i] : 0));
            sums[i] = add_up<false>(single, total, i * block + whole, (i + 1) * block);
        }
    } else {
        const bool any = scalar::any_terms > scalar::terms && block >= 4 * scalar::terms;
        for (; i < sums.size(); ++i) {
            const word start = accumulate ? sums[i] : 0;
            sums[i] = any ? add_up<true>(single, start, i * block, (i + 1) * block)
                          : add_up<false>(single, start, i * block, (i + 1) * block);
        }
    }
}

/// Applies the step with the target of the active back-end.
template <class Step, class M, class Policy, class... Args>
TENSAFE_INLINE void run(Policy p, std::span<word> out, Args... args) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&apply<decltype(target), Step, M, Policy, Args...>>(p, out, args...);
    });
}

}  // namespace detail

/// Adds residues: out = a + b.
template <arith::modulus M>
void add(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
    detail::run<detail::add, M>(m, out, a.data(), b.data());
}

/// Subtracts residues: out = a - b.
template <arith::modulus M>
void subtract(M m, std::span<word> out, std::span<const word> a, std::span<const word> b) noexcept {
    detail::run<detail::subtract, M>(m, out, a.data(), b.data());
}

/// Multiplies residues: out = a * b.
template <arith::modulus M>
void multiply(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
              std::span<const word> b) noexcept {
    detail::run<detail::multiply, M>(p, out, a.data(), b.data());
}

/// Multiplies and adds residues: out = a * b + c.
template <arith::modulus M>
void multiply_add(arith::barrett<M> p, std::span<word> out, std::span<const word> a, std::span<const word> b,
                  std::span<const word> c) noexcept {
    detail::run<detail::multiply_add, M>(p, out, a.data(), b.data(), c.data());
}

/// Subtracts products of residues: out = c - a * b.
template <arith::modulus M>
void subtract_product(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                      std::span<const word> b, std::span<const word> c) noexcept {
    detail::run<detail::subtract_product, M>(p, out, a.data(), b.data(), c.data());
}

/// Sets sums[i] = the sum over block i of a * b + c, for sums.size() blocks of equal length; sums of many
/// products are reduced once.
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

/// Adds to sums[i] the sum over block i of a * b, for sums.size() blocks of equal length.
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

/// Adds small signed integers of magnitude below q: out += small.
template <arith::modulus M>
void add_small(M m, std::span<word> out, std::span<const std::int8_t> small) noexcept {
    detail::run<detail::add_small, M>(m, out, out.data(), small.data());
}

/// Sets residues to small signed integers of magnitude below q: out = small.
template <arith::modulus M>
void set_small(M m, std::span<word> out, std::span<const std::int8_t> small) noexcept {
    detail::run<detail::set_small, M>(m, out, small.data());
}

/// Rounds reals, ties away from zero, for |real| < 2^112: out = round(real). Two words hold the integer part.
template <arith::modulus M>
void round_reals(arith::shoup<M> p, std::span<word> out, std::span<const double> reals) noexcept {
    detail::run<detail::round_reals, M>(p, out, reals.data());
}

/// Reduces any words: out = words - shift, for shift in [0, q).
template <arith::modulus M>
void reduce_shifted(arith::shoup<M> p, std::span<word> out, std::span<const word> words,
                    word shift) noexcept {
    detail::run<detail::reduce_shifted, M>(p, out, words.data(), shift);
}

/// Scales shifted residues: out = (a - shift) * w, for shift in [0, q).
template <arith::modulus M>
void scale_shifted(arith::shoup<M> p, std::span<word> out, std::span<const word> a, word shift,
                   typename arith::shoup<M>::factor w) noexcept {
    detail::run<detail::scale_shifted, M>(p, out, a.data(), shift, w);
}

/// Scales differences of residues: out = (a - b) * w.
template <arith::modulus M>
void scale_difference(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                      std::span<const word> b, typename arith::shoup<M>::factor w) noexcept {
    detail::run<detail::scale_difference, M>(p, out, a.data(), b.data(), w);
}

/// Adds a constant to residues: out = a + c, for c in [0, q).
template <arith::modulus M>
void add_constant(M m, std::span<word> out, std::span<const word> a, word c) noexcept {
    detail::run<detail::add_constant, M>(m, out, a.data(), c);
}

/// Scales residues: out = a * w.
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
