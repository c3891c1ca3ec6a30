#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/memory/bits_layout.hpp>

#if TENSAFE_X86_64

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <immintrin.h>
#include <limits>
#include <span>

// Packing by byte shuffles: a piece is 16 bytes of values, 2 or 4 of them, and a window 16 packed bytes.
// Nothing outside the spans is read or written, so the last values are left to the caller. bits_layout.hpp
// says where each bit goes.

namespace tensafe::memory::detail {

/// What the two widths of values do differently.
template <class T>
struct bits_avx2;

template <>
struct bits_avx2<std::uint64_t> {
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i spread(std::uint64_t x) noexcept {
        return _mm256_set1_epi64x(static_cast<long long>(x));
    }
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i shift_left(__m256i x, __m256i by) noexcept {
        return _mm256_sllv_epi64(x, by);
    }
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i shift_right(__m256i x, __m256i by) noexcept {
        return _mm256_srlv_epi64(x, by);
    }
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i subtract(__m256i x, __m256i y) noexcept {
        return _mm256_sub_epi64(x, y);
    }
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i larger(__m256i x, __m256i y) noexcept {
        // There is a comparison of signed numbers only.
        const __m256i sign = spread(std::uint64_t{1} << 63);
        const __m256i less = _mm256_cmpgt_epi64(_mm256_xor_si256(y, sign), _mm256_xor_si256(x, sign));
        return _mm256_blendv_epi8(x, y, less);
    }
};

template <>
struct bits_avx2<std::uint32_t> {
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i spread(std::uint64_t x) noexcept {
        return _mm256_set1_epi32(static_cast<int>(x));
    }
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i shift_left(__m256i x, __m256i by) noexcept {
        return _mm256_sllv_epi32(x, by);
    }
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i shift_right(__m256i x, __m256i by) noexcept {
        return _mm256_srlv_epi32(x, by);
    }
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i subtract(__m256i x, __m256i y) noexcept {
        return _mm256_sub_epi32(x, y);
    }
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i larger(__m256i x, __m256i y) noexcept {
        return _mm256_max_epu32(x, y);
    }
};

/// A round is 8 values: one register of 32-bit ones, two of 64-bit ones, a window in each half.
template <class T>
using bit_layout_avx2 = bit_layout<T, 8, 16 / sizeof(T)>;

/// Whether a piece fits its window: two values of 63 bits can reach into 17 bytes.
template <class T>
constexpr bool fits_avx2(int bits) noexcept {
    return sizeof(T) == sizeof(std::uint32_t) || bits != 63;
}

TENSAFE_AVX2 TENSAFE_INLINE __m256i load_avx2(const void* from) noexcept {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
TENSAFE_AVX2 TENSAFE_INLINE __m256i load_halves_avx2(const std::uint8_t* low,
                                                     const std::uint8_t* high) noexcept {
    return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(high), reinterpret_cast<const __m128i*>(low));
}

/// Registers of a round.
template <class T>
inline constexpr std::size_t registers_avx2 = sizeof(T) / 4;

/// Where the window of piece i starts: 0 to 2 * registers_avx2<T>, the last being that of the next round.
template <class T>
constexpr std::size_t window_start_avx2(const bit_layout_avx2<T>& layout, std::size_t i) noexcept {
    return layout.first_byte(i * (16 / sizeof(T)));
}

/// shift(k) for the values of register r, in their lanes.
template <class T>
TENSAFE_AVX2 TENSAFE_INLINE __m256i load_shifts_avx2(const bit_layout_avx2<T>& layout,
                                                     std::size_t r) noexcept {
    alignas(32) std::array<T, 32 / sizeof(T)> shifts;
    for (std::size_t k = 0; k < shifts.size(); ++k) {
        shifts[k] = static_cast<T>(layout.shift(r * shifts.size() + k));
    }
    return load_avx2(shifts.data());
}

/// What register R of each round needs to be packed.
template <class T, std::size_t R>
struct packer_avx2 {
    using lanes_of = bits_avx2<T>;

