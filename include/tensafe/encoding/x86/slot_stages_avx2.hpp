#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/slot_tables.hpp>
#include <tensafe/memory/wipe.hpp>

#include <array>
#include <cstddef>
#include <cstring>

#if TENSAFE_X86_64
#include <immintrin.h>

/// The stages of the slot transform on four complex numbers at a time.
namespace tensafe::encoding::detail::avx2 {

/// Slots whose stages are done together, smallest first: with their roots they fit a cache of 32 KiB.
inline constexpr std::size_t cached_slots = 1024;

struct complex4 {
    __m256d re;
    __m256d im;
};
struct root_powers4 {
    complex4 first;
    complex4 second;
    complex4 third;
};
struct four4 {
    complex4 c0;
    complex4 c1;
    complex4 c2;
    complex4 c3;
};
struct rows4 {
    __m256d r0;
    __m256d r1;
    __m256d r2;
    __m256d r3;
};

/// Keeps a compiler from fusing the product with the addition that follows: every back-end rounds twice.
TENSAFE_AVX2 TENSAFE_INLINE __m256d rounded(__m256d product) noexcept {
    __asm__("" : "+x"(product));
    return product;
}
TENSAFE_AVX2 TENSAFE_INLINE __m256d product(__m256d a, __m256d b) noexcept {
    return rounded(_mm256_mul_pd(a, b));
}
TENSAFE_AVX2 TENSAFE_INLINE complex4 add(complex4 a, complex4 b) noexcept {
    return {_mm256_add_pd(a.re, b.re), _mm256_add_pd(a.im, b.im)};
}
TENSAFE_AVX2 TENSAFE_INLINE complex4 subtract(complex4 a, complex4 b) noexcept {
    return {_mm256_sub_pd(a.re, b.re), _mm256_sub_pd(a.im, b.im)};
}
TENSAFE_AVX2 TENSAFE_INLINE complex4 multiply(complex4 a, complex4 w) noexcept {
    return {_mm256_sub_pd(product(a.re, w.re), product(a.im, w.im)),
            _mm256_add_pd(product(a.re, w.im), product(a.im, w.re))};
}
/// a * conj(w)
TENSAFE_AVX2 TENSAFE_INLINE complex4 multiply_conjugate(complex4 a, complex4 w) noexcept {
    return {_mm256_add_pd(product(a.re, w.re), product(a.im, w.im)),
            _mm256_sub_pd(product(a.im, w.re), product(a.re, w.im))};
}

/// As portable: c_p = sum over c < 4 of (-i)^(p c) t_c.
TENSAFE_AVX2 TENSAFE_INLINE four4 sum_of_four(complex4 t0, complex4 t1, complex4 t2, complex4 t3) noexcept {
    const complex4 even_sum = add(t0, t2);
    const complex4 even_difference = subtract(t0, t2);
    const complex4 odd_sum = add(t1, t3);
    const complex4 odd_difference = subtract(t1, t3);
    return {add(even_sum, odd_sum),
            {_mm256_add_pd(even_difference.re, odd_difference.im),
             _mm256_sub_pd(even_difference.im, odd_difference.re)},
            subtract(even_sum, odd_sum),
            {_mm256_sub_pd(even_difference.re, odd_difference.im),
             _mm256_add_pd(even_difference.im, odd_difference.re)}};
}
TENSAFE_AVX2 TENSAFE_INLINE four4 merge_four(const four4& y, const root_powers4& x) noexcept {
    return sum_of_four(y.c0, multiply(y.c2, x.first), multiply(y.c1, x.second), multiply(y.c3, x.third));
}
TENSAFE_AVX2 TENSAFE_INLINE four4 split_four(const four4& z, const root_powers4& x) noexcept {
    const four4 t = sum_of_four(z.c0, z.c3, z.c2, z.c1);
    return {t.c0, multiply_conjugate(t.c2, x.second), multiply_conjugate(t.c1, x.first),
            multiply_conjugate(t.c3, x.third)};
}

TENSAFE_AVX2 TENSAFE_INLINE complex4 splat(double re, double im) noexcept {
    return {_mm256_set1_pd(re), _mm256_set1_pd(im)};
}
TENSAFE_AVX2 TENSAFE_INLINE root_powers4 start_roots(const slot_tables& tables) noexcept {
    const auto& x = tables.start_roots();
    return {splat(x[0].real(), x[0].imag()), splat(x[1].real(), x[1].imag()),
            splat(x[2].real(), x[2].imag())};
}

/// A chunk: four real parts, then four imaginary ones.
TENSAFE_AVX2 TENSAFE_INLINE complex4 load_chunk(const double* from) noexcept {
    return {_mm256_loadu_pd(from), _mm256_loadu_pd(from + 4)};
}
TENSAFE_AVX2 TENSAFE_INLINE void store_chunk(double* to, complex4 z) noexcept {
    _mm256_storeu_pd(to, z.re);
    _mm256_storeu_pd(to + 4, z.im);
}
/// The layout of std::complex: re0, im0, re1, im1.
TENSAFE_AVX2 TENSAFE_INLINE complex4 load_interleaved(const double* from) noexcept {
    const __m256d a = _mm256_loadu_pd(from);
    const __m256d b = _mm256_loadu_pd(from + 4);
    const __m256d low = _mm256_permute2f128_pd(a, b, 0x20);
    const __m256d high = _mm256_permute2f128_pd(a, b, 0x31);
    return {_mm256_unpacklo_pd(low, high), _mm256_unpackhi_pd(low, high)};
}
TENSAFE_AVX2 TENSAFE_INLINE void store_interleaved(double* to, complex4 z) noexcept {
    const __m256d low = _mm256_unpacklo_pd(z.re, z.im);
    const __m256d high = _mm256_unpackhi_pd(z.re, z.im);
    _mm256_storeu_pd(to, _mm256_permute2f128_pd(low, high, 0x20));
    _mm256_storeu_pd(to + 4, _mm256_permute2f128_pd(low, high, 0x31));
}
/// From a table that holds `width` real parts, then as many imaginary ones, of each power.
TENSAFE_AVX2 TENSAFE_INLINE root_powers4 load_roots(const double* from, std::size_t width) noexcept {
    return {{_mm256_loadu_pd(from), _mm256_loadu_pd(from + width)},
            {_mm256_loadu_pd(from + 2 * width), _mm256_loadu_pd(from + 3 * width)},
            {_mm256_loadu_pd(from + 4 * width), _mm256_loadu_pd(from + 5 * width)}};
}

TENSAFE_AVX2 TENSAFE_INLINE rows4 transpose(const rows4& a) noexcept {
    const __m256d b0 = _mm256_unpacklo_pd(a.r0, a.r1);
    const __m256d b1 = _mm256_unpackhi_pd(a.r0, a.r1);
    const __m256d b2 = _mm256_unpacklo_pd(a.r2, a.r3);
    const __m256d b3 = _mm256_unpackhi_pd(a.r2, a.r3);
    return {_mm256_permute2f128_pd(b0, b2, 0x20), _mm256_permute2f128_pd(b1, b3, 0x20),
            _mm256_permute2f128_pd(b0, b2, 0x31), _mm256_permute2f128_pd(b1, b3, 0x31)};
}

/// Chunks at four places, with the offset between them.
TENSAFE_AVX2 TENSAFE_INLINE four4 load_four(const double* from, std::size_t distance) noexcept {
    return {load_chunk(from), load_chunk(from + distance), load_chunk(from + 2 * distance),
            load_chunk(from + 3 * distance)};
}
TENSAFE_AVX2 TENSAFE_INLINE void store_four(double* to, std::size_t distance, const four4& z) noexcept {
    store_chunk(to, z.c0);
    store_chunk(to + distance, z.c1);
    store_chunk(to + 2 * distance, z.c2);
    store_chunk(to + 3 * distance, z.c3);
}

// Coefficients to slots

/// Four rows, one for each lane of the coefficients, to the four blocks whose top bits are the lane's
/// reversed.
TENSAFE_AVX2 TENSAFE_INLINE void scatter_rows(double* to, std::size_t quarter, const rows4& a) noexcept {
    const rows4 t = transpose(a);
    _mm256_storeu_pd(to, t.r0);
    _mm256_storeu_pd(to + 2 * quarter, t.r1);
    _mm256_storeu_pd(to + quarter, t.r2);
    _mm256_storeu_pd(to + 3 * quarter, t.r3);
}

/// As portable: three top bits, the middle, two low bits.
TENSAFE_AVX2 inline void gather_and_merge(const slot_tables& tables, const double* coefficients,
                                          double* work) noexcept {
    const std::size_t slots = tables.slots();
    const std::size_t quarter = slots / 4;
    const root_powers4 x = start_roots(tables);
    for (std::size_t middle = 0; middle < slots / 32; ++middle) {
        for (std::size_t half = 0; half < 2; ++half) {
            const double* const re = coefficients + 8 * tables.reversed_middle(middle) + 4 * half;
            const double* const im = re + slots;
            double* const to = work + 8 * middle + half * quarter;
            const complex4 b0{_mm256_loadu_pd(re), _mm256_loadu_pd(im)};
            const complex4 b1{_mm256_loadu_pd(re + quarter), _mm256_loadu_pd(im + quarter)};
            const complex4 b2{_mm256_loadu_pd(re + 2 * quarter), _mm256_loadu_pd(im + 2 * quarter)};
            const complex4 b3{_mm256_loadu_pd(re + 3 * quarter), _mm256_loadu_pd(im + 3 * quarter)};
            const four4 z =
                sum_of_four(b0, multiply(b3, x.third), multiply(b2, x.second), multiply(b1, x.first));
            scatter_rows(to, 2 * quarter, {z.c0.re, z.c1.re, z.c2.re, z.c3.re});
            scatter_rows(to + 4, 2 * quarter, {z.c0.im, z.c1.im, z.c2.im, z.c3.im});
        }
    }
}

TENSAFE_AVX2 inline void merge_pairs(const slot_tables& tables, double* begin, double* end) noexcept {
    const complex4 x = load_chunk(tables.pair_roots());
    for (double* at = begin; at != end; at += 16) {
        const complex4 even = load_chunk(at);
        const complex4 odd = multiply(load_chunk(at + 8), x);
        store_chunk(at, add(even, odd));
        store_chunk(at + 8, subtract(even, odd));
    }
}

/// One radix-4 stage on the blocks from `begin` to `end`.
TENSAFE_AVX2 inline void merge_stage(const slot_tables& tables, double* begin, double* end,
                                     std::size_t quarter) noexcept {
    const std::size_t width = slot_tables::group(quarter);
    const std::size_t distance = 2 * quarter;
    for (double* block = begin; block != end; block += 4 * distance) {
        const double* roots = tables.stage_roots(quarter);
        for (double* at = block; at != block + distance; at += 2 * width, roots += 6 * width) {
            for (std::size_t lane = 0; lane != width; lane += 4) {
                store_four(at + 2 * lane, distance,
                           merge_four(load_four(at + 2 * lane, distance), load_roots(roots + lane, width)));
            }
        }
    }
}

TENSAFE_AVX2 inline void to_slots(const slot_tables& tables, const double* coefficients,
                                  double* work) noexcept {
    const std::size_t slots = tables.slots();
    const std::size_t last = slots / 4;
    gather_and_merge(tables, coefficients, work);
    std::size_t cached = tables.first_quarter();
    while (cached < last && 4 * cached <= cached_slots) {
        cached *= 4;
    }
    for (double* block = work; block != work + 2 * slots; block += 2 * cached) {
        if (tables.has_pairs()) {
            merge_pairs(tables, block, block + 2 * cached);
        }
        for (std::size_t quarter = tables.first_quarter(); quarter < cached; quarter *= 4) {
            merge_stage(tables, block, block + 2 * cached, quarter);
        }
    }
    for (std::size_t quarter = cached; quarter < last; quarter *= 4) {
        merge_stage(tables, work, work + 2 * slots, quarter);
    }
    const double* roots = tables.stage_roots(last);
    const std::size_t distance = 2 * last;
    for (double* at = work; at != work + distance; at += 16, roots += 48) {
        for (std::size_t lane = 0; lane != 8; lane += 4) {
            double* const to = at + 2 * lane;
            const four4 z = merge_four(load_four(to, distance), load_roots(roots + lane, 8));
            store_interleaved(to, z.c0);
            store_interleaved(to + distance, z.c1);
            store_interleaved(to + 2 * distance, z.c2);
            store_interleaved(to + 3 * distance, z.c3);
        }
    }
}

// Slots to coefficients: the same stages backwards

TENSAFE_AVX2 inline void split_stage(const slot_tables& tables, double* begin, double* end,
                                     std::size_t quarter) noexcept {
    const std::size_t width = slot_tables::group(quarter);
    const std::size_t distance = 2 * quarter;
    for (double* block = begin; block != end; block += 4 * distance) {
        const double* roots = tables.stage_roots(quarter);
        for (double* at = block; at != block + distance; at += 2 * width, roots += 6 * width) {
            for (std::size_t lane = 0; lane != width; lane += 4) {
                store_four(at + 2 * lane, distance,
                           split_four(load_four(at + 2 * lane, distance), load_roots(roots + lane, width)));
            }
        }
    }
}

TENSAFE_AVX2 inline void split_pairs(const slot_tables& tables, double* begin, double* end) noexcept {
    const complex4 x = load_chunk(tables.pair_roots());
    for (double* at = begin; at != end; at += 16) {
        const complex4 a = load_chunk(at);
        const complex4 b = load_chunk(at + 8);
        store_chunk(at, add(a, b));
        store_chunk(at + 8, multiply_conjugate(subtract(a, b), x));
    }
}

/// Rows of the four blocks whose top bits are a lane's reversed, transposed: lane by lane.
TENSAFE_AVX2 TENSAFE_INLINE rows4 gather_rows(const double* from, std::size_t quarter) noexcept {
    return transpose({_mm256_loadu_pd(from), _mm256_loadu_pd(from + 2 * quarter),
                      _mm256_loadu_pd(from + quarter), _mm256_loadu_pd(from + 3 * quarter)});
}

/// As portable: eight blocks of four to eight rows of eight values, `row` values apart.
TENSAFE_AVX2 inline void split_set(const slot_tables& tables, const double* from, double* to,
                                   std::size_t row) noexcept {
    const std::size_t quarter = tables.slots() / 4;
    const root_powers4 x = start_roots(tables);
    const __m256d factor = _mm256_set1_pd(1.0 / static_cast<double>(tables.slots()));
    for (std::size_t half = 0; half < 2; ++half) {
        const rows4 re = gather_rows(from + half * quarter, 2 * quarter);
        const rows4 im = gather_rows(from + half * quarter + 4, 2 * quarter);
        const four4 t = sum_of_four({re.r0, im.r0}, {re.r1, im.r1}, {re.r2, im.r2}, {re.r3, im.r3});
        const complex4 b1 = multiply_conjugate(t.c1, x.first);
        const complex4 b2 = multiply_conjugate(t.c2, x.second);
        const complex4 b3 = multiply_conjugate(t.c3, x.third);
        double* const at = to + 4 * half;
        _mm256_storeu_pd(at, _mm256_mul_pd(t.c0.re, factor));
        _mm256_storeu_pd(at + row, _mm256_mul_pd(b1.re, factor));
        _mm256_storeu_pd(at + 2 * row, _mm256_mul_pd(b2.re, factor));
        _mm256_storeu_pd(at + 3 * row, _mm256_mul_pd(b3.re, factor));
        _mm256_storeu_pd(at + 4 * row, _mm256_mul_pd(t.c0.im, factor));
        _mm256_storeu_pd(at + 5 * row, _mm256_mul_pd(b1.im, factor));
        _mm256_storeu_pd(at + 6 * row, _mm256_mul_pd(b2.im, factor));
        _mm256_storeu_pd(at + 7 * row, _mm256_mul_pd(b3.im, factor));
    }
}

/// As portable.
TENSAFE_AVX2 inline void split_and_scatter(const slot_tables& tables, double* work) noexcept {
    alignas(64) std::array<double, 64> kept;
    const memory::wipe_guard guard(kept);
    const std::size_t row = tables.slots() / 4;
    for (std::size_t middle = 0; middle < tables.slots() / 32; ++middle) {
        const std::size_t partner = tables.reversed_middle(middle);
        if (partner < middle) {
            continue;
        }
        split_set(tables, work + 8 * middle, kept.data(), 8);
        if (partner != middle) {
            split_set(tables, work + 8 * partner, work + 8 * middle, row);
        }
        for (std::size_t r = 0; r < 8; ++r) {
            std::memcpy(work + 8 * partner + r * row, kept.data() + 8 * r, 8 * sizeof(double));
        }
    }
}

/// `slots` may be `work` itself.
TENSAFE_AVX2 inline void to_coefficients(const slot_tables& tables, const double* values,
                                         double* work) noexcept {
    const std::size_t slots = tables.slots();
    const std::size_t last = slots / 4;
    const double* roots = tables.stage_roots(last);
    const std::size_t distance = 2 * last;
    for (std::size_t first = 0; first != distance; first += 16, roots += 48) {
        for (std::size_t lane = 0; lane != 8; lane += 4) {
            const double* const from = values + first + 2 * lane;
            store_four(
                work + first + 2 * lane, distance,
                split_four({load_interleaved(from), load_interleaved(from + distance),
                            load_interleaved(from + 2 * distance), load_interleaved(from + 3 * distance)},
                           load_roots(roots + lane, 8)));
        }
    }
    std::size_t quarter = last / 4;
    for (; 4 * quarter > cached_slots; quarter /= 4) {
        split_stage(tables, work, work + 2 * slots, quarter);
    }
    const std::size_t cached = 4 * quarter;
    for (double* block = work; block != work + 2 * slots; block += 2 * cached) {
        for (std::size_t q = quarter; q >= tables.first_quarter(); q /= 4) {
            split_stage(tables, block, block + 2 * cached, q);
        }
        if (tables.has_pairs()) {
            split_pairs(tables, block, block + 2 * cached);
        }
    }
    split_and_scatter(tables, work);
}

}  // namespace tensafe::encoding::detail::avx2

#endif
