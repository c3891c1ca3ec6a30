#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/order.hpp>
#include <tensafe/ntt/x86/fp64_avx2.hpp>
#include <tensafe/ntt/x86/montgomery32_avx2.hpp>
#include <tensafe/ntt/x86/tables_avx2.hpp>
#include <tensafe/simd/transpose.hpp>

#if TENSAFE_X86_64

#include <cstddef>
#include <type_traits>

namespace tensafe::ntt::avx2 {

/// The transforms over one limb: passes of two stages (one stage first if the number is odd) down to groups
/// of sixteen, whose two stages are done in registers. Blocks are finished one after the other, so that those
/// of a large limb stay in the first-level cache.
template <class Lanes>
class passes {
    using word = arith::word;
    using tables = typename Lanes::tables_type;
    using vector = typename Lanes::vector;
    using factor = typename Lanes::factor;

    struct rows {
        simd::lanes<typename Lanes::number, 4> r[4];
    };

  public:
    TENSAFE_AVX2 static void forward(const tables& t, word* data) noexcept {
        if (t.outer_stages() % 2 == 1) {
            forward_radix2(t, data);
            blocks<true>(t, data, 1, 0, 2);
        } else {
            forward_radix4<0, true>(t, data, 0, 0, 1);
            blocks<true>(t, data, 2, 0, 4);
        }
    }

    TENSAFE_AVX2 static void inverse(const tables& t, word* data) noexcept {
        if (t.outer_stages() % 2 == 1) {
            blocks<false>(t, data, 1, 0, 2);
            inverse_radix2_last(t, data);
        } else {
            blocks<false>(t, data, 2, 0, 4);
            inverse_radix4<highest_inverse_level, true>(t, data, 0, 0, 1);
        }
    }

  private:
    /// The words of a block that is finished at once: half of the smallest L1 cache; the rest is for factors.
    static constexpr std::size_t cached_words = 2048;

    // ---- forward ----

    /// The first forward stage alone, on canonical residues.
    TENSAFE_AVX2 static void forward_radix2(const tables& t, word* data) noexcept {
        const Lanes lanes(t);
        const factor w = Lanes::broadcast(t.forward_factors().node(1));
        const std::size_t half = t.degree() / 2;
        word* const upper = data + half;
        for (std::size_t j = 0; j < half; j += 4) {
            vector x = Lanes::template load<true>(data + j);
            vector y = lanes.multiply(Lanes::template load<true>(upper + j), w);
            add_subtract(x, y);
            Lanes::store(data + j, x);
            Lanes::store(upper + j, y);
        }
    }

    template <int Level>
    TENSAFE_AVX2 TENSAFE_INLINE static void forward_first(const Lanes& lanes, rows& x,
                                                          const factor& w1) noexcept {
        if constexpr (Level >= 1) {
            x.r[0].v = lanes.reduce(x.r[0].v);
            x.r[1].v = lanes.reduce(x.r[1].v);
        }
        lanes.multiply(x.r[2].v, w1, x.r[3].v, w1);
        add_subtract(x.r[0].v, x.r[2].v);
        add_subtract(x.r[1].v, x.r[3].v);
    }
    template <int Level>
    TENSAFE_AVX2 TENSAFE_INLINE static void forward_second(const Lanes& lanes, rows& x, const factor& w2,
                                                           const factor& w3) noexcept {
        if constexpr (Level >= 2) {
            x.r[0].v = lanes.reduce(x.r[0].v);
            x.r[2].v = lanes.reduce(x.r[2].v);
        }
        lanes.multiply(x.r[1].v, w2, x.r[3].v, w3);
        add_subtract(x.r[0].v, x.r[1].v);
        add_subtract(x.r[2].v, x.r[3].v);
    }

    template <int Level, bool Canonical>
    TENSAFE_AVX2 static void forward_radix4(const tables& t, word* data, int stage, std::size_t first,
                                            std::size_t last) noexcept {
        const Lanes lanes(t);
        const std::size_t quarter = t.degree() >> (stage + 2);
        for (std::size_t block = first; block < last; ++block) {
            const std::size_t node = (std::size_t{1} << stage) + block;
            const factor w1 = Lanes::broadcast(t.forward_factors().node(node));
            const factor w2 = Lanes::broadcast(t.forward_factors().node(2 * node));
            const factor w3 = Lanes::broadcast(t.forward_factors().node(2 * node + 1));
            word* const from = data + 4 * quarter * block;
            for (std::size_t j = 0; j < quarter; j += 4) {
                rows x = load<Canonical>(from + j, quarter);
                forward_first<Level>(lanes, x, w1);
                forward_second<Level>(lanes, x, w2, w3);
                store(from + j, quarter, x);
            }
        }
    }

    // ---- inverse ----

