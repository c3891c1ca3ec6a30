#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/x86/tables_avx2.hpp>

#if TENSAFE_X86_64

#include <algorithm>
#include <cstddef>

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
        vector r0;
        vector r1;
        vector r2;
        vector r3;
    };

  public:
    TENSAFE_AVX2 static void forward(const tables& t, word* data) noexcept {
        if (t.outer_stages() % 2 == 1) {
            forward_radix2(t, data);
            forward_blocks(t, data, 1, 0, 2);
        } else {
            forward_radix4<0, true>(t, data, 0, 0, 1);
            forward_blocks(t, data, 2, 0, 4);
        }
    }

    TENSAFE_AVX2 static void inverse(const tables& t, word* data) noexcept {
        if (t.outer_stages() % 2 == 1) {
            inverse_blocks(t, data, 1, 0, 2);
            inverse_radix2_last(t, data);
        } else {
            inverse_blocks(t, data, 2, 0, 4);
            inverse_radix4_last(t, data);
        }
    }

  private:
    /// Blocks of half of the smallest first-level cache; the rest is for the factors.
    static constexpr std::size_t cached_words = 2048;

    // ---- forward ----

    /// All stages from `stage` on of blocks [first, last) of the 2^stage blocks.
    TENSAFE_AVX2 static void forward_blocks(const tables& t, word* data, int stage, std::size_t first,
                                            std::size_t last) noexcept {
        if ((last - first) * (t.degree() >> stage) <= cached_words) {
            for (; stage < t.outer_stages(); stage += 2) {
                forward_pass(t, data, stage, first, last);
                first *= 4;
                last *= 4;
            }
            forward_groups(t, data, first / 4, last / 4);
        } else if (last - first == 1) {
            forward_pass(t, data, stage, first, last);
            forward_blocks(t, data, stage + 2, 4 * first, 4 * last);
        } else {
            for (std::size_t block = first; block < last; ++block) {
                forward_blocks(t, data, stage, block, block + 1);
            }
        }
    }

    TENSAFE_AVX2 static void forward_pass(const tables& t, word* data, int stage, std::size_t first,
                                          std::size_t last) noexcept {
        switch (t.forward_level(stage)) {
            case 0:
                return forward_radix4<0, false>(t, data, stage, first, last);
            case 1:
                return forward_radix4<std::min(1, highest_forward_level), false>(t, data, stage, first, last);
            default:
                return forward_radix4<highest_forward_level, false>(t, data, stage, first, last);
        }
    }

    TENSAFE_AVX2 static void forward_groups(const tables& t, word* data, std::size_t first,
                                            std::size_t last) noexcept {
        switch (t.forward_level(t.outer_stages())) {
            case 0:
                return forward_groups_at<0>(t, data, first, last);
            case 1:
                return forward_groups_at<std::min(1, highest_forward_level)>(t, data, first, last);
            default:
                return forward_groups_at<highest_forward_level>(t, data, first, last);
        }
    }

    /// The first stage alone, on canonical residues.
    TENSAFE_AVX2 static void forward_radix2(const tables& t, word* data) noexcept {
        const Lanes lanes(t);
        const factor w = Lanes::broadcast(t.forward_factors().node(1));
        const std::size_t half = t.degree() / 2;
        word* const upper = data + half;
        for (std::size_t j = 0; j < half; j += 4) {
            vector x = Lanes::load_residue(data + j);
            vector y = lanes.multiply(Lanes::load_residue(upper + j), w);
            add_subtract(x, y);
            Lanes::store(data + j, x);
            Lanes::store(upper + j, y);
        }
    }

    template <int Level>
    TENSAFE_AVX2 TENSAFE_INLINE static void forward_first(const Lanes& lanes, rows& x,
                                                          const factor& w1) noexcept {
        if constexpr (Level >= 1) {
            x.r0 = lanes.reduce(x.r0);
            x.r1 = lanes.reduce(x.r1);
        }
        lanes.multiply(x.r2, w1, x.r3, w1);
        add_subtract(x.r0, x.r2);
        add_subtract(x.r1, x.r3);
    }
    template <int Level>
    TENSAFE_AVX2 TENSAFE_INLINE static void forward_second(const Lanes& lanes, rows& x, const factor& w2,
                                                           const factor& w3) noexcept {
        if constexpr (Level >= 2) {
            x.r0 = lanes.reduce(x.r0);
            x.r2 = lanes.reduce(x.r2);
        }
        lanes.multiply(x.r1, w2, x.r3, w3);
        add_subtract(x.r0, x.r1);
        add_subtract(x.r2, x.r3);
    }

    /// Stages `stage` and stage + 1 of blocks [first, last) of the 2^stage blocks.
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

    /// The last two stages of groups [first, last), to canonical residues; two groups in step, since one
    /// alone waits for its own results. The number of groups is even.
    template <int Level>
    TENSAFE_AVX2 static void forward_groups_at(const tables& t, word* data, std::size_t first,
                                               std::size_t last) noexcept {
        const Lanes lanes(t);
        for (std::size_t group = first; group < last; group += 2) {
            word* const p = data + group_words * group;
            const word* const v = t.forward_factors().group(group);
            const word* const w = t.forward_factors().group(group + 1);
            rows x = load<false>(p, 4);
            rows y = load<false>(p + group_words, 4);
            transpose(x);
            transpose(y);
            forward_first<Level>(lanes, x, Lanes::load_factor(v));
            forward_first<Level>(lanes, y, Lanes::load_factor(w));
            forward_second<Level>(lanes, x, Lanes::load_factor(v + 8), Lanes::load_factor(v + 16));
            forward_second<Level>(lanes, y, Lanes::load_factor(w + 8), Lanes::load_factor(w + 16));
            lanes.finish_entries(x.r0, x.r1, x.r2, x.r3);
            lanes.finish_entries(y.r0, y.r1, y.r2, y.r3);
            transpose(x);
            transpose(y);
            store(p, 4, x);
            store(p + group_words, 4, y);
        }
    }

    // ---- inverse ----

    /// All stages down to `stage` of blocks [first, last) of the 2^stage blocks.
    TENSAFE_AVX2 static void inverse_blocks(const tables& t, word* data, int stage, std::size_t first,
                                            std::size_t last) noexcept {
        if ((last - first) * (t.degree() >> stage) <= cached_words) {
            int depth = t.outer_stages() - stage;
            inverse_groups(t, data, (first << depth) / 4, (last << depth) / 4);
            while (depth > 0) {
                depth -= 2;
                inverse_pass(t, data, stage + depth, first << depth, last << depth);
            }
        } else if (last - first == 1) {
            inverse_blocks(t, data, stage + 2, 4 * first, 4 * last);
            inverse_pass(t, data, stage, first, last);
        } else {
            for (std::size_t block = first; block < last; ++block) {
                inverse_blocks(t, data, stage, block, block + 1);
            }
        }
    }

    TENSAFE_AVX2 static void inverse_pass(const tables& t, word* data, int stage, std::size_t first,
                                          std::size_t last) noexcept {
        if constexpr (highest_inverse_level == 3) {
            return inverse_radix4<3>(t, data, stage, first, last);
        } else {
            switch (t.inverse_level(stage)) {
                case 0:
                    return inverse_radix4<0>(t, data, stage, first, last);
                case 1:
                    return inverse_radix4<1>(t, data, stage, first, last);
                default:
                    return inverse_radix4<highest_inverse_level>(t, data, stage, first, last);
            }
        }
    }

    TENSAFE_AVX2 static void inverse_groups(const tables& t, word* data, std::size_t first,
                                            std::size_t last) noexcept {
        if constexpr (highest_inverse_level == 3) {
            return inverse_groups_at<3>(t, data, first, last);
        } else {
            switch (t.inverse_level(t.outer_stages())) {
                case 0:
                    return inverse_groups_at<0>(t, data, first, last);
                case 1:
                    return inverse_groups_at<1>(t, data, first, last);
                default:
                    return inverse_groups_at<highest_inverse_level>(t, data, first, last);
            }
        }
    }

    template <int Level>
    TENSAFE_AVX2 TENSAFE_INLINE static void inverse_first(const Lanes& lanes, rows& x, const factor& w2,
                                                          const factor& w3) noexcept {
        add_subtract(x.r0, x.r1);
        add_subtract(x.r2, x.r3);
        lanes.multiply(x.r1, w2, x.r3, w3);
        if constexpr (Level == 3) {
            x.r0 = lanes.reduce_sum_of_entries(x.r0);
            x.r2 = lanes.reduce_sum_of_entries(x.r2);
        }
        add_subtract(x.r0, x.r2);
        add_subtract(x.r1, x.r3);
    }
    template <int Level>
    TENSAFE_AVX2 TENSAFE_INLINE static void inverse_second(const Lanes& lanes, rows& x,
                                                           const factor& w1) noexcept {
        lanes.multiply(x.r2, w1, x.r3, w1);
        if constexpr (Level >= 1) {
            x.r0 = lanes.template reduce_sum_of_four<Level>(x.r0);
        }
        if constexpr (Level >= 2) {
            x.r1 = lanes.template reduce_sum_of_products<Level>(x.r1);
        }
    }

    /// Stages stage + 1 and `stage` of blocks [first, last) of the 2^stage blocks.
    template <int Level>
    TENSAFE_AVX2 static void inverse_radix4(const tables& t, word* data, int stage, std::size_t first,
                                            std::size_t last) noexcept {
        const Lanes lanes(t);
        const std::size_t quarter = t.degree() >> (stage + 2);
        for (std::size_t block = first; block < last; ++block) {
            const std::size_t node = (std::size_t{1} << stage) + block;
            const factor w1 = Lanes::broadcast(t.inverse_factors().node(node));
            const factor w2 = Lanes::broadcast(t.inverse_factors().node(2 * node));
            const factor w3 = Lanes::broadcast(t.inverse_factors().node(2 * node + 1));
            word* const from = data + 4 * quarter * block;
            for (std::size_t j = 0; j < quarter; j += 4) {
                rows x = load<false>(from + j, quarter);
                inverse_first<Level>(lanes, x, w2, w3);
                inverse_second<Level>(lanes, x, w1);
                store(from + j, quarter, x);
            }
        }
    }

    /// Stages 1 and 0 with 1/N folded in: docs/design/ntt.md.
    TENSAFE_AVX2 static void inverse_radix4_last(const tables& t, word* data) noexcept {
        const Lanes lanes(t);
        const factor scale = Lanes::broadcast(t.scaled_inverse_factor(0));
        const factor scaled1 = Lanes::broadcast(t.scaled_inverse_factor(1));
        const factor scaled2 = Lanes::broadcast(t.scaled_inverse_factor(2));
        const factor scaled3 = Lanes::broadcast(t.scaled_inverse_factor(3));
        const factor w1 = Lanes::broadcast(t.inverse_factors().node(1));
        const std::size_t quarter = t.degree() / 4;
        for (std::size_t j = 0; j < quarter; j += 4) {
            rows x = load<false>(data + j, quarter);
            inverse_first<highest_inverse_level>(lanes, x, scaled2, scaled3);
            lanes.multiply(x.r0, scale, x.r2, scaled1);
            x.r0 = lanes.finish_product(x.r0);
            x.r1 = lanes.finish_sum_of_products(x.r1);
            x.r2 = lanes.finish_product(x.r2);
            x.r3 = lanes.finish_product(lanes.multiply(x.r3, w1));
            store(data + j, quarter, x);
        }
    }

    /// Stage 0 alone with 1/N folded in.
    TENSAFE_AVX2 static void inverse_radix2_last(const tables& t, word* data) noexcept {
        const Lanes lanes(t);
        const factor scale = Lanes::broadcast(t.scaled_inverse_factor(0));
        const factor scaled = Lanes::broadcast(t.scaled_inverse_factor(1));
        const std::size_t half = t.degree() / 2;
        word* const upper = data + half;
        for (std::size_t j = 0; j < half; j += 4) {
            vector x = Lanes::load(data + j);
            vector y = Lanes::load(upper + j);
            add_subtract(x, y);
            lanes.multiply(x, scale, y, scaled);
            Lanes::store(data + j, lanes.finish_product(x));
            Lanes::store(upper + j, lanes.finish_product(y));
        }
    }

    /// The first two stages of groups [first, last), on canonical residues.
    template <int Level>
    TENSAFE_AVX2 static void inverse_groups_at(const tables& t, word* data, std::size_t first,
                                               std::size_t last) noexcept {
        const Lanes lanes(t);
        for (std::size_t group = first; group < last; group += 2) {
            word* const p = data + group_words * group;
            const word* const v = t.inverse_factors().group(group);
            const word* const w = t.inverse_factors().group(group + 1);
            rows x = load<true>(p, 4);
            rows y = load<true>(p + group_words, 4);
            transpose(x);
            transpose(y);
            inverse_first<Level>(lanes, x, Lanes::load_factor(v + 8), Lanes::load_factor(v + 16));
            inverse_first<Level>(lanes, y, Lanes::load_factor(w + 8), Lanes::load_factor(w + 16));
            inverse_second<Level>(lanes, x, Lanes::load_factor(v));
            inverse_second<Level>(lanes, y, Lanes::load_factor(w));
            transpose(x);
            transpose(y);
            store(p, 4, x);
            store(p + group_words, 4, y);
        }
    }

    // ---- both ----

    static constexpr int highest_forward_level = Lanes::highest_forward_level;
    static constexpr int highest_inverse_level = Lanes::highest_inverse_level;

    /// Four rows of four words, `distance` apart; canonical residues if so told, else entries.
    template <bool Canonical>
    TENSAFE_AVX2 TENSAFE_INLINE static rows load(const word* from, std::size_t distance) noexcept {
        if constexpr (Canonical) {
            return {Lanes::load_residue(from), Lanes::load_residue(from + distance),
                    Lanes::load_residue(from + 2 * distance), Lanes::load_residue(from + 3 * distance)};
        } else {
            return {Lanes::load(from), Lanes::load(from + distance), Lanes::load(from + 2 * distance),
                    Lanes::load(from + 3 * distance)};
        }
    }
    TENSAFE_AVX2 TENSAFE_INLINE static void store(word* to, std::size_t distance, const rows& x) noexcept {
        Lanes::store(to, x.r0);
        Lanes::store(to + distance, x.r1);
        Lanes::store(to + 2 * distance, x.r2);
        Lanes::store(to + 3 * distance, x.r3);
    }

    /// (x + y, x - y).
    TENSAFE_AVX2 TENSAFE_INLINE static void add_subtract(vector& x, vector& y) noexcept {
        const vector difference = Lanes::subtract(x, y);
        x = Lanes::add(x, y);
        y = difference;
    }

    /// Rows become columns.
    TENSAFE_AVX2 TENSAFE_INLINE static void transpose(rows& x) noexcept {
        const vector even01 = Lanes::unpack_low(x.r0, x.r1);
        const vector odd01 = Lanes::unpack_high(x.r0, x.r1);
        const vector even23 = Lanes::unpack_low(x.r2, x.r3);
        const vector odd23 = Lanes::unpack_high(x.r2, x.r3);
        x = {Lanes::low_halves(even01, even23), Lanes::low_halves(odd01, odd23),
             Lanes::high_halves(even01, even23), Lanes::high_halves(odd01, odd23)};
    }
};

}  // namespace tensafe::ntt::avx2

#endif
