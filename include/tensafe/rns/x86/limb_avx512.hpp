#pragma once

#include <tensafe/arith/x86/narrow_avx512.hpp>
#include <tensafe/arith/x86/wide_avx512.hpp>
#include <tensafe/rns/limb_portable.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::rns::limb {

/// The loops of limb.hpp with 512-bit vectors. What is left behind the last whole vector, the portable loops
/// do.
struct avx512_loops : portable_loops {
    using vector = arith::avx512::vector;
    template <arith::modulus M>
    using arithmetic =
        typename std::conditional_t<(M::bits <= 50), std::type_identity<arith::avx512::narrow<M>>,
                                    std::type_identity<arith::avx512::wide<M>>>::type;
    static constexpr std::size_t lanes = 8;
    /// From this width on the quotient of any word by q fits a double's mantissa.
    static constexpr int min_bits_of_doubles = 16;

    template <arith::modulus M>
    TENSAFE_AVX512 static void add(M m, std::span<word> out, std::span<const word> a,
                                   std::span<const word> b) noexcept {
        namespace simd = arith::avx512;
        const vector q = simd::broadcast(m.value());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], simd::add(simd::load(&a[k]), simd::load(&b[k]), q));
        }
        portable_loops::add(m, out.subspan(k), a.subspan(k), b.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void subtract(M m, std::span<word> out, std::span<const word> a,
                                        std::span<const word> b) noexcept {
        namespace simd = arith::avx512;
        const vector q = simd::broadcast(m.value());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], simd::subtract(simd::load(&a[k]), simd::load(&b[k]), q));
        }
        portable_loops::subtract(m, out.subspan(k), a.subspan(k), b.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void add_constant(M m, std::span<word> out, std::span<const word> a,
                                            word c) noexcept {
        namespace simd = arith::avx512;
        const vector q = simd::broadcast(m.value());
        const vector addend = simd::broadcast(c);
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], simd::add(simd::load(&a[k]), addend, q));
        }
        portable_loops::add_constant(m, out.subspan(k), a.subspan(k), c);
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void multiply(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                                        std::span<const word> b) noexcept {
        namespace simd = arith::avx512;
        const arithmetic<M> mod(p.modulus());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], mod.multiply(simd::load(&a[k]), simd::load(&b[k])));
        }
        portable_loops::multiply(p, out.subspan(k), a.subspan(k), b.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void multiply_add(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                                            std::span<const word> b, std::span<const word> c) noexcept {
        namespace simd = arith::avx512;
        const arithmetic<M> mod(p.modulus());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            const vector product = mod.multiply(simd::load(&a[k]), simd::load(&b[k]));
            simd::store(&out[k], simd::add(product, simd::load(&c[k]), mod.q()));
        }
        portable_loops::multiply_add(p, out.subspan(k), a.subspan(k), b.subspan(k), c.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void subtract_product(arith::barrett<M> p, std::span<word> out,
                                                std::span<const word> a, std::span<const word> b,
                                                std::span<const word> c) noexcept {
        namespace simd = arith::avx512;
        const arithmetic<M> mod(p.modulus());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            const vector product = mod.multiply(simd::load(&a[k]), simd::load(&b[k]));
            simd::store(&out[k], simd::subtract(simd::load(&c[k]), product, mod.q()));
        }
        portable_loops::subtract_product(p, out.subspan(k), a.subspan(k), b.subspan(k), c.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a,
                                          std::span<const word> b, std::span<const word> c) noexcept {
        if (a.size() == sums.size()) {
            multiply_add(p, sums, a, b, c);
        } else {
            sum_blocks<false, true>(p, sums, a, b, c);
        }
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void add_block_sums(arith::barrett<M> p, std::span<word> sums,
                                              std::span<const word> a, std::span<const word> b) noexcept {
        if (a.size() == sums.size()) {
            multiply_add(p, sums, a, b, sums);
        } else {
            sum_blocks<true, false>(p, sums, a, b, {});
        }
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void sum_products(arith::barrett<M> p, std::span<word> out,
                                            std::span<const word* const> a,
                                            std::span<const word* const> b) noexcept {
        const std::size_t column = sum_columns<false>(p.modulus(), out, a, rows{b.data()});
        portable_loops::sum_products(p, out, a, b, column);
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void add_scaled(arith::barrett<M> p, std::span<word> out,
                                          std::span<const word* const> a,
                                          std::span<const word> factors) noexcept {
        const std::size_t column = sum_columns<true>(p.modulus(), out, a, constants{factors.data()});
        portable_loops::add_scaled(p, out, a, factors, column);
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void add_small(M m, std::span<word> out,
                                         std::span<const std::int8_t> small) noexcept {
        namespace simd = arith::avx512;
        const vector q = simd::broadcast(m.value());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            const vector x = simd::widen(&small[k]);
            simd::store(&out[k], simd::add(simd::load(&out[k]), simd::add_if_negative(x, q), q));
        }
        portable_loops::add_small(m, out.subspan(k), small.subspan(k));
    }

    /// As portable, but with the integer part split at 2^60, so that the upper part is a double's 52 bits.
    template <arith::modulus M>
    TENSAFE_AVX512 static void round_reals(arith::shoup<M> p, std::span<word> out,
                                           std::span<const double> reals) noexcept {
        std::size_t k = 0;
        if constexpr (M::bits >= min_bits_of_doubles) {
            namespace simd = arith::avx512;
            const word modulus = p.modulus().value();
            const vector q = simd::broadcast(modulus);
            const vector twice_q = simd::broadcast(2 * modulus);
            const vector power = simd::broadcast((word{1} << 60) % modulus);
            const __m512d inverse = _mm512_set1_pd(1 / static_cast<double>(modulus));
            // Long doubles hold both words, so that the ratio is rounded once.
            const __m512d power_ratio = _mm512_set1_pd(static_cast<double>(
                static_cast<long double>((word{1} << 60) % modulus) / static_cast<long double>(modulus)));
            const __m512d almost_half = _mm512_set1_pd(0x1.fffffffffffffp-2);
            for (; k + lanes <= out.size(); k += lanes) {
                const __m512d x = _mm512_loadu_pd(&reals[k]);
                const __m512d magnitude = _mm512_abs_pd(x);
                const vector high = _mm512_cvttpd_epi64(_mm512_mul_pd(magnitude, _mm512_set1_pd(0x1p-60)));
                const __m512d high_real = _mm512_cvtepi64_pd(high);
                const __m512d rest = _mm512_fnmadd_pd(high_real, _mm512_set1_pd(0x1p60), magnitude);
                const vector low = _mm512_cvttpd_epi64(_mm512_add_pd(rest, almost_half));
                const vector estimate =
                    _mm512_cvtpd_epi64(_mm512_fmadd_pd(high_real, power_ratio, _mm512_mul_pd(rest, inverse)));
                // In [-2q, 2q).
                const vector r = _mm512_sub_epi64(_mm512_add_epi64(_mm512_mullo_epi64(high, power), low),
                                                  _mm512_mullo_epi64(estimate, q));
                const __mmask8 negative = _mm512_movepi64_mask(_mm512_castpd_si512(x));
                const vector signed_r = _mm512_mask_sub_epi64(r, negative, _mm512_setzero_si512(), r);
                simd::store(&out[k],
                            simd::subtract_if_not_below(simd::add_if_negative(signed_r, twice_q), q));
            }
        }
        portable_loops::round_reals(p, out.subspan(k), reals.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void reduce_shifted(arith::shoup<M> p, std::span<word> out,
                                              std::span<const word> words, word shift) noexcept {
        std::size_t k = 0;
        if constexpr (M::bits >= min_bits_of_doubles) {
            namespace simd = arith::avx512;
            const word modulus = p.modulus().value();
            const vector q = simd::broadcast(modulus);
            const vector twice_q = simd::broadcast(2 * modulus);
            const vector subtrahend = simd::broadcast(shift);
            const __m512d inverse = _mm512_set1_pd(1 / static_cast<double>(modulus));
            for (; k + lanes <= out.size(); k += lanes) {
                const vector x = simd::load(&words[k]);
                const vector estimate = _mm512_cvtpd_epi64(_mm512_mul_pd(_mm512_cvtepu64_pd(x), inverse));
                // The remainder is in (-q, q), and less the shift in (-2q, q).
                const vector r =
                    _mm512_sub_epi64(_mm512_sub_epi64(x, subtrahend), _mm512_mullo_epi64(estimate, q));
                simd::store(&out[k], simd::subtract_if_not_below(simd::add_if_negative(r, twice_q), q));
            }
        }
        portable_loops::reduce_shifted(p, out.subspan(k), words.subspan(k), shift);
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void scale(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                                     typename arith::shoup<M>::factor w) noexcept {
        namespace simd = arith::avx512;
        const fixed_product<M> product(p.modulus(), w);
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], product(simd::load(&a[k])));
        }
        portable_loops::scale(p, out.subspan(k), a.subspan(k), w);
    }

    template <arith::modulus M>
    TENSAFE_AVX512 static void scale_difference(arith::shoup<M> p, std::span<word> out,
                                                std::span<const word> a, std::span<const word> b,
                                                typename arith::shoup<M>::factor w) noexcept {
        namespace simd = arith::avx512;
        const fixed_product<M> product(p.modulus(), w);
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], product.of_difference(simd::load(&a[k]), simd::load(&b[k])));
        }
        portable_loops::scale_difference(p, out.subspan(k), a.subspan(k), b.subspan(k), w);
    }

    TENSAFE_AVX512 static bool all_below(word q, std::span<const word> words) noexcept {
        namespace simd = arith::avx512;
        vector largest = _mm512_setzero_si512();
        vector other = largest;
        std::size_t k = 0;
        for (; k + 2 * lanes <= words.size(); k += 2 * lanes) {
            largest = simd::maximum(largest, simd::load(&words[k]));
            other = simd::maximum(other, simd::load(&words[k + lanes]));
        }
        largest = simd::maximum(largest, other);
        const bool below = _mm512_cmpge_epu64_mask(largest, simd::broadcast(q)) == 0;
        return k == 0 ? portable_loops::all_below(q, words)
                      : below & portable_loops::all_below(q, words.subspan(k));
    }

  private:
    /// Products with one fixed factor.
    template <arith::modulus M>
    class fixed_product {
      public:
        TENSAFE_AVX512 TENSAFE_INLINE fixed_product(M m, typename arith::shoup<M>::factor w) noexcept
            : mod_(m),
              value_(arith::avx512::broadcast(w.value)),
              quotient_(arith::avx512::broadcast(w.quotient >> 12)) {}

        TENSAFE_AVX512 TENSAFE_INLINE vector operator()(vector x) const noexcept {
            if constexpr (M::bits <= 50) {
                return mod_.multiply(x, value_, quotient_);
            } else {
                return mod_.multiply(x, value_);
            }
        }
        TENSAFE_AVX512 TENSAFE_INLINE vector of_difference(vector a, vector b) const noexcept {
            const vector difference = _mm512_sub_epi64(a, b);
            if constexpr (M::bits <= 50) {
                return (*this)(_mm512_add_epi64(difference, mod_.q()));
            } else {
                return (*this)(difference);
            }
        }

      private:
        arithmetic<M> mod_;
        vector value_;
        vector quotient_;  // of 52 bits
    };

    /// Second operands of sum_columns: rows of residues, or a number for each row.
    struct rows {
        const word* const* first;
        TENSAFE_AVX512 TENSAFE_INLINE vector load(std::size_t i, std::size_t k) const noexcept {
            return arith::avx512::load(first[i] + k);
        }
    };
    struct constants {
        const word* first;
        TENSAFE_AVX512 TENSAFE_INLINE vector load(std::size_t i, std::size_t) const noexcept {
            return arith::avx512::broadcast(first[i]);
        }
    };

    /// out[k] = (out[k] +) the sum over i of a[i][k] * b(i, k), for the columns of whole vectors; returns how
    /// many these are. Four vectors at a time: the chains of one sum would wait for each other.
    template <bool Accumulate, arith::modulus M, class Second>
    TENSAFE_AVX512 TENSAFE_INLINE static std::size_t sum_columns(M m, std::span<word> out,
                                                                 std::span<const word* const> a,
                                                                 Second b) noexcept {
        using sum = typename arithmetic<M>::sum;
        namespace simd = arith::avx512;
        const arithmetic<M> mod(m);
        const std::size_t columns = out.size() / lanes * lanes;
        for (std::size_t first = 0; first < a.size(); first += mod.terms) {
            const std::size_t end = std::min(a.size(), first + mod.terms);
            const bool more = Accumulate || first != 0;
            std::size_t k = 0;
            for (; k + 4 * lanes <= columns; k += 4 * lanes) {
                word* const to = &out[k];
                sum s0 = mod.zero();
                sum s1 = mod.zero();
                sum s2 = mod.zero();
                sum s3 = mod.zero();
                if (more) {
                    mod.add_residue(s0, simd::load(to));
                    mod.add_residue(s1, simd::load(to + lanes));
                    mod.add_residue(s2, simd::load(to + 2 * lanes));
                    mod.add_residue(s3, simd::load(to + 3 * lanes));
                }
                for (std::size_t i = first; i < end; ++i) {
                    const word* const from = a[i] + k;
                    mod.add_product(s0, simd::load(from), b.load(i, k));
                    mod.add_product(s1, simd::load(from + lanes), b.load(i, k + lanes));
                    mod.add_product(s2, simd::load(from + 2 * lanes), b.load(i, k + 2 * lanes));
                    mod.add_product(s3, simd::load(from + 3 * lanes), b.load(i, k + 3 * lanes));
                }
                simd::store(to, mod.reduce(s0));
                simd::store(to + lanes, mod.reduce(s1));
                simd::store(to + 2 * lanes, mod.reduce(s2));
                simd::store(to + 3 * lanes, mod.reduce(s3));
            }
            for (; k < columns; k += lanes) {
                sum s = mod.zero();
                if (more) {
                    mod.add_residue(s, simd::load(&out[k]));
                }
                for (std::size_t i = first; i < end; ++i) {
                    mod.add_product(s, simd::load(a[i] + k), b.load(i, k));
                }
                simd::store(&out[k], mod.reduce(s));
            }
        }
        return columns;
    }

    /// What blocks are summed of: a * b, and + c if WithAddends.
    template <bool WithAddends, arith::modulus M>
    struct block_terms {
        using sum = typename arithmetic<M>::sum;
        const word* a;
        const word* b;
        const word* c;

        TENSAFE_AVX512 TENSAFE_INLINE void add_to(sum& s, std::size_t k) const noexcept {
            arithmetic<M>::add_product(s, arith::avx512::load(a + k), arith::avx512::load(b + k));
            if constexpr (WithAddends) {
                arithmetic<M>::add_residue(s, arith::avx512::load(c + k));
            }
        }

        /// One vector, as a sum.
        TENSAFE_AVX512 TENSAFE_INLINE sum at(std::size_t k) const noexcept {
            sum s = arithmetic<M>::zero();
            add_to(s, k);
            return s;
        }

        /// Sums of four blocks of whole vectors, `stride` apart: each in two halves, two lanes apart.
        TENSAFE_AVX512 TENSAFE_INLINE sum four_blocks(std::size_t first, std::size_t stride,
                                                      std::size_t length) const noexcept {
            sum s0 = arithmetic<M>::zero();
            sum s1 = s0;
            sum s2 = s0;
            sum s3 = s0;
            for (std::size_t k = first; k < first + length; k += lanes) {
                add_to(s0, k);
                add_to(s1, k + stride);
                add_to(s2, k + 2 * stride);
                add_to(s3, k + 3 * stride);
            }
            return arithmetic<M>::add_neighbouring_pairs(arithmetic<M>::add_neighbours(s0, s1),
                                                         arithmetic<M>::add_neighbours(s2, s3));
        }

        /// Sums of eight blocks of whole vectors, `stride` apart, in their order.
        TENSAFE_AVX512 TENSAFE_INLINE sum eight_blocks(std::size_t first, std::size_t stride,
                                                       std::size_t length) const noexcept {
            return arithmetic<M>::add_neighbouring_pairs(four_blocks(first, stride, length),
                                                         four_blocks(first + 4 * stride, stride, length));
        }

        /// The sum of one long block, spread over the lanes.
        TENSAFE_AVX512 TENSAFE_INLINE sum one_block(std::size_t first, std::size_t length) const noexcept {
            sum s0 = arithmetic<M>::zero();
            sum s1 = s0;
            std::size_t k = first;
            for (; k + 2 * lanes <= first + length; k += 2 * lanes) {
                add_to(s0, k);
                add_to(s1, k + lanes);
            }
            if (k < first + length) {
                add_to(s0, k);
            }
            return arithmetic<M>::add(s0, s1);
        }
    };

    /// sums[i] = (sums[i] +) the sum over block i. Eight blocks at a time, of whole vectors or of 2 or 4
    /// entries; then one at a time, and there the portable loop has what is behind the last whole vector.
    template <bool Accumulate, bool WithAddends, arith::modulus M>
    TENSAFE_AVX512 TENSAFE_INLINE static void sum_blocks(arith::barrett<M> p, std::span<word> sums,
                                                         std::span<const word> a, std::span<const word> b,
                                                         std::span<const word> c) noexcept {
        namespace simd = arith::avx512;
        const arithmetic<M> mod(p.modulus());
        const block_terms<WithAddends, M> terms{a.data(), b.data(), c.data()};
        const std::size_t block = a.size() / sums.size();
        const std::size_t whole = block / lanes * lanes;
        std::size_t i = 0;
        if (block == 2) {
            const vector order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
            for (; i + lanes <= sums.size(); i += lanes) {
                const std::size_t k = 2 * i;
                const vector r = mod.reduce(mod.add_neighbours(terms.at(k), terms.at(k + lanes)));
                store_sums<Accumulate>(mod.q(), &sums[i], simd::permute(order, r));
            }
        } else if (block == 4) {
            const vector order = _mm512_setr_epi64(0, 2, 1, 3, 4, 6, 5, 7);
            for (; i + lanes <= sums.size(); i += lanes) {
                const std::size_t k = 4 * i;
                const vector r = mod.reduce(mod.add_neighbouring_pairs(
                    mod.add_neighbours(terms.at(k), terms.at(k + lanes)),
                    mod.add_neighbours(terms.at(k + 2 * lanes), terms.at(k + 3 * lanes))));
                store_sums<Accumulate>(mod.q(), &sums[i], simd::permute(order, r));
            }
        } else if (block == whole) {
            for (; i + lanes <= sums.size(); i += lanes) {
                vector total = Accumulate ? simd::load(&sums[i]) : _mm512_setzero_si512();
                for (std::size_t k = 0; k < block; k += mod.terms) {
                    auto s = terms.eight_blocks(i * block + k, block, std::min(mod.terms, block - k));
                    mod.add_residue(s, total);
                    total = mod.reduce(s);
                }
                simd::store(&sums[i], total);
            }
        }
        for (; i < sums.size(); ++i) {
            const std::size_t first = i * block;
            word total = Accumulate ? sums[i] : 0;
            for (std::size_t k = 0; k < whole; k += lanes * mod.terms) {
                const vector r =
                    mod.reduce(terms.one_block(first + k, std::min(lanes * mod.terms, whole - k)));
                // Eight residues fit a word.
                total = p.reduce_fully(arith::wide{simd::add_lanes(r)} + total);
            }
            const std::size_t rest = first + whole;
            sums[i] = add_terms<WithAddends>(p, total, a.subspan(rest, block - whole),
                                             b.subspan(rest, block - whole),
                                             WithAddends ? c.subspan(rest, block - whole) : c);
        }
    }

    template <bool Accumulate>
    TENSAFE_AVX512 TENSAFE_INLINE static void store_sums(vector q, word* to, vector sums) noexcept {
        namespace simd = arith::avx512;
        simd::store(to, Accumulate ? simd::add(sums, simd::load(to), q) : sums);
    }
};

}  // namespace tensafe::rns::limb

#endif
