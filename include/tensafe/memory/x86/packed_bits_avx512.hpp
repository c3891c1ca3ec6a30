#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/memory/x86/packed_bits_avx2.hpp>
#include <tensafe/simd/lanes.hpp>

#if TENSAFE_X86_64

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <immintrin.h>
#include <span>

// Packing by byte permutations: a round of 64 bytes of values, 8 or 16 of them, at a time. Nothing outside
// the spans is read or written.

namespace tensafe::memory::detail {

/// A mask that changes nothing: g++ 12 warns of an uninitialised operand in most intrinsics without a mask.
inline constexpr __mmask64 every_byte = ~__mmask64{0};

/// Operations on a register of values.
template <class T>
struct bits_avx512 {
    static constexpr std::size_t lanes = 64 / sizeof(T);
    using vector = typename simd::lanes<T, lanes>::native;

    /// The number of each value's first bit in the round.
    TENSAFE_AVX512 TENSAFE_INLINE static vector first_bits(int bits) noexcept {
        vector first;
        for (std::size_t k = 0; k < lanes; ++k) {
            first[k] = static_cast<T>(k * static_cast<std::size_t>(bits));
        }
        return first;
    }
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i spread(std::uint64_t x) noexcept {
        return __builtin_bit_cast(__m512i, vector{} + static_cast<T>(x));
    }
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i shift_right(__m512i x, __m512i by) noexcept {
        return __builtin_bit_cast(__m512i, __builtin_bit_cast(vector, x) >> __builtin_bit_cast(vector, by));
    }
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i rotate_left(__m512i x, __m512i by) noexcept {
        return sizeof(T) == 8 ? _mm512_maskz_rolv_epi64(0xff, x, by) : _mm512_maskz_rolv_epi32(0xffff, x, by);
    }
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i rotate_right(__m512i x, __m512i by) noexcept {
        return sizeof(T) == 8 ? _mm512_maskz_rorv_epi64(0xff, x, by) : _mm512_maskz_rorv_epi32(0xffff, x, by);
    }
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i larger(__m512i x, __m512i y) noexcept {
        return sizeof(T) == 8 ? _mm512_maskz_max_epu64(0xff, x, y) : _mm512_maskz_max_epu32(0xffff, x, y);
    }
};

/// The truth table of (a & b) | (~a & c) for ternary logic.
inline constexpr int bitwise_select = 0xca;

/// Says how the packed bytes come from values that were rotated to the left by `shift`, the number of each
/// value's first bit in its byte. The sources are bytes of the rotated values: `starts_source` for the bits
/// of a value that starts within the byte, `rest_source` for the others, which `rest_mask` has. Computed by
/// vectors: with scalars it would cost as much as packing a hundred values.
template <class T>
struct packing_avx512 {
    using lanes_of = bits_avx512<T>;

    __m512i shift;
    __m512i rest_source;
    __m512i rest_mask;
    __m512i starts_source;

    TENSAFE_AVX512 TENSAFE_INLINE explicit packing_avx512(int bits) noexcept
        : shift(__builtin_bit_cast(__m512i, lanes_of::first_bits(bits) & 7)) {
        const half low = for_bytes<0>(bits);
        const half high = for_bytes<32>(bits);
        rest_source = join(low.rest_source, high.rest_source);
        rest_mask = join(low.rest_mask, high.rest_mask);
        starts_source = join(low.starts_source, high.starts_source);
    }

    TENSAFE_AVX512 TENSAFE_INLINE __m512i pack(__m512i values) const noexcept {
        const __m512i rotated = lanes_of::rotate_left(values, shift);
        const __m512i rest = _mm512_maskz_permutexvar_epi8(every_byte, rest_source, rotated);
        const __m512i starts = _mm512_maskz_permutexvar_epi8(every_byte, starts_source, rotated);
        return _mm512_ternarylogic_epi64(rest_mask, rest, starts, bitwise_select);
    }

  private:
    struct half {
        __m512i rest_source;
        __m512i rest_mask;
        __m512i starts_source;
    };

    /// Sources and masks for 32 of the packed bytes, from byte `First` on, in lanes of 16 bits.
    template <short First>
    TENSAFE_AVX512 TENSAFE_INLINE static half for_bytes(int bits) noexcept {
        const __m512i one = _mm512_set1_epi16(1);
        const __m512i width = _mm512_set1_epi16(static_cast<short>(bits));
        const __m512i byte = _mm512_add_epi16(numbers(), _mm512_set1_epi16(First));
        const __m512i first_bit = _mm512_slli_epi16(byte, 3);
        // The value of a byte's first bit: the quotient by `bits`, exact for numbers below 2^9 and widths
        // below 2^7.
        const auto reciprocal = static_cast<short>((65535 + bits) / bits);
        const __m512i value = _mm512_mulhi_epu16(first_bit, _mm512_set1_epi16(reciprocal));
        const __m512i value_bit = _mm512_mullo_epi16(value, width);
        const __m512i within = _mm512_and_si512(_mm512_sub_epi16(byte, _mm512_srli_epi16(value_bit, 3)),
                                                _mm512_set1_epi16(sizeof(T) - 1));
        const __m512i lane = _mm512_mullo_epi16(value, _mm512_set1_epi16(sizeof(T)));
        const __m512i bits_left = _mm512_sub_epi16(_mm512_add_epi16(value_bit, width), first_bit);
        return {_mm512_or_si512(lane, within), _mm512_sub_epi16(_mm512_sllv_epi16(one, bits_left), one),
                _mm512_add_epi16(lane, _mm512_set1_epi16(sizeof(T)))};
    }

