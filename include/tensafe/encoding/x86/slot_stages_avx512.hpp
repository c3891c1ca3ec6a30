#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/slot_tables.hpp>
#include <tensafe/memory/wipe.hpp>

#include <array>
#include <cstddef>

#if TENSAFE_X86_64
#include <immintrin.h>

/// The stages of the slot transform on eight complex numbers at a time.
namespace tensafe::encoding::detail::avx512 {

/// Fewer slots than this do not fill the blocks below.
inline constexpr std::size_t least_slots = 128;
/// Slots whose stages are done together, smallest first: with their roots they fit a cache of 32 KiB.
inline constexpr std::size_t cached_slots = 1024;

struct complex8 {
    __m512d re;
    __m512d im;
};
struct root_powers8 {
    complex8 first;
    complex8 second;
    complex8 third;
};
struct four8 {
    complex8 c0;
    complex8 c1;
    complex8 c2;
    complex8 c3;
};
struct rows8 {
    __m512d r0;
    __m512d r1;
    __m512d r2;
    __m512d r3;
    __m512d r4;
    __m512d r5;
    __m512d r6;
    __m512d r7;
};

/// Keeps a compiler from fusing the product with the addition that follows: every back-end rounds twice.
TENSAFE_AVX512 TENSAFE_INLINE __m512d rounded(__m512d product) noexcept {
    __asm__("" : "+v"(product));
    return product;
}
TENSAFE_AVX512 TENSAFE_INLINE __m512d product(__m512d a, __m512d b) noexcept {
    return rounded(_mm512_mul_pd(a, b));
}
/// Into a register: what is an operand of several instructions, GCC would read from memory in each of them.
TENSAFE_AVX512 TENSAFE_INLINE __m512d load(const double* from) noexcept {
    __m512d value = _mm512_loadu_pd(from);
    __asm__("" : "+v"(value));
    return value;
}
TENSAFE_AVX512 TENSAFE_INLINE complex8 add(complex8 a, complex8 b) noexcept {
    return {_mm512_add_pd(a.re, b.re), _mm512_add_pd(a.im, b.im)};
}
TENSAFE_AVX512 TENSAFE_INLINE complex8 subtract(complex8 a, complex8 b) noexcept {
    return {_mm512_sub_pd(a.re, b.re), _mm512_sub_pd(a.im, b.im)};
}
TENSAFE_AVX512 TENSAFE_INLINE complex8 multiply(complex8 a, complex8 w) noexcept {
    return {_mm512_sub_pd(product(a.re, w.re), product(a.im, w.im)),
            _mm512_add_pd(product(a.re, w.im), product(a.im, w.re))};
}
/// a * conj(w)
TENSAFE_AVX512 TENSAFE_INLINE complex8 multiply_conjugate(complex8 a, complex8 w) noexcept {
    return {_mm512_add_pd(product(a.re, w.re), product(a.im, w.im)),
            _mm512_sub_pd(product(a.im, w.re), product(a.re, w.im))};
}

/// As portable: c_p = sum over c < 4 of (-i)^(p c) t_c.
TENSAFE_AVX512 TENSAFE_INLINE four8 sum_of_four(complex8 t0, complex8 t1, complex8 t2, complex8 t3) noexcept {
    const complex8 even_sum = add(t0, t2);
    const complex8 even_difference = subtract(t0, t2);
    const complex8 odd_sum = add(t1, t3);
    const complex8 odd_difference = subtract(t1, t3);
    return {add(even_sum, odd_sum),
            {_mm512_add_pd(even_difference.re, odd_difference.im),
             _mm512_sub_pd(even_difference.im, odd_difference.re)},
            subtract(even_sum, odd_sum),
            {_mm512_sub_pd(even_difference.re, odd_difference.im),
             _mm512_add_pd(even_difference.im, odd_difference.re)}};
}
TENSAFE_AVX512 TENSAFE_INLINE four8 merge_four(const four8& y, const root_powers8& x) noexcept {
    return sum_of_four(y.c0, multiply(y.c2, x.first), multiply(y.c1, x.second), multiply(y.c3, x.third));
}
TENSAFE_AVX512 TENSAFE_INLINE four8 split_four(const four8& z, const root_powers8& x) noexcept {
    const four8 t = sum_of_four(z.c0, z.c3, z.c2, z.c1);
    return {t.c0, multiply_conjugate(t.c2, x.second), multiply_conjugate(t.c1, x.first),
            multiply_conjugate(t.c3, x.third)};
}

TENSAFE_AVX512 TENSAFE_INLINE complex8 splat(double re, double im) noexcept {
    return {_mm512_set1_pd(re), _mm512_set1_pd(im)};
}
TENSAFE_AVX512 TENSAFE_INLINE root_powers8 start_roots(const slot_tables& tables) noexcept {
    const auto& x = tables.start_roots();
    return {splat(x[0].real(), x[0].imag()), splat(x[1].real(), x[1].imag()),
            splat(x[2].real(), x[2].imag())};
}

/// A chunk: eight real parts, then eight imaginary ones.
TENSAFE_AVX512 TENSAFE_INLINE complex8 load_chunk(const double* from) noexcept {
    return {load(from), load(from + 8)};
}
TENSAFE_AVX512 TENSAFE_INLINE void store_chunk(double* to, complex8 z) noexcept {
    _mm512_storeu_pd(to, z.re);
    _mm512_storeu_pd(to + 8, z.im);
}
/// The layout of std::complex: re0, im0, re1, im1.
TENSAFE_AVX512 TENSAFE_INLINE complex8 load_interleaved(const double* from) noexcept {
    const __m512d a = load(from);
    const __m512d b = load(from + 8);
    return {_mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), b),
            _mm512_permutex2var_pd(a, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), b)};
}
TENSAFE_AVX512 TENSAFE_INLINE void store_interleaved(double* to, complex8 z) noexcept {
    _mm512_storeu_pd(to, _mm512_permutex2var_pd(z.re, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), z.im));
    _mm512_storeu_pd(to + 8,
                     _mm512_permutex2var_pd(z.re, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), z.im));
}
TENSAFE_AVX512 TENSAFE_INLINE root_powers8 load_roots(const double* from) noexcept {
    return {load_chunk(from), load_chunk(from + 16), load_chunk(from + 32)};
}
TENSAFE_AVX512 TENSAFE_INLINE four8 load_four(const double* from, std::size_t distance) noexcept {
    return {load_chunk(from), load_chunk(from + distance), load_chunk(from + 2 * distance),
            load_chunk(from + 3 * distance)};
}
TENSAFE_AVX512 TENSAFE_INLINE void store_four(double* to, std::size_t distance, const four8& z) noexcept {
    store_chunk(to, z.c0);
    store_chunk(to + distance, z.c1);
    store_chunk(to + 2 * distance, z.c2);
    store_chunk(to + 3 * distance, z.c3);
}

