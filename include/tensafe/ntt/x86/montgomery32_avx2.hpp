#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/x86/tables_avx2.hpp>

#if TENSAFE_X86_64

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <limits>

namespace tensafe::ntt::avx2 {

/// Arithmetic for primes below 2^61: signed 64-bit residues, and Montgomery's products with a radix of 2^32.
///
/// Write x = x1 * 2^32 + x0 with x0 in [-2^31, 2^31). The product of y by w is
///
///     t = (y0 * a + y1 * b - m * q) / 2^32,   a = 2^32 w, b = 2^64 w modulo q,
///
/// m in [-2^31, 2^31) chosen such that the division is exact: eight signed 32-bit products, no quotients in
/// the tables. a and b are below q in size, thus |t| <= (1 + |y1| / 2^32) q.
///
/// The low column, d = y0*a0 + y1*b0 - m*q0, has to be below 2^63 in size, which three products of 2^62 are
/// not. So a is the one of its two representatives in (-q, q) with the smaller |a0|; b likewise. The two low
/// digits differ by q0 modulo 2^32, hence their distances from 2^31 add up to |q0| at least, and as q0 is odd
/// one is at least (|q0| + 1) / 2: |a0| and |b0| are at most 2^31 - (|q0| + 1) / 2, and |d| <= 2^31 (2^32 -
/// 1).
struct montgomery32 {
    static constexpr int max_bits = 61;

    /// The digits of x: x0 in the lower half of the word, x1 in the upper.
    static constexpr arith::word digits(std::int64_t x) noexcept {
        const auto low = static_cast<std::int32_t>(static_cast<std::uint32_t>(x));
        const auto high = static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(std::int64_t{low});
        return high | static_cast<std::uint32_t>(low);
    }

    static constexpr factor_words prepare(arith::word w, arith::word q) noexcept {
        const arith::word a = arith::multiply_mod(w, arith::word{1} << 32, q);
        const arith::word b = arith::multiply_mod(a, arith::word{1} << 32, q);
        return {balanced(a, q), balanced(b, q)};
    }

    /// Bounds of entries, as multiples of q. A halving takes entries of [-2c, 2c) to [-c, c); it starts from
    /// the capacity C, the power of two with C * q <= 2^63, and from C = 4 at worst.
    class bounds {
      public:
        static constexpr int highest_forward_level = 2;

        explicit bounds(arith::word q) noexcept
            : capacity_(static_cast<double>(arith::word{1} << (63 - std::bit_width(q)))),
              slope_(0x1p-64 * static_cast<double>(q)) {}

        /// The bound of factors, below C: y + 2^31 must not overflow where the digits of y are taken.
        double limit() const noexcept { return capacity_ * (1 - 0x1p-20); }
        double product(double y) const noexcept { return 1 + 0x1p-30 + slope_ * y; }
        /// Whether C = 4.
        bool tight() const noexcept { return capacity_ < 8; }

        double forward_stage(double bound) const noexcept { return bound + product(bound); }
        /// The bound after two stages. Level 1 halves entries that are not multiplied in the first, level 2
        /// in both.
        double forward(double bound, int level) const noexcept {
            const double between = (level == 0 ? bound : capacity_ / 2) + product(bound);
            const double result = (level < 2 ? between : capacity_ / 2) + product(between);
            return std::max({bound, between, result});
        }

        int lowest_inverse_level() const noexcept { return tight() ? 3 : 0; }
        int highest_inverse_level() const noexcept { return tight() ? 3 : 2; }
        /// The bound after two stages. Level 1 halves the sums of four entries three times, level 2 the sums
        /// of two products once too. Level 3, for C = 4, halves sums of two entries twice, and the others
        /// once.
        double inverse(double bound, int level) const noexcept {
            if ((level < 3 ? 4 : 2) * bound > limit()) {
                return std::numeric_limits<double>::infinity();
            }
            const double products = 2 * product(2 * bound);
            const double smallest = level < 3 ? capacity_ / 8 : 1;
            const double four = level == 0 ? 4 * bound : smallest;
            const double two = level < 2 ? products : std::max(smallest, products - smallest);
            return std::max({four, two, product(level < 3 ? 4 * bound : 2), product(products)});
        }

      private:
        double capacity_;
        double slope_;
    };

