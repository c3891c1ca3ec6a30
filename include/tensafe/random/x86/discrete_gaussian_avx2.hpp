#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/random/discrete_gaussian_lanes.hpp>

#include <cstddef>
#include <cstdint>

#if TENSAFE_X86_64

namespace tensafe::random::detail {

/// As discrete_gaussian_portable.
TENSAFE_AVX2 inline void discrete_gaussian_avx2(const std::uint64_t* words, std::size_t groups,
                                                std::int64_t* out) noexcept {
    for (std::size_t g = 0; g < groups; ++g) {
        gaussian_lanes<32>::convert(words + g * gaussian_group_words, out + g * gaussian_group);
    }
}

}  // namespace tensafe::random::detail

#endif
