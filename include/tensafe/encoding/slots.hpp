#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/encoding/coefficients.hpp>
#include <tensafe/encoding/scaling.hpp>
#include <tensafe/encoding/slot_transform.hpp>
#include <tensafe/memory/buffer.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <span>
#include <string>

namespace tensafe::encoding {

namespace detail {

/// Writes the N coefficients of slots, scaled and not rounded yet. Returns whether all are below
/// fixed_time_limit. Missing slots are 0.
/// @param limit  of scaled slots, as encoding_limit
/// @throws as encode_slots
inline bool scaled_coefficients(std::span<const std::complex<double>> slots, double scale, double limit,
                                int log_n, std::span<double> out) {
    const std::size_t degree = std::size_t{1} << log_n;
    if (slots.size() > degree / 2) {
        throw shape_error("encode_slots: got " + std::to_string(slots.size()) +
                          " values, expected at most N/2 = " + std::to_string(degree / 2));
    }
    check_count("encode_slots: got a workspace of ", out.size(), " values, expected N = ", degree);
    check_scale(scale);
    // Squares are compared, since a square root's time may depend on its operand. A power of two keeps that
    // of the limit finite; squares that overflow all the same are infinite, hence refused.
    const double unit = std::ldexp(1, std::min(0, 500 - std::ilogb(limit)));
    const double bound = (limit * unit) * (limit * unit);
    // The standard lets an array of std::complex be read as pairs of reals.
    const double largest =
        scale_pairs(reinterpret_cast<const double*>(slots.data()), slots.size(), scale, unit, out.data());
    if (!(largest < bound)) {  // also for NaN
        refuse_entry(slots.size(), scale, limit, bound, [&](std::size_t i) {
            const double re = slots[i].real() * scale * unit;
            const double im = slots[i].imag() * scale * unit;
            return re * re + im * im;
        });
    }
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(2 * slots.size()), out.end(), 0.0);
    shared_slot_transform(log_n).to_coefficients_in_place(out);
    // A coefficient is a mean of rotated slots, so none is larger than the largest slot; a factor 2 is room
    // for the transform's rounding.
    const double in_fixed_time = fixed_time_limit / 2 * unit;
    return largest < in_fixed_time * in_fixed_time;
}

}  // namespace detail

/// Slot encoding: the polynomial whose value at zeta^(5^j) is slots[j] * scale, rounded to integer
/// coefficients. Missing slots are 0. O(N log N), no allocation. Time does not depend on the values unless
/// some |slot| * scale reaches 2^111.
/// @param workspace N values; holds secrets afterwards, which the caller wipes
/// @throws shape_error if slots.size() > N/2 or workspace.size() != N; parameter_error for a bad scale;
///         encoding_error, naming the entry, for NaN, infinity, or |slot| * scale not below Q/2 (less a
///         relative 2^-44). `out` is unchanged then.
template <class Basis, class Space, class R>
void encode_slots(std::span<const std::complex<double>> slots, double scale,
                  rns::poly<Basis, rns::coefficient_form, Space, R>& out, std::span<double> workspace) {
    const bool in_fixed_time =
        detail::scaled_coefficients(slots, scale, detail::encoding_limit<Basis>(), Basis::log_n, workspace);
    for (std::size_t first = 0; first < Basis::degree; first += detail::values_per_chunk) {
        const std::size_t size = std::min(detail::values_per_chunk, Basis::degree - first);
        detail::round_coefficients<Basis>(workspace.subspan(first, size), first, in_fixed_time, out);
    }
}

/// Encodes like the other encode_slots, with a workspace of its own: one allocation of N values, wiped.
template <class Basis, class Space, class R>
void encode_slots(std::span<const std::complex<double>> slots, double scale,
                  rns::poly<Basis, rns::coefficient_form, Space, R>& out) {
    memory::secret_buffer<double> workspace(Basis::degree, memory::uninitialized);
    encode_slots(slots, scale, out, workspace.span());
}

/// Slot decoding: slots[j] = the polynomial's value at zeta^(5^j), with centred coefficients, over scale.
/// @param workspace N values; holds secrets afterwards, which the caller wipes
/// @throws shape_error if slots.size() != N/2 or workspace.size() != N
template <class Basis, class Space, class R>
void decode_slots(const rns::poly<Basis, rns::coefficient_form, Space, R>& p, double scale,
                  std::span<std::complex<double>> slots, std::span<double> workspace) {
    check_count("decode_slots: got a workspace of ", workspace.size(),
                " values, expected N = ", Basis::degree);
    decode_coefficients(p, scale, workspace);
    shared_slot_transform(Basis::log_n).to_slots(workspace, slots);
}

/// Decodes like the other decode_slots, with a workspace of its own: one allocation of N values, wiped.
template <class Basis, class Space, class R>
void decode_slots(const rns::poly<Basis, rns::coefficient_form, Space, R>& p, double scale,
                  std::span<std::complex<double>> slots) {
    memory::secret_buffer<double> workspace(Basis::degree, memory::uninitialized);
    decode_slots(p, scale, slots, workspace.span());
}

}  // namespace tensafe::encoding
