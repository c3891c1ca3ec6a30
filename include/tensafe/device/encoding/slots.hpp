#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/core/with_index.hpp>
#include <tensafe/device/encoding/complex.hpp>
#include <tensafe/device/encoding/slot_tables.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/ntt/order.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

/// The slot transform as block kernels: the operations of slot_stages.hpp on the same numbers in the same
/// order, so the results are those of slot_transform, bit for bit.
///
/// A block holds its slots in shared memory and a thread sixteen of them in registers, for two radix-4 stages
/// at a time; between these, the threads exchange theirs. Up to 2^13 slots, one block does everything; more
/// are cut into blocks that do all stages but the last one or two, and a second launch does those.
namespace tensafe::encoding {

namespace detail {

/// Slots of one thread.
inline constexpr int values_per_thread = 16;
/// The largest block: 128 KiB of shared memory.
inline constexpr int largest_log_block = 13;

/// How 2^LogSlots slots are cut up: `outer_bits` of a slot's number say in which block it stands.
template <int LogSlots>
struct slot_cut {
    static constexpr std::size_t slots = std::size_t{1} << LogSlots;
    static constexpr int outer_bits =
        LogSlots <= largest_log_block ? 0 : (LogSlots <= largest_log_block + 2 ? 2 : 4);
    static constexpr int log_block = LogSlots - outer_bits;
    static constexpr int block_slots = 1 << log_block;
    /// Threads with something to do, and threads there are.
    static constexpr int busy = block_slots / values_per_thread;
    static constexpr int threads = std::max(busy, 32);
    /// Bits of a slot's number that the first pass deals with: blocks of four, then of eight or sixteen.
    static constexpr int first_bits = LogSlots % 2 == 0 ? 4 : 3;
    static constexpr std::size_t first_quarter = LogSlots % 2 == 0 ? 4 : 8;
};

/// Real and imaginary parts apart, so that a thread's access is to one bank.
template <int LogBlock>
struct slot_memory {
    double re[std::size_t{1} << LogBlock];
    double im[std::size_t{1} << LogBlock];

    /// Where slot s stands: all its bits count for the bank, so that slots that differ in the lowest, in the
    /// highest, or in any four neighbouring bits are in different banks. Linear: of s ^ t it is place(s) ^
    /// place(t).
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static constexpr std::uint32_t place(std::uint32_t s) noexcept {
        return s ^ ((s >> 4 ^ s >> 8 ^ s >> 12) & 15);
    }
    TENSAFE_HOST_DEVICE TENSAFE_INLINE complex_value get(std::uint32_t at) const noexcept {
        return {re[at], im[at]};
    }
    TENSAFE_HOST_DEVICE TENSAFE_INLINE void put(std::uint32_t at, complex_value z) noexcept {
        re[at] = z.re;
        im[at] = z.im;
    }
};

/// The powers of root j of the stage that merges blocks of `Quarter` slots.
template <int LogSlots, std::size_t Quarter>
TENSAFE_HOST_DEVICE TENSAFE_INLINE powers stage_powers(const block_slot_view& tables,
                                                       std::size_t j) noexcept {
    const complex_value* const roots = tables.roots + (Quarter - slot_cut<LogSlots>::first_quarter) + j;
    return {roots[0], roots[Quarter], roots[2 * Quarter]};
}

/// The number of slot i of item t in a pass over the `Count` bits from bit `Low` on is the item's number with
/// these bits put in. This is the one for i = 0.
template <int Low, int Count>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr std::uint32_t first_of_item(std::uint32_t t) noexcept {
    return (t & ((1U << Low) - 1)) | (t >> Low) << (Low + Count);
}

/// Sixteen values: one item of four bits, or four of two, whose numbers are `step` apart.
template <int Low, int Count, std::uint32_t Step>
struct pass_shape {
    static constexpr int per_item = 1 << Count;
    static constexpr int items = values_per_thread / per_item;

