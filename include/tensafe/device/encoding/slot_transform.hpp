#pragma once

#include <tensafe/device/encoding/slot_passes.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>

#include <cstddef>
#include <cstdint>

namespace tensafe::device {

namespace detail {

/// Does all stages within a thread block, by all threads of a context.
template <int LogSlots, class Context>
TENSAFE_HD_INLINE void evaluate_block(Context& ctx, slot_memory<slot_cut<LogSlots>::log_block>& shared,
                                      const slot_view& tables, std::uint32_t block, const double* from,
                                      double* to) {
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
    for_passes<true, cut::first_bits, cut::log_part>([&]<int Low, int Count>() {
        ctx.each([&](int thread) {
            const auto t = static_cast<std::uint32_t>(thread);
            if (t < busy) {
                using shape = pass_shape<Low, Count, busy>;
                complex_value v[values_per_thread];
                shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                    z = shared.get(memory::place(first) ^ memory::place(i));
                });
                radix4_pass<true, LogSlots, Low, Count, busy>(tables, t, v);
                shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                    if constexpr (Low + Count == cut::log_part) {
                        store_complex(to, cut::slot(block, first) + i, z);
                    } else {
                        shared.put(memory::place(first) ^ memory::place(i), z);
                    }
                });
            }
        });
    });
}

/// Evaluates: thread block x * 2^log_blocks + b of the launch has block b of polynomial x.
template <int LogSlots>
struct to_slots_kernel {
    using cut = slot_cut<LogSlots>;
    static constexpr int threads = cut::threads;
    using shared_type = slot_memory<cut::log_block>;

    slot_view tables;
    const double* coefficients;  ///< [polynomial][2 * slots]
    double* slots;               ///< [polynomial][slots]: real and imaginary part in turn

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x >> cut::log_blocks;
        const std::uint32_t block = ctx.block().x & ((1U << cut::log_blocks) - 1);
        const std::size_t first = polynomial * 2 * cut::slots;
        evaluate_block<LogSlots>(ctx, ctx.shared(), tables, block, coefficients + first, slots + first);
    }
};

/// Does the stages above a thread block, merging or splitting, from where Load finds the slots to `out`,
/// which may be the same place: sixteen slots to a thread, and no shared memory.
template <int LogSlots, bool Merge, class Load>
struct outer_stages_kernel {
    using cut = slot_cut<LogSlots>;
    static constexpr int threads = 256;
    using shared_type = no_shared;
    static constexpr std::uint32_t blocks = cut::slots / (threads * values_per_thread);

    slot_view tables;
    Load load;
    double* out;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x / blocks;
        const auto row = load.row(polynomial);
        double* const to = out + polynomial * 2 * cut::slots;
        const std::uint32_t first_thread = ctx.block().x % blocks * threads;
        ctx.last([&](int thread) {
            constexpr auto step = static_cast<std::uint32_t>(cut::slots / values_per_thread);
            using shape = pass_shape<cut::log_part, cut::outer_bits, step>;
            const std::uint32_t t = first_thread + static_cast<std::uint32_t>(thread);
            complex_value v[values_per_thread];
            shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                z = row.slot(first + i);
            });
            radix4_pass<Merge, LogSlots, cut::log_part, cut::outer_bits, step>(tables, t, v);
            shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                store_complex(to, first + i, z);
            });
        });
    }
};

/// Does all stages within a thread block, backwards.
template <int LogSlots, class Load>
struct to_coefficients_kernel {
    using cut = slot_cut<LogSlots>;
    static constexpr int threads = cut::threads;
    using shared_type = slot_memory<cut::log_block>;

