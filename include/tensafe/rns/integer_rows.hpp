#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/ntt/interleaved.hpp>
#include <tensafe/rns/limb_loops.hpp>
#include <tensafe/simd/dispatch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

/// Matrices of integers, eight rows at a time: entry t of eight rows stands at 8 * t, before the next eight.
namespace tensafe::rns::limb {

using arith::word;
using ntt::interleaved;

/// The offset that is added to stored integers, so that none is negative; magnitudes are below it.
inline constexpr std::uint32_t integer_offset = std::uint32_t{1} << 27;

/// Residues modulo one prime, and where the sums of their products with each row go.
template <arith::modulus M>
struct row_products {
    arith::barrett<M> policy;
    const word* from;
    word* to;
};

namespace detail {

template <class Arithmetic, class Target>
TENSAFE_INLINE typename Arithmetic::words load_integers(const std::uint32_t* from) noexcept {
    if constexpr (Arithmetic::words::width == 1) {
        return {*from};
    } else {
        return Target::load_widened(from);
    }
}

/// Sums of some vectors of rows, and of the residues themselves.
template <class Arithmetic, std::size_t... v>
struct row_sums {
    using arithmetic = Arithmetic;
    using sum = typename Arithmetic::sum;
    Arithmetic mod;
    const word* from;
    word* to;
    sum s[sizeof...(v)] = {(static_cast<void>(v), Arithmetic::zero())...};
    sum plain = Arithmetic::zero();

    template <arith::modulus M>
    TENSAFE_INLINE row_sums(const row_products<M>& p, std::size_t row) noexcept
        : mod(arithmetic_for<Arithmetic>(p.policy)), from(p.from), to(p.to + row) {}

    TENSAFE_INLINE void add(std::size_t t, const typename Arithmetic::words* rows) noexcept {
        const typename Arithmetic::operand x = Arithmetic::as_operand(Arithmetic::spread(from[t]));
        (mod.add_product(s[v], Arithmetic::as_operand(rows[v]), x), ...);
        mod.add_residue(plain, x);
    }
    TENSAFE_INLINE void normalize() noexcept {
        (mod.normalize(s[v]), ...);
        mod.normalize(plain);
    }
    TENSAFE_INLINE void store() const noexcept {
        const auto offset = mod.multiply(Arithmetic::as_operand(mod.reduce(plain)),
                                         Arithmetic::as_operand(Arithmetic::spread(integer_offset)));
        (mod.subtract(mod.reduce(s[v]), offset).store(to + v * Arithmetic::words::width), ...);
    }
};

/// The number of entries that are asked for ahead of their use: the rows are seldom in cache.
inline constexpr std::size_t entries_ahead = 64;

/// Multiplies rows from number `row` on, a vector for each v.
template <class Target, std::size_t... v, class Sums, class... More>
TENSAFE_INLINE void sum_integer_rows(const std::uint32_t* a, std::size_t d, std::size_t row,
                                     std::index_sequence<v...>, Sums&& sums, More&&... more) noexcept {
    using arithmetic = typename std::remove_reference_t<Sums>::arithmetic;
    constexpr std::size_t width = arithmetic::words::width;
    const std::uint32_t* const rows[] = {a + (row + v * width) / interleaved * interleaved * d +
                                         (row + v * width) % interleaved...};
    for (std::size_t t = 0; t < d;) {
        const std::size_t end = std::min({d, t + sums.mod.terms, t + more.mod.terms...});
        for (; t < end; ++t) {
            (__builtin_prefetch(rows[v] + (t + entries_ahead) * interleaved), ...);
            const typename arithmetic::words x[] = {
                load_integers<arithmetic, Target>(rows[v] + t * interleaved)...};
            sums.add(t, x);
            (more.add(t, x), ...);
        }
        if (t < d) {
            sums.normalize();
            (more.normalize(), ...);
        }
    }
    sums.store();
    (more.store(), ...);
}

template <class Target, arith::modulus M, arith::modulus... More>
TENSAFE_INLINE void multiply_integer_rows(const std::uint32_t* a, std::size_t d, std::size_t rows,
                                          row_products<M> p, row_products<More>... more) noexcept {
    using lanes = lanes_of<Target>;
    using products = typename lanes::template products<M>;
    if constexpr ((std::is_same_v<typename products::words, typename lanes::template products<More>::words> &&
                   ...)) {
        constexpr std::size_t width = products::words::width;
        std::size_t row = 0;
        for (; row + 4 * width <= rows; row += 4 * width) {
            sum_integer_rows<Target>(
                a, d, row, std::make_index_sequence<4>(), row_sums<products, 0, 1, 2, 3>(p, row),
                row_sums<typename lanes::template products<More>, 0, 1, 2, 3>(more, row)...);
        }
        for (; row < rows; row += width) {
            sum_integer_rows<Target>(a, d, row, std::make_index_sequence<1>(), row_sums<products, 0>(p, row),
                                     row_sums<typename lanes::template products<More>, 0>(more, row)...);
        }
    } else {
        multiply_integer_rows<Target>(a, d, rows, p);
        multiply_integer_rows<Target>(a, d, rows, more...);
    }
}

/// Sets out[8 k ...] = (the integers at a - 8 k) * w.
template <class Target, arith::modulus M>
TENSAFE_INLINE void scale_integers(arith::shoup<M> p, std::span<word> out, const std::uint32_t* a,
                                   typename arith::shoup<M>::factor w) noexcept {
    using arithmetic = typename lanes_of<Target>::template factors<M>;
    const auto mod = arithmetic_for<arithmetic>(p);
    const auto offset = arithmetic::spread(integer_offset);
    const auto factor = mod.prepare(w);
    for (std::size_t k = 0; k < out.size(); k += interleaved, a -= interleaved) {
        for (std::size_t lane = 0; lane < interleaved; lane += arithmetic::words::width) {
            mod.scale_difference(load_integers<arithmetic, Target>(a + lane), offset, factor)
                .store(&out[k + lane]);
        }
    }
}

}  // namespace detail

/// Multiplies integers with each of the products p: p.to[r] = the sum over t of a[r][t] * p.from[t] modulo
/// its prime, for d entries of `rows` rows, a multiple of eight. Products with 32-bit integers are added up,
/// and each sum is reduced once. No branch or index depends on a value.
/// @pre  residues are below q; d <= 2^24, 2^28 <= q
template <arith::modulus... M>
void multiply_integer_rows(const std::uint32_t* a, std::size_t d, std::size_t rows,
                           row_products<M>... p) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::multiply_integer_rows<decltype(target), M...>>(a, d, rows, p...);
    });
}

/// Scales rows: entry k of out, eight words, is w times the entry of eight rows k before the one at `a`.
/// @pre  2^28 <= q
template <arith::modulus M>
void scale_integers(arith::shoup<M> p, std::span<word> out, const std::uint32_t* a,
                    typename arith::shoup<M>::factor w) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::scale_integers<decltype(target), M>>(p, out, a, w);
    });
}

}  // namespace tensafe::rns::limb