  private:
    static constexpr arith::word balanced(arith::word x, arith::word q) noexcept {
        const auto size = [](arith::word y) {
            const std::int64_t low = static_cast<std::int32_t>(static_cast<std::uint32_t>(y));
            return low < 0 ? -low : low;
        };
        return digits(static_cast<std::int64_t>(size(x) <= size(x - q) ? x : x - q));
    }
};

/// Four residues at a time.
template <bool Tight>
class montgomery32_lanes {
  public:
    using tables_type = tables<montgomery32>;
    using vector = __m256i;
    using number = long long;
    static constexpr int highest_forward_level = montgomery32::bounds::highest_forward_level;
    static constexpr int highest_inverse_level = Tight ? 3 : 2;

    /// The digits of the factor's two words, in the lower halves of the lanes.
    struct factor {
        __m256i a0;
        __m256i a1;
        __m256i b0;
        __m256i b1;
    };

    TENSAFE_AVX2 TENSAFE_INLINE explicit montgomery32_lanes(const tables_type& t) noexcept {
        const arith::word q = t.q();
        const arith::word q_digits = montgomery32::digits(static_cast<std::int64_t>(q));
        arith::word inverse = q;
        for (int correct_bits = 3; correct_bits < 32; correct_bits *= 2) {
            inverse *= 2 - q * inverse;
        }
        q0_ = spread(q_digits);
        q1_ = spread(q_digits >> 32);
        q_inverse_ = spread(inverse);
        q_ = spread(q);
        two_q_ = spread(2 * q);
        // 4q and above are read only where C >= 8.
        half_ = spread(q << (62 - std::bit_width(q)));
        largest_step_ = 0;
        while (static_cast<double>(arith::word{2} << largest_step_) < t.forward_bound()) {
            ++largest_step_;
        }
    }

    TENSAFE_AVX2 TENSAFE_INLINE static factor broadcast(const arith::word* from) noexcept {
        return {spread_half(from, 0), spread_half(from, 1), spread_half(from, 2), spread_half(from, 3)};
    }
    TENSAFE_AVX2 TENSAFE_INLINE static factor load_factor(const arith::word* from) noexcept {
        const vector a = load(from);
        const vector b = load(from + 4);
        return {a, _mm256_srli_epi64(a, 32), b, _mm256_srli_epi64(b, 32)};
    }

    /// Loads four words, entries and residues alike.
    template <bool residues = false>
    TENSAFE_AVX2 TENSAFE_INLINE static vector load(const arith::word* from) noexcept {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    }
    TENSAFE_AVX2 TENSAFE_INLINE static void store(arith::word* to, vector x) noexcept {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
    }

