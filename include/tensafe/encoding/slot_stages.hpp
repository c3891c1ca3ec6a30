#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/complex_lanes.hpp>
#include <tensafe/encoding/slot_tables.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/simd/dispatch.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/transpose.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <utility>

/// The stages of the slot transform. Every target does the same operations on the same numbers in the same
/// order, so the results are the same, bit for bit.
namespace tensafe::encoding::detail {

inline void evaluate_directly(const slot_tables& tables, const double* coefficients, double* slots) noexcept {
    const auto& roots = tables.direct_roots();
    const std::size_t mask = roots.size() - 1;
    std::size_t power_of_five = 1;
    for (std::size_t j = 0; j < tables.slots(); ++j) {
        double re = 0.0;
        double im = 0.0;
        for (std::size_t k = 0; k < tables.degree(); ++k) {
            const std::complex<double>& root = roots[power_of_five * k & mask];
            re += coefficients[k] * root.real();
            im += coefficients[k] * root.imag();
        }
        slots[2 * j] = re;
        slots[2 * j + 1] = im;
        power_of_five = power_of_five * 5 & mask;
    }
}

inline void interpolate_directly(const slot_tables& tables, const double* slots,
                                 double* coefficients) noexcept {
    const auto& roots = tables.direct_roots();
    const std::size_t mask = roots.size() - 1;
    for (std::size_t k = 0; k < tables.degree(); ++k) {
        double sum = 0.0;
        std::size_t exponent = k;
        for (std::size_t j = 0; j < tables.slots(); ++j) {
            const std::complex<double>& root = roots[exponent & mask];
            sum += slots[2 * j] * root.real() + slots[2 * j + 1] * root.imag();
            exponent *= 5;
        }
        coefficients[k] = sum / static_cast<double>(tables.slots());
    }
}

/// Butterflies and stages: bodies of kernels.
template <class Target>
struct slot_stages : complex_lanes<Target> {
    using lanes = complex_lanes<Target>;
    using lanes::width;
    using typename lanes::complex;
    using typename lanes::four;
    using typename lanes::reals;
    using typename lanes::root_powers;

    /// Slots that stand together at the border to the coefficients: a block of four, or two with eight lanes,
    /// which do the radix-2 stage at once with the first radix-4 stage.
    static constexpr std::size_t run = width == 8 ? 8 : 4;

    static TENSAFE_INLINE root_powers start_roots(const slot_tables& tables) noexcept {
        const auto& x = tables.start_roots();
        return {lanes::broadcast(x[0].real(), x[0].imag()), lanes::broadcast(x[1].real(), x[1].imag()),
                lanes::broadcast(x[2].real(), x[2].imag())};
    }
    static TENSAFE_INLINE complex pair_root(const slot_tables& tables, std::size_t j) noexcept {
        return lanes::broadcast(tables.pair_roots()[j], tables.pair_roots()[4 + j]);
    }

    /// Does one radix-4 stage, in place unless `from` is another array than `to`: blocks of 4 * quarter
    /// slots, of `size` reals together.
    /// @param group  the number of roots that stand together in the table
    template <auto load_one, auto butterfly, auto store_one>
    static TENSAFE_INLINE void stage(const slot_tables& tables, const double* from, double* to,
                                     std::size_t size, std::size_t quarter, std::size_t group) noexcept {
        const std::size_t distance = 2 * quarter;
        for (std::size_t block = 0; block != size; block += 4 * distance) {
            const double* roots = tables.stage_roots(quarter);
            for (std::size_t at = block; at != block + distance; at += 2 * group, roots += 6 * group) {
                for (std::size_t lane = 0; lane != group; lane += width) {
                    const std::size_t i = at + 2 * lane;
                    lanes::template store_four<store_one>(
                        to + i, distance,
                        butterfly(lanes::template load_four<load_one>(from + i, distance),
                                  lanes::load_roots(roots + lane, group)));
                }
            }
        }
    }

    // Coefficients to slots

    /// Merges coefficients from their four quarters into blocks of four: block lane by lane.
    static TENSAFE_INLINE four merge_coefficients(const double* from, std::size_t slots,
                                                  const root_powers& x) noexcept {
        const std::size_t quarter = slots / 4;
        return lanes::sum_of_four(lanes::load(from, slots), lanes::load(from + 3 * quarter, slots) * x.third,
                                  lanes::load(from + 2 * quarter, slots) * x.second,
                                  lanes::load(from + quarter, slots) * x.first);
    }

