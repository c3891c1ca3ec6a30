#pragma once

#include <tensafe/core/macros.hpp>

#include <cstddef>

namespace tensafe::ntt {

enum class direction { forward, inverse };

/// The `bits` lowest bits of i in reverse order.
TENSAFE_HOST_DEVICE constexpr std::size_t bit_reverse(std::size_t i, int bits) noexcept {
    std::size_t reversed = 0;
    for (int b = 0; b < bits; ++b) {
        reversed = reversed << 1 | (i >> b & 1);
    }
    return reversed;
}

}  // namespace tensafe::ntt
