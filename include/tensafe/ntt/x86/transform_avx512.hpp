#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/order.hpp>
#include <tensafe/ntt/x86/lanes_avx512.hpp>
#include <tensafe/ntt/x86/tables_avx512.hpp>
#include <tensafe/simd/transpose.hpp>

#if TENSAFE_X86_64

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// The transforms for AVX-512: passes of eight, four or two blocks over the whole limb, then leaves of 64
// neighbours that stay in eight registers for their last six stages. docs/design/ntt.md has the schedule.

namespace tensafe::ntt::avx512 {

namespace detail {

/// Sets of blocks that go through the same stages side by side: one alone waits for its own results, some 15
/// cycles a butterfly, and three have no room in the registers.
inline constexpr std::size_t side_by_side = 2;

/// Factors of each set in memory, `stride` words apart: each in all lanes, or one for each lane. They are
/// loaded where they are used: registers are short.
template <class Factor, bool in_all_lanes>
struct factors_in_memory {
    const word* from;
    std::size_t stride;

    TENSAFE_AVX512 TENSAFE_INLINE Factor operator()(std::size_t set, std::size_t i) const noexcept {
        const word* const of_set = from + set * stride;
        if constexpr (in_all_lanes) {
            return Factor::spread(of_set + i * Factor::words);
        } else {
            return Factor::load(of_set + 8 * i * Factor::words);
        }
    }
};

/// A vector of each of n blocks, of each set, and the stages that they go through in registers: unrolled by
/// index sequences over blocks and sets, or butterflies and sets, neighbours in different sets.
template <class A, std::size_t n, std::size_t sets = side_by_side>
struct block_rows {
    static constexpr std::make_index_sequence<sets * n> each{};
    static constexpr std::make_index_sequence<sets * n / 2> each_pair{};

    simd::lanes<long long, 8> x[sets][n];

    template <std::size_t k>
    TENSAFE_INLINE auto& row() noexcept {
        return x[k % sets][k / sets].v;
    }

    /// Loads a row of each block from words, or from signed bytes.
    template <class From, std::size_t... k>
    TENSAFE_AVX512 TENSAFE_INLINE static block_rows load(const From* from, std::size_t d, std::size_t stride,
                                                         std::index_sequence<k...>) noexcept {
        block_rows result;
        ((result.x[k / n][k % n].v = arith::avx512::load(from + k / n * stride + k % n * d)), ...);
        return result;
    }
    template <std::size_t... k>
    TENSAFE_AVX512 TENSAFE_INLINE void store(word* to, std::size_t d, std::size_t stride,
                                             std::index_sequence<k...>) const noexcept {
        (arith::avx512::store(to + k / n * stride + k % n * d, x[k / n][k % n].v), ...);
    }
    TENSAFE_INLINE void transpose() noexcept {
        static_assert(sets == 2);
        simd::transpose(x[0]);
        simd::transpose(x[1]);
    }

    /// Brings signed bytes, one in each lane, to below 2q.
    template <std::size_t... k>
    TENSAFE_AVX512 TENSAFE_INLINE void lift(const A& a, std::index_sequence<k...>) noexcept {
        ((row<k>() = a.lift(row<k>())), ...);
    }
    /// All forward stages, on entries below A::forward_bound*q, with n - 1 factors for each set.
    template <class Factors>
    TENSAFE_AVX512 TENSAFE_INLINE void forward(const A& a, const Factors& w) noexcept {
        relax(a, each_pair);
        forward_stage<n / 2, A::lazy_bound>(a, w, each_pair);
    }
    /// Makes canonical residues after the last forward stages.
    template <int K = A::forward_bound, std::size_t... k>
    TENSAFE_AVX512 TENSAFE_INLINE void make_canonical(const A& a, std::index_sequence<k...>) noexcept {
        ((row<k>() = a.template canonical<K>(row<k>())), ...);
    }

    /// All inverse stages, on entries below K*q, to below To*q. To residues, the last factors of
    /// direction_table are needed, with 1/N: the first product of every chain carries it, and the one sum
    /// without products gets its own.
    template <int K, int To, class Factors>
    TENSAFE_AVX512 TENSAFE_INLINE void inverse(const A& a, const Factors& w) noexcept {
        inverse_stage<1, K, To == 1>(a, w, each_pair);
        if constexpr (To == 1) {
            multiply_first(a, w, std::make_index_sequence<sets>());
        }
        finish_inverse<K, To>(a, each);
    }

