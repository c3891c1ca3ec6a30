#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/ntt/plan.hpp>
#include <tensafe/device/ntt/rounds.hpp>

#include <cstddef>
#include <cstdint>

// The kernels of the schedules that keep values in registers: one launch is one pass over all limbs of all
// polynomials. x = polynomial * thread blocks of a limb + thread block, y = limb.

namespace tensafe::device::detail {

/// Memory between two launches, in which entries stand as bit patterns of the limb's arithmetic,
/// [polynomial][limb][N].
template <class Basis>
struct unfinished {
    word* work;

    template <int I>
    TENSAFE_HD_INLINE word* limb(std::size_t polynomial) const {
        return work + (limb_of<Basis, I>(polynomial) << Basis::log_n);
    }
};

template <class T>
inline constexpr bool is_unfinished = false;
template <class Basis>
inline constexpr bool is_unfinished<unfinished<Basis>> = true;

/// A thread's entries of one round, and how they come and go.
template <class Policy, class Tile, int Round>
struct held_entries {
    using layout = round_layout<Tile, Round>;
    using representation = typename Policy::representation;

    representation values[layout::held];

    TENSAFE_HD_INLINE void read_shared(const word* shared, int t) noexcept {
        const std::size_t base = Tile::in_shared(layout::base(t));
        read([&](int n) { return shared + layout::in_shared(base, n); });
    }
    TENSAFE_HD_INLINE void write_shared(word* shared, int t) const noexcept {
        const std::size_t base = Tile::in_shared(layout::base(arith::rematerialized(t)));
        write([&](int n) { return shared + layout::in_shared(base, n); },
              [](word* to, word_pair words) { *reinterpret_cast<word_pair*>(to) = words; });
    }
    /// Writes the entries to shared memory as residues in [0, q).
    template <int Bound>
    TENSAFE_HD_INLINE void write_canonical(word* shared, int t) const noexcept {
        const std::size_t base = Tile::in_shared(layout::base(arith::rematerialized(t)));
        for_pairs([&](int p, int n) {
            *reinterpret_cast<word_pair*>(shared + layout::in_shared(base, n)) = canonical_pair<Bound>(p);
        });
    }

    TENSAFE_HD_INLINE void read_limb(const word* limb, std::size_t block, int t) noexcept {
        const std::size_t base = layout::base(t);
        read([&](int n) { return limb + Tile::in_limb(block, base + layout::offset(n)); });
    }
    TENSAFE_HD_INLINE void write_limb(word* limb, std::size_t block, int t) const noexcept {
        const std::size_t base = layout::base(t);
        write([&](int n) { return limb + Tile::in_limb(block, base + layout::offset(n)); }, store_pair);
    }

    template <int I, class Load>
    TENSAFE_HD_INLINE void load(const Load& from, std::size_t polynomial, std::size_t block, int t) {
        const std::size_t base = layout::base(t);
        for_pairs([&](int p, int n) {
            const word_pair words =
                from.template pair<I>(polynomial, Tile::in_limb(block, base + layout::offset(n)));
            values[n] = Policy::from_word(words.first).value;
            values[layout::second_of_pair(p)] = Policy::from_word(words.second).value;
        });
    }
    template <int I, int Bound, class Store>
    TENSAFE_HD_INLINE void store(const Store& to, std::size_t polynomial, std::size_t block, int t) const {
        const std::size_t base = layout::base(t);
        for_pairs([&](int p, int n) {
            to.template pair<I>(polynomial, Tile::in_limb(block, base + layout::offset(n)),
                                canonical_pair<Bound>(p));
        });
    }

    TENSAFE_HD_INLINE static void stage_blocks(std::size_t block, int t,
                                               std::size_t (&found)[layout::groups]) noexcept {
        TENSAFE_UNROLL
        for (int g = 0; g < layout::groups; ++g) {
            found[g] = layout::stage_block(block, t, g);
        }
    }

