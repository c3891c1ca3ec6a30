#pragma once

#include <tensafe/arith/x86/narrow_avx2.hpp>
#include <tensafe/rns/limb_portable.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::rns::limb {

/// The loops of limb.hpp with 256-bit vectors, products in double precision for q < 2^50. For wider primes
/// they stay portable: there is no 64-bit multiplication of vectors, and one made of 32-bit ones takes more
/// instructions for four products than the scalar multiplier. What is left behind the last whole vector, the
/// portable loops do.
struct avx2_loops : portable_loops {
    using vector = arith::avx2::vector;
    using reals = arith::avx2::reals;
    template <arith::modulus M>
    using narrow = arith::avx2::narrow<M>;
    static constexpr std::size_t lanes = 4;
    template <arith::modulus M>
    static constexpr bool is_narrow = M::bits <= 50;
    /// From 16 bits on, the quotient of any word by q fits a double's mantissa.
    template <arith::modulus M>
    static constexpr bool reduces_words = is_narrow<M>&& M::bits >= 16;

    template <arith::modulus M>
    TENSAFE_AVX2 static void add(M m, std::span<word> out, std::span<const word> a,
                                 std::span<const word> b) noexcept {
        namespace simd = arith::avx2;
        const vector q = simd::broadcast(m.value());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], simd::add(simd::load(&a[k]), simd::load(&b[k]), q));
        }
        portable_loops::add(m, out.subspan(k), a.subspan(k), b.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void subtract(M m, std::span<word> out, std::span<const word> a,
                                      std::span<const word> b) noexcept {
        namespace simd = arith::avx2;
        const vector q = simd::broadcast(m.value());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], simd::subtract(simd::load(&a[k]), simd::load(&b[k]), q));
        }
        portable_loops::subtract(m, out.subspan(k), a.subspan(k), b.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void add_constant(M m, std::span<word> out, std::span<const word> a,
                                          word c) noexcept {
        namespace simd = arith::avx2;
        const vector q = simd::broadcast(m.value());
        const vector addend = simd::broadcast(c);
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            simd::store(&out[k], simd::add(simd::load(&a[k]), addend, q));
        }
        portable_loops::add_constant(m, out.subspan(k), a.subspan(k), c);
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void multiply(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                                      std::span<const word> b) noexcept {
        std::size_t k = 0;
        if constexpr (is_narrow<M>) {
            const narrow<M> mod(p.modulus());
            for (; k + lanes <= out.size(); k += lanes) {
                arith::avx2::store(&out[k], mod.to_words(mod.multiply(mod.load(&a[k]), mod.load(&b[k]))));
            }
        }
        portable_loops::multiply(p, out.subspan(k), a.subspan(k), b.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void multiply_add(arith::barrett<M> p, std::span<word> out, std::span<const word> a,
                                          std::span<const word> b, std::span<const word> c) noexcept {
        std::size_t k = 0;
        if constexpr (is_narrow<M>) {
            namespace simd = arith::avx2;
            const narrow<M> mod(p.modulus());
            const vector q = simd::broadcast(p.modulus().value());
            for (; k + lanes <= out.size(); k += lanes) {
                const vector product = mod.to_words(mod.multiply(mod.load(&a[k]), mod.load(&b[k])));
                simd::store(&out[k], simd::add(product, simd::load(&c[k]), q));
            }
        }
        portable_loops::multiply_add(p, out.subspan(k), a.subspan(k), b.subspan(k), c.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void subtract_product(arith::barrett<M> p, std::span<word> out,
                                              std::span<const word> a, std::span<const word> b,
                                              std::span<const word> c) noexcept {
        std::size_t k = 0;
        if constexpr (is_narrow<M>) {
            namespace simd = arith::avx2;
            const narrow<M> mod(p.modulus());
            const vector q = simd::broadcast(p.modulus().value());
            for (; k + lanes <= out.size(); k += lanes) {
                const vector product = mod.to_words(mod.multiply(mod.load(&a[k]), mod.load(&b[k])));
                simd::store(&out[k], simd::subtract(simd::load(&c[k]), product, q));
            }
        }
        portable_loops::subtract_product(p, out.subspan(k), a.subspan(k), b.subspan(k), c.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void block_sums(arith::barrett<M> p, std::span<word> sums, std::span<const word> a,
                                        std::span<const word> b, std::span<const word> c) noexcept {
        if constexpr (is_narrow<M>) {
            if (a.size() == sums.size()) {
                multiply_add(p, sums, a, b, c);
            } else {
                sum_blocks<false, true>(p, sums, a, b, c);
            }
        } else {
            portable_loops::block_sums(p, sums, a, b, c);
        }
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void add_block_sums(arith::barrett<M> p, std::span<word> sums,
                                            std::span<const word> a, std::span<const word> b) noexcept {
        if constexpr (is_narrow<M>) {
            if (a.size() == sums.size()) {
                multiply_add(p, sums, a, b, sums);
            } else {
                sum_blocks<true, false>(p, sums, a, b, {});
            }
        } else {
            portable_loops::add_block_sums(p, sums, a, b);
        }
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void sum_products(arith::barrett<M> p, std::span<word> out,
                                          std::span<const word* const> a,
                                          std::span<const word* const> b) noexcept {
        std::size_t column = 0;
        if constexpr (is_narrow<M>) {
            column = sum_columns<false>(p.modulus(), out, a, rows<M>{b.data()});
        }
        portable_loops::sum_products(p, out, a, b, column);
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void add_scaled(arith::barrett<M> p, std::span<word> out,
                                        std::span<const word* const> a,
                                        std::span<const word> factors) noexcept {
        std::size_t column = 0;
        if constexpr (is_narrow<M>) {
            column = sum_columns<true>(p.modulus(), out, a, constants{factors.data()});
        }
        portable_loops::add_scaled(p, out, a, factors, column);
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void add_small(M m, std::span<word> out,
                                       std::span<const std::int8_t> small) noexcept {
        namespace simd = arith::avx2;
        const vector q = simd::broadcast(m.value());
        std::size_t k = 0;
        for (; k + lanes <= out.size(); k += lanes) {
            std::int32_t four = 0;
            std::memcpy(&four, &small[k], sizeof four);
            const vector x = _mm256_cvtepi8_epi64(_mm_cvtsi32_si128(four));
            simd::store(&out[k], simd::add(simd::load(&out[k]), simd::add_if_negative(x, q), q));
        }
        portable_loops::add_small(m, out.subspan(k), small.subspan(k));
    }

    /// As portable, but with the integer part split at 2^60, so that the upper part is a double's 52 bits,
    /// and doubles to the end.
    template <arith::modulus M>
    TENSAFE_AVX2 static void round_reals(arith::shoup<M> p, std::span<word> out,
                                         std::span<const double> values) noexcept {
        std::size_t k = 0;
        if constexpr (reduces_words<M>) {
            const narrow<M> mod(p.modulus());
            const reals power = _mm256_set1_pd(static_cast<double>((word{1} << 60) % p.modulus().value()));
            const reals sign_bit = _mm256_set1_pd(-0.0);
            const reals almost_half = _mm256_set1_pd(0x1.fffffffffffffp-2);
            for (; k + lanes <= out.size(); k += lanes) {
                const reals x = _mm256_loadu_pd(&values[k]);
                const reals magnitude = _mm256_andnot_pd(sign_bit, x);
                const reals high = whole_part(_mm256_mul_pd(magnitude, _mm256_set1_pd(0x1p-60)));
                const reals rest = _mm256_fnmadd_pd(high, _mm256_set1_pd(0x1p60), magnitude);
                const reals low = whole_part(_mm256_add_pd(rest, almost_half));
                const reals sum = _mm256_add_pd(mod.multiply(high, power), mod.reduce(low));
                const reals r = _mm256_xor_pd(mod.reduce(sum), _mm256_and_pd(sign_bit, x));
                arith::avx2::store(&out[k],
                                   mod.to_words(_mm256_add_pd(r, _mm256_setzero_pd())));  // -0 is no residue
            }
        }
        portable_loops::round_reals(p, out.subspan(k), values.subspan(k));
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void reduce_shifted(arith::shoup<M> p, std::span<word> out,
                                            std::span<const word> words, word shift) noexcept {
        std::size_t k = 0;
        if constexpr (reduces_words<M>) {
            namespace simd = arith::avx2;
            const narrow<M> mod(p.modulus());
            const reals subtrahend = _mm256_set1_pd(static_cast<double>(shift));
            const reals two_52 = _mm256_set1_pd(0x1p52);
            const reals two_84 = _mm256_set1_pd(0x1p84);
            for (; k + lanes <= out.size(); k += lanes) {
                // Each half becomes the lower bits of a large power of two.
                const vector x = simd::load(&words[k]);
                const vector upper = _mm256_or_si256(_mm256_srli_epi64(x, 32), _mm256_castpd_si256(two_84));
                const vector lower = _mm256_blend_epi32(x, _mm256_castpd_si256(two_52), 0xaa);
                const reals r = mod.reduce_sum(_mm256_sub_pd(_mm256_castsi256_pd(upper), two_84),
                                               _mm256_sub_pd(_mm256_castsi256_pd(lower), two_52));
                simd::store(&out[k], mod.to_words(_mm256_sub_pd(mod.canonical(r), subtrahend)));
            }
        }
        portable_loops::reduce_shifted(p, out.subspan(k), words.subspan(k), shift);
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void scale(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                                   typename arith::shoup<M>::factor w) noexcept {
        std::size_t k = 0;
        if constexpr (is_narrow<M>) {
            const narrow<M> mod(p.modulus());
            const reals factor = _mm256_set1_pd(static_cast<double>(w.value));
            for (; k + lanes <= out.size(); k += lanes) {
                arith::avx2::store(&out[k], mod.to_words(mod.multiply(mod.load(&a[k]), factor)));
            }
        }
        portable_loops::scale(p, out.subspan(k), a.subspan(k), w);
    }

    template <arith::modulus M>
    TENSAFE_AVX2 static void scale_difference(arith::shoup<M> p, std::span<word> out, std::span<const word> a,
                                              std::span<const word> b,
                                              typename arith::shoup<M>::factor w) noexcept {
        std::size_t k = 0;
        if constexpr (is_narrow<M>) {
            namespace simd = arith::avx2;
            const narrow<M> mod(p.modulus());
            const reals factor = _mm256_set1_pd(static_cast<double>(w.value));
            for (; k + lanes <= out.size(); k += lanes) {
                const vector difference = _mm256_sub_epi64(simd::load(&a[k]), simd::load(&b[k]));
                simd::store(&out[k], mod.to_words(mod.multiply(mod.from_signed_words(difference), factor)));
            }
        }
        portable_loops::scale_difference(p, out.subspan(k), a.subspan(k), b.subspan(k), w);
    }

    TENSAFE_AVX2 static bool all_below(word q, std::span<const word> words) noexcept {
        namespace simd = arith::avx2;
        // There is no unsigned comparison: with the top bits inverted, a signed one does.
        const vector top_bit = simd::broadcast(word{1} << 63);
        const vector bound = _mm256_xor_si256(simd::broadcast(q), top_bit);
        vector below = _mm256_set1_epi64x(-1);
        std::size_t k = 0;
        for (; k + lanes <= words.size(); k += lanes) {
            const vector x = _mm256_xor_si256(simd::load(&words[k]), top_bit);
            below = _mm256_and_si256(below, _mm256_cmpgt_epi64(bound, x));
        }
        const bool rest = portable_loops::all_below(q, words.subspan(k));
        return (_mm256_movemask_epi8(below) == -1) & rest;
    }

  private:
    TENSAFE_AVX2 TENSAFE_INLINE static reals whole_part(reals x) noexcept {
        return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    }

    /// Second operands of sum_columns: rows of residues, or a number for each row.
    template <arith::modulus M>
    struct rows {
        const word* const* first;
        TENSAFE_AVX2 TENSAFE_INLINE reals load(std::size_t i, std::size_t k) const noexcept {
            return narrow<M>::load(first[i] + k);
        }
    };
    struct constants {
        const word* first;
        TENSAFE_AVX2 TENSAFE_INLINE reals load(std::size_t i, std::size_t) const noexcept {
            return _mm256_set1_pd(static_cast<double>(static_cast<std::int64_t>(first[i])));
        }
    };

    /// out[k] = (out[k] +) the sum over i of a[i][k] * b(i, k), for the columns of whole vectors; returns how
    /// many these are.
    template <bool Accumulate, arith::modulus M, class Second>
    TENSAFE_AVX2 TENSAFE_INLINE static std::size_t sum_columns(M m, std::span<word> out,
                                                               std::span<const word* const> a,
                                                               Second b) noexcept {
        const narrow<M> mod(m);
        const std::size_t columns = a.empty() ? 0 : out.size() / lanes * lanes;
        for (std::size_t k = 0; k < columns; k += lanes) {
            reals sum = Accumulate ? mod.load(&out[k]) : _mm256_setzero_pd();
            for (std::size_t i = 0; i < a.size();) {
                const std::size_t end = std::min(a.size(), i + mod.terms);
                for (; i < end; ++i) {
                    sum = _mm256_add_pd(sum, mod.multiply(mod.load(a[i] + k), b.load(i, k)));
                }
                sum = mod.reduce(sum);
            }
            arith::avx2::store(&out[k], mod.to_words(sum));
        }
        return columns;
    }

    /// What blocks are summed of: a * b, and + c if WithAddends.
    template <bool WithAddends, arith::modulus M>
    struct block_terms {
        static constexpr std::size_t at_once =
            lanes * (WithAddends ? narrow<M>::terms / 2 : narrow<M>::terms);
        narrow<M> mod;
        const word* a;
        const word* b;
        const word* c;

        /// One vector of terms, in (-2q, 2q).
        TENSAFE_AVX2 TENSAFE_INLINE reals at(std::size_t k) const noexcept {
            const reals product = mod.multiply(mod.load(a + k), mod.load(b + k));
            if constexpr (WithAddends) {
                return _mm256_add_pd(product, mod.load(c + k));
            } else {
                return product;
            }
        }

        /// The sum of a block of whole vectors, spread over the lanes, each in (-q, q).
        TENSAFE_AVX2 TENSAFE_INLINE reals block(std::size_t first, std::size_t length) const noexcept {
            reals sum = _mm256_setzero_pd();
            for (std::size_t k = first; k < first + length;) {
                const std::size_t end = std::min(first + length, k + at_once);
                for (; k < end; k += lanes) {
                    sum = _mm256_add_pd(sum, at(k));
                }
                sum = mod.reduce(sum);
            }
            return sum;
        }
    };

    /// a0+a1, b0+b1, a2+a3, b2+b3.
    TENSAFE_AVX2 TENSAFE_INLINE static reals add_neighbours(reals a, reals b) noexcept {
        return _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
    }

    /// sums[i] = (sums[i] +) the sum over block i. Four blocks at a time, of whole vectors or of 2 entries;
    /// then one at a time, and there the scalar loop has what is behind the last whole vector.
    template <bool Accumulate, bool WithAddends, arith::modulus M>
    TENSAFE_AVX2 TENSAFE_INLINE static void sum_blocks(arith::barrett<M> p, std::span<word> sums,
                                                       std::span<const word> a, std::span<const word> b,
                                                       std::span<const word> c) noexcept {
        const narrow<M> mod(p.modulus());
        const block_terms<WithAddends, M> terms{mod, a.data(), b.data(), c.data()};
        const std::size_t block = a.size() / sums.size();
        const std::size_t whole = block / lanes * lanes;
        std::size_t i = 0;
        if (block == 2) {
            for (; i + lanes <= sums.size(); i += lanes) {
                const reals s = add_neighbours(terms.at(2 * i), terms.at(2 * i + lanes));
                store_sums<Accumulate>(mod, &sums[i], _mm256_permute4x64_pd(s, 0xd8));
            }
        } else if (block == whole) {
            for (; i + lanes <= sums.size(); i += lanes) {
                const std::size_t k = i * block;
                const reals x = add_neighbours(terms.block(k, block), terms.block(k + block, block));
                const reals y =
                    add_neighbours(terms.block(k + 2 * block, block), terms.block(k + 3 * block, block));
                store_sums<Accumulate>(
                    mod, &sums[i],
                    _mm256_add_pd(_mm256_permute2f128_pd(x, y, 0x20), _mm256_permute2f128_pd(x, y, 0x31)));
            }
        }
        for (; i < sums.size(); ++i) {
            const std::size_t rest = i * block + whole;
            const vector r = mod.to_words(terms.block(i * block, whole));
            // Four residues fit a word.
            const __m128i pair = _mm_add_epi64(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
            const auto total =
                static_cast<word>(_mm_cvtsi128_si64(pair)) + static_cast<word>(_mm_extract_epi64(pair, 1));
            const word start = p.reduce_fully(arith::wide{total} + (Accumulate ? sums[i] : 0));
            sums[i] = add_terms<WithAddends>(p, start, a.subspan(rest, block - whole),
                                             b.subspan(rest, block - whole),
                                             WithAddends ? c.subspan(rest, block - whole) : c);
        }
    }

    /// Sums in (-4q, 4q), to residues.
    template <bool Accumulate, arith::modulus M>
    TENSAFE_AVX2 TENSAFE_INLINE static void store_sums(const narrow<M>& mod, word* to, reals sums) noexcept {
        if constexpr (Accumulate) {
            sums = _mm256_add_pd(sums, mod.load(to));
        }
        arith::avx2::store(to, mod.to_words(mod.reduce(sums)));
    }
};

}  // namespace tensafe::rns::limb

#endif