    template <int Level>
    TENSAFE_AVX2 TENSAFE_INLINE static void inverse_first(const Lanes& lanes, rows& x, const factor& w2,
                                                          const factor& w3) noexcept {
        add_subtract(x.r[0].v, x.r[1].v);
        add_subtract(x.r[2].v, x.r[3].v);
        lanes.multiply(x.r[1].v, w2, x.r[3].v, w3);
        if constexpr (Level == 3) {
            x.r[0].v = lanes.reduce_sum_of_entries(x.r[0].v);
            x.r[2].v = lanes.reduce_sum_of_entries(x.r[2].v);
        }
        add_subtract(x.r[0].v, x.r[2].v);
        add_subtract(x.r[1].v, x.r[3].v);
    }
    template <int Level>
    TENSAFE_AVX2 TENSAFE_INLINE static void inverse_second(const Lanes& lanes, rows& x,
                                                           const factor& w1) noexcept {
        lanes.multiply(x.r[2].v, w1, x.r[3].v, w1);
        if constexpr (Level >= 1) {
            x.r[0].v = lanes.reduce_sum_of_four(x.r[0].v);
        }
        if constexpr (Level >= 2) {
            x.r[1].v = lanes.reduce_sum_of_products(x.r[1].v);
        }
    }

    /// One pass of two inverse stages. The last pass folds in 1/N: docs/design/ntt.md.
    template <int Level, bool Last>
    TENSAFE_AVX2 static void inverse_radix4(const tables& t, word* data, int stage, std::size_t first,
                                            std::size_t last) noexcept {
        const Lanes lanes(t);
        const factor_table& factors = t.inverse_factors();
        const factor scale = Lanes::broadcast(t.scaled_inverse_factor(0));
        const factor scaled1 = Lanes::broadcast(t.scaled_inverse_factor(1));
        const std::size_t quarter = t.degree() >> (stage + 2);
        for (std::size_t block = first; block < last; ++block) {
            const std::size_t node = (std::size_t{1} << stage) + block;
            const factor w1 = Lanes::broadcast(factors.node(node));
            const factor w2 = Lanes::broadcast(Last ? t.scaled_inverse_factor(2) : factors.node(2 * node));
            const factor w3 =
                Lanes::broadcast(Last ? t.scaled_inverse_factor(3) : factors.node(2 * node + 1));
            word* const from = data + 4 * quarter * block;
            for (std::size_t j = 0; j < quarter; j += 4) {
                rows x = load<false>(from + j, quarter);
                inverse_first<Level>(lanes, x, w2, w3);
                if constexpr (Last) {
                    lanes.multiply(x.r[0].v, scale, x.r[2].v, scaled1);
                    x.r[0].v = lanes.finish_product(x.r[0].v);
                    x.r[1].v = lanes.finish_sum_of_products(x.r[1].v);
                    x.r[2].v = lanes.finish_product(x.r[2].v);
                    x.r[3].v = lanes.finish_product(lanes.multiply(x.r[3].v, w1));
                } else {
                    inverse_second<Level>(lanes, x, w1);
                }
                store(from + j, quarter, x);
            }
        }
    }

    /// The inverse stage 0 alone with 1/N folded in.
    TENSAFE_AVX2 static void inverse_radix2_last(const tables& t, word* data) noexcept {
        const Lanes lanes(t);
        const factor scale = Lanes::broadcast(t.scaled_inverse_factor(0));
        const factor scaled = Lanes::broadcast(t.scaled_inverse_factor(1));
        const std::size_t half = t.degree() / 2;
        word* const upper = data + half;
        for (std::size_t j = 0; j < half; j += 4) {
            vector x = Lanes::template load<false>(data + j);
            vector y = Lanes::template load<false>(upper + j);
            add_subtract(x, y);
            lanes.multiply(x, scale, y, scaled);
            Lanes::store(data + j, lanes.finish_product(x));
            Lanes::store(upper + j, lanes.finish_product(y));
        }
    }

    // ---- both ----

    /// All stages from `stage` on, or back to it, of blocks [first, last) of the 2^stage blocks.
    template <bool forward>
    TENSAFE_AVX2 static void blocks(const tables& t, word* data, int stage, std::size_t first,
                                    std::size_t last) noexcept {
        if ((last - first) * (t.degree() >> stage) <= cached_words) {
            const int below = t.outer_stages() - stage;
            for (int done = 0; done <= below; done += 2) {
                const int depth = forward ? done : below - done;
                pass<forward>(t, data, stage + depth, first << depth, last << depth);
            }
        } else if (last - first == 1) {
            if (forward) {
                pass<forward>(t, data, stage, first, last);
            }
            blocks<forward>(t, data, stage + 2, 4 * first, 4 * last);
            if (!forward) {
                pass<forward>(t, data, stage, first, last);
            }
        } else {
            for (std::size_t block = first; block < last; ++block) {
                blocks<forward>(t, data, stage, block, block + 1);
            }
        }
    }

    /// Stages `stage` and stage + 1 of blocks [first, last) of the 2^stage blocks; the last two in groups.
    template <bool forward>
    static void pass(const tables& t, word* data, int stage, std::size_t first, std::size_t last) noexcept {
        constexpr int lowest = !forward && highest_inverse_level == 3 ? 3 : 0;
        at_level<lowest, forward ? highest_forward_level : highest_inverse_level>(
            forward ? t.forward_level(stage) : t.inverse_level(stage), [&]<int level>() {
                if (stage == t.outer_stages()) {
                    groups<forward, level>(t, data, first / 4, last / 4);
                } else if constexpr (forward) {
                    forward_radix4<level, false>(t, data, stage, first, last);
                } else {
                    inverse_radix4<level, false>(t, data, stage, first, last);
                }
            });
    }

