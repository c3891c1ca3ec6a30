#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/encoding/slot_tables.hpp>
#include <tensafe/encoding/slot_transform.hpp>
#include <tensafe/ntt/order.hpp>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

// The slot transform as kernels: the operations of the host's slot stages on the same numbers in the same
// order, so the results are those of slot_transform, bit for bit.
//
// A thread block holds its slots in shared memory and a thread sixteen of them in registers, for two radix-4
// stages at a time. Up to 2^13 slots, one thread block does everything; more are cut into sixteen parts, of
// which a thread block has two or four, and a second launch does the last two stages.

namespace tensafe::device {

/// A slot or root: two doubles that are read and written at once. May alias arrays of double.
struct alignas(16) complex_value {
    double re;
    double im;
};

/// Entry j of an array of complex numbers, real and imaginary part in turn.  @pre `from` is 16-byte aligned
TENSAFE_HD_INLINE complex_value load_complex(const double* from, std::size_t j) noexcept {
    return reinterpret_cast<const complex_value*>(from)[j];
}
TENSAFE_HD_INLINE void store_complex(double* to, std::size_t j, complex_value value) noexcept {
    reinterpret_cast<complex_value*>(to)[j] = value;
}

// The steps of complex_lanes.hpp for one number: the same sums of the same rounded products.
namespace detail {

TENSAFE_HD_INLINE complex_value add(complex_value a, complex_value b) noexcept {
    return {a.re + b.re, a.im + b.im};
}
TENSAFE_HD_INLINE complex_value subtract(complex_value a, complex_value b) noexcept {
    return {a.re - b.re, a.im - b.im};
}
TENSAFE_HD_INLINE complex_value multiply(complex_value a, complex_value w) noexcept {
    return {arith::rounded_product(a.re, w.re) - arith::rounded_product(a.im, w.im),
            arith::rounded_product(a.re, w.im) + arith::rounded_product(a.im, w.re)};
}
TENSAFE_HD_INLINE complex_value multiply_conjugate(complex_value a, complex_value w) noexcept {
    return {arith::rounded_product(a.re, w.re) + arith::rounded_product(a.im, w.im),
            arith::rounded_product(a.im, w.re) - arith::rounded_product(a.re, w.im)};
}

struct powers {
    complex_value first;
    complex_value second;
    complex_value third;
};

/// Makes of each t_p the sum over c < 4 of (-i)^(p c) t_c.
TENSAFE_HD_INLINE void sum_of_four(complex_value& t0, complex_value& t1, complex_value& t2,
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
TENSAFE_HD_INLINE void radix4_dit(complex_value& y0, complex_value& y1, complex_value& y2, complex_value& y3,
                                  const powers& x) noexcept {
    const complex_value first = multiply(y2, x.first);
    const complex_value second = multiply(y1, x.second);
    y3 = multiply(y3, x.third);
    y1 = first;
    y2 = second;
    sum_of_four(y0, y1, y2, y3);
}

/// Undoes radix4_dit, up to the factor 4.
TENSAFE_HD_INLINE void radix4_dif(complex_value& z0, complex_value& z1, complex_value& z2, complex_value& z3,
                                  const powers& x) noexcept {
    sum_of_four(z0, z3, z2, z1);
    const complex_value first = z3;
    const complex_value second = z2;
    const complex_value third = z1;
    z1 = multiply_conjugate(second, x.second);
    z2 = multiply_conjugate(first, x.first);
    z3 = multiply_conjugate(third, x.third);
}

/// The stage that merges single coefficients, in bit-reversed order: there the fourth root of one is i.
TENSAFE_HD_INLINE void radix4_dit_first(complex_value& y0, complex_value& y1, complex_value& y2,
                                        complex_value& y3, const powers& x) noexcept {
    const complex_value first = multiply(y2, x.first);
    const complex_value second = multiply(y1, x.second);
    y1 = multiply(y3, x.third);
    y2 = second;
    y3 = first;
    sum_of_four(y0, y1, y2, y3);
}

/// Undoes radix4_dit_first, up to the factor 4.
TENSAFE_HD_INLINE void radix4_dif_last(complex_value& z0, complex_value& z1, complex_value& z2,
                                       complex_value& z3, const powers& x) noexcept {
    sum_of_four(z0, z1, z2, z3);
    const complex_value first = multiply_conjugate(z1, x.first);
    z1 = multiply_conjugate(z2, x.second);
    z2 = first;
    z3 = multiply_conjugate(z3, x.third);
}

}  // namespace detail

/// The part of the tables that kernels read, copied into each launch.
struct slot_view {
    /// For each radix-4 stage, smallest first, the roots, then their squares, then their third powers; of a
    /// direct size, all powers of zeta.
    const complex_value* roots;
    /// The powers of the root of the stage that merges single coefficients.
    detail::powers start;
    /// The roots of the radix-2 stage.
    complex_value pair[4];
};

/// The roots of the slot transform of one degree, in the memory of a machine: those of slot_tables, in the
/// order in which thread blocks read them. 8N bytes. Immutable.
template <class Space>
class slot_tables {
  public:
    /// Builds the tables for N = 2^log_n and waits until they are uploaded.
    /// @throws parameter_error unless 1 <= log_n <= 17
    template <class Where>
    slot_tables(const Where& where, int log_n) : log_n_(checked(log_n)) {
        const encoding::detail::slot_tables host(log_n - 1);
        std::vector<complex_value> roots;
        if (host.is_direct()) {
            for (const std::complex<double>& root : host.direct_roots().span()) {
                roots.push_back(of(root));
            }
        } else {
            for (std::size_t quarter = host.first_quarter(); quarter < host.slots(); quarter *= 4) {
                append_stage(host, quarter, roots);
            }
            const auto& start = host.start_roots();
            view_.start = {of(start[0]), of(start[1]), of(start[2])};
            for (std::size_t j = 0; j < 4; ++j) {
                view_.pair[j] = {host.pair_roots()[j], host.pair_roots()[4 + j]};
            }
        }
        roots_ = uploaded(where, roots);
    }