    slot_view tables;
    Load load;
    double* coefficients;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x >> cut::log_blocks;
        const std::uint32_t block = ctx.block().x & ((1U << cut::log_blocks) - 1);
        const auto row = load.row(polynomial);
        double* const to = coefficients + polynomial * 2 * cut::slots;
        for_passes<false, cut::first_bits, cut::log_part>([&]<int Low, int Count>() {
            ctx.each([&](int thread) {
                const auto t = static_cast<std::uint32_t>(thread);
                if (t < cut::busy) {
                    using shape = pass_shape<Low, Count, static_cast<std::uint32_t>(cut::busy)>;
                    complex_value v[values_per_thread];
                    shape::for_slots(v, t, [&](complex_value& z, std::uint32_t first, std::uint32_t i) {
                        if constexpr (Low + Count == cut::log_part) {
                            z = row.slot(cut::slot(block, first) + i);
                        } else {
                            z = ctx.shared().get(shared_type::place(first) ^ shared_type::place(i));
                        }
                    });
                    radix4_pass<false, LogSlots, Low, Count, static_cast<std::uint32_t>(cut::busy)>(tables, t,
                                                                                                    v);
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

/// Returns 5^j modulo a power of two, by its last bits.
TENSAFE_HD_INLINE std::uint32_t power_of_five(std::uint32_t j, std::uint32_t mask) noexcept {
    std::uint32_t power = 1;
    for (std::uint32_t i = 0; i < j; ++i) {
        power = power * 5 & mask;
    }
    return power;
}

/// Part `i % 2` of slot i / 2 by its definition, as encoding::detail::evaluate_directly sums it.
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

/// Evaluates up to sixteen slots: one number to a thread.
struct to_slots_direct_kernel {
    static constexpr int threads = 32;
    using shared_type = no_shared;

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
    using shared_type = no_shared;

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
    require<parameter_error>(got == wanted, {where, ": got tables for log_n = ", got, ", expected ", wanted});
}

}  // namespace detail

/// Loads slots as they stand in memory: [polynomial][N/2], real and imaginary part in turn, 16-byte aligned.
struct load_slots {
    int log_n;
    const double* slots;

    struct row_type {
        const double* slots;

        TENSAFE_HD_INLINE complex_value slot(std::size_t j) const noexcept { return load_complex(slots, j); }
    };

    TENSAFE_HD_INLINE row_type row(std::size_t polynomial) const noexcept {
        return {slots + (polynomial << log_n)};
    }
};

/// Evaluates `count` polynomials like slot_transform::to_slots, with the same bits. One launch for N up to
/// 2^14, else two. Every argument in the memory of `where`; 16-byte aligned; no overlap.
/// @param coefficients [count][N]
/// @param slots [count][N/2], real and imaginary part in turn
/// @throws parameter_error unless the tables are for this degree
template <int LogN, class Where>
void to_slots(const Where& where, const slot_tables<typename Where::space>& tables,
              const double* coefficients, double* slots, std::size_t count) {
    detail::check_tables("device::to_slots", tables.log_n(), LogN);
    if (count == 0) {
        return;
    }
    const slot_view view = tables.view();
    const auto polynomials = static_cast<std::uint32_t>(count);
    if constexpr (std::size_t{1} << (LogN - 1) <= encoding::detail::slot_tables::direct_slots) {
        where.launch(detail::to_slots_direct_kernel{view.roots, 1U << (LogN - 1), coefficients, slots},
                     {polynomials});
    } else {
        using cut = detail::slot_cut<LogN - 1>;
        where.launch(detail::to_slots_kernel<LogN - 1>{view, coefficients, slots},
                     {polynomials << cut::log_blocks});
        if constexpr (cut::outer_bits > 0) {
            using outer = detail::outer_stages_kernel<LogN - 1, true, load_slots>;
            where.launch(outer{view, load_slots{LogN, slots}, slots}, {polynomials * outer::blocks});
        }
    }
}

/// Interpolates `count` polynomials like slot_transform::to_coefficients, with the same bits. One launch for
/// N up to 2^14, else two.
/// @param load where slots come from, load_slots or load_replicated: a trivially copyable type whose
///        `row(polynomial)` gives something whose `slot(j)` gives a complex_value
/// @param coefficients [count][N]; must not be what `load` reads
/// @param work [count][N], 16-byte aligned, overlapping nothing; needed only if N > 2^14
/// @throws parameter_error unless the tables are for this degree, or if `work` is missing
template <int LogN, class Where, class Load>
void to_coefficients(const Where& where, const slot_tables<typename Where::space>& tables, const Load& load,
                     double* coefficients, std::size_t count, double* work = nullptr) {
    detail::check_tables("device::to_coefficients", tables.log_n(), LogN);
    if (count == 0) {
        return;
    }
    const slot_view view = tables.view();
    const auto polynomials = static_cast<std::uint32_t>(count);
    if constexpr (std::size_t{1} << (LogN - 1) <= encoding::detail::slot_tables::direct_slots) {
        where.launch(
            detail::to_coefficients_direct_kernel<Load>{view.roots, 1U << (LogN - 1), load, coefficients},
            {polynomials});
    } else if constexpr (detail::slot_cut<LogN - 1>::outer_bits == 0) {
        where.launch(detail::to_coefficients_kernel<LogN - 1, Load>{view, load, coefficients}, {polynomials});
    } else {
        require<parameter_error>(work != nullptr,
                                 {"device::to_coefficients: got no work space, expected N words for each of ",
                                  count, " polynomials, since N is above 2^14"});
        using cut = detail::slot_cut<LogN - 1>;
        using outer = detail::outer_stages_kernel<LogN - 1, false, Load>;
        where.launch(outer{view, load, work}, {polynomials * outer::blocks});
        where.launch(
            detail::to_coefficients_kernel<LogN - 1, load_slots>{view, load_slots{LogN, work}, coefficients},
            {polynomials << cut::log_blocks});
    }
}

/// Loads hidden states as slots: each entry in `2^log_stride` neighbouring slots, times the state's scale, as
/// slot_geometry::replicate and encode_slots make them.
///
/// Slot r + 2^log_stride * t of polynomial p is entry (p % inputs) * entries + t of state p / inputs, and 0
/// beyond d. A plain value; pointers into the launch's memory.
template <class Real>
struct load_replicated {
    const Real* states;     ///< [state][d]
    std::size_t d;          ///< entries of a state
    const double* scales;   ///< one for each state
    std::uint32_t inputs;   ///< polynomials of a state: ceil(d / entries)
    std::uint32_t entries;  ///< entries of a polynomial: N/2 / 2^log_stride
    int log_stride;

    struct row_type {
        const Real* entries;
        std::size_t count;
        double scale;
        int log_stride;

        TENSAFE_HD_INLINE complex_value slot(std::size_t j) const noexcept {
            const std::size_t t = j >> log_stride;
            return {arith::rounded_product(t < count ? static_cast<double>(entries[t]) : 0.0, scale), 0.0};
        }
    };

    TENSAFE_HD_INLINE row_type row(std::size_t polynomial) const noexcept {
        const auto p = static_cast<std::uint32_t>(polynomial);
        const std::size_t state = p / inputs;
        const std::size_t first = std::size_t{p % inputs} * entries;
        return {states + state * d + first, first < d ? d - first : 0, scales[state], log_stride};
    }
};

}  // namespace tensafe::device
