#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tensafe::lora {

/// Bits that name all values of a matrix as it is stored: their number times the entropy of how often each
/// occurs (order 0). To hold against what requests carry away: reply_budget::channel_bits. Four bits an entry
/// for sixteen values equally often, 8 to 11 for BF16. Too low where distinct values are as many as entries,
/// since none counts for more than log2(entries): F32 gets 16 bits in a 32 x 2048 matrix, and small matrices
/// of any type get little. Too high where each row or group has a scale of its own, or entries are alike.
/// @throws shape_error unless there are rows * columns values
/// Cost: a sort of a copy.  @pre  no NaN, as in all that io reads
inline double entropy_bits(const matrix& m) {
    m.check("entropy_bits");
    std::vector<float> values = m.values;
    std::sort(values.begin(), values.end());
    double bits = 0;
    for (auto first = values.cbegin(); first != values.cend();) {
        const auto last = std::upper_bound(first, values.cend(), *first);
        const auto count = static_cast<double>(last - first);
        bits += count * std::log2(static_cast<double>(values.size()) / count);
        first = last;
    }
    return bits;
}

}  // namespace tensafe::lora