  private:
    /// Butterfly j of those between blocks `distance` apart: its first block, and its factor.
    static constexpr std::size_t block(std::size_t distance, std::size_t j) noexcept {
        return j / distance * 2 * distance + j % distance;
    }
    static constexpr std::size_t factor_index(std::size_t distance, std::size_t j) noexcept {
        return n / (2 * distance) - 1 + j / distance;
    }

    template <std::size_t... k>
    TENSAFE_AVX512 TENSAFE_INLINE void relax(const A& a, std::index_sequence<k...>) noexcept {
        ((row<k>() = a.template lazy_operand<std::bit_width(n / 2) - std::bit_width(k / sets)>(row<k>())),
         ...);
    }
    template <std::size_t distance, int K, class Factors, std::size_t... k>
    TENSAFE_AVX512 TENSAFE_INLINE void forward_stage(const A& a, const Factors& w,
                                                     std::index_sequence<k...> pairs) noexcept {
        (a.template forward_butterfly<K>(x[k % sets][block(distance, k / sets)].v,
                                         x[k % sets][block(distance, k / sets) + distance].v,
                                         w(k % sets, factor_index(distance, k / sets))),
         ...);
        if constexpr (distance > 1) {
            forward_stage<distance / 2, A::after_forward(K)>(a, w, pairs);
        } else {
            static_assert(A::after_forward(K) <= A::forward_bound);
        }
    }

    // Where A takes offsets, no difference is negative: of two sums of entries, by what is added to them; of
    // two sums of products, as the offset of each product is one for each stage left in which it is a first
    // operand, less one for each other stage. So the sum of all has none.
    static constexpr int offset_of_first(int k, std::size_t distance, std::size_t i) noexcept {
        return distance > 1 ? 0 : i % 4 == 0 && n > 2 ? 3 * k : k;
    }
    static constexpr int offset_between(int k, std::size_t distance, std::size_t i) noexcept {
        return distance == 4 && i % distance == 0 ? 4 * k : 0;
    }
    static constexpr int offset_of_product(std::size_t distance, std::size_t i) noexcept {
        const auto stages_left = static_cast<int>(std::bit_width(n / (2 * distance))) - 1;
        return stages_left - 2 * std::popcount(i / (2 * distance));
    }

    /// The bound of block i before the inverse stage between blocks `distance` apart: a product's, or that of
    /// a sum. With offsets, of sums of products after the last stage only.
    static constexpr int inverse_bound(int k, std::size_t distance, std::size_t i) noexcept {
        if (distance == 1) {
            return k;
        }
        if (A::takes_offsets && i % distance == 0) {
            return distance == 2 ? k * (i % 4 == 0 && n > 2 ? 5 : 3) : 2 * static_cast<int>(distance) * k;
        }
        const bool sum = i / (distance / 2) % 2 == 0;
        return sum ? A::after_inverse(inverse_bound(k, distance / 2, i)) : A::product;
    }
    /// The number of the factor of butterfly j. Chains that carry 1/N already go on with plain factors.
    template <std::size_t distance, bool last>
    static constexpr std::size_t inverse_factor(std::size_t j) noexcept {
        return factor_index(distance, j) + (last && j % distance != 0 ? n - 1 : 0);
    }
    template <std::size_t distance, int K, bool last, class Factors, std::size_t... k>
    TENSAFE_AVX512 TENSAFE_INLINE void inverse_stage(const A& a, const Factors& w,
                                                     std::index_sequence<k...> pairs) noexcept {
        if constexpr (A::takes_offsets) {
            static_assert(16 * K <= A::capacity);
            (a.template offset_butterfly<offset_of_first(K, distance, block(distance, k / sets)),
                                         offset_between(K, distance, block(distance, k / sets)),
                                         offset_of_product(distance, block(distance, k / sets))>(
                 x[k % sets][block(distance, k / sets)].v,
                 x[k % sets][block(distance, k / sets) + distance].v,
                 w(k % sets, inverse_factor<distance, last>(k / sets))),
             ...);
        } else {
            (a.template inverse_butterfly<inverse_bound(K, distance, block(distance, k / sets))>(
                 x[k % sets][block(distance, k / sets)].v,
                 x[k % sets][block(distance, k / sets) + distance].v,
                 w(k % sets, inverse_factor<distance, last>(k / sets))),
             ...);
        }
        if constexpr (2 * distance < n) {
            inverse_stage<2 * distance, K, last>(a, w, pairs);
        }
    }
    template <class Factors, std::size_t... s>
    TENSAFE_AVX512 TENSAFE_INLINE void multiply_first(const A& a, const Factors& w,
                                                      std::index_sequence<s...>) noexcept {
        ((x[s][0].v = a.multiply(x[s][0].v, w(s, last_factors - 1))), ...);
    }
    template <int K, int To, std::size_t... k>
    TENSAFE_AVX512 TENSAFE_INLINE void finish_inverse(const A& a, std::index_sequence<k...>) noexcept {
        if constexpr (To == 1) {
            ((row<k>() =
                  a.template canonical<(k < sets ? A::product : inverse_bound(K, n, k / sets))>(row<k>())),
             ...);
        } else {
            ((row<k>() = a.template reduce<To, inverse_bound(K, n, k / sets)>(row<k>())), ...);
        }
    }
};

/// The passes of one limb with the arithmetic A.
template <class A>
class passes {
  public:
    using factor = typename A::factor;