// Masks of ones: GCC 12 warns of the unmasked forms of its own header, and the code is the same.
TENSAFE_AVX512 TENSAFE_INLINE __m512d unpack_low(__m512d a, __m512d b) noexcept {
    return _mm512_maskz_unpacklo_pd(0xff, a, b);
}
TENSAFE_AVX512 TENSAFE_INLINE __m512d unpack_high(__m512d a, __m512d b) noexcept {
    return _mm512_maskz_unpackhi_pd(0xff, a, b);
}
/// The first and third pair of lanes of both.
TENSAFE_AVX512 TENSAFE_INLINE __m512d even_pairs(__m512d a, __m512d b) noexcept {
    return _mm512_maskz_shuffle_f64x2(0xff, a, b, 0x88);
}
/// The second and fourth.
TENSAFE_AVX512 TENSAFE_INLINE __m512d odd_pairs(__m512d a, __m512d b) noexcept {
    return _mm512_maskz_shuffle_f64x2(0xff, a, b, 0xdd);
}

TENSAFE_AVX512 TENSAFE_INLINE rows8 transpose(const rows8& a) noexcept {
    const __m512d b0 = unpack_low(a.r0, a.r1);
    const __m512d b1 = unpack_high(a.r0, a.r1);
    const __m512d b2 = unpack_low(a.r2, a.r3);
    const __m512d b3 = unpack_high(a.r2, a.r3);
    const __m512d b4 = unpack_low(a.r4, a.r5);
    const __m512d b5 = unpack_high(a.r4, a.r5);
    const __m512d b6 = unpack_low(a.r6, a.r7);
    const __m512d b7 = unpack_high(a.r6, a.r7);
    const __m512d c0 = even_pairs(b0, b2);
    const __m512d c1 = even_pairs(b1, b3);
    const __m512d c2 = odd_pairs(b0, b2);
    const __m512d c3 = odd_pairs(b1, b3);
    const __m512d c4 = even_pairs(b4, b6);
    const __m512d c5 = even_pairs(b5, b7);
    const __m512d c6 = odd_pairs(b4, b6);
    const __m512d c7 = odd_pairs(b5, b7);
    return {even_pairs(c0, c4), even_pairs(c1, c5), even_pairs(c2, c6), even_pairs(c3, c7),
            odd_pairs(c0, c4),  odd_pairs(c1, c5),  odd_pairs(c2, c6),  odd_pairs(c3, c7)};
}

