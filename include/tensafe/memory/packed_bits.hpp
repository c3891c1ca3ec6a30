#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/x86/packed_bits_avx2.hpp>
#include <tensafe/memory/x86/packed_bits_avx512.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>

namespace tensafe::memory {

static_assert(std::endian::native == std::endian::little,
              "memory: the formats are little endian and no byte-swapping path has been written");

/// Bytes of `count` values of `bits` bits each, packed without gaps: ceil(count * bits / 8).
/// @pre  bits in [0, 64], count <= 2^60: nothing wraps
constexpr std::size_t packed_bytes(std::size_t count, int bits) noexcept {
    const auto width = static_cast<std::size_t>(bits);
    return count / 8 * width + (count % 8 * width + 7) / 8;
}

namespace detail {

template <class T>
void check_packing(const char* who, std::size_t count, int bits, std::size_t bytes) {
    constexpr int widest = std::numeric_limits<T>::digits;
    if (bits < 1 || bits > widest) {
        throw parameter_error(std::string(who) + ": bits: got " + std::to_string(bits) + ", expected 1 to " +
                              std::to_string(widest));
    }
    if (bytes != packed_bytes(count, bits)) {
        throw shape_error(std::string(who) + ": got " + std::to_string(bytes) + " bytes, expected " +
                          std::to_string(packed_bytes(count, bits)) + " for " + std::to_string(count) +
                          " values of " + std::to_string(bits) + " bits");
    }
}

/// Portable body of pack_bits.  @pre  out.size() == packed_bytes(values.size(), bits)
template <class T>
void pack_portable(std::span<const T> values, int bits, std::span<std::uint8_t> out) noexcept {
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits);
    std::uint8_t* to = out.data();
    std::uint64_t word = 0;  // what is not yet written,
    int used = 0;            // its number of bits: below 64
    for (const T value : values) {
        const std::uint64_t cut = value & mask;
        word |= cut << used;
        if (used + bits >= 64) {
            std::memcpy(to, &word, sizeof word);
            to += sizeof word;
            word = cut >> 1 >> (63 - used);  // in two steps: the shift is by 64 if used is 0
            used -= 64;
        }
        used += bits;
    }
    if (used != 0) {
        std::memcpy(to, &word, static_cast<std::size_t>(used + 7) / 8);
    }
}

/// Portable body of unpack_bits. Returns the largest value, 0 if there is none.
/// @pre  in.size() == packed_bytes(values.size(), bits)
template <class T>
T unpack_portable(std::span<const std::uint8_t> in, int bits, std::span<T> values) noexcept {
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits);
    std::uint64_t word = 0;  // what is read and not yet given out,
    int left = 0;            // its number of bits: below 64
    std::size_t at = 0;
    T largest = 0;
    for (T& value : values) {
        std::uint64_t joined = word;
        if (left < bits) {
            std::uint64_t next = 0;
            if (in.size() - at >= sizeof next) {
                std::memcpy(&next, in.data() + at, sizeof next);
                at += sizeof next;
            } else {
                std::memcpy(&next, in.data() + at, in.size() - at);  // for the last time
            }
            joined |= next << left;
            word = next >> (bits - left - 1) >> 1;  // in two steps: the shift can be by 64
            left += 64 - bits;
        } else {
            word >>= bits;
            left -= bits;
        }
        value = static_cast<T>(joined & mask);
        largest = std::max(largest, value);
    }
    return largest;
}

/// The least count for AVX-512: with fewer values the tables of the vectors cost more than they save.
inline constexpr std::size_t least_count_avx512 = 32;
inline constexpr std::size_t least_count_avx2 = 128;

