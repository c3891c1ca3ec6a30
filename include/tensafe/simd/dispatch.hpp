#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/simd/lanes.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>
#include <tensafe/simd/x86/target_avx512.hpp>

namespace tensafe::simd {

/// Calls f with the target of the active back-end.
template <class F>
TENSAFE_INLINE decltype(auto) on_active_target(F f) {
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return f(avx512{});
        case exec::backend::avx2:
            return f(avx2{});
        case exec::backend::portable:
            break;
    }
#endif
    return f(portable{});
}

}  // namespace tensafe::simd