    TENSAFE_AVX512 TENSAFE_INLINE passes(const direction_table<factor>& table, const A& a, int log_n) noexcept
        : table_(table), a_(a), plan_(log_n) {}

    /// The stages below block `b` of pass p, whose entries stand at `from`, into those from x on: the same
    /// words, or for p = 0 signed bytes.
    template <class From>
    TENSAFE_AVX512 void forward(const From* from, word* x, std::size_t p, std::size_t b,
                                int log_length) const noexcept {
        const int r = plan_.log_radix[p];
        const std::size_t distance = std::size_t{1} << (log_length - r);
        const word* f = table_.pass(p) + b * ((std::size_t{1} << r) - 1) * words;
        if (!std::is_same_v<From, word> || r == 3) {
            forward_pass<8>(from, x, distance, f);
        } else if (r == 2) {
            forward_pass<4>(x, x, distance, f);
        } else {
            forward_pass<2>(x, x, distance, f);
        }
        if (distance == leaf_size) {
            forward_leaves(x, table_.leaves() + (b << r) * leaf_words, std::size_t{1} << r);
            return;
        }
        for (std::size_t i = 0; i < std::size_t{1} << r; ++i) {
            forward(x + i * distance, x + i * distance, p + 1, (b << r) + i, log_length - r);
        }
    }

    TENSAFE_AVX512 void inverse(word* x, std::size_t p, std::size_t b, int log_length) const noexcept {
        const int r = plan_.log_radix[p];
        const std::size_t distance = std::size_t{1} << (log_length - r);
        if (distance == leaf_size) {
            inverse_leaves(x, table_.leaves() + (b << r) * leaf_words, std::size_t{1} << r);
        } else {
            for (std::size_t i = 0; i < std::size_t{1} << r; ++i) {
                inverse(x + i * distance, p + 1, (b << r) + i, log_length - r);
            }
        }
        const word* f = table_.pass(p) + b * ((std::size_t{1} << r) - 1) * words;
        if (p == 0) {
            inverse_pass<8, 1>(x, distance, f);
        } else if (r == 3) {
            inverse_pass<8, A::inverse_bound>(x, distance, f);
        } else if (r == 2) {
            inverse_pass<4, A::inverse_bound>(x, distance, f);
        } else {
            inverse_pass<2, A::inverse_bound>(x, distance, f);
        }
    }

  private:
    static constexpr std::size_t words = factor::words;
    static constexpr std::size_t leaf_words = direction_table<factor>::leaf_words;
    static constexpr std::size_t leaf_head = direction_table<factor>::leaf_head;
    using leaf_rows = block_rows<A, 8>;
    using spread_factors = factors_in_memory<factor, true>;
    using factor_vectors = factors_in_memory<factor, false>;

    /// A forward pass over n blocks, from words, which may be those at x, or from signed bytes.
    template <std::size_t n, class From>
    TENSAFE_AVX512 void forward_pass(const From* from, word* x, std::size_t d, const word* f) const noexcept {
        using rows = block_rows<A, n>;
        const A a = a_;
        const spread_factors w{f, 0};
        for (std::size_t j = 0; j < d; j += 8 * side_by_side) {
            auto at = rows::load(from + j, d, 8, rows::each);
            if constexpr (!std::is_same_v<From, word>) {
                at.lift(a, rows::each);
            }
            at.forward(a, w);
            at.store(x + j, d, 8, rows::each);
        }
    }