// Coefficients to slots

/// Four complex numbers from quarters of the coefficients, merged into blocks of four: block lane by lane.
TENSAFE_AVX512 TENSAFE_INLINE four8 merge_coefficients(const double* re, std::size_t slots,
                                                       const root_powers8& x) noexcept {
    const std::size_t quarter = slots / 4;
    const double* const im = re + slots;
    const complex8 b0{load(re), load(im)};
    const complex8 b1{load(re + quarter), load(im + quarter)};
    const complex8 b2{load(re + 2 * quarter), load(im + 2 * quarter)};
    const complex8 b3{load(re + 3 * quarter), load(im + 3 * quarter)};
    return sum_of_four(b0, multiply(b3, x.third), multiply(b2, x.second), multiply(b1, x.first));
}

/// Eight rows, one for each lane of the coefficients, to the eight blocks whose top bits are the lane's
/// reversed.
TENSAFE_AVX512 TENSAFE_INLINE void scatter_rows(double* to, std::size_t eighth, const rows8& a) noexcept {
    const rows8 t = transpose(a);
    _mm512_storeu_pd(to, t.r0);
    _mm512_storeu_pd(to + 4 * eighth, t.r1);
    _mm512_storeu_pd(to + 2 * eighth, t.r2);
    _mm512_storeu_pd(to + 6 * eighth, t.r3);
    _mm512_storeu_pd(to + 1 * eighth, t.r4);
    _mm512_storeu_pd(to + 5 * eighth, t.r5);
    _mm512_storeu_pd(to + 3 * eighth, t.r6);
    _mm512_storeu_pd(to + 7 * eighth, t.r7);
}

/// Reads the coefficients in bit-reversed order and merges them four by four, and by eight where the number
/// of slots asks for the radix-2 stage. A slot index is cut into three top bits, the middle, and three low
/// bits; the top bits are lanes here.
///
/// Leaves chunks. Without the radix-2 stage each chunk holds two blocks of four, lane by lane in turn, as
/// `merge_sixteens` wants them.
template <bool pairs>
TENSAFE_AVX512 inline void gather_and_merge(const slot_tables& tables, const double* coefficients,
                                            double* work) noexcept {
    const std::size_t slots = tables.slots();
    const std::size_t eighth = slots / 4;  // in reals: an eighth of the slots
    const root_powers8 x = start_roots(tables);
    const double* const p = tables.pair_roots();
    for (std::size_t middle = 0; middle < slots / 64; ++middle) {
        const double* const from = coefficients + 8 * tables.reversed_middle(2 * middle);
        double* const to = work + 16 * middle;
        const four8 a = merge_coefficients(from, slots, x);
        four8 b = merge_coefficients(from + slots / 8, slots, x);
        if constexpr (pairs) {
            b.c0 = multiply(b.c0, splat(p[0], p[4]));
            b.c1 = multiply(b.c1, splat(p[1], p[5]));
            b.c2 = multiply(b.c2, splat(p[2], p[6]));
            b.c3 = multiply(b.c3, splat(p[3], p[7]));
            const complex8 s0 = add(a.c0, b.c0);
            const complex8 s1 = add(a.c1, b.c1);
            const complex8 s2 = add(a.c2, b.c2);
            const complex8 s3 = add(a.c3, b.c3);
            const complex8 d0 = subtract(a.c0, b.c0);
            const complex8 d1 = subtract(a.c1, b.c1);
            const complex8 d2 = subtract(a.c2, b.c2);
            const complex8 d3 = subtract(a.c3, b.c3);
            scatter_rows(to, eighth, {s0.re, s1.re, s2.re, s3.re, d0.re, d1.re, d2.re, d3.re});
            scatter_rows(to + 8, eighth, {s0.im, s1.im, s2.im, s3.im, d0.im, d1.im, d2.im, d3.im});
        } else {
            scatter_rows(to, eighth,
                         {a.c0.re, b.c0.re, a.c1.re, b.c1.re, a.c2.re, b.c2.re, a.c3.re, b.c3.re});
            scatter_rows(to + 8, eighth,
                         {a.c0.im, b.c0.im, a.c1.im, b.c1.im, a.c2.im, b.c2.im, a.c3.im, b.c3.im});
        }
    }
}