    /// Chunk number `chunk` of a run, from rows with a lane for each coefficient, `first` and following: to
    /// the runs whose top bits are the number of the coefficient reversed.
    template <std::size_t chunk, std::size_t... lane>
    static TENSAFE_INLINE void scatter_chunk(double* to, std::size_t eighth, std::size_t first, reals* rows,
                                             std::index_sequence<lane...>) noexcept {
        simd::transpose(rows + chunk * width);
        (rows[chunk * width + lane].store(to + reversed_triple[first + lane] * eighth + 2 * chunk * width),
         ...);
    }
    template <std::size_t... chunk>
    static TENSAFE_INLINE void scatter(double* to, std::size_t eighth, std::size_t first, reals* re,
                                       reals* im, std::index_sequence<chunk...>) noexcept {
        constexpr auto each_lane = std::make_index_sequence<width>();
        (scatter_chunk<chunk>(to, eighth, first, re, each_lane), ...);
        (scatter_chunk<chunk>(to + width, eighth, first, im, each_lane), ...);
    }

    /// Reads the coefficients in bit-reversed order and merges them four by four. A slot index is cut into
    /// three top bits, the middle, and the bits of a run, so that whole cache lines are read and written on
    /// both sides of the reversal.
    ///
    /// Leaves chunks. With eight lanes and `pairs` they have passed the radix-2 stage, too; without, they
    /// hold two blocks of four, lane by lane in turn, as `sixteens_stage` wants them.
    template <bool pairs>
    static TENSAFE_INLINE void gather_and_merge(const slot_tables& tables, const double* coefficients,
                                                double* work) noexcept {
        constexpr auto chunks = std::make_index_sequence<run / width>();
        const std::size_t slots = tables.slots();
        const std::size_t eighth = slots / 4;  // in reals: an eighth of the slots
        const root_powers x = start_roots(tables);
        for (std::size_t middle = 0; middle < slots / (8 * run); ++middle) {
            for (std::size_t first = 0; first < 8; first += width) {
                const double* const from =
                    coefficients + 8 * tables.reversed_middle(run / 4 * middle) + first;
                double* const to = work + 2 * run * middle;
                const four a = merge_coefficients(from, slots, x);
                if constexpr (run == 4) {
                    reals re[] = {a.c0.re, a.c1.re, a.c2.re, a.c3.re};
                    reals im[] = {a.c0.im, a.c1.im, a.c2.im, a.c3.im};
                    scatter(to, eighth, first, re, im, chunks);
                } else if constexpr (pairs) {
                    const four y = merge_coefficients(from + slots / 8, slots, x);
                    const four b{y.c0 * pair_root(tables, 0), y.c1 * pair_root(tables, 1),
                                 y.c2 * pair_root(tables, 2), y.c3 * pair_root(tables, 3)};
                    const four s{a.c0 + b.c0, a.c1 + b.c1, a.c2 + b.c2, a.c3 + b.c3};
                    const four d{a.c0 - b.c0, a.c1 - b.c1, a.c2 - b.c2, a.c3 - b.c3};
                    reals re[] = {s.c0.re, s.c1.re, s.c2.re, s.c3.re, d.c0.re, d.c1.re, d.c2.re, d.c3.re};
                    reals im[] = {s.c0.im, s.c1.im, s.c2.im, s.c3.im, d.c0.im, d.c1.im, d.c2.im, d.c3.im};
                    scatter(to, eighth, first, re, im, chunks);
                } else {
                    const four b = merge_coefficients(from + slots / 8, slots, x);
                    reals re[] = {a.c0.re, b.c0.re, a.c1.re, b.c1.re, a.c2.re, b.c2.re, a.c3.re, b.c3.re};
                    reals im[] = {a.c0.im, b.c0.im, a.c1.im, b.c1.im, a.c2.im, b.c2.im, a.c3.im, b.c3.im};
                    scatter(to, eighth, first, re, im, chunks);
                }
            }
        }
    }

