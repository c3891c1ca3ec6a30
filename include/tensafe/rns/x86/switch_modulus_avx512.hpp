#pragma once

#include <tensafe/arith/x86/vector_avx512.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/switch_modulus_share.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::rns::detail {

/// The loop of switch_modulus, 16 coefficients at a time.
template <class Basis>
class switch_modulus_avx512 {
  public:
    /// Switches whole vectors and returns the number of their coefficients.
    TENSAFE_AVX512 static std::size_t run(const residue_spans<Basis>& residues, int bits,
                                          std::span<std::uint32_t> out) noexcept {
        constexpr auto limbs = std::make_integer_sequence<int, Basis::limbs>();
        const std::size_t whole = out.size() / lanes * lanes;
        const __m512i half = arith::avx512::broadcast(arith::word{1} << (63 - bits));
        const __m128i dropped = _mm_cvtsi32_si128(64 - bits);
        for (std::size_t k = 0; k < whole; k += lanes) {
            const __m512i low = sum(residues, k, half, limbs);
            const __m512i high = sum(residues, k + 8, half, limbs);
            _mm512_storeu_si512(out.data() + k, join(low, high, dropped));
        }
        return whole;
    }

  private:
    static constexpr std::size_t lanes = 16;

    /// The shares of 8 coefficients from number k on, added to `start`.
    template <int... I>
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i sum(const residue_spans<Basis>& residues, std::size_t k,
                                                     __m512i start,
                                                     std::integer_sequence<int, I...>) noexcept {
        ((start = add_share<I>(residues[static_cast<std::size_t>(I)].data() + k, start)), ...);
        return start;
    }

    template <int I>
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i add_share(const arith::word* from, __m512i start) noexcept {
        constexpr modulus_fraction share = modulus_share<Basis, I>;
        const __m512i p = _mm512_loadu_si512(from);
        const __m512i low = arith::avx512::broadcast(share.low);
        start = _mm512_add_epi64(start, _mm512_mullo_epi64(p, arith::avx512::broadcast(share.high)));
        if constexpr (share.cut == 0) {
            return _mm512_madd52hi_epu64(start, p, low);
        } else {
            const __m512i upper = arith::avx512::shift_right<share.cut>(p);
            const __m512i product = _mm512_madd52hi_epu64(_mm512_setzero_si512(), upper, low);
            return _mm512_add_epi64(start, arith::avx512::shift_left<share.cut>(product));
        }
    }

    /// The upper bits of 16 sums, as words of 32 bits.
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i join(__m512i low, __m512i high, __m128i dropped) noexcept {
        alignas(64) static constexpr std::array<std::uint32_t, lanes> even{0,  2,  4,  6,  8,  10, 12, 14,
                                                                           16, 18, 20, 22, 24, 26, 28, 30};
        return _mm512_permutex2var_epi32(_mm512_maskz_srl_epi64(arith::avx512::all_lanes, low, dropped),
                                         _mm512_load_si512(even.data()),
                                         _mm512_maskz_srl_epi64(arith::avx512::all_lanes, high, dropped));
    }
};

}  // namespace tensafe::rns::detail

#endif
