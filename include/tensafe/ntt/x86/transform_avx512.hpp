#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/x86/lanes_avx512.hpp>
#include <tensafe/ntt/x86/tables_avx512.hpp>

#if TENSAFE_X86_64

#include <cstddef>
#include <immintrin.h>
#include <type_traits>

// The transforms for AVX-512: passes of eight, four or two blocks over the whole limb, then leaves of 64
// neighbours that stay in eight registers for their last six stages. docs/design/ntt.md has the schedule.

namespace tensafe::ntt::avx512 {

namespace detail {

template <int K>
TENSAFE_AVX512 TENSAFE_INLINE lanes<K> load(const arith::word* from) noexcept {
    return {_mm512_loadu_si512(from)};
}
TENSAFE_AVX512 TENSAFE_INLINE void store(arith::word* to, __m512i x) noexcept {
    _mm512_storeu_si512(to, x);
}

/// Exchanges rows and columns of 8 x 8 words.
TENSAFE_AVX512 TENSAFE_INLINE void transpose(__m512i& a, __m512i& b, __m512i& c, __m512i& d, __m512i& e,
                                             __m512i& f, __m512i& g, __m512i& h) noexcept {
    const __m512i ab0 = unpack_low(a, b);
    const __m512i ab1 = unpack_high(a, b);
    const __m512i cd0 = unpack_low(c, d);
    const __m512i cd1 = unpack_high(c, d);
    const __m512i ef0 = unpack_low(e, f);
    const __m512i ef1 = unpack_high(e, f);
    const __m512i gh0 = unpack_low(g, h);
    const __m512i gh1 = unpack_high(g, h);
    // Columns 0 and 4 of four rows, and so on; then of all eight.
    const __m512i abcd04 = even_quarters(ab0, cd0);
    const __m512i abcd26 = odd_quarters(ab0, cd0);
    const __m512i abcd15 = even_quarters(ab1, cd1);
    const __m512i abcd37 = odd_quarters(ab1, cd1);
    const __m512i efgh04 = even_quarters(ef0, gh0);
    const __m512i efgh26 = odd_quarters(ef0, gh0);
    const __m512i efgh15 = even_quarters(ef1, gh1);
    const __m512i efgh37 = odd_quarters(ef1, gh1);
    a = even_quarters(abcd04, efgh04);
    b = even_quarters(abcd15, efgh15);
    c = even_quarters(abcd26, efgh26);
    d = even_quarters(abcd37, efgh37);
    e = odd_quarters(abcd04, efgh04);
    f = odd_quarters(abcd15, efgh15);
    g = odd_quarters(abcd26, efgh26);
    h = odd_quarters(abcd37, efgh37);
}

template <int K>
struct register_array {
    lanes<K> x0, x1, x2, x3, x4, x5, x6, x7;
};

template <int K>
TENSAFE_AVX512 TENSAFE_INLINE void transpose(register_array<K>& x) noexcept {
    transpose(x.x0.value, x.x1.value, x.x2.value, x.x3.value, x.x4.value, x.x5.value, x.x6.value, x.x7.value);
}

template <class Lanes>
inline constexpr int bound_of = 0;
template <int K>
inline constexpr int bound_of<lanes<K>> = K;
template <int K>
inline constexpr int bound_of<const lanes<K>> = K;

/// The seven factors of three stages.
template <class Factor>
struct factor_array {
    Factor w1, w2, w3, w4, w5, w6, w7;

