#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/x86/tables_avx2.hpp>

#if TENSAFE_X86_64

#include <algorithm>
#include <bit>
#include <immintrin.h>
#include <limits>

namespace tensafe::ntt::avx2 {

/// Arithmetic for primes below 2^50: residues are doubles that hold integers of either sign, always exactly.
///
/// The product of y by w, |w| <= q/2, is y*w - h*q with h the integer next to y*(w/q). As w/q is off by at
/// most 2^-55 and fma rounds once, h is at most 1/2 + |y| 2^-55 from y*w/q, so that the product is at most q
/// times that. h is found as long as |y| w/q <= 2^51, so |y| may reach 2^52. y*w = l + e exactly, l the
/// rounded product, |e| <= 2^47; l - h*q is the product less e, an integer below 2^51, which one fma gives
/// exactly.
struct fp64 {
    static constexpr int max_bits = 50;

    /// Makes the factor for w: its representative next to zero, and w/q.
    static factor_words prepare(arith::word w, arith::word q) noexcept {
        const double value = w > q / 2 ? -static_cast<double>(q - w) : static_cast<double>(w);
        return {std::bit_cast<arith::word>(value),
                std::bit_cast<arith::word>(value / static_cast<double>(q))};
    }

    /// Bounds of entries, as multiples of q.
    class bounds {
      public:
        static constexpr int highest_forward_level = 1;

        explicit bounds(arith::word q) noexcept
            : limit_(0x1p52 / static_cast<double>(q)), slope_(0x1p-55 * static_cast<double>(q)) {}

        double limit() const noexcept { return limit_; }
        double product(double y) const noexcept { return 0.5 + slope_ * y; }

        double forward_stage(double bound) const noexcept { return bound + product(bound); }
        /// The bound after two stages. Level 1 reduces the entries that are not multiplied in the first.
        double forward(double bound, int level) const noexcept {
            const double between = (level == 0 ? bound : reduced) + product(bound);
            return std::max({bound, between, forward_stage(between)});
        }

        static constexpr int lowest_inverse_level() noexcept { return 0; }
        static constexpr int highest_inverse_level() noexcept { return 2; }
        /// The bound after two stages. Level 1 reduces sums of four entries, level 2 sums of two products
        /// too.
        double inverse(double bound, int level) const noexcept {
            if (4 * bound > limit_) {
                return std::numeric_limits<double>::infinity();
            }
            const double four = level == 0 ? 4 * bound : reduced;
            const double two = level < 2 ? 2 * product(2 * bound) : reduced;
            return std::max({four, two, product(4 * bound)});
        }

      private:
        /// The bound of a reduced entry: q/2, and 1 that the rounding of 1/q could add; q is above 2N.
        static constexpr double reduced = 0.52;

        double limit_;
        double slope_;
    };
};

/// Four residues at a time, modulo primes of at most `Bits` bits.
template <int Bits>
class fp64_lanes {
  public:
    using tables_type = tables<fp64>;
    using vector = __m256d;
    using number = double;
    /// The highest level that the tables of such primes ask for: docs/design/ntt.md.
    static constexpr int highest_forward_level = Bits <= 48 ? 0 : 1;
    static constexpr int highest_inverse_level = Bits <= 49 ? 1 : 2;

    struct factor {
        __m256d value;
        __m256d over_q;
    };

    TENSAFE_AVX2 TENSAFE_INLINE explicit fp64_lanes(const tables_type& t) noexcept
        : q_(_mm256_set1_pd(static_cast<double>(t.q()))),
          q_inverse_(_mm256_set1_pd(1 / static_cast<double>(t.q()))),
          rounding_(_mm256_set1_pd(0x1.8p52)) {}

    TENSAFE_AVX2 TENSAFE_INLINE static factor broadcast(const arith::word* from) noexcept {
        return {spread(from[0]), spread(from[1])};
    }
    TENSAFE_AVX2 TENSAFE_INLINE static factor load_factor(const arith::word* from) noexcept {
        return {load(from), load(from + 4)};
    }

    /// Loads entries; or residues, words below 2^52 that are put into the mantissa of 2^52.
    template <bool residues = false>
    TENSAFE_AVX2 TENSAFE_INLINE static vector load(const arith::word* from) noexcept {
        const vector x = _mm256_castsi256_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
        const vector two_to_52 = _mm256_set1_pd(0x1p52);
        return residues ? _mm256_sub_pd(_mm256_or_pd(x, two_to_52), two_to_52) : x;
    }
    TENSAFE_AVX2 TENSAFE_INLINE static void store(arith::word* to, vector x) noexcept {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_castpd_si256(x));
    }

    TENSAFE_AVX2 TENSAFE_INLINE static vector add(vector x, vector y) noexcept { return _mm256_add_pd(x, y); }
    TENSAFE_AVX2 TENSAFE_INLINE static vector subtract(vector x, vector y) noexcept {
        return _mm256_sub_pd(x, y);
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector multiply(vector y, const factor& w) const noexcept {
        const vector quotient = round_product(y, w.over_q);
        const vector high = _mm256_mul_pd(y, w.value);
        const vector low = _mm256_fmsub_pd(y, w.value, high);
        return _mm256_add_pd(_mm256_fnmadd_pd(quotient, q_, high), low);
    }
    TENSAFE_AVX2 TENSAFE_INLINE void multiply(vector& x, const factor& v, vector& y,
                                              const factor& w) const noexcept {
        x = multiply(x, v);
        y = multiply(y, w);
    }

    TENSAFE_AVX2 TENSAFE_INLINE vector reduce(vector x) const noexcept {
        return _mm256_fnmadd_pd(round_product(x, q_inverse_), q_, x);
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector reduce_sum_of_four(vector x) const noexcept { return reduce(x); }
    TENSAFE_AVX2 TENSAFE_INLINE vector reduce_sum_of_products(vector x) const noexcept { return reduce(x); }

    /// Ends a transform: makes residues, as words, of entries, products and sums of two products.
    TENSAFE_AVX2 TENSAFE_INLINE void finish_entries(vector& x0, vector& x1, vector& x2,
                                                    vector& x3) const noexcept {
        x0 = finish_product(reduce(x0));
        x1 = finish_product(reduce(x1));
        x2 = finish_product(reduce(x2));
        x3 = finish_product(reduce(x3));
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector finish_product(vector x) const noexcept {
        // A zero is never negative here: exact sums and differences that vanish are +0.
        const vector two_to_52 = _mm256_set1_pd(0x1p52);
        const vector residue = _mm256_blendv_pd(x, _mm256_add_pd(x, q_), x);
        return _mm256_xor_pd(_mm256_add_pd(residue, two_to_52), two_to_52);
    }
    TENSAFE_AVX2 TENSAFE_INLINE vector finish_sum_of_products(vector x) const noexcept {
        return finish_product(reduce(x));
    }

  private:
    TENSAFE_AVX2 TENSAFE_INLINE static vector spread(arith::word x) noexcept {
        return _mm256_castsi256_pd(_mm256_set1_epi64x(static_cast<long long>(x)));
    }
    /// The integer next to x*y, |x*y| <= 2^51.
    TENSAFE_AVX2 TENSAFE_INLINE vector round_product(vector x, vector y) const noexcept {
        return _mm256_sub_pd(_mm256_fmadd_pd(x, y, rounding_), rounding_);
    }

    vector q_;
    vector q_inverse_;
    vector rounding_;
};

}  // namespace tensafe::ntt::avx2

#endif
