#pragma once

#include <tensafe/core/portable.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tensafe::lora {

/// The bits that it takes to name all values of a matrix as it is stored: their number times the entropy of
/// how often each value occurs (order 0). Four bits an entry for weights of sixteen equally frequent values,
/// 8 to 11 for BF16. To hold against what requests can carry away (reply_budget::channel_bits).
///
/// No entry counts for more than log2(number of entries): F32 weights are mostly distinct values and get that
/// limit, 16 bits in a 32 x 2048 matrix; a small matrix of any type gets less than its type could hold. Both
/// err on the low side. On the high side errs a scale for each row or group, which multiplies the distinct
/// values, and whatever is alike between entries. The result is 0 for an empty matrix; -0 counts as 0.
///
/// @throws shape_error unless there are rows * columns values
/// Cost: a sort of a copy. Thread safety: a pure function.
inline double entropy_bits(const matrix& m) {
    m.check("entropy_bits");
    std::vector<std::uint32_t> words;
    words.reserve(m.values.size());
    for (const float x : m.values) {
        words.push_back(bit_cast<std::uint32_t>(x + 0.0F));  // -0 + 0 is 0
    }
    std::sort(words.begin(), words.end());
    double bits = 0;
    for (auto first = words.cbegin(); first != words.cend();) {
        const auto last = std::upper_bound(first, words.cend(), *first);
        const auto count = static_cast<double>(last - first);
        bits += count * std::log2(static_cast<double>(words.size()) / count);
        first = last;
    }
    return bits;
}

}  // namespace tensafe::lora