    TENSAFE_HOST_DEVICE TENSAFE_INLINE static std::uint32_t item(std::uint32_t t, int g) noexcept {
        return t + Step * static_cast<std::uint32_t>(g);
    }
    /// Calls f(value, number of its slot) for each of the sixteen.
    template <class F>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static void for_slots(complex_value (&v)[values_per_thread],
                                                             std::uint32_t t, const F& f) noexcept {
        for (int g = 0; g < items; ++g) {
            const std::uint32_t first = first_of_item<Low, Count>(item(t, g));
            for (int i = 0; i < per_item; ++i) {
                f(v[g * per_item + i], first, static_cast<std::uint32_t>(i) << Low);
            }
        }
    }
};

template <int LogSlots, int Low, int Count, std::uint32_t Step>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void merge_pass(const block_slot_view& tables, std::uint32_t t,
                                                   complex_value (&v)[values_per_thread]) noexcept {
    using shape = pass_shape<Low, Count, Step>;
    constexpr std::size_t quarter = std::size_t{1} << Low;
    for (int g = 0; g < shape::items; ++g) {
        complex_value* const z = v + g * shape::per_item;
        const std::size_t j = shape::item(t, g) & (quarter - 1);
        const powers x = stage_powers<LogSlots, quarter>(tables, j);
        for (int h = 0; h < shape::per_item; h += 4) {
            merge_blocks(z[h], z[h + 1], z[h + 2], z[h + 3], x);
        }
        if constexpr (Count == 4) {
            for (int c = 0; c < 4; ++c) {
                const std::size_t k = j + quarter * static_cast<std::size_t>(c);
                merge_blocks(z[c], z[c + 4], z[c + 8], z[c + 12],
                             stage_powers<LogSlots, 4 * quarter>(tables, k));
            }
        }
    }
}

template <int LogSlots, int Low, int Count, std::uint32_t Step>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void split_pass(const block_slot_view& tables, std::uint32_t t,
                                                   complex_value (&v)[values_per_thread]) noexcept {
    using shape = pass_shape<Low, Count, Step>;
    constexpr std::size_t quarter = std::size_t{1} << Low;
    for (int g = 0; g < shape::items; ++g) {
        complex_value* const z = v + g * shape::per_item;
        const std::size_t j = shape::item(t, g) & (quarter - 1);
        if constexpr (Count == 4) {
            for (int c = 0; c < 4; ++c) {
                const std::size_t k = j + quarter * static_cast<std::size_t>(c);
                split_blocks(z[c], z[c + 4], z[c + 8], z[c + 12],
                             stage_powers<LogSlots, 4 * quarter>(tables, k));
            }
        }
        const powers x = stage_powers<LogSlots, quarter>(tables, j);
        for (int h = 0; h < shape::per_item; h += 4) {
            split_blocks(z[h], z[h + 1], z[h + 2], z[h + 3], x);
        }
    }
}

/// The stages on the lowest bits: sixteen coefficients, or twice eight, in bit-reversed order.
template <int LogSlots>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void merge_first(const block_slot_view& tables,
                                                    complex_value (&v)[values_per_thread]) noexcept {
    for (int h = 0; h < values_per_thread; h += 4) {
        merge_coefficients(v[h], v[h + 1], v[h + 2], v[h + 3], tables.start);
    }
    if constexpr (slot_cut<LogSlots>::first_bits == 4) {
        for (int c = 0; c < 4; ++c) {
            merge_blocks(v[c], v[c + 4], v[c + 8], v[c + 12],
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
TENSAFE_HOST_DEVICE TENSAFE_INLINE void split_first(const block_slot_view& tables,
                                                    complex_value (&v)[values_per_thread]) noexcept {
    if constexpr (slot_cut<LogSlots>::first_bits == 4) {
        for (int c = 0; c < 4; ++c) {
            split_blocks(v[c], v[c + 4], v[c + 8], v[c + 12],
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
        split_coefficients(v[h], v[h + 1], v[h + 2], v[h + 3], tables.start);
        for (int i = h; i < h + 4; ++i) {
            v[i] = {v[i].re * factor, v[i].im * factor};
        }
    }
}

/// The coefficients of the first pass: value i of item t of a block is coefficient `first + i * step` of the
/// real parts, `slots` further of the imaginary parts.
template <int LogSlots>
struct first_pass {
    using cut = slot_cut<LogSlots>;
    static constexpr int bits = cut::first_bits;
    static constexpr int per_item = 1 << bits;
    static constexpr int items = values_per_thread / per_item;

    TENSAFE_HOST_DEVICE TENSAFE_INLINE static std::uint32_t item(std::uint32_t t, int g) noexcept {
        return t + static_cast<std::uint32_t>(cut::busy * g);
    }
    /// Calls f(value, index of the coefficient): neighbouring threads have neighbouring ones.
    template <class F>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static void for_coefficients(complex_value (&v)[values_per_thread],
                                                                    std::uint32_t block, std::uint32_t t,
                                                                    const F& f) noexcept {
        const auto low = static_cast<std::uint32_t>(ntt::bit_reverse(block, cut::outer_bits));
        for (int g = 0; g < items; ++g) {
            for (int i = 0; i < per_item; ++i) {
                constexpr int upper = cut::log_block - bits;
                const auto reversed =
                    static_cast<std::uint32_t>(ntt::bit_reverse(static_cast<std::size_t>(i), bits));
                f(v[g * per_item + i], (reversed << upper | item(t, g)) << cut::outer_bits | low);
            }
        }
    }
    /// Calls f(value, place in shared memory).
    template <class F>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static void for_places(complex_value (&v)[values_per_thread],
                                                              std::uint32_t t, const F& f) noexcept {
        using memory = slot_memory<cut::log_block>;
        for (int g = 0; g < items; ++g) {
            const auto number =
                static_cast<std::uint32_t>(ntt::bit_reverse(item(t, g), cut::log_block - bits));
            const std::uint32_t first = memory::place(number << bits);
            for (int i = 0; i < per_item; ++i) {
                f(v[g * per_item + i], first ^ memory::place(static_cast<std::uint32_t>(i)));
            }
        }
    }
};

/// All passes but the first, lowest bits first: calls f.template operator()<Low, Count>(). Each deals with
/// four bits, the last one with two if they are left over.
template <int Low, int End, class F>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void for_passes_upwards(const F& f) {
    if constexpr (Low < End) {
        constexpr int count = End - Low >= 4 ? 4 : 2;
        f.template operator()<Low, count>();
        for_passes_upwards<Low + count, End>(f);
    }
}
/// The same passes backwards.
template <int Low, int End, class F>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void for_passes_downwards(const F& f) {
    if constexpr (Low < End) {
        constexpr int count = End - Low >= 4 ? 4 : 2;
        for_passes_downwards<Low + count, End>(f);
        f.template operator()<Low, count>();
    }
}

/// All stages within a block, by all threads of a context.
/// @param from the polynomial's coefficients
/// @param to the block's slots, real and imaginary part in turn, 16-byte aligned
template <int LogSlots, class Context>
TENSAFE_HOST_DEVICE TENSAFE_INLINE void evaluate_block(Context& ctx,
                                                       slot_memory<slot_cut<LogSlots>::log_block>& shared,
                                                       const block_slot_view& tables, std::uint32_t block,
                                                       const double* from, double* to) {
    using cut = slot_cut<LogSlots>;
    using memory = slot_memory<cut::log_block>;
    constexpr auto busy = static_cast<std::uint32_t>(cut::busy);
    ctx.each([&](int thread) {
        const auto t = static_cast<std::uint32_t>(thread);
        if (t < busy) {
            using pass = first_pass<LogSlots>;
            complex_value v[values_per_thread];
            pass::for_coefficients(v, block, t, [&](complex_value& z, std::uint32_t k) {
                z = {from[k], from[cut::slots + k]};
            });
            merge_first<LogSlots>(tables, v);
            pass::for_places(v, t, [&](complex_value& z, std::uint32_t place) { shared.put(place, z); });
        }
    });
    for_passes_upwards<cut::first_bits, cut::log_block>([&]<int Low, int Count>() {
        ctx.each([&](int thread) {
            const auto t = static_cast<std::uint32_t>(thread);
            if (t < busy) {
                using shape = pass_shape<Low, Count, busy>;
                complex_value v[values_per_thread];
                shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                    z = shared.get(memory::place(first) ^ memory::place(i));
                });
                merge_pass<LogSlots, Low, Count, busy>(tables, t, v);
                shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                    if constexpr (Low + Count == cut::log_block) {
                        store_complex(to, first + i, z);
                    } else {
                        shared.put(memory::place(first) ^ memory::place(i), z);
                    }
                });
            }
        });
    });
}

/// Block x * 2^outer_bits + b of the launch has block b of polynomial x.
template <int LogSlots>
struct to_slots_kernel {
    using cut = slot_cut<LogSlots>;
    static constexpr int threads = cut::threads;
    using shared_type = slot_memory<cut::log_block>;

    block_slot_view tables;
    const double* coefficients;  ///< [polynomial][2 * slots]
    double* slots;               ///< [polynomial][slots]: real and imaginary part in turn

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x >> cut::outer_bits;
        const std::uint32_t block = ctx.block().x & ((1U << cut::outer_bits) - 1);
        const std::size_t first = polynomial * cut::slots + block * std::size_t{cut::block_slots};
        evaluate_block<LogSlots>(ctx, ctx.shared(), tables, block, coefficients + polynomial * 2 * cut::slots,
                                 slots + 2 * first);
    }
};

/// The stages above a block, in place: sixteen slots to a thread, and no shared memory.
template <int LogSlots>
struct to_slots_outer_kernel {
    using cut = slot_cut<LogSlots>;
    static constexpr int threads = 256;
    using shared_type = exec::no_shared;
    static constexpr std::uint32_t blocks = cut::slots / (threads * values_per_thread);

    block_slot_view tables;
    double* slots;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        double* const of_polynomial = slots + std::size_t{ctx.block().x / blocks} * 2 * cut::slots;
        const std::uint32_t first_thread = ctx.block().x % blocks * threads;
        ctx.last([&](int thread) {
            constexpr auto step = static_cast<std::uint32_t>(cut::slots / values_per_thread);
            using shape = pass_shape<cut::log_block, cut::outer_bits, step>;
            const std::uint32_t t = first_thread + static_cast<std::uint32_t>(thread);
            complex_value v[values_per_thread];
            shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                z = load_complex(of_polynomial, first + i);
            });
            merge_pass<LogSlots, cut::log_block, cut::outer_bits, step>(tables, t, v);
            shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                store_complex(of_polynomial, first + i, z);
            });
        });
    }
};

