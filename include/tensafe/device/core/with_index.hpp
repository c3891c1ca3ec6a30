#pragma once

#include <tensafe/core/macros.hpp>

namespace tensafe {

/// Calls f.template operator()<I>() for the I in [First, Count) that equals `index`: from a number known at
/// run time, the same for all threads of a block, to one that the compiler knows. Nothing for any other
/// index.
template <int Count, int First = 0, class F>
TENSAFE_HOST_DEVICE TENSAFE_INLINE constexpr void with_index(int index, F&& f) {
    if constexpr (First + 1 == Count) {
        if (index == First) {
            f.template operator()<First>();
        }
    } else if constexpr (First < Count) {
        if (index == First) {
            f.template operator()<First>();
        } else {
            with_index<Count, First + 1>(index, f);
        }
    }
}

}  // namespace tensafe
