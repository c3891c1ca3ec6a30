#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/complex_lanes.hpp>
#include <tensafe/encoding/slot_tables.hpp>
#include <tensafe/memory/wipe.hpp>

#include <array>
#include <complex>
#include <cstddef>
#include <cstring>

/// The stages of the slot transform in portable C++. The back-ends beside this file do the same operations on
/// the same numbers in the same order, on wider vectors, so their results are the same, bit for bit.
namespace tensafe::encoding::detail::portable {

TENSAFE_INLINE complex_lanes splat(std::complex<double> z) noexcept {
    return {lanes{z.real(), z.real()}, lanes{z.imag(), z.imag()}};
}
TENSAFE_INLINE root_powers start_roots(const slot_tables& tables) noexcept {
    const auto& roots = tables.start_roots();
    return {splat(roots[0]), splat(roots[1]), splat(roots[2])};
}

/// Radix-4 butterflies over one block of 4 * quarter slots.
template <auto read, auto butterfly, auto write>
TENSAFE_INLINE void pass(const slot_tables& tables, const double* from, double* to,
                         std::size_t quarter) noexcept {
    const double* roots = tables.stage_roots(quarter);
    const std::size_t width = slot_tables::group(quarter);
    const std::size_t distance = 2 * quarter;
    for (std::size_t first = 0; first != distance; first += 2 * width, roots += 6 * width) {
        for (std::size_t lane = 0; lane != width; lane += 2) {
            const std::size_t i = first + 2 * lane;
            const auto out =
                butterfly(read(from + i), read(from + i + distance), read(from + i + 2 * distance),
                          read(from + i + 3 * distance), load_roots(roots + lane, width));
            write(to + i, out[0]);
            write(to + i + distance, out[1]);
            write(to + i + 2 * distance, out[2]);
            write(to + i + 3 * distance, out[3]);
        }
    }
}

// Coefficients to slots

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

/// Reads the coefficients in bit-reversed order and merges them four by four; leaves chunks.
///
/// A slot index is cut into three top bits, the middle, and two low bits; one round takes the eight
/// blocks of four that share a middle, so that whole cache lines are read and written on both sides of
/// the reversal.
inline void gather_and_merge(const slot_tables& tables, const double* coefficients, double* work) noexcept {
    const std::size_t slots = tables.slots();
    const std::size_t quarter = slots / 4;
    const root_powers roots = start_roots(tables);
    for (std::size_t middle = 0; middle < slots / 32; ++middle) {
        const double* const from = coefficients + 8 * tables.reversed_middle(middle);
        double* const to = work + 8 * middle;
        for (std::size_t pair = 0; pair < 4; ++pair) {
            const auto coefficient = [&](std::size_t c) {
                const double* const re = from + 2 * pair + c * quarter;
                return complex_lanes{load(re), load(re + slots)};
            };
            const auto z =
                sum_of_four(coefficient(0), multiply(coefficient(3), roots.third),
                            multiply(coefficient(2), roots.second), multiply(coefficient(1), roots.first));
            // Coefficients 2 pair and 2 pair + 1 of the eight differ in the lowest bit, their blocks in the
            // top one.
            double* const even = to + reversed_pair[pair] * quarter;
            double* const odd = even + slots;
            store(even, lanes{z[0].re[0], z[1].re[0]});
            store(even + 2, lanes{z[0].im[0], z[1].im[0]});
            store(even + 4, lanes{z[2].re[0], z[3].re[0]});
            store(even + 6, lanes{z[2].im[0], z[3].im[0]});
            store(odd, lanes{z[0].re[1], z[1].re[1]});
            store(odd + 2, lanes{z[0].im[1], z[1].im[1]});
            store(odd + 4, lanes{z[2].re[1], z[3].re[1]});
            store(odd + 6, lanes{z[2].im[1], z[3].im[1]});
        }
    }
}

TENSAFE_INLINE complex_lanes pair_roots(const slot_tables& tables, std::size_t pair) noexcept {
    return {load(tables.pair_roots() + 2 * pair), load(tables.pair_roots() + 4 + 2 * pair)};
}

/// Blocks of four to blocks of eight: the one radix-2 stage when log2 of the slots is odd.
inline void merge_pairs(const slot_tables& tables, double* work) noexcept {
    for (double* at = work; at != work + tables.degree(); at += 16) {
        for (std::size_t j = 0; j < 2; ++j) {
            const auto even = load_chunk(at + 4 * j);
            const auto odd = multiply(load_chunk(at + 4 * j + 8), pair_roots(tables, j));
            store_chunk(at + 4 * j, even + odd);
            store_chunk(at + 4 * j + 8, even - odd);
        }
    }
}

inline void to_slots(const slot_tables& tables, const double* coefficients, double* work) noexcept {
    const std::size_t slots = tables.slots();
    gather_and_merge(tables, coefficients, work);
    if (tables.has_pairs()) {
        merge_pairs(tables, work);
    }
    for (std::size_t quarter = tables.first_quarter(); 4 * quarter < slots; quarter *= 4) {
        for (double* at = work; at != work + 2 * slots; at += 8 * quarter) {
            pass<load_chunk, merge_four, store_chunk>(tables, at, at, quarter);
        }
    }
    // The last stage turns chunks into pairs of real and imaginary part on the way.
    pass<load_chunk, merge_four, store_interleaved>(tables, work, work, slots / 4);
}

// Slots to coefficients: the same stages backwards

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

inline void split_pairs(const slot_tables& tables, double* work) noexcept {
    for (double* at = work; at != work + tables.degree(); at += 16) {
        for (std::size_t j = 0; j < 2; ++j) {
            const auto a = load_chunk(at + 4 * j);
            const auto b = load_chunk(at + 4 * j + 8);
            store_chunk(at + 4 * j, a + b);
            store_chunk(at + 4 * j + 8, multiply_conjugate(a - b, pair_roots(tables, j)));
        }
    }
}

/// Splits the eight blocks of four that share a middle. Row c of `to` gets the real parts of the eight
/// coefficients in quarter c of the result, row 4 + c their imaginary parts; rows are `row` values apart.
inline void split_set(const slot_tables& tables, const double* from, double* to, std::size_t row) noexcept {
    const lanes factor = lanes{1.0, 1.0} / static_cast<double>(tables.slots());
    const root_powers roots = start_roots(tables);
    for (std::size_t pair = 0; pair < 4; ++pair) {
        const double* const even = from + reversed_pair[pair] * (tables.slots() / 4);
        const double* const odd = even + tables.slots();
        const auto across = [&](std::size_t i) {
            return complex_lanes{lanes{even[i], odd[i]}, lanes{even[i + 2], odd[i + 2]}};
        };
        const auto t = sum_of_four(across(0), across(1), across(4), across(5));
        const std::array<complex_lanes, 4> b{t[0], multiply_conjugate(t[1], roots.first),
                                             multiply_conjugate(t[2], roots.second),
                                             multiply_conjugate(t[3], roots.third)};
        for (std::size_t c = 0; c < 4; ++c) {
            store(to + 2 * pair + c * row, b[c].re * factor);
            store(to + 2 * pair + (4 + c) * row, b[c].im * factor);
        }
    }
}

/// The first stage backwards, the bit reversal and the division by n, in place.
///
/// Chunks and the final order differ by a permutation of address bits that maps the 64 values with one
/// middle onto those with the reversed middle, so two such sets change places and nothing else is
/// disturbed.
inline void split_and_scatter(const slot_tables& tables, double* work) noexcept {
    std::array<double, 64> kept;
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
inline void to_coefficients(const slot_tables& tables, const double* slots, double* work) noexcept {
    const std::size_t count = tables.slots();
    // The last stage backwards turns pairs of real and imaginary part into chunks on the way.
    pass<load_interleaved, split_four, store_chunk>(tables, slots, work, count / 4);
    for (std::size_t quarter = count / 16; quarter >= tables.first_quarter(); quarter /= 4) {
        for (double* at = work; at != work + 2 * count; at += 8 * quarter) {
            pass<load_chunk, split_four, store_chunk>(tables, at, at, quarter);
        }
    }
    if (tables.has_pairs()) {
        split_pairs(tables, work);
    }
    split_and_scatter(tables, work);
}

}  // namespace tensafe::encoding::detail::portable
