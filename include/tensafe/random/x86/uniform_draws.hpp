#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/random/x86/quarters_avx512.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::random::detail {

/// Loads four draws at once: one load, one shuffle that moves two draws into each 16-byte half, one that
/// spreads their bytes.
template <std::size_t Width>
struct uniform_draws4 {
    using words = std::uint64_t __attribute__((vector_size(32)));
    using masks = std::int64_t __attribute__((vector_size(32)));
    using quads = std::uint32_t __attribute__((vector_size(32)));
    using bytes = std::uint8_t __attribute__((vector_size(32)));

    /// The four bytes in which the third draw starts.
    static constexpr int third = static_cast<int>(2 * Width / 4);

    /// The source of byte I of the four words. What the mask clears comes from anywhere in the same half.
    template <std::size_t I>
    static constexpr int source = static_cast<int>(
        I / 16 * 16 + std::min(I / 16 * (2 * Width % 4) + I % 16 / 8 * Width + I % 8, std::size_t{15}));

    /// Loads four draws. It names the indices one by one: nvcc counts a pack as one index.
    static TENSAFE_INLINE void load(const std::uint8_t* from, words& to) noexcept {
        quads loaded;
        std::memcpy(&loaded, from, sizeof loaded);
        const auto halves = __builtin_bit_cast(
            bytes,
            __builtin_shufflevector(loaded, loaded, 0, 1, 2, 3, third, third + 1, third + 2, third + 3));
        to = __builtin_bit_cast(
            words, __builtin_shufflevector(
                       halves, halves, source<0>, source<1>, source<2>, source<3>, source<4>, source<5>,
                       source<6>, source<7>, source<8>, source<9>, source<10>, source<11>, source<12>,
                       source<13>, source<14>, source<15>, source<16>, source<17>, source<18>, source<19>,
                       source<20>, source<21>, source<22>, source<23>, source<24>, source<25>, source<26>,
                       source<27>, source<28>, source<29>, source<30>, source<31>));
    }
};

/// Writes all draws but the last up to three. Returns whether any of them is not below q.
template <std::size_t Width>
TENSAFE_AVX2 bool uniform_draws_avx2(const std::uint8_t* bytes, std::uint64_t mask, std::uint64_t q,
                                     std::span<std::uint64_t> out) noexcept {
    using draws = uniform_draws4<Width>;
    typename draws::masks rejected = {};
    std::size_t k = 0;
    for (; k + 4 <= out.size(); k += 4) {
        typename draws::words value;
        draws::load(bytes + k * Width, value);
        value &= mask;
        std::memcpy(out.data() + k, &value, sizeof value);
        rejected |= value >= q;
    }
    return (rejected[0] | rejected[1] | rejected[2] | rejected[3]) != 0;
}

/// The places that the bytes of eight words come from, if word l is the Width bytes at l * Width. What the
/// mask clears comes from anywhere.
template <std::size_t Width>
inline constexpr std::array<std::uint8_t, 64> uniform_sources8 = [] {
    std::array<std::uint8_t, 64> result{};
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = static_cast<std::uint8_t>(i / 8 * Width + std::min(i % 8, Width - 1));
    }
    return result;
}();

/// Writes all draws: eight with one load, one permutation of its bytes and the cut. Returns whether any of
/// them is not below q.
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