    /// The numbers 0 to 31, in lanes of 16 bits.
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i numbers() noexcept {
        alignas(64) static constexpr std::array<std::uint16_t, 32> table = [] {
            std::array<std::uint16_t, 32> result{};
            for (std::size_t i = 0; i < result.size(); ++i) {
                result[i] = static_cast<std::uint16_t>(i);
            }
            return result;
        }();
        return _mm512_load_si512(table.data());
    }

    /// The lower bytes of the 16-bit lanes of `low`, followed by those of `high`.
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i join(__m512i low, __m512i high) noexcept {
        alignas(64) std::array<std::uint8_t, 64> bytes;
        const auto at = reinterpret_cast<__m256i*>(bytes.data());
        _mm256_store_si256(at, _mm512_maskz_cvtepi16_epi8(every_lane, low));
        _mm256_store_si256(at + 1, _mm512_maskz_cvtepi16_epi8(every_lane, high));
        return _mm512_load_si512(bytes.data());
    }

    static constexpr __mmask32 every_lane = ~__mmask32{0};
};

/// Rounds of whole registers that can be read or written at once in so many packed bytes: the last register
/// may reach beyond its round, but not beyond the bytes.
constexpr std::size_t whole_rounds_avx512(std::size_t rounds, std::size_t bytes,
                                          std::size_t round_bytes) noexcept {
    return bytes < 64 ? 0 : std::min(rounds, (bytes - 64) / round_bytes + 1);
}

/// Packs whole rounds and returns the number of values packed.
/// @pre  bits >= 8; out.size() == packed_bytes(values.size(), bits)
template <class T>
TENSAFE_AVX512 std::size_t pack_avx512(std::span<const T> values, int bits,
                                       std::span<std::uint8_t> out) noexcept {
    constexpr std::size_t lanes = bits_avx512<T>::lanes;
    const packing_avx512<T> packing(bits);
    const std::size_t round = lanes / 8 * static_cast<std::size_t>(bits);
    const std::size_t whole = whole_rounds_avx512(values.size() / lanes, out.size(), round);
    for (std::size_t i = 0; i < whole; ++i) {
        // What is too much is written over by the next round.
        _mm512_storeu_si512(out.data() + i * round,
                            packing.pack(_mm512_loadu_si512(values.data() + i * lanes)));
    }
    return whole * lanes;
}

/// `Wide`: a value can reach into one byte more than a T has.
template <class T, bool Wide>
struct unpacking_avx512 {
    using lanes_of = bits_avx512<T>;

    __m512i shift;
    __m512i source;
    __m512i next_source;
    __m512i before;
    __m512i mask;

    TENSAFE_AVX512 TENSAFE_INLINE explicit unpacking_avx512(int bits) noexcept
        : mask(lanes_of::spread(~std::uint64_t{0} >> (64 - bits))) {
        const auto first_bits = lanes_of::first_bits(bits);
        const auto in_byte = first_bits & 7;
        shift = __builtin_bit_cast(__m512i, in_byte);
        before = __builtin_bit_cast(__m512i, (T{1} << in_byte) - 1);
        // The first byte's number in all bytes of the lane.
        source = _mm512_add_epi8(
            __builtin_bit_cast(__m512i, (first_bits >> 3) * static_cast<T>(0x0101010101010101)),
            lanes_of::spread(0x0706050403020100));
        next_source = _mm512_add_epi8(source, _mm512_set1_epi8(sizeof(T)));
    }

    TENSAFE_AVX512 TENSAFE_INLINE __m512i unpack(__m512i packed) const noexcept {
        const __m512i x = _mm512_maskz_permutexvar_epi8(every_byte, source, packed);
        if constexpr (Wide) {
            // The bits of the first byte that are not the value's give way to those of the last one, and the
            // rotation takes them to the top.
            const __m512i next = _mm512_maskz_permutexvar_epi8(every_byte, next_source, packed);
            const __m512i joined = _mm512_ternarylogic_epi64(before, next, x, bitwise_select);
            return _mm512_and_si512(lanes_of::rotate_right(joined, shift), mask);
        } else {
            return _mm512_and_si512(lanes_of::shift_right(x, shift), mask);
        }
    }
};

/// Unpacks whole rounds.
/// @pre  Wide if bits + 7 > digits of T; in.size() == packed_bytes(values.size(), bits)
template <bool Wide, class T>
TENSAFE_AVX512 unpacked<T> unpack_avx512(std::span<const std::uint8_t> in, int bits,
                                         std::span<T> values) noexcept {
    using lanes_of = bits_avx512<T>;
    constexpr std::size_t lanes = lanes_of::lanes;
    const unpacking_avx512<T, Wide> unpacking(bits);
    const std::size_t round = lanes / 8 * static_cast<std::size_t>(bits);
    const std::size_t whole = whole_rounds_avx512(values.size() / lanes, in.size(), round);
    __m512i largest = _mm512_setzero_si512();
    for (std::size_t i = 0; i < whole; ++i) {
        const __m512i x = unpacking.unpack(_mm512_loadu_si512(in.data() + i * round));
        _mm512_storeu_si512(values.data() + i * lanes, x);
        largest = lanes_of::larger(largest, x);
    }
    alignas(64) std::array<T, lanes> of_lanes;
    _mm512_store_si512(of_lanes.data(), largest);
    return {whole * lanes, *std::max_element(of_lanes.begin(), of_lanes.end())};
}

}  // namespace tensafe::memory::detail

#endif