    int log_n() const noexcept { return log_n_; }
    slot_view view() const noexcept {
        slot_view view = view_;
        view.roots = roots_.data();
        return view;
    }

  private:
    static int checked(int log_n) {
        require<parameter_error>(
            log_n >= encoding::slot_transform::min_log_n && log_n <= encoding::slot_transform::max_log_n,
            {"device::slot_tables: log_n: got ", log_n, ", expected ", encoding::slot_transform::min_log_n,
             " to ", encoding::slot_transform::max_log_n});
        return log_n;
    }

    static complex_value of(std::complex<double> z) noexcept { return {z.real(), z.imag()}; }

    static void append_stage(const encoding::detail::slot_tables& host, std::size_t quarter,
                             std::vector<complex_value>& roots) {
        const double* const from = host.stage_roots(quarter);
        const std::size_t width = encoding::detail::slot_tables::group(quarter);
        for (std::size_t power = 0; power < 3; ++power) {
            for (std::size_t j = 0; j < quarter; ++j) {
                const std::size_t at = j / width * 6 * width + 2 * power * width + j % width;
                roots.push_back({from[at], from[at + width]});
            }
        }
    }

    int log_n_;
    memory::buffer<complex_value, Space> roots_;
    slot_view view_{};
};

namespace detail {

inline constexpr int values_per_thread = 16;
/// The largest thread block's slots, as a power of two: 128 KiB of shared memory.
inline constexpr int largest_log_block = 13;

/// Says how 2^LogSlots slots are cut up: `outer_bits` of a slot's number say in which part it stands. The
/// coefficients of a part lie 2^outer_bits apart; a thread block has four parts, or two if there is no more
/// room, whose coefficients are neighbours.
template <int LogSlots>
struct slot_cut {
    static constexpr std::size_t slots = std::size_t{1} << LogSlots;
    static constexpr int outer_bits = LogSlots <= largest_log_block ? 0 : 4;
    static constexpr int log_part = LogSlots - outer_bits;
    static constexpr int log_block = std::min({LogSlots, log_part + 2, largest_log_block});
    static constexpr int log_parts = log_block - log_part;
    static constexpr int log_blocks = LogSlots - log_block;
    static constexpr int block_slots = 1 << log_block;
    static constexpr int busy = block_slots / values_per_thread;
    static constexpr int threads = std::max(busy, 32);
    /// Bits of a slot's number that the first pass deals with: blocks of four, then of eight or sixteen.
    static constexpr int first_bits = LogSlots % 2 == 0 ? 4 : 3;
    static constexpr std::size_t first_quarter = LogSlots % 2 == 0 ? 4 : 8;

    /// The number of the slot that stands at place `i` of a thread block: part after part.
    TENSAFE_HD_INLINE static std::uint32_t slot(std::uint32_t block, std::uint32_t i) noexcept {
        const auto part =
            static_cast<std::uint32_t>(ntt::bit_reverse(block << log_parts | i >> log_part, outer_bits));
        return part << log_part | (i & ((1U << log_part) - 1));
    }
};

/// Shared memory with real and imaginary parts apart, so that a thread's access is to one bank.
template <int LogBlock>
struct slot_memory {
    double re[std::size_t{1} << LogBlock];
    double im[std::size_t{1} << LogBlock];

