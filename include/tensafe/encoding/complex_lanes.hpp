#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/transpose.hpp>

#include <cstddef>

namespace tensafe::encoding::detail {

/// Complex numbers in lanes, real parts apart from imaginary parts, so that a product needs no shuffle. For
/// bodies: see simd/lanes.hpp.
template <class Target>
struct complex_lanes {
    using reals = typename Target::template vector<double>;
    static constexpr std::size_t width = reals::width;

    struct complex {
        reals re;
        reals im;

        friend TENSAFE_INLINE complex operator+(const complex& a, const complex& b) noexcept {
            return {a.re + b.re, a.im + b.im};
        }
        friend TENSAFE_INLINE complex operator-(const complex& a, const complex& b) noexcept {
            return {a.re - b.re, a.im - b.im};
        }
        /// The product by hand: that of std::complex tests its result for NaN.
        friend TENSAFE_INLINE complex operator*(const complex& a, const complex& w) noexcept {
            return {Target::product(a.re, w.re) - Target::product(a.im, w.im),
                    Target::product(a.re, w.im) + Target::product(a.im, w.re)};
        }
    };
    /// The product a * conj(w).
    static TENSAFE_INLINE complex multiply_conjugate(const complex& a, const complex& w) noexcept {
        return {Target::product(a.re, w.re) + Target::product(a.im, w.im),
                Target::product(a.im, w.re) - Target::product(a.re, w.im)};
    }

    struct four {
        complex c0;
        complex c1;
        complex c2;
        complex c3;
    };
    /// The first three powers of neighbouring roots, as a radix-4 butterfly reads them.
    struct root_powers {
        complex first;
        complex second;
        complex third;
    };

    /// Returns c_p = sum over c < 4 of (-i)^(p c) t_c. With +i instead of -i: hand over t0, t3, t2, t1.
    static TENSAFE_INLINE four sum_of_four(const complex& t0, const complex& t1, const complex& t2,
                                           const complex& t3) noexcept {
        const complex even_sum = t0 + t2;
        const complex even_difference = t0 - t2;
        const complex odd_sum = t1 + t3;
        const complex odd_difference = t1 - t3;
        return {even_sum + odd_sum,
                {even_difference.re + odd_difference.im, even_difference.im - odd_difference.re},
                even_sum - odd_sum,
                {even_difference.re - odd_difference.im, even_difference.im + odd_difference.re}};
    }
    /// Merges blocks in bit-reversed order: y.c1 holds the coefficients 2 mod 4, y.c2 those 1 mod 4.
    static TENSAFE_INLINE four merge_four(const four& y, const root_powers& x) noexcept {
        return sum_of_four(y.c0, y.c2 * x.first, y.c1 * x.second, y.c3 * x.third);
    }
    /// Undoes merge_four, up to the factor 4.
    static TENSAFE_INLINE four split_four(const four& z, const root_powers& x) noexcept {
        const four t = sum_of_four(z.c0, z.c3, z.c2, z.c1);
        return {t.c0, multiply_conjugate(t.c2, x.second), multiply_conjugate(t.c1, x.first),
                multiply_conjugate(t.c3, x.third)};
    }

    static TENSAFE_INLINE complex broadcast(double re, double im) noexcept {
        return {Target::broadcast(re), Target::broadcast(im)};
    }
    /// Loads real parts from `from`, imaginary ones `distance` further.
    static TENSAFE_INLINE complex load(const double* from, std::size_t distance) noexcept {
        return {Target::load(from), Target::load(from + distance)};
    }
    /// Loads from a table that holds `group` real parts, then as many imaginary parts, of each power.
    static TENSAFE_INLINE root_powers load_roots(const double* from, std::size_t group) noexcept {
        return {load(from, group), load(from + 2 * group, group), load(from + 4 * group, group)};
    }

    /// Loads a chunk: one vector of real parts, then one of imaginary parts.
    static TENSAFE_INLINE complex load_chunk(const double* from) noexcept { return load(from, width); }
    static TENSAFE_INLINE void store_chunk(double* to, const complex& z) noexcept {
        z.re.store(to);
        z.im.store(to + width);
    }
    /// Loads from the layout of std::complex: re0, im0, re1, im1.
    static TENSAFE_INLINE complex load_interleaved(const double* from) noexcept {
        complex z = load_chunk(from);
        simd::separate(z.re, z.im);
        return z;
    }
    static TENSAFE_INLINE void store_interleaved(double* to, const complex& z) noexcept {
        complex pairs = z;
        simd::interleave(pairs.re, pairs.im);
        store_chunk(to, pairs);
    }
    template <auto load_one>
    static TENSAFE_INLINE four load_four(const double* from, std::size_t distance) noexcept {
        return {load_one(from), load_one(from + distance), load_one(from + 2 * distance),
                load_one(from + 3 * distance)};
    }
    template <auto store_one>
    static TENSAFE_INLINE void store_four(double* to, std::size_t distance, const four& z) noexcept {
        store_one(to, z.c0);
        store_one(to + distance, z.c1);
        store_one(to + 2 * distance, z.c2);
        store_one(to + 3 * distance, z.c3);
    }
};

}  // namespace tensafe::encoding::detail
