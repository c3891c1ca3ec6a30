#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/simd/lanes.hpp>

#if TENSAFE_X86_64

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <span>

// Packing a round of eight values, which are as many bytes as a value has bits. Every value is read or
// written with the seven bytes behind its first one, so the last values are left to the caller.

namespace tensafe::memory::detail {

using words_avx2 = simd::lanes<std::uint64_t, 4>::native;

/// The bytes and bits at which the values of a round begin, which depend on the width alone.
struct packed_round {
    std::array<std::size_t, 9> first_byte;  ///< the byte in which each value begins, and the next round
    alignas(32) std::array<std::uint64_t, 8> shift;  ///< the number of the first bit in that byte
    alignas(32) std::array<std::uint64_t, 8> kept;   ///< bits in the bytes before the next value's first one

    explicit constexpr packed_round(int bits) noexcept {
        const auto width = static_cast<std::size_t>(bits);
        for (std::size_t k = 0; k <= 8; ++k) {
            first_byte[k] = k * width / 8;
        }
        for (std::size_t k = 0; k < 8; ++k) {
            shift[k] = k * width % 8;
            kept[k] = 8 * (first_byte[k + 1] - first_byte[k]) - shift[k];
        }
    }
};

template <class T>
TENSAFE_AVX2 TENSAFE_INLINE words_avx2 load_four(const T* from) noexcept {
    return __builtin_convertvector((simd::lanes<T, 4>::load(from).v), words_avx2);
}

TENSAFE_AVX2 TENSAFE_INLINE void store_four(words_avx2 x, std::uint8_t* to, const std::size_t* at) noexcept {
    const auto low = reinterpret_cast<__m128d>(__builtin_shufflevector(x, x, 0, 1));
    const auto high = reinterpret_cast<__m128d>(__builtin_shufflevector(x, x, 2, 3));
    _mm_storel_pd(reinterpret_cast<double*>(to + at[0]), low);
    _mm_storeh_pd(reinterpret_cast<double*>(to + at[1]), low);
    _mm_storel_pd(reinterpret_cast<double*>(to + at[2]), high);
    _mm_storeh_pd(reinterpret_cast<double*>(to + at[3]), high);
}

/// Packs whole rounds and returns the number of values packed.
/// @pre  bits in [8, 63]; out.size() == packed_bytes(values.size(), bits)
template <class T>
TENSAFE_AVX2 std::size_t pack_avx2(std::span<const T> values, int bits,
                                   std::span<std::uint8_t> out) noexcept {
    const packed_round round(bits);
    const words_avx2 mask = words_avx2{} + (~std::uint64_t{0} >> (64 - bits));
    const words_avx2 low_shift = load_four(round.shift.data());
    const words_avx2 high_shift = load_four(round.shift.data() + 4);
    const words_avx2 low_kept = load_four(round.kept.data());
    const words_avx2 high_kept = load_four(round.kept.data() + 4);
    std::size_t done = 0;
    while (values.size() - done >= 8 && out.size() >= round.first_byte[7] + sizeof(std::uint64_t)) {
        const words_avx2 low = load_four(values.data() + done) & mask;
        const words_avx2 high = load_four(values.data() + done + 4) & mask;
        // What goes into the first byte of the next value.
        const words_avx2 low_carry = low >> low_kept;
        const words_avx2 high_carry = high >> high_kept;
        // What is too much is written over by the next value.
        store_four(low << low_shift | __builtin_shufflevector(low_carry, words_avx2{}, 4, 0, 1, 2),
                   out.data(), round.first_byte.data());
        store_four(high << high_shift | __builtin_shufflevector(low_carry, high_carry, 3, 4, 5, 6),
                   out.data(), round.first_byte.data() + 4);
        done += 8;
        out = out.subspan(round.first_byte[8]);
    }
    return done;
}

TENSAFE_INLINE std::uint64_t word_at(const std::uint8_t* from) noexcept {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}
TENSAFE_AVX2 TENSAFE_INLINE words_avx2 words_at(const std::uint8_t* from, const std::size_t* at) noexcept {
    return words_avx2{word_at(from + at[0]), word_at(from + at[1]), word_at(from + at[2]),
                      word_at(from + at[3])};
}

template <class T>
struct unpacked {
    std::size_t count;  ///< the number of values written, the first ones
    T largest;          ///< the largest value written; 0 if there is none
};

/// Unpacks whole rounds. `Bytes` that a value can touch: 8, or 9 with more than 57 bits.
/// @pre  bits in [1, 63]; in.size() == packed_bytes(values.size(), bits)
template <std::size_t Bytes, class T>
TENSAFE_AVX2 unpacked<T> unpack_avx2(std::span<const std::uint8_t> in, int bits,
                                     std::span<T> values) noexcept {
    using signed_words = simd::lanes<std::int64_t, 4>::native;
    const packed_round round(bits);
    const words_avx2 mask = words_avx2{} + (~std::uint64_t{0} >> (64 - bits));
    signed_words largest = {};
    std::size_t done = 0;
    for (; values.size() - done >= 8 && in.size() >= round.first_byte[7] + Bytes; done += 8) {
        for (std::size_t k = 0; k < 8; k += 4) {
            const std::size_t* const at = round.first_byte.data() + k;
            const words_avx2 shift = load_four(round.shift.data() + k);
            words_avx2 x = words_at(in.data(), at) >> shift;
            if constexpr (Bytes == 9) {
                x |= words_at(in.data() + 1, at) << (8 - shift);
            }
            x &= mask;
            const auto lanes = reinterpret_cast<signed_words>(x);
            largest = lanes > largest ? lanes : largest;
            const auto narrowed = __builtin_convertvector(x, typename simd::lanes<T, 4>::native);
            std::memcpy(values.data() + done + k, &narrowed, sizeof narrowed);
        }
        in = in.subspan(round.first_byte[8]);
    }
    const auto larger = static_cast<T>(std::max(largest[0], largest[1]));
    return {done, std::max(larger, static_cast<T>(std::max(largest[2], largest[3])))};
}

}  // namespace tensafe::memory::detail

#endif