    TENSAFE_AVX2 TENSAFE_INLINE static vector add(vector x, vector y) noexcept {
        return _mm256_add_epi64(x, y);
    }
    TENSAFE_AVX2 TENSAFE_INLINE static vector subtract(vector x, vector y) noexcept {
        return _mm256_sub_epi64(x, y);
    }
    /// Multiplies x by v and y by w in step: a processor that looks ahead by some sixty instructions finds
    /// more of them ready than in one product after the other.
    TENSAFE_AVX2 TENSAFE_INLINE void multiply(vector& x, const factor& v, vector& y,
                                              const factor& w) const noexcept {
        const vector round = _mm256_set1_epi64x(std::int64_t{1} << 31);
        const vector one = _mm256_set1_epi64x(1);
        const vector x1 = _mm256_srli_epi64(add(x, round), 32);
        const vector y1 = _mm256_srli_epi64(add(y, round), 32);
        const vector x_low = add(_mm256_mul_epi32(x, v.a0), _mm256_mul_epi32(x1, v.b0));
        const vector y_low = add(_mm256_mul_epi32(y, w.a0), _mm256_mul_epi32(y1, w.b0));
        vector x_m = _mm256_mul_epi32(x_low, q_inverse_);
        vector y_m = _mm256_mul_epi32(y_low, q_inverse_);
        // Or clang 15 and later, who see that half of the product is used, multiply words of 64 bits.
        __asm__("" : "+x"(x_m), "+x"(y_m));
        const vector x_high = add(_mm256_mul_epi32(x, v.a1), _mm256_mul_epi32(x1, v.b1));
        const vector y_high = add(_mm256_mul_epi32(y, w.a1), _mm256_mul_epi32(y1, w.b1));
        x = subtract(x_high, _mm256_mul_epi32(x_m, q1_));
        y = subtract(y_high, _mm256_mul_epi32(y_m, q1_));
        const vector x_rest = subtract(x_low, _mm256_mul_epi32(x_m, q0_));
        const vector y_rest = subtract(y_low, _mm256_mul_epi32(y_m, q0_));
        // The lower half of the rest is zero. The product by one extends the sign of its upper half.
        x = add(x, _mm256_mul_epi32(_mm256_srli_epi64(x_rest, 32), one));
        y = add(y, _mm256_mul_epi32(_mm256_srli_epi64(y_rest, 32), one));
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector multiply(vector y, const factor& w) const noexcept {
        vector unused = y;
        multiply(y, w, unused, w);
        return y;
    }

    /// Halves entries below C*q in size to at most C/2 * q.
    TENSAFE_AVX2 TENSAFE_INLINE vector reduce(vector x) const noexcept {
        return halve(x, Tight ? two_q_ : half_);
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector reduce_sum_of_entries(vector x) const noexcept {
        return halve(halve(x, two_q_), q_);
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector reduce_sum_of_four(vector x) const noexcept {
        if constexpr (Tight) {
            return halve(x, q_);
        } else {
            const vector quarter = _mm256_srli_epi64(half_, 1);
            const vector eighth = _mm256_srli_epi64(half_, 2);
            return halve(halve(halve(x, half_), quarter), eighth);
        }
    }
    /// Reduces a sum of two products: level 2 halves by C/8 * q as level 1 does.
    TENSAFE_AVX2 TENSAFE_INLINE vector reduce_sum_of_products(vector x) const noexcept {
        return halve(x, Tight ? q_ : _mm256_srli_epi64(half_, 2));
    }

    /// Ends a transform: makes residues of entries, products and sums of two products.
    TENSAFE_AVX2 TENSAFE_INLINE void finish_entries(vector& x0, vector& x1, vector& x2,
                                                    vector& x3) const noexcept {
        vector c = _mm256_slli_epi64(q_, largest_step_);
        for (int step = largest_step_; step >= 0; --step) {
            x0 = halve(x0, c);
            x1 = halve(x1, c);
            x2 = halve(x2, c);
            x3 = halve(x3, c);
            c = _mm256_srli_epi64(c, 1);
        }
        x0 = add_q_if_negative(x0);
        x1 = add_q_if_negative(x1);
        x2 = add_q_if_negative(x2);
        x3 = add_q_if_negative(x3);
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector finish_product(vector x) const noexcept {
        return add_q_if_negative(halve(x, q_));
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector finish_sum_of_products(vector x) const noexcept {
        return finish_product(halve(x, two_q_));
    }

  private:
    TENSAFE_AVX2 TENSAFE_INLINE static vector spread(arith::word x) noexcept {
        return _mm256_set1_epi64x(static_cast<long long>(x));
    }
    TENSAFE_AVX2 TENSAFE_INLINE static vector spread_half(const arith::word* from, std::size_t i) noexcept {
        std::int32_t half = 0;
        std::memcpy(&half, reinterpret_cast<const unsigned char*>(from) + 4 * i, 4);
        return _mm256_set1_epi32(half);
    }
    /// `negative` where x is negative, else `other`.
    TENSAFE_AVX2 TENSAFE_INLINE static vector by_sign(vector x, vector negative, vector other) noexcept {
        return _mm256_castpd_si256(_mm256_blendv_pd(_mm256_castsi256_pd(other), _mm256_castsi256_pd(negative),
                                                    _mm256_castsi256_pd(x)));
    }
    /// Brings x from [-2c, 2c) to [-c, c).
    TENSAFE_AVX2 TENSAFE_INLINE static vector halve(vector x, vector c) noexcept {
        return add(x, by_sign(x, c, subtract(_mm256_setzero_si256(), c)));
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector add_q_if_negative(vector x) const noexcept {
        return add(x, by_sign(x, q_, _mm256_setzero_si256()));
    }

    vector q0_;
    vector q1_;
    vector q_inverse_;
    vector q_;
    vector two_q_;
    vector half_;  ///< C/2 * q
    int largest_step_;
};

}  // namespace tensafe::ntt::avx2

#endif
