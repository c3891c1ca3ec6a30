#pragma once

#include <tensafe/simd/lanes.hpp>

#if TENSAFE_X86_64

namespace tensafe::simd {

/// 64-byte vectors: AVX-512 F, DQ, BW, VL, IFMA and VBMI.
struct avx512 {
    template <class T>
    using vector = lanes<T, width_of<T, 64>>;

    /// Into a register: what is an operand of several instructions, GCC would read from memory in each.
    template <class T>
    TENSAFE_AVX512 static inline vector<T> load(const T* from) noexcept {
        vector<T> x = vector<T>::load(from);
        __asm__("" : "+v"(x.v));
        return x;
    }
    template <class T>
    TENSAFE_AVX512 static inline vector<T> broadcast(T x) noexcept {
        return {typename vector<T>::native{} + x};
    }
    TENSAFE_AVX512 static inline vector<double> product(const vector<double>& a,
                                                        const vector<double>& b) noexcept {
        auto x = a.v * b.v;
        __asm__("" : "+v"(x));
        return {x};
    }
    TENSAFE_AVX512 static inline vector<std::int64_t> maximum(const vector<std::int64_t>& a,
                                                              const vector<std::int64_t>& b) noexcept {
        return {a.v > b.v ? a.v : b.v};
    }

  private:
    template <auto f, class = decltype(f)>
    struct entry;
    template <auto f, class R, class... Args>
    struct entry<f, R (*)(Args...) noexcept> {
        TENSAFE_AVX512 static R run(Args... args) noexcept { return f(args...); }
    };

  public:
    /// f for this target: a function to call from code without target attributes.
    template <auto f>
    static constexpr auto kernel = &entry<f>::run;
};

}  // namespace tensafe::simd

#endif
