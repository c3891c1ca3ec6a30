#pragma once

#include <tensafe/arith/below.hpp>
#include <tensafe/device/ntt/plan.hpp>

#include <cstddef>
#include <cstdint>

// Which entries of a limb a thread block holds, and which of them each of its threads, round by round.

namespace tensafe::device::detail {

/// The part of a transform that one launch does: stages First .. First + the sum of Rounds of a limb of
/// 2^LogN entries, each thread block a tile of 2^LogTile entries, each thread 2^LogHeld of them. Between two
/// rounds the entries go through shared memory.
///
/// If the stages are the last ones, a tile is a run of neighbours. Otherwise they are the first ones, and a
/// tile is all entries of some neighbouring columns: entries that lie 2^(LogN - stages) apart.
template <int LogN, int First, int LogTile, int LogHeld, int... Rounds>
struct tile {
    static constexpr int log_n = LogN;
    static constexpr int first = First;
    static constexpr int log_tile = LogTile;
    static constexpr int log_held = LogHeld;
    static constexpr int rounds = static_cast<int>(sizeof...(Rounds));
    static constexpr int stages = (Rounds + ...);
    static constexpr int threads = 1 << (LogTile - LogHeld);
    static constexpr std::size_t size = std::size_t{1} << LogTile;
    static constexpr int log_blocks = LogN - LogTile;

    static constexpr bool is_last = First + stages == LogN;
    static constexpr int log_columns = is_last ? 0 : LogTile - stages;
    static constexpr int log_runs = is_last ? LogTile - stages : 0;

    static_assert(is_last || First == 0, "tile: neither the first nor the last stages");
    static_assert(LogTile >= stages && LogTile <= LogN && threads % 32 == 0 && threads <= 1024);

    TENSAFE_HOST_DEVICE static constexpr int radix(int round) noexcept {
        constexpr int all[] = {Rounds...};
        return all[round];
    }
    TENSAFE_HOST_DEVICE static constexpr int stages_before(int round) noexcept {
        constexpr int all[] = {Rounds...};
        int sum = 0;
        for (int i = 0; i < round; ++i) {
            sum += all[i];
        }
        return sum;
    }
    static_assert(!is_last || radix(rounds - 1) >= 4,
                  "tile: the last round must have the stages whose factors lie apart");

    /// Entry i of the tile as an entry of the limb.
    TENSAFE_HD_INLINE static std::size_t in_limb(std::size_t block, std::size_t i) noexcept {
        if constexpr (is_last) {
            return (block << LogTile) + i;
        } else {
            constexpr std::size_t columns = std::size_t{1} << log_columns;
            return ((i >> log_columns) << (LogN - stages)) + (block << log_columns) + (i & (columns - 1));
        }
    }

    /// The place of entry i in shared memory. Exchanging neighbouring pairs by the number of the last round's
    /// group lets eight threads of neighbouring groups read pairs from eight different sets of banks, and
    /// leaves runs of 16 entries, which the other rounds access, on all banks. Pairs stay together.
    static constexpr int swizzle_from = is_last ? radix(rounds - 1) : 4;
    TENSAFE_HD_INLINE static constexpr std::size_t in_shared(std::size_t i) noexcept {
        return i ^ (((i >> swizzle_from) & 7) << 1);
    }
};

/// The entries that each thread holds in one round. An entry's number in the tile consists of the bits of
/// `above` earlier stages, the `radix` bits of this round's, and `below` lower ones. A thread holds all
/// values of the middle bits, and of so many other bits that it has 2^log_held entries: of the lowest bit if
/// it can, for access by pairs; then of the highest ones. The other bits are the thread's number.
template <class Tile, int Round>
struct round_layout {
    static constexpr int radix = Tile::radix(Round);
    static constexpr int above = Tile::log_runs + Tile::stages_before(Round);
    static constexpr int below = Tile::log_tile - above - radix;
    static constexpr int extra = Tile::log_held - radix;
    static_assert(extra >= 0 && below >= 0, "round_layout: the round needs more entries than a thread has");

    /// Lower bits: bit 0, and then the highest ones if there are too few above.
    static constexpr int paired = below >= 1 && extra >= 1 ? 1 : 0;
    static constexpr int extra_above = extra - paired <= above ? extra - paired : above;
    static constexpr int extra_below = extra - paired - extra_above;
    static constexpr int free_below = below - paired - extra_below;
    static_assert(free_below >= 0, "round_layout: a thread would need more entries than there are");
    static constexpr int free_above = above - extra_above;

    static constexpr int held = 1 << Tile::log_held;
    static constexpr int groups = 1 << extra;
    static constexpr bool has_pairs = paired == 1 || below == 0;