/// Each of four values twice.
TENSAFE_AVX512 TENSAFE_INLINE __m512d load_doubled(const double* from) noexcept {
    return _mm512_maskz_permutexvar_pd(0xff, _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
                                       _mm512_castpd256_pd512(_mm256_loadu_pd(from)));
}
TENSAFE_AVX512 TENSAFE_INLINE root_powers8 load_doubled_roots(const double* from) noexcept {
    return {{load_doubled(from), load_doubled(from + 4)},
            {load_doubled(from + 8), load_doubled(from + 12)},
            {load_doubled(from + 16), load_doubled(from + 20)}};
}

TENSAFE_AVX512 TENSAFE_INLINE complex8 even_lanes(complex8 a, complex8 b) noexcept {
    return {unpack_low(a.re, b.re), unpack_low(a.im, b.im)};
}
TENSAFE_AVX512 TENSAFE_INLINE complex8 odd_lanes(complex8 a, complex8 b) noexcept {
    return {unpack_high(a.re, b.re), unpack_high(a.im, b.im)};
}
TENSAFE_AVX512 TENSAFE_INLINE complex8 permute(complex8 a, __m512i lanes, complex8 b) noexcept {
    return {_mm512_permutex2var_pd(a.re, lanes, b.re), _mm512_permutex2var_pd(a.im, lanes, b.im)};
}

/// Blocks of four to blocks of sixteen, two of them at a time: the one radix-4 stage with fewer roots than
/// lanes.
TENSAFE_AVX512 inline void merge_sixteens(const slot_tables& tables, double* begin, double* end) noexcept {
    const root_powers8 x = load_doubled_roots(tables.stage_roots(4));
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    for (double* at = begin; at != end; at += 64) {
        const four8 c = load_four(at, 16);
        const four8 z = merge_four(
            {even_lanes(c.c0, c.c2), odd_lanes(c.c0, c.c2), even_lanes(c.c1, c.c3), odd_lanes(c.c1, c.c3)},
            x);
        store_four(at, 16,
                   {permute(z.c0, even, z.c1), permute(z.c2, even, z.c3), permute(z.c0, odd, z.c1),
                    permute(z.c2, odd, z.c3)});
    }
}

/// One radix-4 stage on the blocks from `begin` to `end`.
TENSAFE_AVX512 inline void merge_stage(const slot_tables& tables, double* begin, double* end,
                                       std::size_t quarter) noexcept {
    const std::size_t distance = 2 * quarter;
    for (double* block = begin; block != end; block += 4 * distance) {
        const double* roots = tables.stage_roots(quarter);
        for (double* at = block; at != block + distance; at += 16, roots += 48) {
            store_four(at, distance, merge_four(load_four(at, distance), load_roots(roots)));
        }
    }
}

/// @pre tables.slots() >= least_slots
TENSAFE_AVX512 inline void to_slots(const slot_tables& tables, const double* coefficients,
                                    double* work) noexcept {
    const std::size_t slots = tables.slots();
    const std::size_t last = slots / 4;
    if (tables.has_pairs()) {
        gather_and_merge<true>(tables, coefficients, work);
    } else {
        gather_and_merge<false>(tables, coefficients, work);
    }
    std::size_t cached = tables.first_quarter();
    while (cached < last && 4 * cached <= cached_slots) {
        cached *= 4;
    }
    for (double* block = work; block != work + 2 * slots; block += 2 * cached) {
        std::size_t quarter = tables.first_quarter();
        if (quarter == 4) {
            merge_sixteens(tables, block, block + 2 * cached);
            quarter = 16;
        }
        for (; quarter < cached; quarter *= 4) {
            merge_stage(tables, block, block + 2 * cached, quarter);
        }
    }
    for (std::size_t quarter = cached; quarter < last; quarter *= 4) {
        merge_stage(tables, work, work + 2 * slots, quarter);
    }
    const double* roots = tables.stage_roots(last);
    const std::size_t distance = 2 * last;
    for (double* at = work; at != work + distance; at += 16, roots += 48) {
        const four8 z = merge_four(load_four(at, distance), load_roots(roots));
        store_interleaved(at, z.c0);
        store_interleaved(at + distance, z.c1);
        store_interleaved(at + 2 * distance, z.c2);
        store_interleaved(at + 3 * distance, z.c3);
    }
}