/// The stages above a block backwards, from where Load finds the slots to `work`.
template <int LogSlots, class Load>
struct to_coefficients_outer_kernel {
    using cut = slot_cut<LogSlots>;
    static constexpr int threads = 256;
    using shared_type = exec::no_shared;
    static constexpr std::uint32_t blocks = cut::slots / (threads * values_per_thread);

    block_slot_view tables;
    Load load;
    double* work;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x / blocks;
        const auto row = load.row(polynomial);
        double* const to = work + polynomial * 2 * cut::slots;
        const std::uint32_t first_thread = ctx.block().x % blocks * threads;
        ctx.last([&](int thread) {
            constexpr auto step = static_cast<std::uint32_t>(cut::slots / values_per_thread);
            using shape = pass_shape<cut::log_block, cut::outer_bits, step>;
            const std::uint32_t t = first_thread + static_cast<std::uint32_t>(thread);
            complex_value v[values_per_thread];
            shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                z = row.slot(first + i);
            });
            split_pass<LogSlots, cut::log_block, cut::outer_bits, step>(tables, t, v);
            shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                store_complex(to, first + i, z);
            });
        });
    }
};

/// All stages within a block, backwards.
template <int LogSlots, class Load>
struct to_coefficients_kernel {
    using cut = slot_cut<LogSlots>;
    static constexpr int threads = cut::threads;
    using shared_type = slot_memory<cut::log_block>;