    /// The bits of an entry's number that are the thread's.
    TENSAFE_HD_INLINE static std::size_t base(int t) noexcept {
        const auto thread = static_cast<std::size_t>(t);
        const std::size_t low = thread & ((std::size_t{1} << free_below) - 1);
        const std::size_t high = thread >> free_below;
        return (high << (radix + below)) + (low << paired);
    }
    /// The bits of an entry's number that are register n's, n = group << radix | value.
    TENSAFE_HD_INLINE static constexpr std::size_t offset(int n) noexcept {
        const auto value = static_cast<std::size_t>(n & ((1 << radix) - 1));
        const auto group = static_cast<std::size_t>(n >> radix);
        const std::size_t pair = group & ((std::size_t{1} << paired) - 1);
        const std::size_t lower = (group >> paired) & ((std::size_t{1} << extra_below) - 1);
        const std::size_t upper = group >> (paired + extra_below);
        return (upper << (free_above + radix + below)) + (value << below) + (lower << (free_below + paired)) +
               pair;
    }
    TENSAFE_HD_INLINE static constexpr int first_of_pair(int p) noexcept {
        return paired == 1 ? ((p >> radix) << (radix + 1)) + (p & ((1 << radix) - 1)) : 2 * p;
    }
    TENSAFE_HD_INLINE static constexpr int second_of_pair(int p) noexcept {
        return first_of_pair(p) + (paired == 1 ? 1 << radix : 1);
    }

    /// The block of the round's first stage in which group g lies.
    TENSAFE_HD_INLINE static std::size_t stage_block(std::size_t tile_block, int t, int group) noexcept {
        const std::size_t high = static_cast<std::size_t>(t) >> free_below;
        const auto upper = static_cast<std::size_t>(group >> (paired + extra_below)) << free_above;
        return (Tile::is_last ? tile_block << above : 0) + upper + high;
    }

