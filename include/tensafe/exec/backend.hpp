#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

namespace tensafe::exec {

/// The instruction sets for which the host's inner loops are written, worst first. All give the same results,
/// bit for bit.
enum class backend {
    portable,  ///< standard C++; GCC's and clang's 16-byte vectors where they help
    avx2,      ///< x86-64 with AVX2 and FMA: Haswell, Zen and later
    avx512     ///< and with AVX-512 F, DQ, BW, VL, IFMA and VBMI: Ice Lake, Zen 4 and later
};

inline constexpr std::array<backend, 3> all_backends{backend::portable, backend::avx2, backend::avx512};

/// The name that TENSAFE_BACKEND takes.
constexpr std::string_view name(backend b) noexcept {
    return b == backend::portable ? "portable" : b == backend::avx2 ? "avx2" : "avx512";
}

/// Whether this processor and operating system run it.
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

/// The best that is supported, or the one that the environment names.
/// @throws parameter_error if it names none, or one that is not supported
inline backend backend_at_start() {
    backend best = backend::portable;
    const char* const wanted = std::getenv("TENSAFE_BACKEND");
    bool found = wanted == nullptr || *wanted == '\0';
    const bool forced = !found;
    for (const backend b : all_backends) {
        if (is_supported(b) && (!forced || name(b) == wanted)) {
            best = b;
            found = true;
        }
    }
    if (!found) {
        throw parameter_error("TENSAFE_BACKEND: got '" + std::string(wanted) +
                              "', wanted portable, avx2 or avx512, and one that this machine runs");
    }
    return best;
}

inline std::atomic<backend>& chosen_backend() {
    static std::atomic<backend> chosen{backend_at_start()};
    return chosen;
}

}  // namespace detail

/// What the inner loops use: the best that this machine runs, unless the environment variable TENSAFE_BACKEND
/// or `use_backend` says otherwise. Thread-safe.
/// @throws parameter_error on first use, if TENSAFE_BACKEND holds anything but a name of a supported back-end
inline backend active_backend() {
    return detail::chosen_backend().load(std::memory_order_relaxed);
}

/// Makes the whole process use this back-end from now on: for tests and measurements. Operations under way in
/// other threads may use either.
/// @throws parameter_error if this machine does not run it
inline void use_backend(backend b) {
    if (!is_supported(b)) {
        throw parameter_error("exec::use_backend: this machine does not run " + std::string(name(b)));
    }
    detail::chosen_backend().store(b, std::memory_order_relaxed);
}

}  // namespace tensafe::exec
