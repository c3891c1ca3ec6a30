#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/rns/limb_loops.hpp>
#include <tensafe/simd/dispatch.hpp>
#include <tensafe/simd/transpose.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensafe::rns::limb {

using arith::word;

/// Integers are stored with this added, so that none is negative: magnitudes are below it.
inline constexpr std::uint32_t integer_offset = std::uint32_t{1} << 27;

namespace detail {

/// Sums of entries [0, whole) of some rows, a vector for each g, and of the residues themselves.
template <class Target, class Arithmetic, arith::modulus M, std::size_t... g>
TENSAFE_INLINE void sum_integer_rows(const Arithmetic& mod, arith::barrett<M> p, const std::uint32_t* a,
                                     std::size_t stride, const word* b, std::size_t whole, word* out,
                                     std::index_sequence<g...>) noexcept {
    constexpr std::size_t width = Arithmetic::words::width;
    typename Arithmetic::sum s[] = {(static_cast<void>(g), mod.zero())...};
    for (std::size_t t = 0; t < whole;) {
        const std::size_t end = std::min(whole, t + width * mod.terms);
        for (; t < end; t += width) {
            const auto x = load_operand(mod, b + t);
            (mod.add_product(s[g], Arithmetic::as_operand(Target::load_widened(a + g * stride + t)), x), ...);
        }
        if (t < whole) {
            (mod.normalize(s[g]), ...);
        }
    }
    // The residues of all lanes fit a word.
    ((out[g] = p.reduce_fully(simd::add_lanes(mod.reduce(s[g])))), ...);
}

template <class Target, arith::modulus M>
TENSAFE_INLINE void multiply_integer_rows(arith::barrett<M> p, std::span<word> out, const std::uint32_t* a,
                                          std::size_t stride, std::span<const word> b) noexcept {
    using arithmetic = typename lanes_of<Target>::template products<M>;
    constexpr std::size_t width = arithmetic::words::width;
    std::size_t whole = 0;
    if constexpr (width > 1) {
        whole = b.size() / width * width;
        const auto mod = make<arithmetic>(p);
        std::size_t r = 0;
        for (; r + 4 <= out.size(); r += 4) {
            sum_integer_rows<Target>(mod, p, a + r * stride, stride, b.data(), whole, &out[r],
                                     std::make_index_sequence<4>());
        }
        for (; r < out.size(); ++r) {
            sum_integer_rows<Target>(mod, p, a + r * stride, stride, b.data(), whole, &out[r],
                                     std::make_index_sequence<1>());
        }
    }
    arith::uint128 sum = 0;
    for (const word x : b) {
        sum += x;
    }
    const word q = p.modulus().value();
    const word offset = p.reduce_any(arith::uint128{p.reduce_any(sum)} * integer_offset);
    for (std::size_t r = 0; r < out.size(); ++r) {
        arith::uint128 s = width > 1 ? out[r] : 0;
        for (std::size_t t = whole; t < b.size(); ++t) {
            s += arith::mul_wide(a[r * stride + t], b[t]);
        }
        out[r] = arith::subtract_if_not_below(p.reduce_any(s) + q - offset, q);
    }
}

}  // namespace detail

/// out[r] = the sum over t of a[r * stride + t] * b[t] modulo q, for the signed integers that a holds with
/// integer_offset added: products with 32-bit integers are added up, four rows at once, and each sum is
/// reduced once. No branch or index depends on a value.
/// @pre  residues are below q; b.size() <= 2^24, 2^28 <= q
template <arith::modulus M>
void multiply_integer_rows(arith::barrett<M> p, std::span<word> out, const std::uint32_t* a,
                           std::size_t stride, std::span<const word> b) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::multiply_integer_rows<decltype(target), M>>(p, out, a, stride, b);
    });
}

}  // namespace tensafe::rns::limb
