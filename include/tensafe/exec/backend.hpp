#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/text.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace tensafe::exec {

/// The instruction sets for which the host's inner loops are written, worst first. All give the same bits.
enum class backend {
    portable,  ///< standard C++; GCC's and clang's 16-byte vectors where they help
    avx2,      ///< x86-64 with AVX2 and FMA: Haswell, Zen and later
    avx512     ///< avx2's needs and AVX-512 F, DQ, BW, VL, IFMA and VBMI: Ice Lake, Zen 4 and later
};

inline constexpr std::array<backend, 3> all_backends{backend::portable, backend::avx2, backend::avx512};

/// The name by which the environment variable TENSAFE_BACKEND knows this back-end.
constexpr std::string_view name(backend b) noexcept {
    return b == backend::portable ? "portable" : b == backend::avx2 ? "avx2" : "avx512";
}

/// Whether this processor and operating system run this back-end.
inline bool is_supported(backend b) noexcept {
#if TENSAFE_X86_64
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    switch (b) {
        case backend::portable:
            return true;
        case backend::avx2:
            return avx2;
        case backend::avx512:
            return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512vbmi");
    }
    return false;
#else
    return b == backend::portable;
#endif
}

namespace detail {

/// The supported back-end of this name; the best one for null and for an empty name; none for any other name.
inline std::optional<backend> backend_named(const char* wanted) noexcept {
    const bool any = wanted == nullptr || *wanted == '\0';
    std::optional<backend> found;
    for (const backend b : all_backends) {
        if (is_supported(b) && (any || name(b) == wanted)) {
            found = b;
        }
    }
    return found;
}

/// The back-end that the process uses, and the one that the environment named when it was first asked for.
struct backend_choice {
    std::optional<backend> from_environment = backend_named(std::getenv("TENSAFE_BACKEND"));
    std::atomic<backend> active = from_environment.value_or(backend::portable);
};

inline backend_choice& chosen_backend() noexcept {
    static backend_choice choice;
    return choice;
}

}  // namespace detail

/// The back-end of the inner loops: the best that this machine runs, unless the environment variable
/// TENSAFE_BACKEND or `use_backend` says otherwise. The environment is read once, at the first call.
/// Thread-safe.
inline backend active_backend() noexcept {
    return detail::chosen_backend().active.load(std::memory_order_relaxed);
}

/// Throws if TENSAFE_BACKEND does not name a back-end that this machine runs. Plans and random seeds call it,
/// so that no key is made and nothing is transformed with a back-end that nobody asked for.
/// @throws parameter_error
inline void check_environment() {
    if (!detail::chosen_backend().from_environment) {
        const char* const value = std::getenv("TENSAFE_BACKEND");
        throw parameter_error("TENSAFE_BACKEND: got " + quote(value == nullptr ? "" : value) +
                              ", expected portable, avx2 or avx512, and one that this machine runs");
    }
}

/// Makes the whole process use this back-end from now on: for tests and measurements.
/// @throws parameter_error if this machine does not run it
inline void use_backend(backend b) {
    if (!is_supported(b)) {
        throw parameter_error("exec::use_backend: this machine does not run " + std::string(name(b)));
    }
    detail::chosen_backend().active.store(b, std::memory_order_relaxed);
}

}  // namespace tensafe::exec
