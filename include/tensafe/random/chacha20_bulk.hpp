#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/random/chacha20_lanes.hpp>
#include <tensafe/random/x86/chacha20_avx2.hpp>
#include <tensafe/random/x86/chacha20_avx512.hpp>

#include <cstddef>
#include <cstdint>

namespace tensafe::random {

/// `count` blocks of 64 bytes from number `first` on; every back-end gives the same bytes. Constant time: the
/// time depends on `count` alone.
/// @pre  first + count <= 2^32; out holds 64 * count bytes
TENSAFE_COMPILED_INLINE void chacha20_bulk(const chacha20_state& state, std::uint32_t first,
                                           std::uint8_t* out, std::size_t count) noexcept {
#if TENSAFE_X86_64
    switch (exec::active_backend()) {
        case exec::backend::avx512:
            return detail::chacha20_keystream_avx512(state, first, out, count);
        case exec::backend::avx2:
            return detail::chacha20_keystream_avx2(state, first, out, count);
        case exec::backend::portable:
            break;
    }
#endif
    detail::chacha20_keystream_portable(state, first, out, count);
}

}  // namespace tensafe::random
