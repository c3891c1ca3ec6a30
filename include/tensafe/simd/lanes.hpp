#pragma once

#include <tensafe/core/macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// One body for every instruction set: a template over the target that works on `lanes`, in always-inlined
/// functions without a target attribute. `Target::kernel<f>` is the function that has the attribute and into
/// which f is inlined; a driver calls it for the target that runs (dispatch.hpp).
///
/// A body uses the operators below and named operations of its target, which carry the attribute and are
/// inlined once the body is (hence they are not always_inline). Named operations, because GCC scalarises what
/// is compiled for vectors that the function's own target lacks: comparisons, selections and splats. Vectors
/// are passed by reference: by value they would have no calling convention in the body.
namespace tensafe::simd {

namespace detail {
template <class T, std::size_t W>
struct native_vector {
    typedef T type __attribute__((vector_size(W * sizeof(T))));  // GCC takes no alias of a dependent type
};
template <class T>
struct native_vector<T, 1> {
    using type = T;
};
}  // namespace detail

/// W values that are worked on together; a power of two.
template <class T, std::size_t W>
struct lanes {
    static constexpr std::size_t width = W;
    using native = typename detail::native_vector<T, W>::type;
    native v;

    static TENSAFE_INLINE lanes load(const T* from) noexcept {
        lanes x;
        std::memcpy(&x.v, from, sizeof x.v);
        return x;
    }
    TENSAFE_INLINE void store(T* to) const noexcept { std::memcpy(to, &v, sizeof v); }

    friend TENSAFE_INLINE lanes operator+(const lanes& a, const lanes& b) noexcept { return {a.v + b.v}; }
    friend TENSAFE_INLINE lanes operator-(const lanes& a, const lanes& b) noexcept { return {a.v - b.v}; }
    friend TENSAFE_INLINE lanes operator*(const lanes& a, const lanes& b) noexcept { return {a.v * b.v}; }
    friend TENSAFE_INLINE lanes operator/(const lanes& a, const lanes& b) noexcept { return {a.v / b.v}; }
    friend TENSAFE_INLINE lanes operator&(const lanes& a, const lanes& b) noexcept { return {a.v & b.v}; }
    friend TENSAFE_INLINE lanes operator|(const lanes& a, const lanes& b) noexcept { return {a.v | b.v}; }
};

/// The bits of x as lanes of another type.
template <class To, class From, std::size_t W>
TENSAFE_INLINE auto bit_cast(const lanes<From, W>& x) noexcept {
    using result = lanes<To, W * sizeof(From) / sizeof(To)>;
    return result{__builtin_bit_cast(typename result::native, x.v)};
}

/// Lane i of the result is number i of the lanes of a, then of b. (nvcc expands no pack in the builtin.)
template <int i0, int i1, class T>
TENSAFE_INLINE lanes<T, 2> shuffle(const lanes<T, 2>& a, const lanes<T, 2>& b) noexcept {
    return {__builtin_shufflevector(a.v, b.v, i0, i1)};
}
template <int i0, int i1, int i2, int i3, class T>
TENSAFE_INLINE lanes<T, 4> shuffle(const lanes<T, 4>& a, const lanes<T, 4>& b) noexcept {
    return {__builtin_shufflevector(a.v, b.v, i0, i1, i2, i3)};
}
template <int i0, int i1, int i2, int i3, int i4, int i5, int i6, int i7, class T>
TENSAFE_INLINE lanes<T, 8> shuffle(const lanes<T, 8>& a, const lanes<T, 8>& b) noexcept {
    return {__builtin_shufflevector(a.v, b.v, i0, i1, i2, i3, i4, i5, i6, i7)};
}
template <int i0, int i1, int i2, int i3, int i4, int i5, int i6, int i7, int i8, int i9, int i10, int i11,
          int i12, int i13, int i14, int i15, class T>
TENSAFE_INLINE lanes<T, 16> shuffle(const lanes<T, 16>& a, const lanes<T, 16>& b) noexcept {
    return {__builtin_shufflevector(a.v, b.v, i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14,
                                    i15)};
}

/// The number of T that a vector of so many bytes holds, at least one.
template <class T, std::size_t Bytes>
inline constexpr std::size_t width_of = Bytes < sizeof(T) ? 1 : Bytes / sizeof(T);

/// The operations of a target without a branch and without vectors; other targets replace what they do
/// better.
template <std::size_t Bytes>
struct generic_target {
    template <class T>
    using vector = lanes<T, width_of<T, Bytes>>;

    template <class T>
    static TENSAFE_INLINE vector<T> load(const T* from) noexcept {
        return vector<T>::load(from);
    }
    template <class T>
    static TENSAFE_INLINE vector<T> broadcast(T x) noexcept {
        return {typename vector<T>::native{} + x};
    }
    /// Loads a number of six bytes; reads eight.
    static TENSAFE_INLINE lanes<std::uint64_t, 1> load_48_bits(const std::uint8_t* from) noexcept {
        std::uint64_t x = 0;
        std::memcpy(&x, from, sizeof x);
        return {x & 0xffffffffffff};
    }
    /// Returns a * b, which no compiler fuses with an addition that follows: every target rounds twice.
    static TENSAFE_INLINE vector<double> product(const vector<double>& a, const vector<double>& b) noexcept {
        auto x = a.v * b.v;
#if TENSAFE_X86_64
        __asm__("" : "+x"(x));
#elif defined(__aarch64__)
        __asm__("" : "+w"(x));
#endif
        return {x};
    }
    /// The larger of a and b in each lane, for numbers that are not negative.
    static TENSAFE_INLINE vector<std::int64_t> maximum(const vector<std::int64_t>& a,
                                                       const vector<std::int64_t>& b) noexcept {
        const auto difference = b.v - a.v;
        if constexpr (Bytes == 16) {
            // SSE2 shifts and compares words of 32 bits only.
            const auto signs = bit_cast<std::int32_t>(vector<std::int64_t>{difference}).v >> 31;
            const auto negative = bit_cast<std::int64_t>(
                lanes<std::int32_t, 4>{__builtin_shufflevector(signs, signs, 1, 1, 3, 3)});
            return {a.v + (difference & ~negative.v)};
        } else {
            return {a.v + (difference & ~(difference >> 63))};
        }
    }

  private:
    template <auto f, class = decltype(f)>
    struct entry;
    template <auto f, class R, class... Args>
    struct entry<f, R (*)(Args...) noexcept> {
        static R run(Args... args) noexcept { return f(args...); }
    };

  public:
    /// A function to call from code without target attributes, which runs f for this target.
    template <auto f>
    static constexpr auto kernel = &entry<f>::run;
};

/// The target of one value at a time, for what is left behind the last whole vector.
using scalar = generic_target<1>;
/// The target of 16-byte vectors, which every 64-bit processor has.
using portable = generic_target<16>;

}  // namespace tensafe::simd
