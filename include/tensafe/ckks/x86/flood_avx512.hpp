#pragma once

#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/x86/vector_avx512.hpp>
#include <tensafe/core/macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::ckks::detail {

/// The loop of flood::add_to for 8 residues at a time.
template <arith::modulus M>
class add_sums_avx512 {
  public:
    using factor = typename arith::shoup<M>::factor;

    /// @param one         1, prepared;  @param power  2^64 mod q, prepared
    /// @param correction  in [0, q], added to each residue
    TENSAFE_AVX512 add_sums_avx512(M m, factor one, factor power, arith::word correction) noexcept
        : prime_(arith::avx512::broadcast(m.value())),
          two_primes_(arith::avx512::broadcast(2 * m.value())),
          three_primes_(arith::avx512::broadcast(3 * m.value())),
          one_upper_(arith::avx512::broadcast(one.quotient >> 32)),
          one_lower_(arith::avx512::broadcast(one.quotient & 0xffffffff)),
          power_(arith::avx512::broadcast(power.value)),
          power_upper_(arith::avx512::broadcast(power.quotient >> 32)),
          power_lower_(arith::avx512::broadcast(power.quotient & 0xffffffff)),
          correction_(arith::avx512::broadcast(correction)) {}

    TENSAFE_AVX512 void run(std::span<arith::word> residues,
                            std::span<const arith::wide> sums) const noexcept {
        const std::size_t whole = residues.size() / lanes * lanes;
        for (std::size_t k = 0; k < whole; k += lanes) {
            const __m512i added =
                add(_mm512_loadu_si512(residues.data() + k), _mm512_loadu_si512(sums.data() + k),
                    _mm512_loadu_si512(sums.data() + k + 4));
            _mm512_storeu_si512(residues.data() + k, added);
        }
        if (whole != residues.size()) {
            const std::size_t rest = residues.size() - whole;
            const auto wanted = static_cast<__mmask8>((1U << rest) - 1);
            const auto words = (1U << (2 * rest)) - 1;  // two of each sum
            const arith::wide* const from = sums.data() + whole;
            const __m512i near = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(words), from);
            // Behind the end there may be no address to form.
            const __m512i far = rest <= 4
                                    ? _mm512_setzero_si512()
                                    : _mm512_maskz_loadu_epi64(static_cast<__mmask8>(words >> 8), from + 4);
            const __m512i x = _mm512_maskz_loadu_epi64(wanted, residues.data() + whole);
            _mm512_mask_storeu_epi64(residues.data() + whole, wanted, add(x, near, far));
        }
    }

  private:
    static constexpr std::size_t lanes = 8;

    /// Each part is in [0, 4q) before, in [0, 2q) after a subtraction: with residue and correction below 6q.
    TENSAFE_AVX512 TENSAFE_INLINE __m512i add(__m512i residue, __m512i near, __m512i far) const noexcept {
        alignas(64) static constexpr std::array<std::uint64_t, lanes> even{0, 2, 4, 6, 8, 10, 12, 14};
        alignas(64) static constexpr std::array<std::uint64_t, lanes> odd{1, 3, 5, 7, 9, 11, 13, 15};
        const __m512i low = _mm512_permutex2var_epi64(near, _mm512_load_si512(even.data()), far);
        const __m512i high = _mm512_permutex2var_epi64(near, _mm512_load_si512(odd.data()), far);
        const __m512i low_part =
            _mm512_sub_epi64(low, _mm512_mullo_epi64(quotient(low, one_upper_, one_lower_), prime_));
        const __m512i high_part =
            _mm512_sub_epi64(_mm512_mullo_epi64(high, power_),
                             _mm512_mullo_epi64(quotient(high, power_upper_, power_lower_), prime_));
        const __m512i parts = _mm512_add_epi64(arith::avx512::subtract_if_not_below(low_part, two_primes_),
                                               arith::avx512::subtract_if_not_below(high_part, two_primes_));
        const __m512i sum = _mm512_add_epi64(_mm512_add_epi64(residue, correction_), parts);
        return arith::avx512::subtract_if_not_below(
            arith::avx512::subtract_if_not_below(arith::avx512::subtract_if_not_below(sum, three_primes_),
                                                 two_primes_),
            prime_);
    }

    /// The upper word of x * (upper * 2^32 + lower), or up to 2 less.
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i quotient(__m512i x, __m512i upper, __m512i lower) noexcept {
        const __m512i x_upper = _mm512_maskz_srli_epi64(arith::avx512::all_lanes, x, 32);
        const __m512i first = _mm512_maskz_srli_epi64(
            arith::avx512::all_lanes, _mm512_maskz_mul_epu32(arith::avx512::all_lanes, x_upper, lower), 32);
        const __m512i second = _mm512_maskz_srli_epi64(
            arith::avx512::all_lanes, _mm512_maskz_mul_epu32(arith::avx512::all_lanes, x, upper), 32);
        return _mm512_add_epi64(_mm512_maskz_mul_epu32(arith::avx512::all_lanes, x_upper, upper),
                                _mm512_add_epi64(first, second));
    }

    __m512i prime_;
    __m512i two_primes_;
    __m512i three_primes_;
    __m512i one_upper_;
    __m512i one_lower_;
    __m512i power_;
    __m512i power_upper_;
    __m512i power_lower_;
    __m512i correction_;
};

}  // namespace tensafe::ckks::detail

#endif