    /// An inverse pass over n blocks: to residues, in the last pass, or below To*q.
    template <std::size_t n, int To>
    TENSAFE_AVX512 void inverse_pass(word* x, std::size_t d, const word* f) const noexcept {
        using rows = block_rows<A, n>;
        const A a = a_;
        const spread_factors w{f, 0};
        for (std::size_t j = 0; j < d; j += 8 * side_by_side) {
            auto at = rows::load(x + j, d, 8, rows::each);
            at.template inverse<A::inverse_bound, To>(a, w);
            at.store(x + j, d, 8, rows::each);
        }
    }

    /// All forward stages within `count` leaves.  @pre  count is even
    TENSAFE_AVX512 void forward_leaves(word* x, const word* f, std::size_t count) const noexcept {
        const A a = a_;
        // Two loops: one chain from load to store would be too long for several leaves to overlap.
        for (std::size_t i = 0; i < count; i += side_by_side) {
            auto leaf = leaf_rows::load(x + i * leaf_size, 8, leaf_size, leaf_rows::each);
            leaf.forward(a, spread_factors{f + i * leaf_words, leaf_words});
            leaf.transpose();
            leaf.store(x + i * leaf_size, 8, leaf_size, leaf_rows::each);
        }
        for (std::size_t i = 0; i < count; i += side_by_side) {
            auto leaf = leaf_rows::load(x + i * leaf_size, 8, leaf_size, leaf_rows::each);
            leaf.forward(a, factor_vectors{f + i * leaf_words + leaf_head, leaf_words});
            leaf.make_canonical(a, leaf_rows::each);
            leaf.transpose();
            leaf.store(x + i * leaf_size, 8, leaf_size, leaf_rows::each);
        }
    }

    TENSAFE_AVX512 void inverse_leaves(word* x, const word* f, std::size_t count) const noexcept {
        const A a = a_;
        constexpr int bound = A::inverse_bound;
        for (std::size_t i = 0; i < count; i += side_by_side) {
            auto leaf = leaf_rows::load(x + i * leaf_size, 8, leaf_size, leaf_rows::each);
            leaf.transpose();
            leaf.template inverse<1, bound>(a, factor_vectors{f + i * leaf_words + leaf_head, leaf_words});
            leaf.transpose();
            leaf.store(x + i * leaf_size, 8, leaf_size, leaf_rows::each);
        }
        for (std::size_t i = 0; i < count; i += side_by_side) {
            auto leaf = leaf_rows::load(x + i * leaf_size, 8, leaf_size, leaf_rows::each);
            leaf.template inverse<bound, bound>(a, spread_factors{f + i * leaf_words, leaf_words});
            leaf.store(x + i * leaf_size, 8, leaf_size, leaf_rows::each);
        }
    }

    const direction_table<factor>& table_;
    const A a_;
    pass_plan plan_;
};

/// The arithmetic for primes of at most `Bits` bits.
template <int Bits>
using lanes_for = std::conditional_t<
    (Bits <= shoup52<128>::max_bits), shoup52<128>,
    std::conditional_t<(Bits <= shoup52<8>::max_bits), shoup52<8>,
                       std::conditional_t<(Bits <= shoup52_exact::max_bits), shoup52_exact, shoup104>>>;

}  // namespace detail

/// The tables for primes of at most `Bits` bits.
template <int Bits>
using tables_for = tables<typename detail::lanes_for<Bits>::factor>;

/// The negacyclic NTT, as ntt::forward or ntt::inverse: in place, or forward of N signed bytes of magnitude
/// at most q.
/// @pre  the processor runs exec::backend::avx512; words in [0, q), q of at most Bits bits
template <int Bits, direction to, class From>
TENSAFE_AVX512 void transform(const tables_for<Bits>& t, const From* from, word* limb) noexcept {
    using lanes = detail::lanes_for<Bits>;
    if constexpr (to == direction::forward) {
        detail::passes<lanes>(t.forward, lanes(t.q), t.log_n).forward(from, limb, 0, 0, t.log_n);
    } else {
        detail::passes<lanes>(t.inverse, lanes(t.q), t.log_n).inverse(limb, 0, 0, t.log_n);
    }
}

}  // namespace tensafe::ntt::avx512

#endif
