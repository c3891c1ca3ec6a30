#pragma once

#include <tensafe/simd/lanes.hpp>

#if TENSAFE_X86_64

#include <immintrin.h>

namespace tensafe::simd {

TENSAFE_AVX2 TENSAFE_INLINE __m256i raw(const lanes<std::uint64_t, 4>& x) noexcept {
    return reinterpret_cast<__m256i>(x.v);
}
TENSAFE_AVX2 TENSAFE_INLINE lanes<std::uint64_t, 4> to_lanes(__m256i x) noexcept {
    return {reinterpret_cast<lanes<std::uint64_t, 4>::native>(x)};
}

/// The target of 32-byte vectors, with FMA.
struct avx2 {
    template <class T>
    using vector = lanes<T, width_of<T, 32>>;

    /// Loads a vector into a register: GCC would read an operand of several instructions from memory in each.
    template <class T>
    TENSAFE_AVX2 static vector<T> load(const T* from) noexcept {
        vector<T> x = vector<T>::load(from);
        __asm__("" : "+x"(x.v));
        return x;
    }
    template <class T>
    TENSAFE_AVX2 static vector<T> broadcast(T x) noexcept {
        return {typename vector<T>::native{} + x};
    }
    TENSAFE_AVX2 static vector<double> product(const vector<double>& a, const vector<double>& b) noexcept {
        auto x = a.v * b.v;
        __asm__("" : "+x"(x));
        return {x};
    }
    TENSAFE_AVX2 static vector<std::int64_t> maximum(const vector<std::int64_t>& a,
                                                     const vector<std::int64_t>& b) noexcept {
        return {a.v > b.v ? a.v : b.v};
    }

    TENSAFE_AVX2 static vector<std::uint64_t> load_widened(const std::uint32_t* from) noexcept {
        return to_lanes(_mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
    }
    /// Loads four numbers of six bytes; reads 32.
    TENSAFE_AVX2 static vector<std::uint64_t> load_48_bits(const std::uint8_t* from) noexcept {
        // Two in each half, then in each word.
        const __m256i pairs =
            _mm256_permutevar8x32_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
                                        _mm256_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0));
        return to_lanes(
            _mm256_shuffle_epi8(pairs, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, -1, -1, 6,
                                                                                 7, 8, 9, 10, 11, -1, -1))));
    }
    /// Returns x - c where that is not negative, else x, for both below 2^63.
    TENSAFE_AVX2 static vector<std::uint64_t> subtract_if_not_below(const vector<std::uint64_t>& x,
                                                                    const vector<std::uint64_t>& c) noexcept {
        const __m256d difference = _mm256_castsi256_pd(_mm256_sub_epi64(raw(x), raw(c)));
        // By the sign of the difference.
        return to_lanes(
            _mm256_castpd_si256(_mm256_blendv_pd(difference, _mm256_castsi256_pd(raw(x)), difference)));
    }
    /// Returns x * c modulo 2^64.
    TENSAFE_AVX2 static vector<std::uint64_t> multiply_low(const vector<std::uint64_t>& x,
                                                           std::uint64_t c) noexcept {
        const __m256i low = spread(c & 0xffffffff);
        const __m256i middle = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(raw(x), 32), low),
                                                _mm256_mul_epu32(raw(x), spread(c >> 32)));
        return to_lanes(_mm256_add_epi64(_mm256_mul_epu32(raw(x), low), _mm256_slli_epi64(middle, 32)));
    }
    /// The upper word of x * c, up to 2 too small.
    TENSAFE_AVX2 static vector<std::uint64_t> multiply_upper(const vector<std::uint64_t>& x,
                                                             std::uint64_t c) noexcept {
        const __m256i upper = _mm256_srli_epi64(raw(x), 32);
        const __m256i upper_lower = _mm256_mul_epu32(upper, spread(c & 0xffffffff));
        const __m256i lower_upper = _mm256_mul_epu32(raw(x), spread(c >> 32));
        const __m256i upper_upper = _mm256_mul_epu32(upper, spread(c >> 32));
        return to_lanes(_mm256_add_epi64(upper_upper, _mm256_add_epi64(_mm256_srli_epi64(upper_lower, 32),
                                                                       _mm256_srli_epi64(lower_upper, 32))));
    }
    /// Returns x - centre as doubles, for differences of magnitude below 2^60. Shifted to positive numbers,
    /// their upper and lower halves are put into mantissas; taking off what is too much is exact, and the sum
    /// rounds once.
    TENSAFE_AVX2 static vector<double> to_reals(const vector<std::uint64_t>& x,
                                                std::uint64_t centre) noexcept {
        const __m256i shifted = _mm256_add_epi64(raw(x), spread((std::uint64_t{1} << 62) - centre));
        const __m256i unit = _mm256_castpd_si256(_mm256_set1_pd(0x1p52));
        const __m256i upper_unit = _mm256_castpd_si256(_mm256_set1_pd(0x1p84));
        const __m256i lower = _mm256_blend_epi32(shifted, unit, 0xaa);  // 2^52 + the lower half
        const __m256i upper = _mm256_or_si256(_mm256_srli_epi64(shifted, 32), upper_unit);
        const __m256d excess = _mm256_set1_pd(0x1p84 + 0x1p62 + 0x1p52);
        return {_mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(upper), excess), _mm256_castsi256_pd(lower))};
    }

  private:
    TENSAFE_AVX2 TENSAFE_INLINE static __m256i spread(std::uint64_t x) noexcept {
        return _mm256_set1_epi64x(static_cast<long long>(x));
    }

    template <auto f, class = decltype(f)>
    struct entry;
    template <auto f, class R, class... Args>
    struct entry<f, R (*)(Args...) noexcept> {
        // Flattened: g++ 12 clears the upper halves of a vector that a function returns in a class.
        [[gnu::flatten]] TENSAFE_AVX2 static R run(Args... args) noexcept { return f(args...); }
    };

  public:
    /// A function to call from code without target attributes, which runs f for this target.
    template <auto f>
    static constexpr auto kernel = &entry<f>::run;
};

}  // namespace tensafe::simd

#endif
