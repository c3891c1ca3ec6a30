#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/centred_binomial_groups.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if TENSAFE_X86_64

namespace tensafe::random::detail {

/// Four groups, one per lane.
struct binomial_lanes4 {
    using words = std::uint64_t __attribute__((vector_size(32)));

    /// Exchanges rows and columns of 4 x 4 words.
    static TENSAFE_INLINE void transpose(words& a, words& b, words& c, words& d) noexcept {
        const words ab_even = __builtin_shufflevector(a, b, 0, 4, 2, 6);
        const words ab_odd = __builtin_shufflevector(a, b, 1, 5, 3, 7);
        const words cd_even = __builtin_shufflevector(c, d, 0, 4, 2, 6);
        const words cd_odd = __builtin_shufflevector(c, d, 1, 5, 3, 7);
        a = __builtin_shufflevector(ab_even, cd_even, 0, 1, 4, 5);
        b = __builtin_shufflevector(ab_odd, cd_odd, 0, 1, 4, 5);
        c = __builtin_shufflevector(ab_even, cd_even, 2, 3, 6, 7);
        d = __builtin_shufflevector(ab_odd, cd_odd, 2, 3, 6, 7);
    }

    /// Words 4 I .. 4 I + 3 of each group: word i of group g into lane g of to[i].
    template <std::size_t... I>
    static TENSAFE_INLINE void load(const std::uint64_t* from, words* to,
                                    std::index_sequence<I...>) noexcept {
        (load_four(from + 4 * I, to + 4 * I), ...);
    }

    static TENSAFE_INLINE void load_four(const std::uint64_t* from, words* to) noexcept {
        words a;
        words b;
        words c;
        words d;
        std::memcpy(&a, from, sizeof(words));
        std::memcpy(&b, from + binomial_words, sizeof(words));
        std::memcpy(&c, from + 2 * binomial_words, sizeof(words));
        std::memcpy(&d, from + 3 * binomial_words, sizeof(words));
        transpose(a, b, c, d);
        to[0] = a;
        to[1] = b;
        to[2] = c;
        to[3] = d;
    }

    /// Rows First .. First + 3 into the 32 coefficients of each group that they hold.
    template <int First>
    static TENSAFE_INLINE void store(words* rows, std::int8_t* out) noexcept {
        transpose(rows[First], rows[First + 1], rows[First + 2], rows[First + 3]);
        std::memcpy(out + 8 * First, &rows[First], sizeof(words));
        std::memcpy(out + 8 * First + binomial_group, &rows[First + 1], sizeof(words));
        std::memcpy(out + 8 * First + 2 * binomial_group, &rows[First + 2], sizeof(words));
        std::memcpy(out + 8 * First + 3 * binomial_group, &rows[First + 3], sizeof(words));
    }
};

/// As centred_binomial_portable.
TENSAFE_AVX2 inline void centred_binomial_avx2(std::uint64_t* words, std::size_t groups,
                                               std::int8_t* out) noexcept {
    binomial_lanes4::words lanes[binomial_words];
    binomial_lanes4::words rows[8];
    for (; groups >= 4; groups -= 4) {
        binomial_lanes4::load(words, lanes, std::make_index_sequence<binomial_words / 4>{});
        // 42 is not a multiple of four: the last load takes two words for the second time.
        binomial_lanes4::load_four(words + binomial_words - 4, lanes + binomial_words - 4);
        centred_binomial_rows(lanes, rows);
        binomial_lanes4::store<0>(rows, out);
        binomial_lanes4::store<4>(rows, out);
        words += 4 * binomial_words;
        out += 4 * binomial_group;
    }
    memory::wipe(lanes);
    memory::wipe(rows);
    centred_binomial_portable(words, groups, out);
}

}  // namespace tensafe::random::detail

#endif