    TENSAFE_AVX512 TENSAFE_INLINE static factor_array spread(const arith::word* f) noexcept {
        constexpr std::size_t n = Factor::words;
        return {Factor::spread(f),         Factor::spread(f + n),     Factor::spread(f + 2 * n),
                Factor::spread(f + 3 * n), Factor::spread(f + 4 * n), Factor::spread(f + 5 * n),
                Factor::spread(f + 6 * n)};
    }
    TENSAFE_AVX512 TENSAFE_INLINE static factor_array load(const arith::word* f) noexcept {
        constexpr std::size_t n = 8 * Factor::words;
        return {Factor::load(f),         Factor::load(f + n),     Factor::load(f + 2 * n),
                Factor::load(f + 3 * n), Factor::load(f + 4 * n), Factor::load(f + 5 * n),
                Factor::load(f + 6 * n)};
    }
};

/// Three forward stages on eight blocks.
template <class A, int K>
TENSAFE_AVX512 TENSAFE_INLINE auto forward_stages(const A& a, const register_array<K>& x,
                                                  const factor_array<typename A::factor>& w) noexcept {
    const auto p0 = a.forward_butterfly(a.template lazy_operand<3>(x.x0), x.x4, w.w1);
    const auto p1 = a.forward_butterfly(a.template lazy_operand<2>(x.x1), x.x5, w.w1);
    const auto p2 = a.forward_butterfly(a.template lazy_operand<1>(x.x2), x.x6, w.w1);
    const auto p3 = a.forward_butterfly(a.template lazy_operand<1>(x.x3), x.x7, w.w1);
    const auto q0 = a.forward_butterfly(p0.first, p2.first, w.w2);
    const auto q1 = a.forward_butterfly(p1.first, p3.first, w.w2);
    const auto q2 = a.forward_butterfly(p0.second, p2.second, w.w3);
    const auto q3 = a.forward_butterfly(p1.second, p3.second, w.w3);
    const auto r0 = a.forward_butterfly(q0.first, q1.first, w.w4);
    const auto r1 = a.forward_butterfly(q0.second, q1.second, w.w5);
    const auto r2 = a.forward_butterfly(q2.first, q3.first, w.w6);
    const auto r3 = a.forward_butterfly(q2.second, q3.second, w.w7);
    return register_array<bound_of<decltype(r0.first)>>{r0.first, r0.second, r1.first, r1.second,
                                                        r2.first, r2.second, r3.first, r3.second};
}

/// Three inverse stages on eight blocks, back to A::inverse_bound.
template <class A, int K>
TENSAFE_AVX512 TENSAFE_INLINE register_array<A::inverse_bound> inverse_stages(
    const A& a, const register_array<K>& x, const factor_array<typename A::factor>& w) noexcept {
    constexpr int to = A::inverse_bound;
    const auto p0 = a.inverse_butterfly(x.x0, x.x1, w.w4);
    const auto p1 = a.inverse_butterfly(x.x2, x.x3, w.w5);
    const auto p2 = a.inverse_butterfly(x.x4, x.x5, w.w6);
    const auto p3 = a.inverse_butterfly(x.x6, x.x7, w.w7);
    const auto q0 = a.inverse_butterfly(p0.first, p1.first, w.w2);
    const auto q1 = a.inverse_butterfly(p0.second, p1.second, w.w2);
    const auto q2 = a.inverse_butterfly(p2.first, p3.first, w.w3);
    const auto q3 = a.inverse_butterfly(p2.second, p3.second, w.w3);
    const auto r0 = a.inverse_butterfly(q0.first, q2.first, w.w1);
    const auto r1 = a.inverse_butterfly(q1.first, q3.first, w.w1);
    const auto r2 = a.inverse_butterfly(q0.second, q2.second, w.w1);
    const auto r3 = a.inverse_butterfly(q1.second, q3.second, w.w1);
    return {a.template reduce<to>(r0.first),  a.template reduce<to>(r1.first),
            a.template reduce<to>(r2.first),  a.template reduce<to>(r3.first),
            a.template reduce<to>(r0.second), a.template reduce<to>(r1.second),
            a.template reduce<to>(r2.second), a.template reduce<to>(r3.second)};
}

/// The passes of one limb with the arithmetic A.
template <class A>
class passes {
  public:
    using factor = typename A::factor;

    TENSAFE_AVX512 TENSAFE_INLINE passes(const direction_table<factor>& table, const A& a, int log_n) noexcept
        : table_(table), a_(a), plan_(log_n) {}