    /// Merges blocks of four to eight, the radix-2 stage when log2 of the slots is odd; or back, times 2.
    template <bool merges>
    static TENSAFE_INLINE void pair_stage(const slot_tables& tables, double* at, std::size_t size) noexcept {
        for (const double* const end = at + size; at != end; at += 16) {
            for (std::size_t j = 0; j < 4; j += width) {
                const complex root = lanes::load(tables.pair_roots() + j, 4);
                const complex a = lanes::load_chunk(at + 2 * j);
                complex b = lanes::load_chunk(at + 2 * j + 8);
                if constexpr (merges) {
                    b = b * root;
                }
                const complex difference = a - b;
                lanes::store_chunk(at + 2 * j, a + b);
                lanes::store_chunk(at + 2 * j + 8,
                                   merges ? difference : lanes::multiply_conjugate(difference, root));
            }
        }
    }

    /// The roots of the stage with blocks of four, each twice.
    static TENSAFE_INLINE root_powers doubled_roots(const slot_tables& tables) noexcept {
        const double* const x = tables.stage_roots(4);
        double twice[6 * width];
        for (std::size_t i = 0; i < 6 * width; ++i) {
            twice[i] = x[i / 2];
        }
        return lanes::load_roots(twice, width);
    }

    /// Merges blocks of four into blocks of sixteen, two of them at a time, or back: the one radix-4 stage
    /// with fewer roots than lanes, when there are eight.
    template <bool merges>
    static TENSAFE_INLINE void sixteens_stage(const slot_tables& tables, double* at,
                                              std::size_t size) noexcept {
        constexpr auto before = merges ? &simd::unpack<double, width> : &simd::interleave<double, width>;
        constexpr auto butterfly = merges ? &lanes::merge_four : &lanes::split_four;
        constexpr auto after = merges ? &simd::separate<double, width> : &simd::unpack<double, width>;
        const root_powers x = doubled_roots(tables);
        for (const double* const end = at + size; at != end; at += 64) {
            four y = lanes::template load_four<&lanes::load_chunk>(at, 16);
            rearrange<before>(y.c0, y.c2);
            rearrange<before>(y.c1, y.c3);
            four z = butterfly({y.c0, y.c2, y.c1, y.c3}, x);
            rearrange<after>(z.c0, z.c1);
            rearrange<after>(z.c2, z.c3);
            lanes::template store_four<&lanes::store_chunk>(at, 16, {z.c0, z.c2, z.c1, z.c3});
        }
    }
    template <auto step>
    static TENSAFE_INLINE void rearrange(complex& a, complex& b) noexcept {
        step(a.re, b.re);
        step(a.im, b.im);
    }

    /// A stage between chunks: merge_four or split_four.
    template <auto butterfly>
    static TENSAFE_INLINE void chunk_stage(const slot_tables& tables, double* at, std::size_t size,
                                           std::size_t quarter) noexcept {
        stage<&lanes::load_chunk, butterfly, &lanes::store_chunk>(
            tables, at, at, size, quarter, width == 8 ? 8 : slot_tables::group(quarter));
    }
    /// Does the last merging stage and turns chunks into pairs of real and imaginary part on the way.
    static TENSAFE_INLINE void last_merge(const slot_tables& tables, double* at) noexcept {
        stage<&lanes::load_chunk, &lanes::merge_four, &lanes::store_interleaved>(
            tables, at, at, tables.degree(), tables.slots() / 4, 8);
    }

    // Slots to coefficients: the same stages backwards

    /// Does the first splitting stage and turns pairs into chunks on the way. `slots` may be `work` itself.
    static TENSAFE_INLINE void first_split(const slot_tables& tables, const double* slots,
                                           double* work) noexcept {
        stage<&lanes::load_interleaved, &lanes::split_four, &lanes::store_chunk>(
            tables, slots, work, tables.degree(), tables.slots() / 4, 8);
    }

    /// Undoes scatter_chunk.
    template <std::size_t chunk, std::size_t... lane>
    static TENSAFE_INLINE void gather_chunk(const double* from, std::size_t eighth, std::size_t first,
                                            reals* rows, std::index_sequence<lane...>) noexcept {
        ((rows[chunk * width + lane] =
              Target::load(from + reversed_triple[first + lane] * eighth + 2 * chunk * width)),
         ...);
        simd::transpose(rows + chunk * width);
    }
    template <std::size_t... chunk>
    static TENSAFE_INLINE void gather(const double* from, std::size_t eighth, std::size_t first, reals* re,
                                      reals* im, std::index_sequence<chunk...>) noexcept {
        constexpr auto each_lane = std::make_index_sequence<width>();
        (gather_chunk<chunk>(from, eighth, first, re, each_lane), ...);
        (gather_chunk<chunk>(from + width, eighth, first, im, each_lane), ...);
    }

