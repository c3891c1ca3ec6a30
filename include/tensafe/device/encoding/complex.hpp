#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>

#include <cstddef>

namespace tensafe::encoding {

/// A slot, a root: two doubles that are read and written at once. Compilers let it alias arrays of double,
/// its members' type.
struct alignas(16) complex_value {
    double re;
    double im;
};

/// Entry j of an array of complex numbers, real and imaginary part in turn.  @pre `from` is 16-byte aligned
TENSAFE_HOST_DEVICE TENSAFE_INLINE complex_value load_complex(const double* from, std::size_t j) noexcept {
    return reinterpret_cast<const complex_value*>(from)[j];
}
TENSAFE_HOST_DEVICE TENSAFE_INLINE void store_complex(double* to, std::size_t j,
                                                      complex_value value) noexcept {
    reinterpret_cast<complex_value*>(to)[j] = value;
}

// The steps of complex_lanes.hpp for one number: the same sums of the same rounded products.
namespace detail {

TENSAFE_HOST_DEVICE TENSAFE_INLINE complex_value add(complex_value a, complex_value b) noexcept {
    return {a.re + b.re, a.im + b.im};
}
TENSAFE_HOST_DEVICE TENSAFE_INLINE complex_value subtract(complex_value a, complex_value b) noexcept {
    return {a.re - b.re, a.im - b.im};
}
TENSAFE_HOST_DEVICE TENSAFE_INLINE complex_value multiply(complex_value a, complex_value w) noexcept {
    return {arith::rounded_product(a.re, w.re) - arith::rounded_product(a.im, w.im),
            arith::rounded_product(a.re, w.im) + arith::rounded_product(a.im, w.re)};
}
/// a * conj(w)
TENSAFE_HOST_DEVICE TENSAFE_INLINE complex_value multiply_conjugate(complex_value a,
                                                                    complex_value w) noexcept {
    return {arith::rounded_product(a.re, w.re) + arith::rounded_product(a.im, w.im),
            arith::rounded_product(a.im, w.re) - arith::rounded_product(a.re, w.im)};
}

/// The first three powers of a root.
struct powers {
    complex_value first;
    complex_value second;
    complex_value third;
};

/// t_p becomes the sum over c < 4 of (-i)^(p c) t_c.
TENSAFE_HOST_DEVICE TENSAFE_INLINE void sum_of_four(complex_value& t0, complex_value& t1, complex_value& t2,
                                                    complex_value& t3) noexcept {
    const complex_value even_sum = add(t0, t2);
    const complex_value even_difference = subtract(t0, t2);
    const complex_value odd_sum = add(t1, t3);
    const complex_value odd_difference = subtract(t1, t3);
    t0 = add(even_sum, odd_sum);
    t1 = {even_difference.re + odd_difference.im, even_difference.im - odd_difference.re};
    t2 = subtract(even_sum, odd_sum);
    t3 = {even_difference.re - odd_difference.im, even_difference.im + odd_difference.re};
}

/// Merges four blocks in bit-reversed order, in place, as `merge_four` does.
TENSAFE_HOST_DEVICE TENSAFE_INLINE void merge_blocks(complex_value& y0, complex_value& y1, complex_value& y2,
                                                     complex_value& y3, const powers& x) noexcept {
    const complex_value first = multiply(y2, x.first);
    const complex_value second = multiply(y1, x.second);
    y3 = multiply(y3, x.third);
    y1 = first;
    y2 = second;
    sum_of_four(y0, y1, y2, y3);
}

/// Undoes merge_blocks, up to the factor 4.
TENSAFE_HOST_DEVICE TENSAFE_INLINE void split_blocks(complex_value& z0, complex_value& z1, complex_value& z2,
                                                     complex_value& z3, const powers& x) noexcept {
    sum_of_four(z0, z3, z2, z1);
    const complex_value first = z3;
    const complex_value second = z2;
    const complex_value third = z1;
    z1 = multiply_conjugate(second, x.second);
    z2 = multiply_conjugate(first, x.first);
    z3 = multiply_conjugate(third, x.third);
}

/// The stage that merges single coefficients, in bit-reversed order: there the fourth root of one is i.
TENSAFE_HOST_DEVICE TENSAFE_INLINE void merge_coefficients(complex_value& y0, complex_value& y1,
                                                           complex_value& y2, complex_value& y3,
                                                           const powers& x) noexcept {
    const complex_value first = multiply(y2, x.first);
    const complex_value second = multiply(y1, x.second);
    y1 = multiply(y3, x.third);
    y2 = second;
    y3 = first;
    sum_of_four(y0, y1, y2, y3);
}

/// Undoes merge_coefficients, up to the factor 4.
TENSAFE_HOST_DEVICE TENSAFE_INLINE void split_coefficients(complex_value& z0, complex_value& z1,
                                                           complex_value& z2, complex_value& z3,
                                                           const powers& x) noexcept {
    sum_of_four(z0, z1, z2, z3);
    const complex_value first = multiply_conjugate(z1, x.first);
    z1 = multiply_conjugate(z2, x.second);
    z2 = first;
    z3 = multiply_conjugate(z3, x.third);
}

}  // namespace detail

}  // namespace tensafe::encoding