    __m256i left;
    __m256i right;
    __m256i rest_source;
    __m256i rest_mask;
    __m256i starts_source;
    __m256i starts_mask;
    __m256i carry_source;
    std::size_t low;  ///< where its windows start
    std::size_t high;

    TENSAFE_AVX2 TENSAFE_INLINE packer_avx2(const bit_layout_avx2<T>& layout,
                                            const typename bit_layout_avx2<T>::packing& tables) noexcept
        : left(load_shifts_avx2<T>(layout, R)),
          right(lanes_of::subtract(lanes_of::spread(std::numeric_limits<T>::digits), left)),
          rest_source(load_avx2(tables.rest_source.data() + 32 * R)),
          rest_mask(load_avx2(tables.rest_mask.data() + 32 * R)),
          starts_source(load_avx2(tables.starts_source.data() + 32 * R)),
          starts_mask(load_avx2(tables.starts_mask.data() + 32 * R)),
          low(window_start_avx2<T>(layout, 2 * R)),
          high(window_start_avx2<T>(layout, 2 * R + 1)) {
        // The byte of a window in which the next one starts, if it starts within a byte.
        alignas(32) std::array<std::uint8_t, 32> carry;
        carry.fill(zero);
        for (std::size_t half = 0; half < 2; ++half) {
            const std::size_t i = 2 * R + half;
            if (layout.shift((i + 1) * (16 / sizeof(T))) != 0) {
                carry[16 * half] = static_cast<std::uint8_t>(window_start_avx2<T>(layout, i + 1) -
                                                             window_start_avx2<T>(layout, i));
            }
        }
        carry_source = load_avx2(carry.data());
    }

    /// `earlier` holds what the register before left for the first bytes of its successors' windows.
    TENSAFE_AVX2 TENSAFE_INLINE void pack(const T* from, std::uint8_t* to, __m256i& earlier) const noexcept {
        const __m256i x = load_avx2(from);
        const __m256i rotated =
            _mm256_or_si256(lanes_of::shift_left(x, left), lanes_of::shift_right(x, right));
        const __m256i rest = _mm256_and_si256(_mm256_shuffle_epi8(rotated, rest_source), rest_mask);
        const __m256i starts = _mm256_and_si256(_mm256_shuffle_epi8(rotated, starts_source), starts_mask);
        const __m256i own = _mm256_or_si256(rest, starts);
        const __m256i carry = _mm256_shuffle_epi8(own, carry_source);
        const __m256i packed = _mm256_or_si256(own, _mm256_permute2x128_si256(earlier, carry, 0x21));
        earlier = carry;
        // What is too much is written over by the next window.
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + low), _mm256_castsi256_si128(packed));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + high), _mm256_extracti128_si256(packed, 1));
    }

  private:
    static constexpr std::uint8_t zero = 0x80;  // makes a shuffle write 0
};

/// Packs whole rounds, as long as there are 16 bytes left for the last window, and returns the number of
/// values packed.  @pre  bits >= 8, fits_avx2<T>(bits); out.size() == packed_bytes(values.size(), bits)
template <class T>
TENSAFE_AVX2 std::size_t pack_avx2(std::span<const T> values, int bits,
                                   std::span<std::uint8_t> out) noexcept {
    constexpr std::size_t last = registers_avx2<T> - 1;
    const bit_layout_avx2<T> layout(bits);
    typename bit_layout_avx2<T>::packing tables;
    layout.fill_packing(tables);
    const packer_avx2<T, 0> first_register(layout, tables);
    const packer_avx2<T, last> last_register(layout, tables);
    std::size_t done = 0;
    while (values.size() - done >= 8 && out.size() >= last_register.high + 16) {
        __m256i earlier = _mm256_setzero_si256();
        first_register.pack(values.data() + done, out.data(), earlier);
        if constexpr (last != 0) {
            last_register.pack(values.data() + done + 32 / sizeof(T), out.data(), earlier);
        }
        done += 8;
        out = out.subspan(layout.round_bytes());
    }
    return done;
}

