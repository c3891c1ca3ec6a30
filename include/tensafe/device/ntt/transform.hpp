#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/ntt/passes.hpp>
#include <tensafe/device/ntt/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tensafe::device {

namespace detail {

template <class Basis, class Where>
struct transform_launches {
    using middle_type = unfinished<Basis>;

    const Where& where;
    plan_view<Basis> plan;
    std::size_t polynomials;
    middle_type middle;

    template <class Kernel>
    void launch(const Kernel& kernel, int log_blocks) const {
        where.launch(kernel, grid_shape{static_cast<std::uint32_t>(polynomials << log_blocks),
                                        static_cast<std::uint32_t>(Basis::limbs)});
    }
    template <class Tile, class Previous = void, class Source, class Sink>
    void forward(const Source& source, const Sink& sink) const {
        launch(forward_pass<Basis, Tile, Source, Sink, Previous>{source, sink, plan}, Tile::log_blocks);
    }
    template <class Tile, class Previous = void, class Source, class Sink>
    void inverse(const Source& source, const Sink& sink) const {
        launch(inverse_pass<Basis, Tile, Source, Sink, Previous>{source, sink, plan}, Tile::log_blocks);
    }
};

/// The one tile of schedule `single_block`: the limb. 16 or 32 entries a thread, so that a multiprocessor
/// holds several thread blocks where N <= 8192.
template <int LogN>
struct whole_limb {
    static_assert(
        LogN <= 14,
        "schedule::single_block: a limb of more than 2^14 entries does not fit; use schedule::two_pass");
};
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

/// The two tiles of schedule `two_pass`: 16 entries a thread up to N = 2^14, 32 beyond; thread blocks of 128.
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

}  // namespace detail

/// The ways to cut a transform of all limbs of some polynomials into launches, all with the same residues.
namespace schedule {

/// The base of schedules of several launches, which hand over entries in `work`.
struct several_launches {
    template <class Basis>
    static constexpr bool needs_work = true;
};

/// The schedule of two launches: half of the stages on columns, the others on runs of neighbours, in radix
/// 16, 8 and 4 in registers. Many small thread blocks. N = 2^10 to 2^17.
struct two_pass : several_launches {
    template <class Basis, class Run, class Load, class Store>
    static void forward(const Run& run, const Load& load, const Store& store) {
        using tiles = detail::two_tiles<Basis::log_n>;
        run.template forward<typename tiles::columns>(load, run.middle);
        run.template forward<typename tiles::runs, typename tiles::columns>(run.middle, store);
    }
    template <class Basis, class Run, class Load, class Store>
    static void inverse(const Run& run, const Load& load, const Store& store) {
        using tiles = detail::two_tiles<Basis::log_n>;
        run.template inverse<typename tiles::runs>(load, run.middle);
        run.template inverse<typename tiles::columns, typename tiles::runs>(run.middle, store);
    }
};

/// The schedule of one launch: each thread block holds a whole limb in shared memory, 8 N bytes. Every entry
/// is read and written once. N = 2^10 to 2^14; `work` is not used.
struct single_block {
    template <class Basis>
    static constexpr bool needs_work = false;
    template <class Basis, class Run, class Load, class Store>
    static void forward(const Run& run, const Load& load, const Store& store) {
        run.template forward<typename detail::whole_limb<Basis::log_n>::type>(load, store);
    }
    template <class Basis, class Run, class Load, class Store>
    static void inverse(const Run& run, const Load& load, const Store& store) {
        run.template inverse<typename detail::whole_limb<Basis::log_n>::type>(load, store);
    }
};

/// Whether `tuned` keeps a limb whole: one of up to 4096 entries is too small to be cut; with larger ones a
/// thread block fills a multiprocessor, so that its memory and arithmetic cannot overlap. From counted
/// instructions and bytes (docs/gpu.md), not measured yet.
constexpr bool tuned_to_single_block(int log_n) noexcept {
    return log_n <= 12;
}

/// The default schedule, which suits the degree.
struct tuned {
    template <class Basis>
    using chosen = std::conditional_t<tuned_to_single_block(Basis::log_n), single_block, two_pass>;

    template <class Basis>
    static constexpr bool needs_work = chosen<Basis>::template needs_work<Basis>;
    template <class Basis, class Run, class Load, class Store>
    static void forward(const Run& run, const Load& load, const Store& store) {
        chosen<Basis>::template forward<Basis>(run, load, store);
    }
    template <class Basis, class Run, class Load, class Store>
    static void inverse(const Run& run, const Load& load, const Store& store) {
        chosen<Basis>::template inverse<Basis>(run, load, store);
    }
};

}  // namespace schedule

namespace detail {

/// Checks a transform's arguments.
/// @throws parameter_error for more polynomials than a grid has room for (x has at most 2^31 - 1 thread
///         blocks, a limb at most 2^9), or without work memory that is needed: a kernel that writes to null
///         takes the GPU away from the whole process
template <class Basis, class Schedule>
void check_transform(const char* what, std::size_t polynomials, const word* work) {
    constexpr std::size_t most = (std::size_t{1} << 31 >> (Basis::log_n - 8)) - 1;
    require<parameter_error>(polynomials <= most,
                             {what, ": got ", polynomials, " polynomials, expected at most ", most});
    require<parameter_error>(
        work != nullptr || polynomials == 0 || !Schedule::template needs_work<Basis>,
        {what,
         ": got no work memory, expected polynomials * limbs * N words for a schedule of several launches"});
}

}  // namespace detail

/// The forward negacyclic NTT of all limbs of some polynomials: the residues of ntt::forward, whatever the
/// schedule. Harvey, "Faster arithmetic for number-theoretic transforms" (2014).
///
/// All pointers are to where the kernels run. 8 N bytes read and written for each limb by each launch.
/// Secrets steer neither branches nor addresses.
/// @tparam Schedule  schedule::tuned, single_block, two_pass, or one of your own
/// @param load   gives pairs of entries in [0, q), natural order: load_words, or one that makes them on the
///               way. Asked once for each.
/// @param store  gets pairs of values in [0, q), bit-reversed order
/// @param work   polynomials * limbs * N words, 16-byte aligned, for schedules of several launches; may be
///               what load reads and store writes in the order of load_words. May be null for single_block.
/// @throws parameter_error if there are too many polynomials for a launch, or `work` is missing; device_error
template <class Basis, class Schedule = schedule::tuned, execution Where, class Load, class Store>
void forward(const Where& where, const plan<Basis, typename Where::space>& plan, const Load& load,
             const Store& store, std::size_t polynomials, word* work) {
    detail::check_transform<Basis, Schedule>("device::forward", polynomials, work);
    if (polynomials != 0) {
        const detail::transform_launches<Basis, Where> run{where, plan.view(), polynomials, {work}};
        Schedule::template forward<Basis>(run, load, store);
    }
}

/// The inverse transform, 1/N included: bit-reversed order in, natural order out; otherwise as `forward`.
/// @throws parameter_error if there are too many polynomials for a launch, or `work` is missing; device_error
template <class Basis, class Schedule = schedule::tuned, execution Where, class Load, class Store>
void inverse(const Where& where, const plan<Basis, typename Where::space>& plan, const Load& load,
             const Store& store, std::size_t polynomials, word* work) {
    detail::check_transform<Basis, Schedule>("device::inverse", polynomials, work);
    if (polynomials != 0) {
        const detail::transform_launches<Basis, Where> run{where, plan.view(), polynomials, {work}};
        Schedule::template inverse<Basis>(run, load, store);
    }
}

}  // namespace tensafe::device