    /// The place of slot s: slots that differ in any four neighbouring bits are in different banks. Linear:
    /// of s ^ t it is place(s) ^ place(t).
    TENSAFE_HD_INLINE static constexpr std::uint32_t place(std::uint32_t s) noexcept {
        return s ^ ((s >> 4 ^ s >> 8 ^ s >> 12) & 15);
    }
    TENSAFE_HD_INLINE complex_value get(std::uint32_t at) const noexcept { return {re[at], im[at]}; }
    TENSAFE_HD_INLINE void put(std::uint32_t at, complex_value z) noexcept {
        re[at] = z.re;
        im[at] = z.im;
    }
};

/// The powers of root j of the stage that merges blocks of `Quarter` slots.
template <int LogSlots, std::size_t Quarter>
TENSAFE_HD_INLINE powers stage_powers(const slot_view& tables, std::size_t j) noexcept {
    const complex_value* const roots = tables.roots + (Quarter - slot_cut<LogSlots>::first_quarter) + j;
    return {roots[0], roots[Quarter], roots[2 * Quarter]};
}

/// The number of slot 0 of item t in a pass over the `Count` bits from bit `Low` on: the item's number with
/// these bits put in as 0.
template <int Low, int Count>
TENSAFE_HD_INLINE constexpr std::uint32_t first_of_item(std::uint32_t t) noexcept {
    return (t & ((1U << Low) - 1)) | (t >> Low) << (Low + Count);
}

/// The shape of sixteen values: one item of four bits, or four of two, whose numbers are `step` apart.
template <int Low, int Count, std::uint32_t Step>
struct pass_shape {
    static constexpr int per_item = 1 << Count;
    static constexpr int items = values_per_thread / per_item;

    TENSAFE_HD_INLINE static std::uint32_t item(std::uint32_t t, int g) noexcept {
        return t + Step * static_cast<std::uint32_t>(g);
    }
    /// Calls f(value, number of its slot) for each of the sixteen.
    template <class F>
    TENSAFE_HD_INLINE static void for_slots(complex_value (&v)[values_per_thread], std::uint32_t t,
                                            const F& f) noexcept {
        for (int g = 0; g < items; ++g) {
            const std::uint32_t first = first_of_item<Low, Count>(item(t, g));
            for (int i = 0; i < per_item; ++i) {
                f(v[g * per_item + i], first, static_cast<std::uint32_t>(i) << Low);
            }
        }
    }
};

/// Merges, or undoes that up to a factor.
template <bool Merge>
TENSAFE_HD_INLINE void radix4(complex_value& z0, complex_value& z1, complex_value& z2, complex_value& z3,
                              const powers& x) noexcept {
    if constexpr (Merge) {
        radix4_dit(z0, z1, z2, z3, x);
    } else {
        radix4_dif(z0, z1, z2, z3, x);
    }
}

/// Does the one or two radix-4 stages of a pass: merging, the smaller one first, or splitting, as the last.
template <bool Merge, int LogSlots, int Low, int Count, std::uint32_t Step>
TENSAFE_HD_INLINE void radix4_pass(const slot_view& tables, std::uint32_t t,
                                   complex_value (&v)[values_per_thread]) noexcept {
    using shape = pass_shape<Low, Count, Step>;
    constexpr std::size_t quarter = std::size_t{1} << Low;
    for (int g = 0; g < shape::items; ++g) {
        complex_value* const z = v + g * shape::per_item;
        const std::size_t j = shape::item(t, g) & (quarter - 1);
        const auto smaller = [&] {
            const powers x = stage_powers<LogSlots, quarter>(tables, j);
            for (int h = 0; h < shape::per_item; h += 4) {
                radix4<Merge>(z[h], z[h + 1], z[h + 2], z[h + 3], x);
            }
        };
        if constexpr (Merge) {
            smaller();
        }
        if constexpr (Count == 4) {
            for (int c = 0; c < 4; ++c) {
                radix4<Merge>(
                    z[c], z[c + 4], z[c + 8], z[c + 12],
                    stage_powers<LogSlots, 4 * quarter>(tables, j + quarter * static_cast<std::size_t>(c)));
            }
        }
        if constexpr (!Merge) {
            smaller();
        }
    }
}

/// Does the stages on the lowest bits: sixteen coefficients, or twice eight, in bit-reversed order.
template <int LogSlots>
TENSAFE_HD_INLINE void merge_first(const slot_view& tables, complex_value (&v)[values_per_thread]) noexcept {
    for (int h = 0; h < values_per_thread; h += 4) {
        radix4_dit_first(v[h], v[h + 1], v[h + 2], v[h + 3], tables.start);
    }
    if constexpr (slot_cut<LogSlots>::first_bits == 4) {
        for (int c = 0; c < 4; ++c) {
            radix4_dit(v[c], v[c + 4], v[c + 8], v[c + 12],
                       stage_powers<LogSlots, 4>(tables, static_cast<std::size_t>(c)));
        }
    } else {
        for (int g = 0; g < values_per_thread; g += 8) {
            for (int j = 0; j < 4; ++j) {
                const complex_value even = v[g + j];
                const complex_value odd = multiply(v[g + j + 4], tables.pair[j]);
                v[g + j] = add(even, odd);
                v[g + j + 4] = subtract(even, odd);
            }
        }
    }
}

/// Undoes merge_first, and divides by the number of slots.
template <int LogSlots>
TENSAFE_HD_INLINE void split_first(const slot_view& tables, complex_value (&v)[values_per_thread]) noexcept {
    if constexpr (slot_cut<LogSlots>::first_bits == 4) {
        for (int c = 0; c < 4; ++c) {
            radix4_dif(v[c], v[c + 4], v[c + 8], v[c + 12],
                       stage_powers<LogSlots, 4>(tables, static_cast<std::size_t>(c)));
        }
    } else {
        for (int g = 0; g < values_per_thread; g += 8) {
            for (int j = 0; j < 4; ++j) {
                const complex_value a = v[g + j];
                const complex_value b = v[g + j + 4];
                v[g + j] = add(a, b);
                v[g + j + 4] = multiply_conjugate(subtract(a, b), tables.pair[j]);
            }
        }
    }
    constexpr double factor = 1.0 / static_cast<double>(slot_cut<LogSlots>::slots);
    for (int h = 0; h < values_per_thread; h += 4) {
        radix4_dif_last(v[h], v[h + 1], v[h + 2], v[h + 3], tables.start);
        for (int i = h; i < h + 4; ++i) {
            v[i] = {v[i].re * factor, v[i].im * factor};
        }
    }
}

/// The places of the coefficients of the first pass. The lowest bits of an item's number are its part, the
/// others count coefficients of the part, so neighbouring items have neighbouring coefficients; those of the
/// imaginary parts are `slots` further.
template <int LogSlots>
struct first_pass {
    using cut = slot_cut<LogSlots>;
    static constexpr int bits = cut::first_bits;
    static constexpr int per_item = 1 << bits;
    static constexpr int items = values_per_thread / per_item;