    /// The stages below block `b` of pass p, whose entries start at x.
    TENSAFE_AVX512 void forward(arith::word* x, std::size_t p, std::size_t b, int log_length) const noexcept {
        const int r = plan_.log_radix[p];
        const std::size_t distance = std::size_t{1} << (log_length - r);
        const arith::word* f = table_.pass(p) + b * ((std::size_t{1} << r) - 1) * words;
        if (r == 3) {
            forward8(x, distance, f);
        } else if (r == 2) {
            forward4(x, distance, f);
        } else {
            forward2(x, distance, f);
        }
        if (distance == leaf_size) {
            forward_leaves(x, table_.leaves() + (b << r) * leaf_words, std::size_t{1} << r);
            return;
        }
        for (std::size_t i = 0; i < std::size_t{1} << r; ++i) {
            forward(x + i * distance, p + 1, (b << r) + i, log_length - r);
        }
    }

    TENSAFE_AVX512 void inverse(arith::word* x, std::size_t p, std::size_t b, int log_length) const noexcept {
        const int r = plan_.log_radix[p];
        const std::size_t distance = std::size_t{1} << (log_length - r);
        if (distance == leaf_size) {
            inverse_leaves(x, table_.leaves() + (b << r) * leaf_words, std::size_t{1} << r);
        } else {
            for (std::size_t i = 0; i < std::size_t{1} << r; ++i) {
                inverse(x + i * distance, p + 1, (b << r) + i, log_length - r);
            }
        }
        const arith::word* f = table_.pass(p) + b * ((std::size_t{1} << r) - 1) * words;
        if (p == 0) {
            inverse8_last(x, distance, f);
        } else if (r == 3) {
            inverse8(x, distance, f);
        } else if (r == 2) {
            inverse4(x, distance, f);
        } else {
            inverse2(x, distance, f);
        }
    }

  private:
    static constexpr std::size_t words = factor::words;
    static constexpr std::size_t leaf_words = direction_table<factor>::leaf_words;
    static constexpr std::size_t leaf_head = direction_table<factor>::leaf_head;
    static constexpr int forward_bound = A::forward_bound;
    static constexpr int inverse_bound = A::inverse_bound;

    TENSAFE_AVX512 void forward8(arith::word* x, std::size_t d, const arith::word* f) const noexcept {
        constexpr int k = forward_bound;
        const A a = a_;
        const auto w = factor_array<factor>::spread(f);
        for (std::size_t j = 0; j < d; j += 8) {
            arith::word* const at = x + j;
            store_array(at, d, forward_stages(a, load_array<k>(at, d), w));
        }
    }

    TENSAFE_AVX512 void forward4(arith::word* x, std::size_t d, const arith::word* f) const noexcept {
        constexpr int k = forward_bound;
        const A a = a_;
        const auto w1 = factor::spread(f);
        const auto w2 = factor::spread(f + words);
        const auto w3 = factor::spread(f + 2 * words);
        for (std::size_t j = 0; j < d; j += 8) {
            arith::word* const at = x + j;
            const auto p0 =
                a.forward_butterfly(a.template lazy_operand<2>(load<k>(at)), load<k>(at + 2 * d), w1);
            const auto p1 =
                a.forward_butterfly(a.template lazy_operand<1>(load<k>(at + d)), load<k>(at + 3 * d), w1);
            const auto q0 = a.forward_butterfly(p0.first, p1.first, w2);
            const auto q1 = a.forward_butterfly(p0.second, p1.second, w3);
            store(at, q0.first.value);
            store(at + d, q0.second.value);
            store(at + 2 * d, q1.first.value);
            store(at + 3 * d, q1.second.value);
        }
    }

    TENSAFE_AVX512 void forward2(arith::word* x, std::size_t d, const arith::word* f) const noexcept {
        constexpr int k = forward_bound;
        const A a = a_;
        const auto w = factor::spread(f);
        for (std::size_t j = 0; j < d; j += 8) {
            const auto p =
                a.forward_butterfly(a.template lazy_operand<1>(load<k>(x + j)), load<k>(x + j + d), w);
            store(x + j, p.first.value);
            store(x + j + d, p.second.value);
        }
    }

