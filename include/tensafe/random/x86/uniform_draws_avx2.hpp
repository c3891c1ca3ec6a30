#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/random/uniform_draws.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#if TENSAFE_X86_64

namespace tensafe::random::detail {

/// Four draws at once: one load, one shuffle that moves two draws into each 16-byte half, one that spreads
/// their bytes.
template <std::size_t Width>
struct uniform_draws4 {
    using words = std::uint64_t __attribute__((vector_size(32)));
    using masks = std::int64_t __attribute__((vector_size(32)));
    using quads = std::uint32_t __attribute__((vector_size(32)));
    using bytes = std::uint8_t __attribute__((vector_size(32)));

    /// The four bytes in which the third draw starts.
    static constexpr int third = static_cast<int>(2 * Width / 4);

    /// Where byte I of the four words comes from. What the mask clears comes from anywhere in the same half.
    template <std::size_t I>
    static constexpr int source = static_cast<int>(
        I / 16 * 16 + std::min(I / 16 * (2 * Width % 4) + I % 16 / 8 * Width + I % 8, std::size_t{15}));

    /// One by one: nvcc counts a pack as one index.
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

/// uniform_draws_portable from 0 on.
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
    return ((rejected[0] | rejected[1] | rejected[2] | rejected[3]) != 0) |
           uniform_draws_portable<Width>(bytes, mask, q, k, out);
}

}  // namespace tensafe::random::detail

#endif