    /// Splits blocks of four into single coefficients: those of quarter c to row c of 8 rows, or row 2 c of
    /// 16; their imaginary parts to the other half of the rows.
    static TENSAFE_INLINE void split_block(const four& z, const root_powers& x, const reals& factor,
                                           double* to, std::size_t row) noexcept {
        const std::size_t quarter = run / 4 * row;
        const four t = lanes::sum_of_four(z.c0, z.c1, z.c2, z.c3);
        const complex b1 = lanes::multiply_conjugate(t.c1, x.first);
        const complex b2 = lanes::multiply_conjugate(t.c2, x.second);
        const complex b3 = lanes::multiply_conjugate(t.c3, x.third);
        (t.c0.re * factor).store(to);
        (b1.re * factor).store(to + quarter);
        (b2.re * factor).store(to + 2 * quarter);
        (b3.re * factor).store(to + 3 * quarter);
        (t.c0.im * factor).store(to + 4 * quarter);
        (b1.im * factor).store(to + 5 * quarter);
        (b2.im * factor).store(to + 6 * quarter);
        (b3.im * factor).store(to + 7 * quarter);
    }

    /// Splits the runs that share a middle into 2 * run rows of 2 * run values, `row` values apart. Of 16
    /// rows, odd ones are for the second block of the runs.
    template <bool pairs>
    static TENSAFE_INLINE void split_set(const slot_tables& tables, const double* from, double* to,
                                         std::size_t row) noexcept {
        const std::size_t eighth = tables.slots() / 4;
        const root_powers x = start_roots(tables);
        const reals factor = Target::broadcast(1.0 / static_cast<double>(tables.slots()));
        for (std::size_t first = 0; first < 2 * run; first += width) {
            reals r[run];
            reals i[run];
            gather(from + first / 8 * (eighth / 2), eighth, first % 8, r, i,
                   std::make_index_sequence<run / width>());
            if constexpr (run == 4) {
                split_block({{r[0], i[0]}, {r[1], i[1]}, {r[2], i[2]}, {r[3], i[3]}}, x, factor, to + first,
                            row);
            } else if constexpr (pairs) {
                const four a{{r[0], i[0]}, {r[1], i[1]}, {r[2], i[2]}, {r[3], i[3]}};
                const four b{{r[4], i[4]}, {r[5], i[5]}, {r[6], i[6]}, {r[7], i[7]}};
                split_block({a.c0 + b.c0, a.c1 + b.c1, a.c2 + b.c2, a.c3 + b.c3}, x, factor, to + first, row);
                split_block({lanes::multiply_conjugate(a.c0 - b.c0, pair_root(tables, 0)),
                             lanes::multiply_conjugate(a.c1 - b.c1, pair_root(tables, 1)),
                             lanes::multiply_conjugate(a.c2 - b.c2, pair_root(tables, 2)),
                             lanes::multiply_conjugate(a.c3 - b.c3, pair_root(tables, 3))},
                            x, factor, to + first + row, row);
            } else {
                split_block({{r[0], i[0]}, {r[2], i[2]}, {r[4], i[4]}, {r[6], i[6]}}, x, factor, to + first,
                            row);
                split_block({{r[1], i[1]}, {r[3], i[3]}, {r[5], i[5]}, {r[7], i[7]}}, x, factor,
                            to + first + row, row);
            }
        }
    }

