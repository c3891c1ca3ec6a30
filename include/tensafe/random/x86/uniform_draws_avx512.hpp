#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/random/x86/quarters_avx512.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

/// Where byte i of eight words comes from, if word l is the Width bytes at l * Width. What the mask clears
/// comes from anywhere.
template <std::size_t Width>
inline constexpr std::array<std::uint8_t, 64> uniform_sources8 = [] {
    std::array<std::uint8_t, 64> result{};
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = static_cast<std::uint8_t>(i / 8 * Width + std::min(i % 8, Width - 1));
    }
    return result;
}();

/// uniform_draws_portable from 0 on: eight draws with one load, one permutation of its bytes and the cut.
template <std::size_t Width>
TENSAFE_AVX512 bool uniform_draws_avx512(const std::uint8_t* bytes, std::uint64_t mask, std::uint64_t q,
                                         std::span<std::uint64_t> out) noexcept {
    const __m512i sources = _mm512_loadu_si512(uniform_sources8<Width>.data());
    const __m512i cut = _mm512_set1_epi64(static_cast<long long>(mask));
    __m512i largest = _mm512_setzero_si512();
    for (std::size_t k = 0; k < out.size(); k += 8) {
        const std::size_t left = out.size() - k;
        const auto wanted = static_cast<__mmask8>(left < 8 ? (1U << left) - 1 : every_word64);
        const __m512i loaded = _mm512_loadu_si512(bytes + k * Width);
        const __m512i value =
            _mm512_maskz_and_epi64(wanted, _mm512_maskz_permutexvar_epi8(every_byte, sources, loaded), cut);
        _mm512_mask_storeu_epi64(out.data() + k, wanted, value);
        largest = _mm512_maskz_max_epu64(every_word64, largest, value);
    }
    return !out.empty() &&
           _mm512_cmpge_epu64_mask(largest, _mm512_set1_epi64(static_cast<long long>(q))) != 0;
}

}  // namespace tensafe::random::detail

#endif