    block_slot_view tables;
    Load load;
    double* coefficients;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x >> cut::outer_bits;
        const std::uint32_t block = ctx.block().x & ((1U << cut::outer_bits) - 1);
        const auto row = load.row(polynomial);
        double* const to = coefficients + polynomial * 2 * cut::slots;
        for_passes_downwards<cut::first_bits, cut::log_block>([&]<int Low, int Count>() {
            ctx.each([&](int thread) {
                const auto t = static_cast<std::uint32_t>(thread);
                if (t < cut::busy) {
                    using shape = pass_shape<Low, Count, static_cast<std::uint32_t>(cut::busy)>;
                    complex_value v[values_per_thread];
                    shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                        if constexpr (Low + Count == cut::log_block) {
                            z = row.slot(block * std::size_t{cut::block_slots} + first + i);
                        } else {
                            z = ctx.shared().get(shared_type::place(first) ^ shared_type::place(i));
                        }
                    });
                    split_pass<LogSlots, Low, Count, static_cast<std::uint32_t>(cut::busy)>(tables, t, v);
                    shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                        ctx.shared().put(shared_type::place(first) ^ shared_type::place(i), z);
                    });
                }
            });
        });
        ctx.last([&](int thread) {
            const auto t = static_cast<std::uint32_t>(thread);
            if (t < cut::busy) {
                using pass = first_pass<LogSlots>;
                complex_value v[values_per_thread];
                pass::for_places(v, t,
                                 [&](complex_value& z, std::uint32_t place) { z = ctx.shared().get(place); });
                split_first<LogSlots>(tables, v);
                pass::for_coefficients(v, block, t, [&](complex_value& z, std::uint32_t k) {
                    to[k] = z.re;
                    to[cut::slots + k] = z.im;
                });
            }
        });
    }
};

