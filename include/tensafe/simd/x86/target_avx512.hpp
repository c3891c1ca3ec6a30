#pragma once

#include <tensafe/simd/lanes.hpp>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::simd {

TENSAFE_AVX512 TENSAFE_INLINE __m512i raw(const lanes<std::uint64_t, 8>& x) noexcept {
    return reinterpret_cast<__m512i>(x.v);
}
TENSAFE_AVX512 TENSAFE_INLINE lanes<std::uint64_t, 8> to_lanes(__m512i x) noexcept {
    return {reinterpret_cast<lanes<std::uint64_t, 8>::native>(x)};
}

/// The target of 64-byte vectors: AVX-512 F, DQ, BW, VL, IFMA and VBMI.
struct avx512 {
    template <class T>
    using vector = lanes<T, width_of<T, 64>>;

    /// Loads a vector into a register: GCC would read an operand of several instructions from memory in each.
    template <class T>
    TENSAFE_AVX512 static vector<T> load(const T* from) noexcept {
        vector<T> x = vector<T>::load(from);
        __asm__("" : "+v"(x.v));
        return x;
    }
    template <class T>
    TENSAFE_AVX512 static vector<T> broadcast(T x) noexcept {
        return {typename vector<T>::native{} + x};
    }
    TENSAFE_AVX512 static vector<double> product(const vector<double>& a, const vector<double>& b) noexcept {
        auto x = a.v * b.v;
        __asm__("" : "+v"(x));
        return {x};
    }
    TENSAFE_AVX512 static vector<std::int64_t> maximum(const vector<std::int64_t>& a,
                                                       const vector<std::int64_t>& b) noexcept {
        return {a.v > b.v ? a.v : b.v};
    }

    TENSAFE_AVX512 static vector<std::uint64_t> load_widened(const std::uint32_t* from) noexcept {
        return to_lanes(
            _mm512_maskz_cvtepu32_epi64(0xff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
    }
    /// Lane t of the result is lane order[t] of x, for an order below 8.
    TENSAFE_AVX512 static vector<std::uint64_t> permute(const vector<std::uint64_t>& x,
                                                        const vector<std::uint64_t>& order) noexcept {
        return to_lanes(_mm512_maskz_permutexvar_epi64(0xff, raw(order), raw(x)));
    }
    /// Loads eight numbers of six bytes; reads 64.
    TENSAFE_AVX512 static vector<std::uint64_t> load_48_bits(const std::uint8_t* from) noexcept {
        constexpr auto byte = [](long long k) { return 0x050403020100 + 0x060606060606 * k; };
        const __m512i sources =
            _mm512_setr_epi64(byte(0), byte(1), byte(2), byte(3), byte(4), byte(5), byte(6), byte(7));
        return to_lanes(_mm512_maskz_permutexvar_epi8(0x3f3f3f3f3f3f3f3f, sources, _mm512_loadu_si512(from)));
    }
    /// Returns x - c where that does not wrap, else x.
    TENSAFE_AVX512 static vector<std::uint64_t> subtract_if_not_below(
        const vector<std::uint64_t>& x, const vector<std::uint64_t>& c) noexcept {
        return to_lanes(_mm512_maskz_min_epu64(0xff, raw(x), _mm512_sub_epi64(raw(x), raw(c))));
    }
    /// Returns x * c modulo 2^64.
    TENSAFE_AVX512 static vector<std::uint64_t> multiply_low(const vector<std::uint64_t>& x,
                                                             std::uint64_t c) noexcept {
        return to_lanes(_mm512_mullo_epi64(raw(x), spread(c)));
    }
    /// The upper word of x * c, up to 2 too small.
    TENSAFE_AVX512 static vector<std::uint64_t> multiply_upper(const vector<std::uint64_t>& x,
                                                               std::uint64_t c) noexcept {
        const __m512i upper = _mm512_maskz_srli_epi64(0xff, raw(x), 32);
        const __m512i upper_lower = _mm512_maskz_mul_epu32(0xff, upper, spread(c & 0xffffffff));
        const __m512i lower_upper = _mm512_maskz_mul_epu32(0xff, raw(x), spread(c >> 32));
        const __m512i upper_upper = _mm512_maskz_mul_epu32(0xff, upper, spread(c >> 32));
        return to_lanes(
            _mm512_add_epi64(upper_upper, _mm512_add_epi64(_mm512_maskz_srli_epi64(0xff, upper_lower, 32),
                                                           _mm512_maskz_srli_epi64(0xff, lower_upper, 32))));
    }
    /// Returns x - centre as doubles, for differences of magnitude below 2^60.
    TENSAFE_AVX512 static vector<double> to_reals(const vector<std::uint64_t>& x,
                                                  std::uint64_t centre) noexcept {
        return {_mm512_maskz_cvtepi64_pd(0xff, _mm512_sub_epi64(raw(x), spread(centre)))};
    }

  private:
    TENSAFE_AVX512 TENSAFE_INLINE static __m512i spread(std::uint64_t x) noexcept {
        return _mm512_set1_epi64(static_cast<long long>(x));
    }

    template <auto f, class = decltype(f)>
    struct entry;
    template <auto f, class R, class... Args>
    struct entry<f, R (*)(Args...) noexcept> {
        // Flattened: g++ 12 clears the upper halves of a vector that a function returns in a class.
        [[gnu::flatten]] TENSAFE_AVX512 static R run(Args... args) noexcept { return f(args...); }
    };

  public:
    /// A function to call from code without target attributes, which runs f for this target.
    template <auto f>
    static constexpr auto kernel = &entry<f>::run;
};

}  // namespace tensafe::simd

#endif
