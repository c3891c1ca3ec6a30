#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/simd/lanes.hpp>

#include <cstddef>
#include <utility>

// Rearrangements of lanes, from steps that are one instruction on every target.

namespace tensafe::simd {

namespace detail {
template <std::size_t parity, class T, std::size_t W, std::size_t... I>
TENSAFE_INLINE lanes<T, W> unpack(const lanes<T, W>& a, const lanes<T, W>& b,
                                  std::index_sequence<I...>) noexcept {
    return shuffle<(I / 2 * 2 + parity + I % 2 * W)...>(a, b);
}
template <std::size_t parity, std::size_t unit, class T, std::size_t W, std::size_t... I>
TENSAFE_INLINE lanes<T, W> every_other(const lanes<T, W>& a, const lanes<T, W>& b,
                                       std::index_sequence<I...>) noexcept {
    return shuffle<((2 * (I / unit) + parity) * unit + I % unit)...>(a, b);
}
template <std::size_t half, class T, std::size_t W, std::size_t... I>
TENSAFE_INLINE lanes<T, W> zip(const lanes<T, W>& a, const lanes<T, W>& b,
                               std::index_sequence<I...>) noexcept {
    return shuffle<(half * W / 2 + I / 2 + I % 2 * W)...>(a, b);
}
}  // namespace detail

/// Makes a the lanes a0, b0, a2, b2, ... and b the odd lanes, in turn.
template <class T, std::size_t W>
TENSAFE_INLINE void unpack(lanes<T, W>& a, lanes<T, W>& b) noexcept {
    const lanes<T, W> even = detail::unpack<0>(a, b, std::make_index_sequence<W>());
    b = detail::unpack<1>(a, b, std::make_index_sequence<W>());
    a = even;
}
/// Separates the units of `unit` lanes of a followed by b: a becomes the first, third, ..., b the others.
template <std::size_t unit, class T, std::size_t W>
TENSAFE_INLINE void separate_units(lanes<T, W>& a, lanes<T, W>& b) noexcept {
    const lanes<T, W> even = detail::every_other<0, unit>(a, b, std::make_index_sequence<W>());
    b = detail::every_other<1, unit>(a, b, std::make_index_sequence<W>());
    a = even;
}

namespace detail {
template <class T, std::size_t W, std::size_t... I>
TENSAFE_INLINE lanes<T, W> swap_neighbours(const lanes<T, W>& a, std::index_sequence<I...>) noexcept {
    return shuffle<(I ^ 1)...>(a, a);
}
}  // namespace detail
/// The lanes in the order a1, a0, a3, a2, ...
template <class T, std::size_t W>
TENSAFE_INLINE lanes<T, W> swap_neighbours(const lanes<T, W>& a) noexcept {
    return detail::swap_neighbours(a, std::make_index_sequence<W>());
}

/// Mixes lanes: a followed by b becomes a0, b0, a1, b1, ...
template <class T, std::size_t W>
TENSAFE_INLINE void interleave(lanes<T, W>& a, lanes<T, W>& b) noexcept {
    if constexpr (W == 8) {
        const lanes<T, W> low = detail::zip<0>(a, b, std::make_index_sequence<W>());
        b = detail::zip<1>(a, b, std::make_index_sequence<W>());
        a = low;
    } else if constexpr (W > 1) {
        unpack(a, b);
        if constexpr (W == 4) {
            separate_units<2>(a, b);
        }
    }
}
/// Undoes interleave(a, b).
template <class T, std::size_t W>
TENSAFE_INLINE void separate(lanes<T, W>& a, lanes<T, W>& b) noexcept {
    if constexpr (W == 8) {
        separate_units<1>(a, b);
    } else if constexpr (W > 1) {
        if constexpr (W == 4) {
            separate_units<2>(a, b);
        }
        unpack(a, b);
    }
}

namespace detail {
template <class T, std::size_t W, std::size_t... I>
TENSAFE_INLINE void unpack_rows([[maybe_unused]] lanes<T, W>* r, std::index_sequence<I...>) noexcept {
    (simd::unpack(r[2 * I], r[2 * I + 1]), ...);
}
template <std::size_t distance, class T, std::size_t W, std::size_t... I>
TENSAFE_INLINE void separate_rows(lanes<T, W>* r, std::index_sequence<I...>) noexcept {
    (separate_units<2>(r[I / distance * 2 * distance + I % distance],
                       r[I / distance * 2 * distance + I % distance + distance]),
     ...);
}
}  // namespace detail

/// Transposes W rows of W values from r on: W is 1, 2, 4 or 8.
template <class T, std::size_t W>
TENSAFE_INLINE void transpose(lanes<T, W>* r) noexcept {
    using half = std::make_index_sequence<W / 2>;
    detail::unpack_rows(r, half());
    if constexpr (W >= 4) {
        detail::separate_rows<2>(r, half());
    }
    if constexpr (W == 8) {
        detail::separate_rows<4>(r, half());
    }
}

/// The sums a0+a1, b0+b1, a2+a3, b2+b3, ...
template <class T, std::size_t W>
TENSAFE_INLINE lanes<T, W> add_neighbours(const lanes<T, W>& a, const lanes<T, W>& b) noexcept {
    lanes<T, W> x = a;
    lanes<T, W> y = b;
    unpack(x, y);
    return x + y;
}
/// Neighbouring pairs of lanes added to each other, those of a first.
template <class T, std::size_t W>
TENSAFE_INLINE lanes<T, W> add_pairs(const lanes<T, W>& a, const lanes<T, W>& b) noexcept {
    lanes<T, W> x = a;
    lanes<T, W> y = b;
    separate_units<2>(x, y);
    return x + y;
}
/// The sums a0+a1, a2+a3, ..., then those of b.
template <class T, std::size_t W>
TENSAFE_INLINE lanes<T, W> halve(const lanes<T, W>& a, const lanes<T, W>& b) noexcept {
    if constexpr (W == 4) {
        const lanes<T, W> sums = add_neighbours(a, b);
        return shuffle<0, 2, 1, 3>(sums, sums);
    } else {
        lanes<T, W> x = a;
        lanes<T, W> y = b;
        separate(x, y);
        return x + y;
    }
}

namespace detail {
template <class T, std::size_t W, std::size_t... I>
TENSAFE_INLINE T add_lanes(const lanes<T, W>& x, std::index_sequence<I...>) noexcept {
    return (x.v[I] + ...);
}
}  // namespace detail
/// The sum of all lanes.
template <class T, std::size_t W>
TENSAFE_INLINE T add_lanes(const lanes<T, W>& x) noexcept {
    if constexpr (W == 1) {
        return x.v;
    } else {
        return detail::add_lanes(x, std::make_index_sequence<W>());
    }
}

}  // namespace tensafe::simd
