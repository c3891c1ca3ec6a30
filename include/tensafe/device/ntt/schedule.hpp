#pragma once

#include <tensafe/device/exec/context.hpp>
#include <tensafe/device/ntt/passes.hpp>
#include <tensafe/device/ntt/stages.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// How a transform of all limbs of some polynomials is cut into launches. All schedules give the same
// residues.

namespace tensafe::ntt {

namespace detail {

/// x for a launch whose kernel has 2^log_blocks blocks for each limb.
template <class Basis>
constexpr exec::grid_shape grid_of(std::size_t polynomials, int log_blocks) noexcept {
    return {static_cast<std::uint32_t>(polynomials << log_blocks), static_cast<std::uint32_t>(Basis::limbs),
            1};
}

template <class Basis, stage_kind Kind, class Where, class Source, class Sink>
void launch_stage(const Where& where, block_plan_view<Basis> plan, Source source, Sink sink,
                  std::size_t polynomials, int stage) {
    const one_stage<Basis, Kind, Source, Sink> kernel{source, sink, plan, stage};
    where.launch(kernel, grid_of<Basis>(polynomials, kernel.log_blocks));
}

template <class Pass, class Basis, class Where, class Source, class Sink>
void launch_pass(const Where& where, int log_blocks, block_plan_view<Basis> plan, Source source, Sink sink,
                 std::size_t polynomials) {
    where.launch(Pass{source, sink, plan}, grid_of<Basis>(polynomials, log_blocks));
}

/// The one tile of schedule `single_block`: the limb. 16 or 32 entries a thread, so that a multiprocessor
/// holds several blocks where N <= 8192.
template <int LogN>
struct whole_limb;
template <>
struct whole_limb<10> : std::type_identity<tile<10, 0, 10, 4, 3, 3, 4>> {};
template <>
struct whole_limb<11> : std::type_identity<tile<11, 0, 11, 4, 3, 4, 4>> {};
template <>
struct whole_limb<12> : std::type_identity<tile<12, 0, 12, 5, 4, 4, 4>> {};
template <>
struct whole_limb<13> : std::type_identity<tile<13, 0, 13, 5, 4, 5, 4>> {};
template <>
struct whole_limb<14> : std::type_identity<tile<14, 0, 14, 5, 4, 5, 5>> {};

/// The two tiles of schedule `two_pass`: 16 entries a thread up to N = 2^14, 32 beyond; blocks of 128
/// threads.
template <int LogN>
struct two_tiles {
    static constexpr int log_held = LogN <= 14 ? 4 : 5;
    static constexpr int log_tile = std::min(LogN, 7 + log_held);
    static constexpr int columns_stages = std::max(LogN - (LogN <= 12 ? 6 : LogN - LogN / 2), 4);
    static constexpr int runs_stages = LogN - columns_stages;
    static constexpr int first_radix(int stages) noexcept { return std::min(stages / 2, log_held - 1); }
    using columns = tile<LogN, 0, log_tile, log_held, first_radix(columns_stages),
                         columns_stages - first_radix(columns_stages)>;
    static constexpr int runs_radix = std::max(runs_stages - first_radix(runs_stages), 4);
    using runs = tile<LogN, columns_stages, log_tile, log_held, runs_stages - runs_radix, runs_radix>;
};

/// Forward stages First .. First + Count - 1, a launch each.
template <class Basis, class Where>
void launch_middle_stages(const Where& where, block_plan_view<Basis> plan, unfinished<Basis> work,
                          std::size_t polynomials, int first, int last) {
    for (int stage = first; stage < last; ++stage) {
        launch_stage<Basis, stage_kind::forward>(where, plan, work, work, polynomials, stage);
    }
}

}  // namespace detail

/// A launch for each stage in radix 2, and 1/N as one more: log_n launches forward, log_n + 1 inverse. What a
/// first port to a GPU does; for comparison.
struct unfused {
    template <class Basis>
    static constexpr bool needs_work(std::size_t) noexcept {
        return true;
    }
    template <class Basis, class Where, class Load, class Store>
    static void forward(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word* work) {
        const detail::unfinished<Basis> middle{work};
        detail::launch_stage<Basis, detail::stage_kind::forward>(where, plan, load, middle, polynomials, 0);
        detail::launch_middle_stages(where, plan, middle, polynomials, 1, Basis::log_n - 1);
        detail::launch_stage<Basis, detail::stage_kind::forward>(where, plan, middle, store, polynomials,
                                                                 Basis::log_n - 1);
    }
    template <class Basis, class Where, class Load, class Store>
    static void inverse(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word* work) {
        const detail::unfinished<Basis> middle{work};
        detail::launch_stage<Basis, detail::stage_kind::inverse>(where, plan, load, middle, polynomials,
                                                                 Basis::log_n - 1);
        for (int stage = Basis::log_n - 2; stage >= 0; --stage) {
            detail::launch_stage<Basis, detail::stage_kind::inverse>(where, plan, middle, middle, polynomials,
                                                                     stage);
        }
        const detail::scale_by_degree<Basis, Store> scale{middle, store, plan};
        where.launch(scale, detail::grid_of<Basis>(polynomials, scale.log_blocks));
    }
};

/// A launch for each of the first log_n - 8 stages in radix 2, and one for the last eight, in shared memory:
/// log_n - 7 launches either way; 7 at N = 16384. The published schedule that others are compared with.
struct staged {
    template <class Basis>
    static constexpr bool needs_work(std::size_t) noexcept {
        return true;
    }
    template <class Basis, class Where, class Load, class Store>
    static void forward(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word* work) {
        using middle_type = detail::unfinished<Basis>;
        const middle_type middle{work};
        detail::launch_stage<Basis, detail::stage_kind::forward>(where, plan, load, middle, polynomials, 0);
        detail::launch_middle_stages(where, plan, middle, polynomials, 1, Basis::log_n - 8);
        const detail::eight_stages<Basis, true, middle_type, Store> rest{middle, store, plan};
        where.launch(rest, detail::grid_of<Basis>(polynomials, rest.log_blocks));
    }
    template <class Basis, class Where, class Load, class Store>
    static void inverse(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word* work) {
        using middle_type = detail::unfinished<Basis>;
        const middle_type middle{work};
        const detail::eight_stages<Basis, false, Load, middle_type> first{load, middle, plan};
        where.launch(first, detail::grid_of<Basis>(polynomials, first.log_blocks));
        for (int stage = Basis::log_n - 9; stage > 0; --stage) {
            detail::launch_stage<Basis, detail::stage_kind::inverse>(where, plan, middle, middle, polynomials,
                                                                     stage);
        }
        detail::launch_stage<Basis, detail::stage_kind::inverse_scaled>(where, plan, middle, store,
                                                                        polynomials, 0);
    }
};

/// Two launches: half of the stages on columns, the others on runs of neighbours, in radix 16, 8 and 4 in
/// registers with one exchange between two radices. Many small blocks: for few polynomials, and for limbs
/// that do not fit one block. N = 2^10 to 2^17.
struct two_pass {
    template <class Basis>
    static constexpr bool needs_work(std::size_t) noexcept {
        return true;
    }
    template <class Basis, class Where, class Load, class Store>
    static void forward(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word* work) {
        using tiles = detail::two_tiles<Basis::log_n>;
        using columns = typename tiles::columns;
        using runs = typename tiles::runs;
        using middle_type = detail::unfinished<Basis>;
        const middle_type middle{work};
        detail::launch_pass<detail::forward_pass<Basis, columns, Load, middle_type>, Basis>(
            where, columns::log_blocks, plan, load, middle, polynomials);
        detail::launch_pass<detail::forward_pass<Basis, runs, middle_type, Store, columns>, Basis>(
            where, runs::log_blocks, plan, middle, store, polynomials);
    }
    template <class Basis, class Where, class Load, class Store>
    static void inverse(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word* work) {
        using tiles = detail::two_tiles<Basis::log_n>;
        using columns = typename tiles::columns;
        using runs = typename tiles::runs;
        using middle_type = detail::unfinished<Basis>;
        const middle_type middle{work};
        detail::launch_pass<detail::inverse_pass<Basis, runs, Load, middle_type>, Basis>(
            where, runs::log_blocks, plan, load, middle, polynomials);
        detail::launch_pass<detail::inverse_pass<Basis, columns, middle_type, Store, runs>, Basis>(
            where, columns::log_blocks, plan, middle, store, polynomials);
    }
};

/// One launch: each block holds a whole limb in shared memory, 8 N bytes. Every entry is read and written
/// once. N = 2^10 to 2^14; `work` is not used.
struct single_block {
    static constexpr int max_log_n = 14;

