#pragma once

#include <tensafe/encoding/coefficients.hpp>
#include <tensafe/encoding/slot_transform.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <span>
#include <string>

namespace tensafe::encoding {

/// Slot encoding: the polynomial whose value at zeta^(5^j) is slots[j] * scale, rounded to integer
/// coefficients. Missing slots are zero. O(N log N). Time does not depend on the values unless some
/// (|re| + |im|) * scale reaches 2^111.
/// @throws shape_error if slots.size() > N/2; parameter_error for a bad scale; encoding_error, naming the
///         entry, for NaN, infinity, or |slot| * scale not below Q/2 (less a relative 2^-44). `out` is
///         unchanged then.
template <class Basis, class Space, class R>
void encode_slots(exec::host, std::span<const std::complex<double>> slots, double scale,
                  rns::poly<Basis, rns::coefficient_form, Space, R>& out) {
    constexpr std::size_t count = Basis::degree / 2;
    if (slots.size() > count) {
        throw shape_error("encode_slots: got " + std::to_string(slots.size()) +
                          " values, wanted at most N/2 = " + std::to_string(count));
    }
    // Squares are compared, since a square root's time may depend on its operand. A power of two keeps that
    // of the limit finite; squares that overflow all the same are infinite, hence refused.
    const double limit = detail::encoding_limit<Basis>();
    const double unit = std::ldexp(1, std::min(0, 500 - std::ilogb(limit)));
    detail::check_encodable<Basis>(slots.size(), scale, (limit * unit) * (limit * unit), [&](std::size_t i) {
        const double re = slots[i].real() * scale * unit;
        const double im = slots[i].imag() * scale * unit;
        return re * re + im * im;
    });
    memory::secret_buffer<std::complex<double>> scaled(count);
    double largest = 0;
    for (std::size_t j = 0; j < slots.size(); ++j) {
        scaled[j] = {slots[j].real() * scale, slots[j].imag() * scale};
        largest = std::fmax(largest, std::fabs(scaled[j].real()) + std::fabs(scaled[j].imag()));
    }
    memory::secret_buffer<double> coefficients(Basis::degree);
    shared_slot_transform(Basis::log_n).to_coefficients(scaled.span(), coefficients.span());
    // A coefficient is a mean of rotated slots, so none is larger than the largest slot; the factor 2 is room
    // for the transform's rounding.
    detail::round_coefficients(coefficients.span(), 2 * largest, out);
}

/// slots[j] = the polynomial's value at zeta^(5^j), coefficients centred in (-Q/2, Q/2), divided by scale.
/// @throws shape_error if slots.size() != N/2
template <class Basis, class Space, class R>
void decode_slots(exec::host where, const rns::poly<Basis, rns::coefficient_form, Space, R>& p, double scale,
                  std::span<std::complex<double>> slots) {
    memory::secret_buffer<double> coefficients(Basis::degree);
    decode_coefficients(where, p, scale, coefficients.span());
    shared_slot_transform(Basis::log_n).to_slots(coefficients.span(), slots);
}

}  // namespace tensafe::encoding