    TENSAFE_AVX512 void forward_leaves(arith::word* x, const arith::word* f,
                                       std::size_t count) const noexcept {
        constexpr int k = forward_bound;
        const A a = a_;
        // Two loops: one chain from load to store would be too long for several leaves to overlap.
        for (std::size_t i = 0; i < count; ++i) {
            arith::word* const at = x + i * leaf_size;
            auto middle =
                forward_stages(a, load_array<k>(at, 8), factor_array<factor>::spread(f + i * leaf_words));
            transpose(middle);
            store_array(at, 8, middle);
        }
        for (std::size_t i = 0; i < count; ++i) {
            arith::word* const at = x + i * leaf_size;
            const auto out = forward_stages(a, load_array<k>(at, 8),
                                            factor_array<factor>::load(f + i * leaf_words + leaf_head));
            register_array<1> last{{a.canonical(out.x0)}, {a.canonical(out.x1)}, {a.canonical(out.x2)},
                                   {a.canonical(out.x3)}, {a.canonical(out.x4)}, {a.canonical(out.x5)},
                                   {a.canonical(out.x6)}, {a.canonical(out.x7)}};
            transpose(last);
            store_array(at, 8, last);
        }
    }

    TENSAFE_AVX512 void inverse8(arith::word* x, std::size_t d, const arith::word* f) const noexcept {
        constexpr int k = inverse_bound;
        const A a = a_;
        const auto w = factor_array<factor>::spread(f);
        for (std::size_t j = 0; j < d; j += 8) {
            arith::word* const at = x + j;
            store_array(at, d, inverse_stages(a, load_array<k>(at, d), w));
        }
    }

    /// With 1/N: the first product of every chain carries it, and the one sum without products gets its own.
    TENSAFE_AVX512 void inverse8_last(arith::word* x, std::size_t d, const arith::word* f) const noexcept {
        constexpr int k = inverse_bound;
        const A a = a_;
        const auto w = factor_array<factor>::spread(f);
        const auto plain1 = factor::spread(f + 7 * words);
        const auto plain2 = factor::spread(f + 8 * words);
        const auto plain3 = factor::spread(f + 9 * words);
        const auto scale = factor::spread(f + 10 * words);
        for (std::size_t j = 0; j < d; j += 8) {
            arith::word* const at = x + j;
            const auto p0 = a.inverse_butterfly(load<k>(at), load<k>(at + d), w.w4);
            const auto p1 = a.inverse_butterfly(load<k>(at + 2 * d), load<k>(at + 3 * d), w.w5);
            const auto p2 = a.inverse_butterfly(load<k>(at + 4 * d), load<k>(at + 5 * d), w.w6);
            const auto p3 = a.inverse_butterfly(load<k>(at + 6 * d), load<k>(at + 7 * d), w.w7);
            const auto q0 = a.inverse_butterfly(p0.first, p1.first, w.w2);
            const auto q1 = a.inverse_butterfly(p0.second, p1.second, plain2);
            const auto q2 = a.inverse_butterfly(p2.first, p3.first, w.w3);
            const auto q3 = a.inverse_butterfly(p2.second, p3.second, plain3);
            const auto r0 = a.inverse_butterfly(q0.first, q2.first, w.w1);
            const auto r1 = a.inverse_butterfly(q1.first, q3.first, plain1);
            const auto r2 = a.inverse_butterfly(q0.second, q2.second, plain1);
            const auto r3 = a.inverse_butterfly(q1.second, q3.second, plain1);
            store(at, a.canonical(a.multiply(r0.first, scale)));
            store(at + d, a.canonical(r1.first));
            store(at + 2 * d, a.canonical(r2.first));
            store(at + 3 * d, a.canonical(r3.first));
            store(at + 4 * d, a.canonical(r0.second));
            store(at + 5 * d, a.canonical(r1.second));
            store(at + 6 * d, a.canonical(r2.second));
            store(at + 7 * d, a.canonical(r3.second));
        }
    }

