#pragma once

// The few macros that C++20 cannot replace.

#if defined(__cplusplus) && __cplusplus < 202002L
#error "tensafe needs C++20: compile with -std=c++20"
#endif

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "tensafe: NaN checks and exact rounding need IEEE arithmetic; compile without -ffast-math"
#endif

#if defined(__wasm_simd128__) && defined(__clang__) && __clang_major__ < 15
#error \
    "tensafe: clang 14 reads what it spreads over a vector after later stores, which gave wrong ChaCha20 key streams: compile without -msimd128"
#endif

/// Marks a function that runs on the host and, under nvcc, on the device too.
#if defined(__CUDACC__)
#define TENSAFE_HOST_DEVICE __host__ __device__
#else
#define TENSAFE_HOST_DEVICE
#endif

/// Marks a small function of an inner loop, which is inlined whatever the compiler's size estimate says.
#define TENSAFE_INLINE inline __attribute__((always_inline))
/// Marks a small function of a kernel: it runs on the host and on the device, and is always inlined.
#define TENSAFE_HD_INLINE TENSAFE_HOST_DEVICE TENSAFE_INLINE

/// Mark functions whose code the component `compiled` holds: a program that links it (CMake then sets
/// TENSAFE_COMPILED) calls them and compiles none. INLINE marks functions, MEMBER those of templates that
/// compiled.hpp lists, API the declarations of functions whose definitions stand where
/// TENSAFE_COMPILED_BODIES is 1.
#if defined(TENSAFE_COMPILED_LIBRARY)
#define TENSAFE_COMPILED_INLINE inline __attribute__((used))
#define TENSAFE_COMPILED_MEMBER
#define TENSAFE_COMPILED_API TENSAFE_COMPILED_INLINE
#define TENSAFE_COMPILED_BODIES 1
#elif defined(TENSAFE_COMPILED)
#define TENSAFE_COMPILED_INLINE extern inline __attribute__((gnu_inline))
#define TENSAFE_COMPILED_MEMBER __attribute__((noinline))
#define TENSAFE_COMPILED_API
#define TENSAFE_COMPILED_BODIES 0
#else
#define TENSAFE_COMPILED_INLINE inline
#define TENSAFE_COMPILED_MEMBER
#define TENSAFE_COMPILED_API inline
#define TENSAFE_COMPILED_BODIES 1
#endif

/// Whether AddressSanitizer or MemorySanitizer watches memory.
#if defined(__SANITIZE_ADDRESS__)
#define TENSAFE_WATCHED_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define TENSAFE_WATCHED_MEMORY 1
#endif
#endif
#if !defined(TENSAFE_WATCHED_MEMORY)
#define TENSAFE_WATCHED_MEMORY 0
#endif

/// Whether the SIMD back-ends can be compiled: they are functions with target attributes, chosen at run time,
/// so no -m option is needed.
#if defined(__x86_64__)
#define TENSAFE_X86_64 1
#define TENSAFE_AVX2 __attribute__((target("avx2,fma")))
#define TENSAFE_AVX512 \
    __attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,avx512ifma,avx512vbmi")))
#else
#define TENSAFE_X86_64 0
#endif