// Slots to coefficients: the same stages backwards

TENSAFE_AVX512 inline void split_stage(const slot_tables& tables, double* begin, double* end,
                                       std::size_t quarter) noexcept {
    const std::size_t distance = 2 * quarter;
    for (double* block = begin; block != end; block += 4 * distance) {
        const double* roots = tables.stage_roots(quarter);
        for (double* at = block; at != block + distance; at += 16, roots += 48) {
            store_four(at, distance, split_four(load_four(at, distance), load_roots(roots)));
        }
    }
}

TENSAFE_AVX512 inline void split_sixteens(const slot_tables& tables, double* begin, double* end) noexcept {
    const root_powers8 x = load_doubled_roots(tables.stage_roots(4));
    const __m512i low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    for (double* at = begin; at != end; at += 64) {
        const four8 c = load_four(at, 16);
        const four8 y = split_four({permute(c.c0, low, c.c2), permute(c.c0, high, c.c2),
                                    permute(c.c1, low, c.c3), permute(c.c1, high, c.c3)},
                                   x);
        store_four(
            at, 16,
            {even_lanes(y.c0, y.c1), even_lanes(y.c2, y.c3), odd_lanes(y.c0, y.c1), odd_lanes(y.c2, y.c3)});
    }
}

/// Rows of the eight blocks whose top bits are a lane's reversed, transposed: lane by lane.
TENSAFE_AVX512 TENSAFE_INLINE rows8 gather_rows(const double* from, std::size_t eighth) noexcept {
    return transpose({load(from), load(from + 4 * eighth), load(from + 2 * eighth), load(from + 6 * eighth),
                      load(from + 1 * eighth), load(from + 5 * eighth), load(from + 3 * eighth),
                      load(from + 7 * eighth)});
}

/// Blocks of four to single coefficients. Coefficient quarter c goes to row 2 c of 16 rows, its imaginary
/// part eight rows further.
TENSAFE_AVX512 TENSAFE_INLINE void split_block(const four8& z, const root_powers8& x, __m512d factor,
                                               double* to, std::size_t row) noexcept {
    const four8 t = sum_of_four(z.c0, z.c1, z.c2, z.c3);
    const complex8 b1 = multiply_conjugate(t.c1, x.first);
    const complex8 b2 = multiply_conjugate(t.c2, x.second);
    const complex8 b3 = multiply_conjugate(t.c3, x.third);
    _mm512_storeu_pd(to, _mm512_mul_pd(t.c0.re, factor));
    _mm512_storeu_pd(to + 2 * row, _mm512_mul_pd(b1.re, factor));
    _mm512_storeu_pd(to + 4 * row, _mm512_mul_pd(b2.re, factor));
    _mm512_storeu_pd(to + 6 * row, _mm512_mul_pd(b3.re, factor));
    _mm512_storeu_pd(to + 8 * row, _mm512_mul_pd(t.c0.im, factor));
    _mm512_storeu_pd(to + 10 * row, _mm512_mul_pd(b1.im, factor));
    _mm512_storeu_pd(to + 12 * row, _mm512_mul_pd(b2.im, factor));
    _mm512_storeu_pd(to + 14 * row, _mm512_mul_pd(b3.im, factor));
}