template <class T>
struct unpacked_avx2 {
    std::size_t count;  ///< of values written, the first ones
    T largest;          ///< of these; 0 if there are none
};

/// What register R of each round needs to be unpacked. `Wide`: a value can reach into one byte more than a T
/// has.
template <class T, bool Wide, std::size_t R>
struct unpacker_avx2 {
    using lanes_of = bits_avx2<T>;

    __m256i source;
    __m256i next_source;  ///< of the byte behind a lane, for the lane's byte 0; the others become zero
    __m256i right;
    __m256i left;
    __m256i mask;
    std::size_t low;  ///< where its windows start
    std::size_t high;

    TENSAFE_AVX2 TENSAFE_INLINE unpacker_avx2(const bit_layout_avx2<T>& layout,
                                              const typename bit_layout_avx2<T>::bytes& table,
                                              int bits) noexcept
        : source(load_avx2(table.data() + 32 * R)),
          next_source(
              _mm256_add_epi8(source, lanes_of::spread(std::uint64_t{0x8080808080808000} + sizeof(T)))),
          right(load_shifts_avx2<T>(layout, R)),
          left(lanes_of::subtract(lanes_of::spread(std::numeric_limits<T>::digits), right)),
          mask(lanes_of::spread(~std::uint64_t{0} >> (64 - bits))),
          low(window_start_avx2<T>(layout, 2 * R)),
          high(window_start_avx2<T>(layout, 2 * R + 1)) {}

    TENSAFE_AVX2 TENSAFE_INLINE void unpack(const std::uint8_t* from, T* to,
                                            __m256i& largest) const noexcept {
        const __m256i packed = load_halves_avx2(from + low, from + high);
        __m256i x = lanes_of::shift_right(_mm256_shuffle_epi8(packed, source), right);
        if constexpr (Wide) {
            x = _mm256_or_si256(x, lanes_of::shift_left(_mm256_shuffle_epi8(packed, next_source), left));
        }
        x = _mm256_and_si256(x, mask);
        largest = lanes_of::larger(largest, x);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
    }
};

template <class T, bool Wide>
TENSAFE_AVX2 TENSAFE_INLINE unpacked_avx2<T> unpack_rounds_avx2(std::span<const std::uint8_t> in, int bits,
                                                                std::span<T> values) noexcept {
    constexpr std::size_t last = registers_avx2<T> - 1;
    const bit_layout_avx2<T> layout(bits);
    alignas(64) typename bit_layout_avx2<T>::bytes table;
    layout.fill_sources(table);
    const unpacker_avx2<T, Wide, 0> first_register(layout, table, bits);
    const unpacker_avx2<T, Wide, last> last_register(layout, table, bits);
    __m256i largest = _mm256_setzero_si256();
    std::size_t done = 0;
    while (values.size() - done >= 8 && in.size() >= last_register.high + 16) {
        first_register.unpack(in.data(), values.data() + done, largest);
        if constexpr (last != 0) {
            last_register.unpack(in.data(), values.data() + done + 32 / sizeof(T), largest);
        }
        done += 8;
        in = in.subspan(layout.round_bytes());
    }
    alignas(32) std::array<T, 32 / sizeof(T)> of_lanes;
    _mm256_store_si256(reinterpret_cast<__m256i*>(of_lanes.data()), largest);
    return {done, *std::max_element(of_lanes.begin(), of_lanes.end())};
}

/// Unpacks whole rounds, as long as there are 16 bytes left for the last window.
/// @pre  fits_avx2<T>(bits); in.size() == packed_bytes(values.size(), bits)
template <class T>
TENSAFE_AVX2 unpacked_avx2<T> unpack_avx2(std::span<const std::uint8_t> in, int bits,
                                          std::span<T> values) noexcept {
    return bits + 7 > std::numeric_limits<T>::digits ? unpack_rounds_avx2<T, true>(in, bits, values)
                                                     : unpack_rounds_avx2<T, false>(in, bits, values);
}

}  // namespace tensafe::memory::detail

#endif