  private:
    /// Calls f(p, number of its first entry) for each pair of neighbours.
    template <class F>
    TENSAFE_HD_INLINE static void for_pairs(const F& f) {
        static_assert(layout::has_pairs);
        TENSAFE_UNROLL
        for (int p = 0; p < layout::held / 2; ++p) {
            f(p, layout::first_of_pair(p));
        }
    }
    /// Reads bit patterns that stand at place(n), two at once where there are pairs.
    template <class Place>
    TENSAFE_HD_INLINE void read(const Place& place) noexcept {
        if constexpr (layout::has_pairs) {
            for_pairs([&](int p, int n) {
                const word_pair words = *reinterpret_cast<const word_pair*>(place(n));
                values[n] = __builtin_bit_cast(representation, words.first);
                values[layout::second_of_pair(p)] = __builtin_bit_cast(representation, words.second);
            });
        } else {
            TENSAFE_UNROLL
            for (int n = 0; n < layout::held; ++n) {
                values[n] = __builtin_bit_cast(representation, *place(n));
            }
        }
    }
    template <class Place, class StorePair>
    TENSAFE_HD_INLINE void write(const Place& place, const StorePair& store) const noexcept {
        if constexpr (layout::has_pairs) {
            for_pairs([&](int p, int n) {
                store(place(n), {__builtin_bit_cast(word, values[n]),
                                 __builtin_bit_cast(word, values[layout::second_of_pair(p)])});
            });
        } else {
            TENSAFE_UNROLL
            for (int n = 0; n < layout::held; ++n) {
                *place(n) = __builtin_bit_cast(word, values[n]);
            }
        }
    }
    template <int Bound>
    TENSAFE_HD_INLINE word_pair canonical_pair(int p) const noexcept {
        using bounded = arith::within<Policy, Bound>;
        return {Policy::canonical(bounded{values[layout::first_of_pair(p)]}),
                Policy::canonical(bounded{values[layout::second_of_pair(p)]})};
    }
};

/// Pair number p of thread t where all threads go through a run of neighbours together.
template <class Tile>
TENSAFE_HD_INLINE std::size_t pair_of_run(int t, int p) noexcept {
    return 2 * (static_cast<std::size_t>(t) + static_cast<std::size_t>(p) * Tile::threads);
}

template <class Tile>
struct tile_memory {
    alignas(128) word words[Tile::size];
};

/// The bound with which a pass leaves entries of bound `bound`.
template <class Policy, class Tile>
TENSAFE_HOST_DEVICE constexpr int forward_tile_bound(int bound) noexcept {
    return forward_bound<Policy>(bound, Tile::stages);
}
/// The bound before round `round` of an inverse pass; -1: after the pass.
template <class Policy, class Tile>
TENSAFE_HOST_DEVICE constexpr int inverse_tile_bound(int bound, int round) noexcept {
    for (int i = Tile::rounds - 1; i > round; --i) {
        bound = follow_inverse<Policy>(Tile::radix(i), bound, inverse_target<Policy>).result;
    }
    return bound;
}

/// Does a pass of the forward transform.
/// @tparam Source    a load functor, or `unfinished` as the pass `Previous` left it
/// @tparam Sink      a store functor, or `unfinished`
/// @tparam Previous  the tile of the pass before; void if there is none
template <class Basis, class Tile, class Source, class Sink, class Previous = void>
struct forward_pass {
    static constexpr int threads = Tile::threads;
    using shared_type = tile_memory<Tile>;

    Source source;
    Sink sink;
    plan_view<Basis> plan;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() { limb<I>(ctx); });
    }

  private:
    template <int I>
    using policy = arithmetic<Basis::template prime<I>>;

    template <int I>
    TENSAFE_HOST_DEVICE static constexpr int bound_at_start() noexcept {
        if constexpr (std::is_void_v<Previous>) {
            return arith::bound_of_q;
        } else {
            return forward_tile_bound<policy<I>, Previous>(arith::bound_of_q);
        }
    }

    template <int I, class Context>
    TENSAFE_HD_INLINE void limb(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x >> Tile::log_blocks;
        const std::size_t block = ctx.block().x & ((std::uint32_t{1} << Tile::log_blocks) - 1);
        round<I, 0>(ctx, polynomial, block);
        if constexpr (!is_unfinished<Sink>) {
            // The last round's groups of neighbours would make scattered stores.
            static_assert(Tile::is_last);
            ctx.last([&](int thread) {
                // The largest tiles have no register left to keep places in.
                const int t = Tile::log_n > 12 ? arith::rematerialized(thread) : thread;
                const word* const shared = ctx.shared().words;
                TENSAFE_UNROLL
                for (int p = 0; p < 1 << (Tile::log_held - 1); ++p) {
                    const std::size_t k = pair_of_run<Tile>(t, p);
                    sink.template pair<I>(polynomial, Tile::in_limb(block, k),
                                          *reinterpret_cast<const word_pair*>(shared + Tile::in_shared(k)));
                }
            });
        }
    }

    template <int I, int Round, class Context>
    TENSAFE_HD_INLINE void round(Context& ctx, std::size_t polynomial, std::size_t block) const {
        using held = held_entries<policy<I>, Tile, Round>;
        using layout = typename held::layout;
        constexpr int start = forward_bound<policy<I>>(bound_at_start<I>(), Tile::stages_before(Round));
        constexpr bool is_last_round = Round + 1 == Tile::rounds;
        const auto phase = [&](int t) {
            word* const shared = ctx.shared().words;
            held entries;
            if constexpr (Round > 0) {
                entries.read_shared(shared, t);
            } else if constexpr (is_unfinished<Source>) {
                entries.read_limb(source.template limb<I>(polynomial), block, t);
            } else {
                entries.template load<I>(source, polynomial, block, t);
            }
            std::size_t blocks[layout::groups];
            held::stage_blocks(block, t, blocks);
            forward_round<policy<I>, Tile::log_n, Tile::first + Tile::stages_before(Round), layout::radix,
                          layout::groups, start>(entries.values, plan.template forward<I>(), blocks);
            if constexpr (!is_last_round) {
                entries.write_shared(shared, t);
            } else if constexpr (is_unfinished<Sink>) {
                entries.write_limb(sink.template limb<I>(polynomial), block, t);
            } else {
                constexpr int end = forward_bound<policy<I>>(start, Tile::radix(Round));
                entries.template write_canonical<end>(shared, t);
            }
        };
        if constexpr (is_last_round && is_unfinished<Sink>) {
            ctx.last(phase);
        } else {
            ctx.each(phase);
        }
        if constexpr (!is_last_round) {
            round<I, Round + 1>(ctx, polynomial, block);
        }
    }
};