    TENSAFE_AVX512 void inverse4(arith::word* x, std::size_t d, const arith::word* f) const noexcept {
        constexpr int k = inverse_bound;
        const A a = a_;
        const auto w1 = factor::spread(f);
        const auto w2 = factor::spread(f + words);
        const auto w3 = factor::spread(f + 2 * words);
        for (std::size_t j = 0; j < d; j += 8) {
            arith::word* const at = x + j;
            const auto p0 = a.inverse_butterfly(load<k>(at), load<k>(at + d), w2);
            const auto p1 = a.inverse_butterfly(load<k>(at + 2 * d), load<k>(at + 3 * d), w3);
            const auto q0 = a.inverse_butterfly(p0.first, p1.first, w1);
            const auto q1 = a.inverse_butterfly(p0.second, p1.second, w1);
            store(at, a.template reduce<k>(q0.first).value);
            store(at + d, a.template reduce<k>(q1.first).value);
            store(at + 2 * d, a.template reduce<k>(q0.second).value);
            store(at + 3 * d, a.template reduce<k>(q1.second).value);
        }
    }

    TENSAFE_AVX512 void inverse2(arith::word* x, std::size_t d, const arith::word* f) const noexcept {
        constexpr int k = inverse_bound;
        const A a = a_;
        const auto w = factor::spread(f);
        for (std::size_t j = 0; j < d; j += 8) {
            const auto p = a.inverse_butterfly(load<k>(x + j), load<k>(x + j + d), w);
            store(x + j, a.template reduce<k>(p.first).value);
            store(x + j + d, a.template reduce<k>(p.second).value);
        }
    }

    TENSAFE_AVX512 void inverse_leaves(arith::word* x, const arith::word* f,
                                       std::size_t count) const noexcept {
        const A a = a_;
        for (std::size_t i = 0; i < count; ++i) {
            arith::word* const at = x + i * leaf_size;
            register_array<1> in = load_array<1>(at, 8);
            transpose(in);
            auto middle = inverse_stages(a, in, factor_array<factor>::load(f + i * leaf_words + leaf_head));
            transpose(middle);
            store_array(at, 8, middle);
        }
        for (std::size_t i = 0; i < count; ++i) {
            arith::word* const at = x + i * leaf_size;
            store_array(at, 8,
                        inverse_stages(a, load_array<inverse_bound>(at, 8),
                                       factor_array<factor>::spread(f + i * leaf_words)));
        }
    }

    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE static register_array<K> load_array(const arith::word* at,
                                                                      std::size_t d) noexcept {
        return {load<K>(at),         load<K>(at + d),     load<K>(at + 2 * d), load<K>(at + 3 * d),
                load<K>(at + 4 * d), load<K>(at + 5 * d), load<K>(at + 6 * d), load<K>(at + 7 * d)};
    }
    template <int K>
    TENSAFE_AVX512 TENSAFE_INLINE static void store_array(arith::word* at, std::size_t d,
                                                          const register_array<K>& x) noexcept {
        store(at, x.x0.value);
        store(at + d, x.x1.value);
        store(at + 2 * d, x.x2.value);
        store(at + 3 * d, x.x3.value);
        store(at + 4 * d, x.x4.value);
        store(at + 5 * d, x.x5.value);
        store(at + 6 * d, x.x6.value);
        store(at + 7 * d, x.x7.value);
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

/// Forward negacyclic NTT, in place, of N words: as ntt::forward.
/// @pre  the processor runs exec::backend::avx512; values in [0, q), q of at most Bits bits
template <int Bits>
TENSAFE_AVX512 void forward(const tables_for<Bits>& t, arith::word* limb) noexcept {
    using lanes = detail::lanes_for<Bits>;
    detail::passes<lanes>(t.forward(), lanes(t.q()), t.log_n()).forward(limb, 0, 0, t.log_n());
}

/// Inverse negacyclic NTT, in place: as ntt::inverse.
/// @pre  as forward
template <int Bits>
TENSAFE_AVX512 void inverse(const tables_for<Bits>& t, arith::word* limb) noexcept {
    using lanes = detail::lanes_for<Bits>;
    detail::passes<lanes>(t.inverse(), lanes(t.q()), t.log_n()).inverse(limb, 0, 0, t.log_n());
}

}  // namespace tensafe::ntt::avx512

#endif