    /// The first stage backwards, the bit reversal and the division by n, in place.
    ///
    /// Chunks and the final order differ by a permutation of address bits that maps the values with one
    /// middle (a slot index is cut into one top bit more than a run has bits, the middle and the run) onto
    /// those with the reversed middle, so two such sets change places and nothing else is disturbed.
    template <bool pairs>
    static TENSAFE_INLINE void split_and_scatter(const slot_tables& tables, double* work) noexcept {
        constexpr std::size_t rows = 2 * run;
        alignas(64) std::array<double, rows * rows> kept;
        const memory::wipe_guard guard(kept);
        const std::size_t row = tables.slots() / run;
        for (std::size_t middle = 0; middle < row / rows; ++middle) {
            const std::size_t partner = tables.reversed_middle(run == 4 ? middle : 4 * middle);
            if (partner < middle) {
                continue;
            }
            split_set<pairs>(tables, work + rows * middle, kept.data(), rows);
            if (partner != middle) {
                split_set<pairs>(tables, work + rows * partner, work + rows * middle, row);
            }
            for (std::size_t r = 0; r < rows; ++r) {
                for (std::size_t i = 0; i < rows; i += width) {
                    Target::load(kept.data() + rows * r + i).store(work + rows * partner + r * row + i);
                }
            }
        }
    }
};

/// The slots whose stages are done together, smallest first: with their roots they fit a cache of 32 KiB.
inline constexpr std::size_t cached_slots = 1024;

/// Evaluates coefficients at the slots' points.  @pre at least 32 slots; with eight lanes, 128
template <class Target>
void to_slots(const slot_tables& tables, const double* coefficients, double* work) noexcept {
    using stages = slot_stages<Target>;
    const std::size_t slots = tables.slots();
    const std::size_t last = slots / 4;
    if (stages::run == 4 || tables.has_pairs()) {
        Target::template kernel<&stages::template gather_and_merge<true>>(tables, coefficients, work);
    } else {
        Target::template kernel<&stages::template gather_and_merge<false>>(tables, coefficients, work);
    }
    std::size_t cached = tables.first_quarter();
    while (cached < last && 4 * cached <= cached_slots) {
        cached *= 4;
    }
    for (double* block = work; block != work + 2 * slots; block += 2 * cached) {
        std::size_t quarter = tables.first_quarter();
        if constexpr (stages::run == 4) {
            if (tables.has_pairs()) {
                Target::template kernel<&stages::template pair_stage<true>>(tables, block, 2 * cached);
            }
        } else if (quarter == 4) {
            Target::template kernel<&stages::template sixteens_stage<true>>(tables, block, 2 * cached);
            quarter = 16;
        }
        for (; quarter < cached; quarter *= 4) {
            Target::template kernel<&stages::template chunk_stage<&stages::merge_four>>(tables, block,
                                                                                        2 * cached, quarter);
        }
    }
    for (std::size_t quarter = cached; quarter < last; quarter *= 4) {
        Target::template kernel<&stages::template chunk_stage<&stages::merge_four>>(tables, work, 2 * slots,
                                                                                    quarter);
    }
    Target::template kernel<&stages::last_merge>(tables, work);
}

/// Interpolates slots. `values` may be `work` itself.  @pre at least 32 slots; with eight lanes, 128
template <class Target>
void to_coefficients(const slot_tables& tables, const double* values, double* work) noexcept {
    using stages = slot_stages<Target>;
    const std::size_t slots = tables.slots();
    Target::template kernel<&stages::first_split>(tables, values, work);
    std::size_t quarter = slots / 16;
    for (; 4 * quarter > cached_slots; quarter /= 4) {
        Target::template kernel<&stages::template chunk_stage<&stages::split_four>>(tables, work, 2 * slots,
                                                                                    quarter);
    }
    const std::size_t cached = 4 * quarter;
    for (double* block = work; block != work + 2 * slots; block += 2 * cached) {
        std::size_t q = quarter;
        for (; q >= std::max(tables.first_quarter(), stages::run); q /= 4) {
            Target::template kernel<&stages::template chunk_stage<&stages::split_four>>(tables, block,
                                                                                        2 * cached, q);
        }
        if constexpr (stages::run == 4) {
            if (tables.has_pairs()) {
                Target::template kernel<&stages::template pair_stage<false>>(tables, block, 2 * cached);
            }
        } else if (q == 4) {
            Target::template kernel<&stages::template sixteens_stage<false>>(tables, block, 2 * cached);
        }
    }
    if (stages::run == 4 || tables.has_pairs()) {
        Target::template kernel<&stages::template split_and_scatter<true>>(tables, work);
    } else {
        Target::template kernel<&stages::template split_and_scatter<false>>(tables, work);
    }
}

/// Calls f with the target of the active back-end, or a narrower one whose blocks the slots fill.
template <class F>
void on_target_for([[maybe_unused]] const slot_tables& tables, F f) {
    simd::on_active_target([&](auto target) {
#if TENSAFE_X86_64
        if constexpr (slot_stages<decltype(target)>::run == 8) {
            if (tables.slots() < 128) {
                return f(simd::avx2{});
            }
        }
#endif
        f(target);
    });
}

}  // namespace tensafe::encoding::detail