/// 5^j modulo a power of two, by its last bits.
TENSAFE_HOST_DEVICE TENSAFE_INLINE std::uint32_t power_of_five(std::uint32_t j, std::uint32_t mask) noexcept {
    std::uint32_t power = 1;
    for (std::uint32_t i = 0; i < j; ++i) {
        power = power * 5 & mask;
    }
    return power;
}

/// Part `i % 2` of slot i / 2 by its definition, as portable::evaluate_directly sums it.
/// @param coefficients 2 * slots numbers
/// @param roots 4 * slots powers of zeta
TENSAFE_HOST_DEVICE inline double evaluate_part(const complex_value* roots, std::uint32_t slots,
                                                const double* coefficients, std::uint32_t i) noexcept {
    const std::uint32_t mask = 4 * slots - 1;
    const std::uint32_t point = power_of_five(i / 2, mask);
    double sum = 0;
    for (std::uint32_t k = 0; k < 2 * slots; ++k) {
        const complex_value root = roots[point * k & mask];
        sum += arith::rounded_product(coefficients[k], i % 2 == 0 ? root.re : root.im);
    }
    return sum;
}

/// Up to sixteen slots: one number to a thread.
struct to_slots_direct_kernel {
    static constexpr int threads = 32;
    using shared_type = exec::no_shared;

    const complex_value* roots;
    std::uint32_t slots;
    const double* coefficients;
    double* out;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t at = std::size_t{ctx.block().x} * 2 * slots;
        ctx.last([&](int t) {
            const auto i = static_cast<std::uint32_t>(t);
            if (i < 2 * slots) {
                out[at + i] = evaluate_part(roots, slots, coefficients + at, i);
            }
        });
    }
};

template <class Load>
struct to_coefficients_direct_kernel {
    static constexpr int threads = 32;
    using shared_type = exec::no_shared;

    const complex_value* roots;
    std::uint32_t slots;
    Load load;
    double* coefficients;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x;
        const auto row = load.row(polynomial);
        ctx.last([&](int t) {
            const auto k = static_cast<std::uint32_t>(t);
            if (k < 2 * slots) {
                const std::uint32_t mask = 4 * slots - 1;
                double sum = 0;
                std::uint32_t exponent = k;
                for (std::uint32_t j = 0; j < slots; ++j) {
                    const complex_value root = roots[exponent & mask];
                    const complex_value z = row.slot(j);
                    sum += arith::rounded_product(z.re, root.re) + arith::rounded_product(z.im, root.im);
                    exponent *= 5;
                }
                coefficients[polynomial * 2 * slots + k] = sum / static_cast<double>(slots);
            }
        });
    }
};

inline void check_tables(const char* where, int got, int wanted) {
    if (got != wanted) {
        throw parameter_error(std::string(where) + ": got tables for log_n = " + std::to_string(got) +
                              ", expected " + std::to_string(wanted));
    }
}

}  // namespace detail

/// Slots as they stand in memory: [polynomial][N/2], real and imaginary part in turn, 16-byte aligned.
struct load_slots {
    int log_n;
    const double* slots;

    struct row_type {
        const double* slots;

        TENSAFE_HOST_DEVICE TENSAFE_INLINE complex_value slot(std::size_t j) const noexcept {
            return load_complex(slots, j);
        }
    };

    TENSAFE_HOST_DEVICE TENSAFE_INLINE row_type row(std::size_t polynomial) const noexcept {
        return {slots + (polynomial << log_n)};
    }
};