    /// The two stages within groups [first, last): the last forward ones, to canonical residues, or the first
    /// inverse ones, of them. Two groups in step, since one alone waits for its own results: their number is
    /// even.
    template <bool forward, int Level>
    TENSAFE_AVX2 static void groups(const tables& t, word* data, std::size_t first,
                                    std::size_t last) noexcept {
        const Lanes lanes(t);
        const auto& factors = forward ? t.forward_factors() : t.inverse_factors();
        for (std::size_t group = first; group < last; group += 2) {
            word* const p = data + group_words * group;
            const word* const v = factors.group(group);
            const word* const w = factors.group(group + 1);
            rows x = load<!forward>(p, 4);
            rows y = load<!forward>(p + group_words, 4);
            simd::transpose(x.r);
            simd::transpose(y.r);
            if constexpr (forward) {
                forward_first<Level>(lanes, x, Lanes::load_factor(v));
                forward_first<Level>(lanes, y, Lanes::load_factor(w));
                forward_second<Level>(lanes, x, Lanes::load_factor(v + 8), Lanes::load_factor(v + 16));
                forward_second<Level>(lanes, y, Lanes::load_factor(w + 8), Lanes::load_factor(w + 16));
                lanes.finish_entries(x.r[0].v, x.r[1].v, x.r[2].v, x.r[3].v);
                lanes.finish_entries(y.r[0].v, y.r[1].v, y.r[2].v, y.r[3].v);
            } else {
                inverse_first<Level>(lanes, x, Lanes::load_factor(v + 8), Lanes::load_factor(v + 16));
                inverse_first<Level>(lanes, y, Lanes::load_factor(w + 8), Lanes::load_factor(w + 16));
                inverse_second<Level>(lanes, x, Lanes::load_factor(v));
                inverse_second<Level>(lanes, y, Lanes::load_factor(w));
            }
            simd::transpose(x.r);
            simd::transpose(y.r);
            store(p, 4, x);
            store(p + group_words, 4, y);
        }
    }

    static constexpr int highest_forward_level = Lanes::highest_forward_level;
    static constexpr int highest_inverse_level = Lanes::highest_inverse_level;

    /// Calls f with the level, in [least, highest], as a constant.
    template <int least, int highest, class F>
    static void at_level(int level, const F& f) noexcept {
        if constexpr (least < highest) {
            if (level != least) {
                return at_level<least + 1, highest>(level, f);
            }
        }
        f.template operator()<least>();
    }

    /// Four rows of four words, `distance` apart; canonical residues if so told, else entries.
    template <bool Canonical>
    TENSAFE_AVX2 TENSAFE_INLINE static rows load(const word* from, std::size_t distance) noexcept {
        return {{{Lanes::template load<Canonical>(from)},
                 {Lanes::template load<Canonical>(from + distance)},
                 {Lanes::template load<Canonical>(from + 2 * distance)},
                 {Lanes::template load<Canonical>(from + 3 * distance)}}};
    }
    TENSAFE_AVX2 TENSAFE_INLINE static void store(word* to, std::size_t distance, const rows& x) noexcept {
        Lanes::store(to, x.r[0].v);
        Lanes::store(to + distance, x.r[1].v);
        Lanes::store(to + 2 * distance, x.r[2].v);
        Lanes::store(to + 3 * distance, x.r[3].v);
    }

    /// Makes x and y x + y and x - y.
    TENSAFE_AVX2 TENSAFE_INLINE static void add_subtract(vector& x, vector& y) noexcept {
        const vector difference = Lanes::subtract(x, y);
        x = Lanes::add(x, y);
        y = difference;
    }
};

namespace detail {

template <int Bits>
using lanes_for =
    std::conditional_t<(Bits <= fp64::max_bits), fp64_lanes<Bits>, montgomery32_lanes<(Bits > 60)>>;

}  // namespace detail

/// The tables for primes of at most `Bits` bits.
template <int Bits>
using tables_for = typename detail::lanes_for<Bits>::tables_type;

/// Negacyclic NTT of one limb, in place; no allocation. Costs N/2 * log2(N) butterflies, eight instructions
/// for four of them below 2^50 and eighteen or more above. Thread-safe for distinct limbs.
/// @pre  N words, each in [0, q), q of at most Bits bits; natural order forward, bit-reversed order inverse
/// @post each in [0, q), in the other order
template <int Bits, direction to>
TENSAFE_AVX2 void transform(const tables_for<Bits>& t, arith::word* limb) noexcept {
    using stages = passes<detail::lanes_for<Bits>>;
    if constexpr (to == direction::forward) {
        stages::forward(t, limb);
    } else {
        stages::inverse(t, limb);
    }
}

}  // namespace tensafe::ntt::avx2

#endif