    TENSAFE_HD_INLINE static std::uint32_t item(std::uint32_t t, int g) noexcept {
        return t + static_cast<std::uint32_t>(cut::busy * g);
    }
    /// Calls f(value, index of the coefficient): neighbouring threads have neighbouring ones.
    template <class F>
    TENSAFE_HD_INLINE static void for_coefficients(complex_value (&v)[values_per_thread], std::uint32_t block,
                                                   std::uint32_t t, const F& f) noexcept {
        constexpr std::uint32_t parts = 1U << cut::log_parts;
        for (int g = 0; g < items; ++g) {
            const std::uint32_t number = item(t, g);
            const std::uint32_t first = (number >> cut::log_parts) << cut::outer_bits |
                                        block << cut::log_parts | (number & (parts - 1));
            for (int i = 0; i < per_item; ++i) {
                const auto reversed =
                    static_cast<std::uint32_t>(ntt::bit_reverse(static_cast<std::size_t>(i), bits));
                f(v[g * per_item + i], reversed << (LogSlots - bits) | first);
            }
        }
    }
    /// Calls f(value, place in shared memory).
    template <class F>
    TENSAFE_HD_INLINE static void for_places(complex_value (&v)[values_per_thread], std::uint32_t t,
                                             const F& f) noexcept {
        using memory = slot_memory<cut::log_block>;
        for (int g = 0; g < items; ++g) {
            constexpr std::uint32_t parts = 1U << cut::log_parts;
            const std::uint32_t part = item(t, g) & (parts - 1);
            const auto number = static_cast<std::uint32_t>(
                ntt::bit_reverse(item(t, g) >> cut::log_parts, cut::log_part - bits));
            const std::uint32_t first = memory::place(part << cut::log_part | number << bits);
            for (int i = 0; i < per_item; ++i) {
                f(v[g * per_item + i], first ^ memory::place(static_cast<std::uint32_t>(i)));
            }
        }
    }
};

/// Goes through all passes but the first, lowest bits first if Upwards, or highest bits first: calls
/// f.template operator()<Low, Count>(). Each deals with four bits, the last one with two if they are left
/// over.
template <bool Upwards, int Low, int End, class F>
TENSAFE_HD_INLINE void for_passes(const F& f) {
    if constexpr (Low < End) {
        constexpr int count = End - Low >= 4 ? 4 : 2;
        if constexpr (Upwards) {
            f.template operator()<Low, count>();
        }
        for_passes<Upwards, Low + count, End>(f);
        if constexpr (!Upwards) {
            f.template operator()<Low, count>();
        }
    }
}

}  // namespace detail

}  // namespace tensafe::device
