#pragma once

#include <cstddef>

namespace tensafe::lora {

/// What was done, to compare with what the cost model says.
struct work_count {
    std::size_t products = 0;    ///< of a plaintext, or a number, with a ciphertext
    std::size_t transforms = 0;  ///< NTTs of N points modulo one prime, either direction

    friend constexpr bool operator==(const work_count&, const work_count&) = default;
};

}  // namespace tensafe::lora
