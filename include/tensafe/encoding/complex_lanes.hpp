#pragma once

#include <tensafe/core/macros.hpp>

#include <array>
#include <cstddef>
#include <cstring>

namespace tensafe::encoding {

namespace detail {

/// Two doubles that are worked on together: one SSE2 register on the baseline x86-64. A compiler vector
/// rather than intrinsics, so that the same lines compile for every target.
using lanes = double __attribute__((vector_size(16)));

/// Two complex numbers, real parts apart from imaginary parts, so that a product needs no shuffle.
struct complex_lanes {
    lanes re;
    lanes im;
};

/// The first three powers of two neighbouring roots, as one radix-4 butterfly reads them.
struct root_powers {
    complex_lanes first;
    complex_lanes second;
    complex_lanes third;
};

TENSAFE_INLINE lanes load(const double* from) noexcept {
    lanes value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
TENSAFE_INLINE void store(double* to, lanes value) noexcept {
    std::memcpy(to, &value, sizeof value);
}

/// The powers of two neighbouring roots, from a table that holds `width` real parts, then as many imaginary
/// parts, of each power.
TENSAFE_INLINE root_powers load_roots(const double* from, std::size_t width) noexcept {
    return {{load(from), load(from + width)},
            {load(from + 2 * width), load(from + 3 * width)},
            {load(from + 4 * width), load(from + 5 * width)}};
}

/// A chunk holds two complex numbers as re0, re1, im0, im1.
TENSAFE_INLINE complex_lanes load_chunk(const double* from) noexcept {
    return {load(from), load(from + 2)};
}
TENSAFE_INLINE void store_chunk(double* to, complex_lanes value) noexcept {
    store(to, value.re);
    store(to + 2, value.im);
}

/// The layout of std::complex: re0, im0, re1, im1.
TENSAFE_INLINE complex_lanes load_interleaved(const double* from) noexcept {
    const lanes a = load(from);
    const lanes b = load(from + 2);
    return {lanes{a[0], b[0]}, lanes{a[1], b[1]}};
}
TENSAFE_INLINE void store_interleaved(double* to, complex_lanes value) noexcept {
    store(to, lanes{value.re[0], value.im[0]});
    store(to + 2, lanes{value.re[1], value.im[1]});
}

/// Keeps a compiler from fusing the product with the addition that follows: every back-end rounds twice.
TENSAFE_INLINE lanes rounded(lanes product) noexcept {
#if TENSAFE_X86_64
    __asm__("" : "+x"(product));
#endif
    return product;
}

TENSAFE_INLINE complex_lanes operator+(complex_lanes a, complex_lanes b) noexcept {
    return {a.re + b.re, a.im + b.im};
}
TENSAFE_INLINE complex_lanes operator-(complex_lanes a, complex_lanes b) noexcept {
    return {a.re - b.re, a.im - b.im};
}
/// By hand: the product of std::complex tests its result for NaN.
TENSAFE_INLINE complex_lanes multiply(complex_lanes a, complex_lanes w) noexcept {
    return {rounded(a.re * w.re) - rounded(a.im * w.im), rounded(a.re * w.im) + rounded(a.im * w.re)};
}
/// a * conj(w)
TENSAFE_INLINE complex_lanes multiply_conjugate(complex_lanes a, complex_lanes w) noexcept {
    return {rounded(a.re * w.re) + rounded(a.im * w.im), rounded(a.im * w.re) - rounded(a.re * w.im)};
}

/// out_p = sum over c < 4 of (-i)^(p c) t_c. With +i instead of -i: hand over t0, t3, t2, t1.
TENSAFE_INLINE std::array<complex_lanes, 4> sum_of_four(complex_lanes t0, complex_lanes t1, complex_lanes t2,
                                                        complex_lanes t3) noexcept {
    const complex_lanes even_sum = t0 + t2;
    const complex_lanes even_difference = t0 - t2;
    const complex_lanes odd_sum = t1 + t3;
    const complex_lanes odd_difference = t1 - t3;
    return {even_sum + odd_sum,
            {even_difference.re + odd_difference.im, even_difference.im - odd_difference.re},
            even_sum - odd_sum,
            {even_difference.re - odd_difference.im, even_difference.im + odd_difference.re}};
}

/// Merges the blocks y0..y3, which stand in bit-reversed order: y1 holds the coefficients 2 mod 4, y2 those 1
/// mod 4.
TENSAFE_INLINE std::array<complex_lanes, 4> merge_four(complex_lanes y0, complex_lanes y1, complex_lanes y2,
                                                       complex_lanes y3, const root_powers& x) noexcept {
    return sum_of_four(y0, multiply(y2, x.first), multiply(y1, x.second), multiply(y3, x.third));
}

/// Undoes merge_four, up to the factor 4.
TENSAFE_INLINE std::array<complex_lanes, 4> split_four(complex_lanes z0, complex_lanes z1, complex_lanes z2,
                                                       complex_lanes z3, const root_powers& x) noexcept {
    const auto t = sum_of_four(z0, z3, z2, z1);
    return {t[0], multiply_conjugate(t[2], x.second), multiply_conjugate(t[1], x.first),
            multiply_conjugate(t[3], x.third)};
}

}  // namespace detail

}  // namespace tensafe::encoding