/// Does a pass of the inverse transform, the mirror image of forward_pass.
template <class Basis, class Tile, class Source, class Sink, class Previous = void>
struct inverse_pass {
    static constexpr int threads = Tile::threads;
    using shared_type = tile_memory<Tile>;

    Source source;
    Sink sink;
    plan_view<Basis> plan;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() { limb<I>(ctx); });
    }

  private:
    template <int I>
    using policy = arithmetic<Basis::template prime<I>>;

    template <int I>
    TENSAFE_HOST_DEVICE static constexpr int bound_at_start() noexcept {
        if constexpr (std::is_void_v<Previous>) {
            return arith::bound_of_q;
        } else {
            return inverse_tile_bound<policy<I>, Previous>(arith::bound_of_q, -1);
        }
    }

    template <int I, class Context>
    TENSAFE_HD_INLINE void limb(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x >> Tile::log_blocks;
        const std::size_t block = ctx.block().x & ((std::uint32_t{1} << Tile::log_blocks) - 1);
        if constexpr (!is_unfinished<Source>) {
            static_assert(Tile::is_last);
            ctx.each([&](int t) {
                word* const shared = ctx.shared().words;
                word_pair words[1 << (Tile::log_held - 1)];
                TENSAFE_UNROLL
                for (int p = 0; p < 1 << (Tile::log_held - 1); ++p) {
                    words[p] =
                        source.template pair<I>(polynomial, Tile::in_limb(block, pair_of_run<Tile>(t, p)));
                }
                TENSAFE_UNROLL
                for (int p = 0; p < 1 << (Tile::log_held - 1); ++p) {
                    *reinterpret_cast<word_pair*>(shared + Tile::in_shared(pair_of_run<Tile>(t, p))) =
                        words[p];
                }
            });
        }
        round<I, Tile::rounds - 1>(ctx, polynomial, block);
    }

    template <int I, int Round, class Context>
    TENSAFE_HD_INLINE void round(Context& ctx, std::size_t polynomial, std::size_t block) const {
        using held = held_entries<policy<I>, Tile, Round>;
        using layout = typename held::layout;
        constexpr int start = inverse_tile_bound<policy<I>, Tile>(bound_at_start<I>(), Round);
        constexpr bool is_first_round = Round + 1 == Tile::rounds;
        constexpr bool is_end = Round == 0 && Tile::first == 0;
        const auto phase = [&](int t) {
            word* const shared = ctx.shared().words;
            held entries;
            if constexpr (is_first_round && is_unfinished<Source>) {
                entries.read_limb(source.template limb<I>(polynomial), block, t);
            } else {
                entries.read_shared(shared, t);
                if constexpr (is_first_round) {
                    TENSAFE_UNROLL
                    for (int n = 0; n < layout::held; ++n) {
                        entries.values[n] =
                            policy<I>::from_word(__builtin_bit_cast(word, entries.values[n])).value;
                    }
                }
            }
            std::size_t blocks[layout::groups];
            held::stage_blocks(block, t, blocks);
            inverse_round<policy<I>, Tile::log_n, Tile::first + Tile::stages_before(Round), layout::radix,
                          layout::groups, start, is_end>(entries.values, plan.template inverse<I>(),
                                                         plan.template scaled_inverse<I>(), blocks);
            if constexpr (Round > 0) {
                entries.write_shared(shared, t);
            } else if constexpr (is_unfinished<Sink>) {
                entries.write_limb(sink.template limb<I>(polynomial), block, t);
            } else {
                static_assert(is_end);
                entries.template store<I, policy<I>::limit>(sink, polynomial, block, t);
            }
        };
        if constexpr (Round > 0) {
            ctx.each(phase);
            round<I, Round - 1>(ctx, polynomial, block);
        } else {
            ctx.last(phase);
        }
    }
};

}  // namespace tensafe::device::detail