/// Evaluates: slot_transform::to_slots for `count` polynomials, with the same bits. One launch for N up to
/// 2^14, else two. Every argument in the memory of `where`; 16-byte aligned; no overlap.
/// @param coefficients [count][N]
/// @param slots [count][N/2], real and imaginary part in turn
/// @throws parameter_error unless the tables are for this degree
template <int LogN, class Where>
void to_slots_blocks(const Where& where, const block_slot_tables<typename Where::space>& tables,
                     const double* coefficients, double* slots, std::size_t count) {
    detail::check_tables("to_slots_blocks", tables.log_n(), LogN);
    if (count == 0) {
        return;
    }
    const block_slot_view view = tables.view();
    const auto polynomials = static_cast<std::uint32_t>(count);
    if constexpr (std::size_t{1} << (LogN - 1) <= detail::slot_tables::direct_slots) {
        where.launch(detail::to_slots_direct_kernel{view.roots, 1U << (LogN - 1), coefficients, slots},
                     {polynomials});
    } else {
        using cut = detail::slot_cut<LogN - 1>;
        where.launch(detail::to_slots_kernel<LogN - 1>{view, coefficients, slots},
                     {polynomials << cut::outer_bits});
        if constexpr (cut::outer_bits > 0) {
            using outer = detail::to_slots_outer_kernel<LogN - 1>;
            where.launch(outer{view, slots}, {polynomials * outer::blocks});
        }
    }
}

/// Interpolates: slot_transform::to_coefficients for `count` polynomials, with the same bits. One launch for
/// N up to 2^14, else two.
/// @param load where slots come from, load_slots or load_replicated: a trivially copyable type whose
///        `row(polynomial)` gives something whose `slot(j)` gives a complex_value
/// @param coefficients [count][N]; must not be what `load` reads
/// @param work [count][N], 16-byte aligned, overlapping nothing; needed only if N > 2^14
/// @throws parameter_error unless the tables are for this degree, or if `work` is missing
template <int LogN, class Where, class Load>
void to_coefficients_blocks(const Where& where, const block_slot_tables<typename Where::space>& tables,
                            const Load& load, double* coefficients, std::size_t count,
                            double* work = nullptr) {
    detail::check_tables("to_coefficients_blocks", tables.log_n(), LogN);
    if (count == 0) {
        return;
    }
    const block_slot_view view = tables.view();
    const auto polynomials = static_cast<std::uint32_t>(count);
    if constexpr (std::size_t{1} << (LogN - 1) <= detail::slot_tables::direct_slots) {
        where.launch(
            detail::to_coefficients_direct_kernel<Load>{view.roots, 1U << (LogN - 1), load, coefficients},
            {polynomials});
    } else if constexpr (detail::slot_cut<LogN - 1>::outer_bits == 0) {
        where.launch(detail::to_coefficients_kernel<LogN - 1, Load>{view, load, coefficients}, {polynomials});
    } else {
        if (work == nullptr) {
            throw parameter_error("to_coefficients_blocks: got no work space, expected N words for each of " +
                                  std::to_string(count) + " polynomials, since N is above 2^14");
        }
        using cut = detail::slot_cut<LogN - 1>;
        using outer = detail::to_coefficients_outer_kernel<LogN - 1, Load>;
        where.launch(outer{view, load, work}, {polynomials * outer::blocks});
        where.launch(
            detail::to_coefficients_kernel<LogN - 1, load_slots>{view, load_slots{LogN, work}, coefficients},
            {polynomials << cut::outer_bits});
    }
}

/// The same for a degree that is known at run time only: compiles a kernel for each.
template <class Where>
void to_slots_blocks(const Where& where, const block_slot_tables<typename Where::space>& tables,
                     const double* coefficients, double* slots, std::size_t count) {
    with_index<slot_transform::max_log_n + 1, slot_transform::min_log_n>(tables.log_n(), [&]<int LogN>() {
        to_slots_blocks<LogN>(where, tables, coefficients, slots, count);
    });
}
template <class Where>
void to_coefficients_blocks(const Where& where, const block_slot_tables<typename Where::space>& tables,
                            const double* slots, double* coefficients, std::size_t count,
                            double* work = nullptr) {
    with_index<slot_transform::max_log_n + 1, slot_transform::min_log_n>(tables.log_n(), [&]<int LogN>() {
        to_coefficients_blocks<LogN>(where, tables, load_slots{LogN, slots}, coefficients, count, work);
    });
}

}  // namespace tensafe::encoding