    /// The place in shared memory of register n, from that of the thread's base: the bits that the exchange
    /// of pairs touches are combined without a carry, and the others are added, which is a constant in the
    /// instruction.
    TENSAFE_HD_INLINE static std::size_t in_shared(std::size_t shared_base, int n) noexcept {
        const std::size_t whole = Tile::in_shared(offset(n));
        return (shared_base ^ (whole & 15)) + (whole & ~std::size_t{15});
    }
};

// What one thread does between two exchanges: several stages on values that it holds in registers. Bounds are
// template arguments, in units of q / 256; docs/gpu.md follows them.

/// The bound after `Stages` forward stages on values of bound `Bound`. In each stage the operand that is not
/// multiplied is reduced if its sum with a product would pass the limit.
template <class Policy>
TENSAFE_HOST_DEVICE constexpr int kept_bound(int bound) noexcept {
    return bound + Policy::product(bound) <= Policy::limit ? bound : Policy::reduced;
}
template <class Policy>
TENSAFE_HOST_DEVICE constexpr int forward_bound(int bound, int stages) noexcept {
    for (int i = 0; i < stages; ++i) {
        bound = kept_bound<Policy>(bound) + Policy::product(bound);
    }
    return bound;
}

/// Says which values an inverse round reduces, and the bound of its results: 2^Radix values of one bound.
struct inverse_bounds {
    std::uint32_t reduced_before[5] = {};  ///< by stage, counted from the first of the forward transform
    int largest[5] = {};                   ///< largest bound of the operands of each stage
    std::uint32_t reduced_at_end = 0;
    int result = 0;
};
template <class Policy>
TENSAFE_HOST_DEVICE constexpr inverse_bounds follow_inverse(int radix, int bound, int at_end) noexcept {
    inverse_bounds found;
    int bounds[32] = {};
    const int count = 1 << radix;
    for (int v = 0; v < count; ++v) {
        bounds[v] = bound;
    }
    const auto reduce_above = [&](int allowed) {
        std::uint32_t mask = 0;
        for (int v = 0; v < count; ++v) {
            if (bounds[v] > allowed) {
                mask |= std::uint32_t{1} << v;
                bounds[v] = Policy::reduced;
            }
        }
        return mask;
    };
    const auto largest = [&] {
        int result = 0;
        for (int v = 0; v < count; ++v) {
            result = bounds[v] > result ? bounds[v] : result;
        }
        return result;
    };
    for (int stage = radix - 1; stage >= 0; --stage) {
        found.reduced_before[stage] = reduce_above(Policy::limit / 2);
        found.largest[stage] = largest();
        const int half = 1 << (radix - 1 - stage);
        for (int v = 0; v < count; ++v) {
            if ((v & half) == 0) {
                const int sum = bounds[v] + bounds[v + half];
                bounds[v] = sum;
                bounds[v + half] = Policy::product(sum);
            }
        }
    }
    found.reduced_at_end = reduce_above(at_end);
    found.result = largest();
    return found;
}

/// The bound above which values are reduced at the end of an inverse round: four of them can be added then.
template <class Policy>
inline constexpr int inverse_target = Policy::limit / 4;

/// Does forward stages `First` .. `First + Radix - 1` on 2^Radix values of each of `Groups` groups; group g
/// is in block `blocks[g]` of stage First. Value v of group g is values[g << Radix | v].
template <class Policy, int LogN, int First, int Radix, int Groups, int Bound, int Stage = 0>
TENSAFE_HD_INLINE void forward_round(typename Policy::representation* values, const word* table,
                                     const std::size_t* blocks) {
    if constexpr (Stage < Radix) {
        constexpr int kept = kept_bound<Policy>(Bound);
        constexpr int half = 1 << (Radix - 1 - Stage);
        TENSAFE_UNROLL
        for (int node = 0; node < 1 << Stage; ++node) {
            TENSAFE_UNROLL
            for (int g = 0; g < Groups; ++g) {
                const auto w = Policy::factor_at(
                    table, factor_position<LogN>(First + Stage,
                                                 (blocks[g] << Stage) + static_cast<std::size_t>(node)));
                TENSAFE_UNROLL
                for (int u = 0; u < half; ++u) {
                    auto& a = values[(g << Radix) + 2 * node * half + u];
                    auto& b = values[(g << Radix) + (2 * node + 1) * half + u];
                    arith::within<Policy, kept> x{a};
                    if constexpr (kept != Bound) {
                        x = {Policy::reduce(arith::within<Policy, Bound>{a}).value};
                    }
                    const auto product = Policy::multiply(arith::within<Policy, Bound>{b}, w);
                    a = (x + product).value;
                    b = (x - product).value;
                }
            }
        }
        forward_round<Policy, LogN, First, Radix, Groups, kept + Policy::product(Bound), Stage + 1>(
            values, table, blocks);
    }
}

/// Makes of (a, b) the pair (a + b, (a - b) w), one or both operands reduced first.
template <class Policy, int Bound>
TENSAFE_HD_INLINE void inverse_step(typename Policy::representation& a, typename Policy::representation& b,
                                    typename Policy::factor w, bool reduce_a, bool reduce_b) noexcept {
    using any = arith::within<Policy, Policy::limit>;
    if (reduce_a) {
        a = Policy::reduce(any{a}).value;
    }
    if (reduce_b) {
        b = Policy::reduce(any{b}).value;
    }
    const arith::within<Policy, Bound> x{a};
    const arith::within<Policy, Bound> y{b};
    a = (x + y).value;
    b = Policy::multiply(x - y, w).value;
}

/// Does the same stages of the inverse transform as forward_round, the last first.
/// @param scaled  null; or device::plan_view::scaled_inverse, where these are the last stages of the
///                transform: whatever has not met a factor times 1/N does so, which takes one more product in
///                all
template <class Policy, int LogN, int First, int Radix, int Groups, int Bound, bool Scaled,
          int Stage = Radix - 1>
TENSAFE_HD_INLINE void inverse_round(typename Policy::representation* values, const word* table,
                                     const word* scaled, const std::size_t* blocks) {
    static_assert(!Scaled || (First == 0 && Radix <= 4), "the table of scaled factors has sixteen");
    constexpr inverse_bounds bounds = follow_inverse<Policy>(Radix, Bound, inverse_target<Policy>);
    if constexpr (Stage >= 0) {
        constexpr int half = 1 << (Radix - 1 - Stage);
        constexpr int operand = bounds.largest[Stage];
        constexpr std::uint32_t reduced = bounds.reduced_before[Stage];
        TENSAFE_UNROLL
        for (int node = 0; node < 1 << Stage; ++node) {
            TENSAFE_UNROLL
            for (int g = 0; g < Groups; ++g) {
                const auto number = static_cast<std::size_t>(node);
                const auto plain = Policy::factor_at(
                    table, factor_position<LogN>(First + Stage, (blocks[g] << Stage) + number));
                auto first = plain;
                if constexpr (Scaled) {
                    // Values that are sums alone: number 0 of each node.
                    first = Policy::factor_at(scaled, (std::size_t{1} << Stage) + number);
                }
                TENSAFE_UNROLL
                for (int u = 0; u < half; ++u) {
                    const int at = 2 * node * half + u;
                    inverse_step<Policy, operand>(values[(g << Radix) + at], values[(g << Radix) + at + half],
                                                  u == 0 ? first : plain, (reduced >> at & 1) != 0,
                                                  (reduced >> (at + half) & 1) != 0);
                }
            }
        }
        inverse_round<Policy, LogN, First, Radix, Groups, Bound, Scaled, Stage - 1>(values, table, scaled,
                                                                                    blocks);
    } else if constexpr (Scaled) {
        const auto degree_inverse = Policy::factor_at(scaled, 0);
        TENSAFE_UNROLL
        for (int g = 0; g < Groups; ++g) {
            auto& sum = values[g << Radix];
            sum = Policy::multiply(arith::within<Policy, Policy::limit>{sum}, degree_inverse).value;
        }
    } else {
        TENSAFE_UNROLL
        for (int v = 0; v < Groups << Radix; ++v) {
            if ((bounds.reduced_at_end >> (v & ((1 << Radix) - 1)) & 1) != 0) {
                values[v] = Policy::reduce(arith::within<Policy, Policy::limit>{values[v]}).value;
            }
        }
    }
}

}  // namespace tensafe::device::detail