/// The sixteen chunks that share a middle, to 16 rows of 16 values, `row` values apart: row 2 c + b has the
/// real parts of the coefficients of quarter c and second eighth b, row 8 + 2 c + b their imaginary parts.
template <bool pairs>
TENSAFE_AVX512 inline void split_set(const slot_tables& tables, const double* from, double* to,
                                     std::size_t row) noexcept {
    const std::size_t slots = tables.slots();
    const std::size_t eighth = slots / 4;
    const root_powers8 x = start_roots(tables);
    const __m512d factor = _mm512_set1_pd(1.0 / static_cast<double>(slots));
    for (std::size_t half = 0; half < 2; ++half) {
        const rows8 re = gather_rows(from + half * (eighth / 2), eighth);
        const rows8 im = gather_rows(from + half * (eighth / 2) + 8, eighth);
        if constexpr (pairs) {
            const double* const p = tables.pair_roots();
            const four8 a{{re.r0, im.r0}, {re.r1, im.r1}, {re.r2, im.r2}, {re.r3, im.r3}};
            const four8 b{{re.r4, im.r4}, {re.r5, im.r5}, {re.r6, im.r6}, {re.r7, im.r7}};
            split_block({add(a.c0, b.c0), add(a.c1, b.c1), add(a.c2, b.c2), add(a.c3, b.c3)}, x, factor,
                        to + 8 * half, row);
            split_block({multiply_conjugate(subtract(a.c0, b.c0), splat(p[0], p[4])),
                         multiply_conjugate(subtract(a.c1, b.c1), splat(p[1], p[5])),
                         multiply_conjugate(subtract(a.c2, b.c2), splat(p[2], p[6])),
                         multiply_conjugate(subtract(a.c3, b.c3), splat(p[3], p[7]))},
                        x, factor, to + 8 * half + row, row);
        } else {
            split_block({{re.r0, im.r0}, {re.r2, im.r2}, {re.r4, im.r4}, {re.r6, im.r6}}, x, factor,
                        to + 8 * half, row);
            split_block({{re.r1, im.r1}, {re.r3, im.r3}, {re.r5, im.r5}, {re.r7, im.r7}}, x, factor,
                        to + 8 * half + row, row);
        }
    }
}

/// As portable, with sets of 256 values: a slot index is cut into four top bits, the middle and three low
/// bits.
template <bool pairs>
TENSAFE_AVX512 inline void split_and_scatter(const slot_tables& tables, double* work) noexcept {
    alignas(64) std::array<double, 256> kept;
    const memory::wipe_guard guard(kept);
    const std::size_t row = tables.slots() / 8;
    for (std::size_t middle = 0; middle < tables.slots() / 128; ++middle) {
        const std::size_t partner = tables.reversed_middle(4 * middle);
        if (partner < middle) {
            continue;
        }
        split_set<pairs>(tables, work + 16 * middle, kept.data(), 16);
        if (partner != middle) {
            split_set<pairs>(tables, work + 16 * partner, work + 16 * middle, row);
        }
        for (std::size_t r = 0; r < 16; ++r) {
            const double* const from = kept.data() + 16 * r;
            double* const to = work + 16 * partner + r * row;
            _mm512_storeu_pd(to, _mm512_load_pd(from));
            _mm512_storeu_pd(to + 8, _mm512_load_pd(from + 8));
        }
    }
}

/// `slots` may be `work` itself.  @pre tables.slots() >= least_slots
TENSAFE_AVX512 inline void to_coefficients(const slot_tables& tables, const double* values,
                                           double* work) noexcept {
    const std::size_t slots = tables.slots();
    const std::size_t last = slots / 4;
    const double* roots = tables.stage_roots(last);
    const std::size_t distance = 2 * last;
    for (std::size_t i = 0; i != distance; i += 16, roots += 48) {
        const double* const from = values + i;
        store_four(work + i, distance,
                   split_four({load_interleaved(from), load_interleaved(from + distance),
                               load_interleaved(from + 2 * distance), load_interleaved(from + 3 * distance)},
                              load_roots(roots)));
    }
    std::size_t quarter = last / 4;
    for (; 4 * quarter > cached_slots; quarter /= 4) {
        split_stage(tables, work, work + 2 * slots, quarter);
    }
    const std::size_t cached = 4 * quarter;
    for (double* block = work; block != work + 2 * slots; block += 2 * cached) {
        for (std::size_t q = quarter; q >= 8; q /= 4) {
            split_stage(tables, block, block + 2 * cached, q);
        }
        if (!tables.has_pairs()) {
            split_sixteens(tables, block, block + 2 * cached);
        }
    }
    if (tables.has_pairs()) {
        split_and_scatter<true>(tables, work);
    } else {
        split_and_scatter<false>(tables, work);
    }
}

}  // namespace tensafe::encoding::detail::avx512

#endif