    template <class Basis>
    static constexpr bool needs_work(std::size_t) noexcept {
        return false;
    }

    template <class Basis, class Where, class Load, class Store>
    static void forward(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word*) {
        static_assert(Basis::log_n <= max_log_n,
                      "ntt::single_block: a limb of more than 2^14 entries does not fit; use ntt::two_pass");
        using limb = typename detail::whole_limb<Basis::log_n>::type;
        detail::launch_pass<detail::forward_pass<Basis, limb, Load, Store>, Basis>(where, 0, plan, load,
                                                                                   store, polynomials);
    }
    template <class Basis, class Where, class Load, class Store>
    static void inverse(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word*) {
        static_assert(Basis::log_n <= max_log_n,
                      "ntt::single_block: a limb of more than 2^14 entries does not fit; use ntt::two_pass");
        using limb = typename detail::whole_limb<Basis::log_n>::type;
        detail::launch_pass<detail::inverse_pass<Basis, limb, Load, Store>, Basis>(where, 0, plan, load,
                                                                                   store, polynomials);
    }
};

/// What `tuned` runs for one launch of `limbs` limbs in all (limbs of the basis times polynomials).
struct block_tuning {
    bool use_single_block;
};

/// The table of schedules: by degree, width of the widest prime, compute capability (90: 9.0) and limbs of a
/// launch. From counted instructions and bytes (docs/design/device.md), not measured yet, and so far the
/// degree decides alone: a limb of up to 4096 entries is too small to be cut; of larger ones one block fills
/// a multiprocessor, so that its memory and arithmetic cannot overlap, and two passes are predicted to win.
constexpr block_tuning tune_blocks(int log_n, int /*widest*/, int /*sm*/, std::size_t /*limbs*/) noexcept {
    return {log_n <= 12};
}

/// The schedule that a tuning function names: a type with `static constexpr block_tuning tune(log_n, widest
/// prime's bits, limbs)`. Where both schedules can occur both are compiled.
template <class Tuning>
struct tuned_by {
    template <class Basis>
    static bool needs_work(std::size_t polynomials) {
        bool result = false;
        choose<Basis>(polynomials, [&]<class Schedule>(Schedule) {
            result = Schedule::template needs_work<Basis>(polynomials);
        });
        return result;
    }
    template <class Basis, class Where, class Load, class Store>
    static void forward(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word* work) {
        choose<Basis>(polynomials, [&]<class Schedule>(Schedule) {
            Schedule::template forward<Basis>(where, plan, load, store, polynomials, work);
        });
    }
    template <class Basis, class Where, class Load, class Store>
    static void inverse(const Where& where, block_plan_view<Basis> plan, const Load& load, const Store& store,
                        std::size_t polynomials, arith::word* work) {
        choose<Basis>(polynomials, [&]<class Schedule>(Schedule) {
            Schedule::template inverse<Basis>(where, plan, load, store, polynomials, work);
        });
    }

  private:
    template <class Basis, class F>
    static void choose(std::size_t polynomials, F f) {
        constexpr int bits = []<int... I>(std::integer_sequence<int, I...>) {
            return std::max({static_cast<int>(std::bit_width(Basis::template prime<I>))...});
        }
        (std::make_integer_sequence<int, Basis::limbs>{});
        constexpr auto limbs = static_cast<std::size_t>(Basis::limbs);
        constexpr bool one = Tuning::tune(Basis::log_n, bits, limbs).use_single_block;
        constexpr bool many = Tuning::tune(Basis::log_n, bits, ~std::size_t{0}).use_single_block;
        if constexpr (one == many) {
            f(std::conditional_t<one, single_block, two_pass>{});
        } else if (Tuning::tune(Basis::log_n, bits, limbs * polynomials).use_single_block) {
            f(single_block{});
        } else {
            f(two_pass{});
        }
    }
};

struct tuned_for_h200 {
    static constexpr block_tuning tune(int log_n, int bits, std::size_t limbs) noexcept {
        return tune_blocks(log_n, bits, 90, limbs);
    }
};

/// The default.
using tuned = tuned_by<tuned_for_h200>;

}  // namespace tensafe::ntt