template <class T>
void pack(std::span<const T> values, int bits, std::span<std::uint8_t> out) {
    check_packing<T>("pack_bits", values.size(), bits, out.size());
    std::size_t done = 0;
#if TENSAFE_X86_64
    const exec::backend backend = exec::active_backend();
    if (backend == exec::backend::avx512 && bits >= 8 && values.size() >= least_count_avx512) {
        done = pack_avx512(values, bits, out);
    }
    if (backend == exec::backend::avx2 && bits >= 8 && bits < 64 && values.size() >= least_count_avx2) {
        done = pack_avx2(values, bits, out);
    }
#endif
    pack_portable(values.subspan(done), bits, out.subspan(packed_bytes(done, bits)));
}

/// Unpacks with the active back-end and returns the largest value, 0 if there is none.
template <class T>
T unpack(std::span<const std::uint8_t> in, int bits, std::span<T> values) {
    check_packing<T>("unpack_bits", values.size(), bits, in.size());
    const std::size_t last_bits = values.size() % 8 * static_cast<std::size_t>(bits) % 8;
    if (last_bits != 0 && in.back() >> last_bits != 0) {
        throw format_error("unpack_bits: the unused bits of the last byte are not zero");
    }
    std::size_t done = 0;
    T largest = 0;
#if TENSAFE_X86_64
    const exec::backend backend = exec::active_backend();
    unpacked<T> first{};
    if (backend == exec::backend::avx512 && values.size() >= least_count_avx512) {
        first = bits + 7 <= std::numeric_limits<T>::digits ? unpack_avx512<false>(in, bits, values)
                                                           : unpack_avx512<true>(in, bits, values);
    } else if (backend == exec::backend::avx2 && bits < 64 && values.size() >= least_count_avx2) {
        first = bits <= 57 ? unpack_avx2<8>(in, bits, values) : unpack_avx2<9>(in, bits, values);
    }
    done = first.count;
    largest = first.largest;
#endif
    return std::max(largest,
                    unpack_portable(in.subspan(packed_bytes(done, bits)), bits, values.subspan(done)));
}

}  // namespace detail

/// Writes the lowest `bits` bits of each value one after the other: value k is bits [k * bits, (k+1) * bits)
/// of `out`, bit j being bit j % 8 of byte j / 8, the lowest first. Unused bits of the last byte are 0.
/// Higher bits of a value are ignored. No branch or index depends on a value. Thread-safe.
/// @throws parameter_error unless bits is in [1, 32], or [1, 64] for 64-bit values
/// @throws shape_error unless out.size() == packed_bytes(values.size(), bits)
TENSAFE_COMPILED_INLINE void pack_bits(std::span<const std::uint32_t> values, int bits,
                                       std::span<std::uint8_t> out) {
    detail::pack(values, bits, out);
}
TENSAFE_COMPILED_INLINE void pack_bits(std::span<const std::uint64_t> values, int bits,
                                       std::span<std::uint8_t> out) {
    detail::pack(values, bits, out);
}

/// Reads the values that pack_bits wrote, each below 2^bits. Every byte string is the packing of exactly one
/// list of values or is refused. Nothing is written on an error. Thread-safe.
/// @throws parameter_error unless bits is in [1, 32], or [1, 64] for 64-bit values
/// @throws shape_error unless in.size() == packed_bytes(values.size(), bits)
/// @throws format_error if an unused bit of the last byte is not 0
TENSAFE_COMPILED_INLINE void unpack_bits(std::span<const std::uint8_t> in, int bits,
                                         std::span<std::uint32_t> values) {
    detail::unpack(in, bits, values);
}
TENSAFE_COMPILED_INLINE void unpack_bits(std::span<const std::uint8_t> in, int bits,
                                         std::span<std::uint64_t> values) {
    detail::unpack(in, bits, values);
}

/// Unpacks like unpack_bits and returns whether all values are below q, for residues from outside. All values
/// are written in either case.
[[nodiscard]] inline bool unpack_bits_below(std::span<const std::uint8_t> in, int bits, std::uint64_t q,
                                            std::span<std::uint64_t> values) {
    const std::uint64_t largest = detail::unpack(in, bits, values);
    return values.empty() || largest < q;
}

}  // namespace tensafe::memory
